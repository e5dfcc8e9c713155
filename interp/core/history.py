"""The record of a run: one row of numbers per logged step."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.files import atomic_write, canonical, parse_json, read_regular

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)
FILE = "metrics.jsonl"
CLOCK = ("seconds", "samples", "samples_per_second")  # columns about the run's progress, not its results


def without_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with None for a number that isn't finite: JSON knows no NaN."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


@dataclass
class History:
    """Rows of a run in order of their steps; every row has `step`, and no two have the same.

    `seconds` counts from the start of the run, pauses between resumed parts left out. A value that isn't finite is
    None, as in metrics.jsonl.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def add(self, step: int, values: dict[str, float]) -> dict[str, Any]:
        """Append a row, and return it."""
        row = {"step": step, **without_nan(values)}
        self.rows.append(row)
        return row

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
        """A panel per metric against the step, three in a row."""
        import numpy as np

        from interp.core.plotting import new_figure

        names = list(metrics or [name for name in self.last if name not in ("step", *CLOCK)])
        rows, cols = max(1, math.ceil(len(names) / 3)), max(1, min(3, len(names)))
        figure, axes = new_figure(rows, cols)
        panels = np.atleast_1d(axes).ravel()
        for ax, name in zip(panels, names, strict=False):
            ax.plot(*self.column(name))
            ax.set(xlabel="step", title=name)
        for ax in panels[len(names) :]:
            ax.set_visible(False)
        return figure

    @classmethod
    def read(cls, folder: str | os.PathLike[str], *, until: int | None = None) -> History:
        """Rows of `folder/metrics.jsonl` up to step `until`; a half-written last line is left out.

        Raises ValueError naming the file and line that is damaged.
        """
        path = Path(folder) / FILE
        if not path.exists():
            return cls()
        rows = []
        for number, line in enumerate(read_regular(path).split(b"\n")[:-1], start=1):
            row = parse_json(line, f"{path}, line {number},")
            if not isinstance(row, dict) or type(row.get("step")) is not int:
                raise ValueError(
                    f"{path}, line {number}, is no row of a run: it has no whole number `step`; remove it"
                )
            rows.append(row)
        return cls([row for row in rows if until is None or row["step"] <= until])

    def tally(self) -> list[Any]:
        """How many rows there are, and the SHA-256 of their results: to tell later whether any was lost."""
        text = "".join(canonical({k: v for k, v in row.items() if k not in CLOCK}) for row in self.rows)
        return [len(self.rows), hashlib.sha256(text.encode()).hexdigest()]

    def check(self, tally: list[Any], folder: str | os.PathLike[str]) -> None:
        """Warn where these rows, read from `folder`, are not those that `tally` counted; the run itself is whole."""
        if self.tally() != tally:
            cut = len(self) != tally[0]
            what = f"{len(self)} of {tally[0]} rows that" if cut else "other numbers than those that"
            logger.warning("%s holds %s were logged up to this checkpoint", Path(folder) / FILE, what)

    def rewrite(self, folder: str | os.PathLike[str]) -> None:
        """Make `folder/metrics.jsonl` hold exactly these rows (rows past a resumed checkpoint go)."""
        with atomic_write(Path(folder) / FILE) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
