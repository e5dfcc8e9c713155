"""The record of a run: one row of numbers per logged step."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.files import atomic_write

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FILE = "metrics.jsonl"


@dataclass
class History:
    """Rows of a run in order of their steps; every row has `step`."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def column(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of one metric, where it was logged."""
        rows = [row for row in self.rows if row.get(name) is not None]
        return [row["step"] for row in rows], [row[name] for row in rows]

    @property
    def last(self) -> dict[str, Any]:
        """The latest value of every metric."""
        merged: dict[str, Any] = {}
        for row in self.rows:
            merged.update(row)
        return merged

    def to_frame(self) -> pd.DataFrame:
        """One row per logged step."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def plot(self, metrics: Sequence[str] | None = None) -> Figure:
        """A panel per metric against the step."""
        from interp.core.plotting import new_figure

        names = list(metrics or [k for k in self.last if k not in ("step", "seconds", "samples")])
        figure, axes = new_figure(1, max(1, len(names)))
        for ax, name in zip([axes] if len(names) < 2 else axes, names, strict=False):
            ax.plot(*self.column(name))
            ax.set(xlabel="step", title=name)
        return figure

    @classmethod
    def read(cls, folder: str | os.PathLike[str], *, until: int | None = None) -> History:
        """Rows of `folder/metrics.jsonl` up to step `until`; a half-written last line is left out."""
        path = Path(folder) / FILE
        if not path.exists():
            return cls()
        lines = path.read_text().split("\n")
        rows = [json.loads(line) for line in lines[:-1] if line]
        return cls([row for row in rows if until is None or row["step"] <= until])

    def rewrite(self, folder: str | os.PathLike[str]) -> None:
        """Make `folder/metrics.jsonl` hold exactly these rows (rows past a resumed checkpoint go)."""
        with atomic_write(Path(folder) / FILE) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
