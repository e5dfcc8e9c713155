"""How much of the variance of steerability comes from factors that have nothing to do with the concept.

Tan et al. 2024, arXiv 2407.12404, section 4 ("steerability bias"): whether the behaviour's answer is the letter
A or B, and whether it reads Yes or No.  Sequential sums of squares: the factors enter a linear regression one
after the other, and each gets what it explains beyond those before it.  There is no interaction term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from interp.core.intervals import Array

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    Factors: TypeAlias = Mapping[str, Sequence[Any]] | pd.DataFrame


@dataclass(frozen=True)
class VarianceDecomposition:
    """The variance of slopes by nuisance factor, in the order in which the factors entered.

    Attributes:
        total: the variance of the slopes (n - 1 in the denominator).
        explained: by factor, the variance explained beyond the factors before it.
        constant: factors with a single value in the data; they explain 0.
        name: what was steered.
    """

    total: float
    explained: dict[str, float]
    constant: tuple[str, ...] = ()
    name: str = ""

    @property
    def unexplained(self) -> float:
        """What none of the factors explains."""
        return self.total - sum(self.explained.values())

    @property
    def shares(self) -> dict[str, float]:
        """Each factor's share of the variance; 0 where there is no variance."""
        return {name: part / self.total if self.total else 0.0 for name, part in self.explained.items()}

    def to_frame(self) -> pd.DataFrame:
        """One row per factor, and one for what is left."""
        import pandas as pd

        parts = {**self.explained, "unexplained": self.unexplained}
        total = self.total or 1.0
        rows = [{"factor": f, "variance": v, "share": v / total} for f, v in parts.items()]
        return pd.DataFrame(rows).set_index("factor")

    def plot(self) -> Figure:
        """One stacked bar."""
        from interp.steering.steerability_plots import plot_variance

        return plot_variance({self.name or "vector": self})

    def __str__(self) -> str:
        lines = [f"variance of steerability {self.total:.4g}, explained by"]
        for name, share in self.shares.items():
            lines.append(f"  {name:<16} {share:6.1%}{'  (constant)' if name in self.constant else ''}")
        rest = self.unexplained / self.total if self.total else 0.0
        return "\n".join([*lines, f"  {'nothing of these':<16} {rest:6.1%}"])


def decompose_variance(
    slopes: Sequence[float] | Array, factors: Factors, *, name: str = ""
) -> VarianceDecomposition:
    """Share out the variance of per-sample slopes among nuisance factors.

    Args:
        slopes: [n], as `steerability` fits them.
        factors: columns of n values, in the order in which they enter; numbers and booleans count as they
            are, anything else as categories.

    Raises:
        ValueError: fewer than two samples, no factors, a column of another length, a number that isn't finite.
    """
    s = np.asarray(slopes, dtype=np.float64)
    if s.ndim != 1 or len(s) < 2:
        raise ValueError(f"slopes: a variance needs at least two samples [n], got shape {s.shape}")
    columns = {str(key): np.asarray(factors[key]) for key in factors}
    if not columns:
        raise ValueError("factors: name at least one column, e.g. {'letter': [...]}")
    design, before = np.ones((len(s), 1)), float(s.var(ddof=1))
    total, explained, constant = before, {}, []
    for key, values in columns.items():
        if values.shape != s.shape:
            raise ValueError(f"factors[{key!r}]: expected {len(s)} values, one a sample, got {values.shape}")
        if len(np.unique(values)) == 1:
            constant.append(key)
            explained[key] = 0.0
            continue
        design = np.hstack([design, _columns(key, values)])
        residuals = s - design @ np.linalg.lstsq(design, s, rcond=None)[0]
        after = float(residuals.var(ddof=1))
        explained[key], before = before - after, after
    return VarianceDecomposition(total, explained, tuple(constant), name)


def _columns(key: str, values: np.ndarray) -> Array:
    """The regression columns [n c] of a factor: itself, or an indicator of every category but the first."""
    if values.dtype.kind in "biuf":
        column = values.astype(np.float64)
        if not np.isfinite(column).all():
            raise ValueError(
                f"factors[{key!r}]: a value isn't finite; leave the sample out or give a category"
            )
        return column[:, None]
    categories = np.unique(values)
    return (values[:, None] == categories[None, 1:]).astype(np.float64)


def cells(slopes: Sequence[float] | Array, factors: Factors) -> pd.DataFrame:
    """The slopes by combination of factor values: count, mean, standard deviation, share that is <= 0."""
    import pandas as pd

    frame = pd.DataFrame({str(key): list(factors[key]) for key in factors})
    names = list(frame.columns)
    frame["slope"] = np.asarray(slopes, dtype=np.float64)
    grouped = frame.groupby(names, sort=True)["slope"]
    return grouped.agg(n="count", mean="mean", std="std", anti_fraction=lambda s: float((s <= 0).mean()))
