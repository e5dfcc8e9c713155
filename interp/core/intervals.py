"""Confidence intervals: by resampling the samples, and for fractions in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """Bounds of a confidence interval."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"[{self.low:.3g}, {self.high:.3g}]"


def bootstrap(
    values: Array,
    statistic: Callable[[Array], Array],
    *,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """The percentile interval of a statistic over samples drawn with replacement.

    Args:
        values: [n] or [n ...]; whole rows are drawn.
        statistic: takes resamples [n_resamples n ...], returns [n_resamples].

    Raises:
        ValueError: no values, or a confidence outside (0, 1).
    """
    if len(values) == 0:
        raise ValueError("values: there is nothing to resample")
    tail = _tail(confidence)
    drawn = np.random.default_rng(seed).integers(0, len(values), (n_resamples, len(values)))
    low, high = np.quantile(statistic(np.asarray(values)[drawn]), [tail, 1 - tail])
    return Interval(float(low), float(high))


def wilson(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Wilson's interval of a proportion, which stays honest at 0 of n, where resampling says [0, 0].

    Raises:
        ValueError: no trials, or a confidence outside (0, 1).
    """
    from scipy.stats import norm

    if n < 1:
        raise ValueError(f"n={n}: a proportion needs at least one trial")
    z2 = float(norm.ppf(1 - _tail(confidence))) ** 2
    centre = (successes + z2 / 2) / (n + z2)
    half = math.sqrt(z2) / (n + z2) * math.sqrt(successes * (n - successes) / n + z2 / 4)
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence}: must lie between 0 and 1, e.g. 0.95")
    return (1 - confidence) / 2
