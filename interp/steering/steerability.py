"""How far, and how evenly, a vector moves the samples of a data set: slopes of their propensity curves.

Tan et al. 2024, "Analysing the Generalisation and Reliability of Steering Vectors", arXiv 2407.12404,
section 3.  Fitting each sample by itself is the point: a line through the mean curve has the mean slope, and
hides the samples that the vector pushes the wrong way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.intervals import Array, Interval, bootstrap, wilson

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

RANGES = (0.5, 1.0, 1.5)
_EPS = float(np.finfo(np.float32).eps)  # scores are differences of float32 logits


@dataclass(frozen=True)
class Steerability:
    """Per-sample least-squares lines m_i(multiplier) = intercept_i + slope_i * multiplier, and their summary.

    Attributes:
        multipliers: [k] where the curves were measured.
        slopes: [n] the steerability of each sample, in logits per unit of the multiplier; exactly 0 where rounding
            of the scores could have made it.
        intercepts: [n] the propensity that the line gives to the unsteered model.
        rss: [n] residual sums of squares: how far from a line the curve is.
        spearman: [n] rank correlation of the curve with the multiplier; NaN for a constant curve.
        mean_interval, variance_interval, median_interval: bootstrap over samples.
        anti_interval: Wilson's interval of the anti-steerable fraction.
        by_range: the mean slope refitted on |multiplier| <= bound, by bound.
        name: what was steered.
    """

    multipliers: Array
    slopes: Array
    intercepts: Array
    rss: Array
    spearman: Array
    mean_interval: Interval
    variance_interval: Interval
    median_interval: Interval
    anti_interval: Interval
    by_range: dict[float, float]
    confidence: float = 0.95
    name: str = ""

    @property
    def n(self) -> int:
        return len(self.slopes)

    @property
    def mean(self) -> float:
        """The steerability of the data set, equal to the slope of its mean curve."""
        return float(self.slopes.mean())

    @property
    def variance(self) -> float:
        """Between samples, with n - 1 in the denominator; NaN for a single sample."""
        return float(self.slopes.var(ddof=1)) if self.n > 1 else float("nan")

    @property
    def std(self) -> float:
        return self.variance**0.5

    @property
    def median(self) -> float:
        return float(np.median(self.slopes))

    @property
    def kurtosis(self) -> float:
        """Excess kurtosis (0 for a normal distribution); NaN where all slopes are equal."""
        centred = self.slopes - self.slopes.mean()
        second = (centred**2).mean()
        return float((centred**4).mean() / second**2 - 3) if second > 0 else float("nan")

    @property
    def anti_fraction(self) -> float:
        """The share of samples that the vector does not push the intended way: slope <= 0."""
        return float((self.slopes <= 0).mean())

    @property
    def rmse(self) -> Array:
        """Root mean squared residual of each sample's line [n]."""
        return np.sqrt(self.rss / len(self.multipliers))

    def summary(self) -> dict[str, float]:
        """The figures of the table as plain numbers."""
        return {
            "n": self.n,
            "mean": self.mean,
            "mean_low": self.mean_interval.low,
            "mean_high": self.mean_interval.high,
            "variance": self.variance,
            "variance_low": self.variance_interval.low,
            "variance_high": self.variance_interval.high,
            "std": self.std,
            "median": self.median,
            "median_low": self.median_interval.low,
            "median_high": self.median_interval.high,
            "kurtosis": self.kurtosis,
            "anti_fraction": self.anti_fraction,
            "anti_low": self.anti_interval.low,
            "anti_high": self.anti_interval.high,
            "rmse": float(self.rmse.mean()),
            **{f"mean_within_{bound:g}": value for bound, value in self.by_range.items()},
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per sample."""
        import pandas as pd

        columns = {"slope": self.slopes, "intercept": self.intercepts, "rss": self.rss, "rmse": self.rmse}
        return pd.DataFrame({**columns, "spearman": self.spearman})

    def plot(self) -> Figure:
        """The distribution of the per-sample slopes."""
        from interp.steering.steerability_plots import plot_violins

        return plot_violins({self.name or "vector": self})

    def __str__(self) -> str:
        percent = f"{self.confidence:.0%}"
        ranges = ", ".join(f"|m| <= {bound:g}: {value:.3f}" for bound, value in self.by_range.items())
        rows = [
            ("mean slope", f"{self.mean:.3f}  {percent} {self.mean_interval}"),
            ("by range", ranges),
            ("median", f"{self.median:.3f}  {percent} {self.median_interval}"),
            ("variance", f"{self.variance:.3f}  {percent} {self.variance_interval}  (std {self.std:.3f})"),
            ("excess kurtosis", f"{self.kurtosis:.2f}"),
            ("anti-steerable", f"{self.anti_fraction:.1%}  {percent} {self.anti_interval}"),
            ("fit (mean RMSE)", f"{self.rmse.mean():.3f}"),
        ]
        title = f"steerability of {self.name or 'the vector'} over {self.n} samples"
        return "\n".join([title, *(f"  {label:<16} {value}" for label, value in rows)])


def steerability(
    multipliers: Sequence[float] | Array,
    values: Array,
    *,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
    name: str = "",
    resolution: Array | None = None,
) -> Steerability:
    """Fit every sample's propensity curve by least squares, with an intercept.

    A flat curve is not steered, and must not count as steered because its rounded scores happen to rise: errors of at
    most ε in every score move the slope Σ c m / Σ c² (c: the centred multipliers) by at most ε Σ|c| / Σ c². A slope
    that is no larger is 0.

    Args:
        multipliers: [k], at least two of them distinct.
        values: [n k] propensities (logit differences) of each sample at each multiplier.
        confidence, n_resamples, seed: of the intervals.
        name: shown in tables and figures.
        resolution: [n] ε of each sample's scores; None: float32's relative precision times the largest |score|.

    Raises:
        ValueError: shapes that don't fit, fewer than two distinct multipliers, values that aren't finite.
    """
    x, y = check_multipliers(multipliers), np.asarray(values, dtype=np.float64)
    if y.ndim != 2 or x.shape != y.shape[1:] or not len(y):
        raise ValueError(
            f"values: expected [n k] with one column for each of the {x.size} multipliers and at least one "
            f"row, got {y.shape}"
        )
    if not np.isfinite(y).all():
        bad = int(np.flatnonzero(~np.isfinite(y).all(axis=1))[0])
        raise ValueError(f"values: sample {bad} holds a value that isn't finite: {y[bad].tolist()}")
    blur = _EPS * np.abs(y).max(1) if resolution is None else np.asarray(resolution, dtype=np.float64)
    slopes, intercepts, rss = fit_lines(x, y, blur)
    options: dict[str, Any] = {"confidence": confidence, "n_resamples": n_resamples, "seed": seed}
    within = {bound: np.abs(x) <= bound + 1e-9 for bound in RANGES if bound <= np.abs(x).max() + 1e-9}
    return Steerability(
        multipliers=x,
        slopes=slopes,
        intercepts=intercepts,
        rss=rss,
        spearman=np.where(np.ptp(y, axis=1) <= 2 * blur, np.nan, rank_correlations(x, y)),
        mean_interval=bootstrap(slopes, lambda s: s.mean(1), **options),
        variance_interval=_variance_interval(slopes, options),
        median_interval=bootstrap(slopes, lambda s: np.median(s, axis=1), **options),
        anti_interval=wilson(int((slopes <= 0).sum()), len(slopes), confidence=confidence),
        by_range={
            bound: float(fit_lines(x[inside], y[:, inside], blur)[0].mean())
            for bound, inside in within.items()
            if len(np.unique(x[inside])) > 1
        },
        confidence=confidence,
        name=name,
    )


def check_multipliers(multipliers: Sequence[float] | Array) -> Array:
    """Multipliers [k] to fit slopes over. Raises ValueError unless they are finite and two of them distinct."""
    x = np.asarray(multipliers, dtype=np.float64)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise ValueError(f"multipliers={x.tolist()}: give finite numbers")
    if len(np.unique(x)) < 2:
        raise ValueError(f"multipliers={x.tolist()}: a slope needs at least two distinct ones")
    return x


def fit_lines(x: Array, y: Array, blur: Array) -> tuple[Array, Array, Array]:
    """Slopes [n], intercepts [n] and residual sums of squares [n] of the lines through y [n k] over x [k].

    A slope that errors of `blur` [n] in each of the sample's values could have made is 0.
    """
    centred = x - x.mean()
    slopes = y @ centred / (centred @ centred)
    slopes[np.abs(slopes) <= blur * np.abs(centred).sum() / (centred @ centred)] = 0.0
    intercepts = y.mean(1) - slopes * x.mean()
    residuals = y - intercepts[:, None] - slopes[:, None] * x
    return slopes, intercepts, (residuals**2).sum(1)


def rank_correlations(x: Array, y: Array) -> Array:
    """Spearman's correlation of every row of y [n k] with x [k]; NaN where one of them is constant."""
    from scipy.stats import rankdata

    ranks_x = rankdata(x) - (len(x) + 1) / 2
    ranks_y = rankdata(y, axis=1) - (len(x) + 1) / 2
    size = np.sqrt((ranks_x**2).sum() * (ranks_y**2).sum(1))
    return np.divide(ranks_y @ ranks_x, size, out=np.full(len(y), np.nan), where=size > 0)


def _variance_interval(slopes: Array, options: dict[str, Any]) -> Interval:
    if len(slopes) < 2:
        return Interval(float("nan"), float("nan"))
    return bootstrap(slopes, lambda s: s.var(axis=1, ddof=1), **options)
