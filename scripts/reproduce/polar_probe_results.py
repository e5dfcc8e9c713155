"""What the parts of the Polar Probe's reproduction report, and where it goes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from checks import Check

from interp.core.files import write_json
from interp.core.history import without_nan
from interp.probes.evaluate import ProbeReport


@dataclass
class Results:
    """Everything that was measured; written after every part, so that a later part can fail alone."""

    out: Path
    checks: list[Check] = field(default_factory=list)
    tables: dict[str, Any] = field(default_factory=dict)

    def check(self, experiment: str, statement: str, expected: str, measured: str, passed: bool) -> None:
        self.checks.append(Check(experiment, statement, expected, measured, bool(passed)))
        print(
            f"[{'PASS' if passed else 'FAIL'}] {experiment}  {statement}: expected {expected}, measured {measured}"
        )

    def report(self, name: str, report: ProbeReport) -> None:
        print(f"\n{name}: {report}\n")
        self.tables[name] = {
            "treebank": report.treebank,
            "rows": [without_nan(asdict(row)) for row in report.rows],
        }

    def save(self) -> None:
        checks = [asdict(check) for check in self.checks]
        write_json(self.out / "results.json", {"checks": checks, "tables": self.tables})


def row_of(report: ProbeReport, layer: int, weight: float) -> Any:
    return next(row for row in report.rows if (row.layer, row.angular) == (layer, weight))
