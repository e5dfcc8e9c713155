"""What every part of the reproduction reports: statements with the bound expected and the figure seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.plotting import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Check:
    """One statement, what was expected, what was seen, and whether it holds."""

    part: str
    statement: str
    expected: str
    seen: str
    passed: bool


@dataclass
class Findings:
    """What a part found.

    Attributes:
        figures: by file name without ending.
        numbers: everything measured, as JSON values.
    """

    checks: list[Check] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)

    def check(self, part: str, statement: str, expected: str, seen: str, passed: bool) -> None:
        self.checks.append(Check(part, statement, expected, seen, bool(passed)))

    def at_least(self, part: str, statement: str, bound: float, seen: float) -> None:
        self.check(part, statement, f">= {bound:g}", f"{seen:.3f}", seen >= bound)

    def at_most(self, part: str, statement: str, bound: float, seen: float) -> None:
        self.check(part, statement, f"<= {bound:g}", f"{seen:.3f}", seen <= bound)

    def save_figures(self, out: Path) -> None:
        for name, figure in self.figures.items():
            save_figure(figure, out / f"{name}.png", dpi=110)

    def __str__(self) -> str:
        rows = [
            f"{'PASS' if c.passed else 'FAIL'}  {c.part}  {c.statement:<68} expected {c.expected:<12} measured {c.seen}"
            for c in self.checks
        ]
        return "\n".join(rows)
