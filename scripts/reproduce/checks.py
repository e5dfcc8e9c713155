"""What the reproductions share: statements with the figure expected and the one measured, files, the command line."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.files import write_json
from interp.core.plotting import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Check:
    """One statement, what was expected, what was measured, and whether it holds."""

    part: str
    statement: str
    expected: str
    measured: str
    passed: bool


def table(checks: Sequence[Check]) -> str:
    """A line per check, PASS or FAIL first."""
    wide = max((len(c.statement) for c in checks), default=0)
    return "\n".join(
        f"{'PASS' if c.passed else 'FAIL'}  {c.part}  {c.statement:<{wide}}  "
        f"expected {c.expected}, measured {c.measured}"
        for c in checks
    )


@dataclass
class Findings:
    """What a reproduction, or a part of one, found.

    Attributes:
        out: the folder of results, where a part may keep what it would take long to compute again.
        remarks: without a verdict.
        figures: by file name without ending.
        numbers: everything measured, as JSON values.
    """

    out: Path = Path()
    quick: bool = False
    checks: list[Check] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)

    def check(self, part: str, statement: str, expected: str, measured: str, passed: bool) -> None:
        self.checks.append(Check(part, statement, expected, measured, bool(passed)))

    def at_least(self, part: str, statement: str, bound: float, measured: float) -> None:
        self.check(part, statement, f">= {bound:g}", f"{measured:.3f}", measured >= bound)

    def at_most(self, part: str, statement: str, bound: float, measured: float) -> None:
        self.check(part, statement, f"<= {bound:g}", f"{measured:.3f}", measured <= bound)

    def table(self) -> str:
        return "\n".join([table(self.checks), *(f"      {remark}" for remark in self.remarks)])

    def save_figures(self, out: Path) -> None:
        for name, figure in self.figures.items():
            save_figure(figure, out / f"{name}.png", dpi=110)


def mse(estimate: Any, exact: Any) -> float:
    return float(((np.asarray(estimate) - np.asarray(exact)) ** 2).mean())


def run(
    description: str,
    parts: Mapping[str, Callable[[Findings], None]],
    default_out: str,
    argv: list[str] | None,
) -> int:
    """The command: run the parts, print the table, write results.json and the figures; 1 when a check fails."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--which", nargs="+", choices=list(parts), default=list(parts), help="parts to run (all)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer seeds and smaller sizes")
    parser.add_argument(
        "--out", type=Path, default=Path(default_out), help=f"folder of results ({default_out})"
    )
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    findings, seconds = Findings(args.out, args.quick), {}
    for name in args.which:
        print(f"{name} ...", flush=True)
        start = time.process_time()
        parts[name](findings)
        seconds[name] = round(time.process_time() - start, 1)
    print(findings.table())
    content = {
        "quick": args.quick,
        "checks": [asdict(check) for check in findings.checks],
        "remarks": findings.remarks,
        "numbers": findings.numbers,
        "cpu_seconds": seconds,
    }
    write_json(args.out / "results.json", content)
    findings.save_figures(args.out)
    passed = sum(check.passed for check in findings.checks)
    print(f"\n{passed} of {len(findings.checks)} checks passed; see {args.out}")
    return 0 if passed == len(findings.checks) else 1
