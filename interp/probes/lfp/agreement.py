"""How well the feedback that a probe reads agrees with the true one: rank correlations, signs, recovered words.

Marks et al. 2024 (arXiv 2310.08164) report Kendall's tau. Over words of both signs it is mostly the sign; whether
*graded* feedback was learned, the taus within the positive and within the negative words say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.intervals import Interval, wilson
from interp.core.messages import at_least

if TYPE_CHECKING:
    import pandas as pd

STRONG = 2.0  # a word is strongly positive from here on (in VADER's units)
CONFIDENCE = 0.95
_ROWS_AT_ONCE = 512

Statistic = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % confidence interval; NaN where it isn't defined."""

    value: float
    interval: Interval

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return "undefined" if math.isnan(self.value) else f"{self.value:.3f} {self.interval}"


@dataclass(frozen=True)
class FeedbackAgreement:
    """Read against true feedback, over distinct words.

    Attributes:
        n_words, n_positive, n_negative: words, and those whose true feedback is above and below 0.
        tau, tau_positive, tau_negative: Kendall's tau-b over all words, and within the two signs.
        pearson, spearman: correlations over all words.
        sign_accuracy: share of the words with a true feedback other than 0 whose sign is read rightly.
        absolute_error: mean of ``|read - true|``.
        recovered: share of the strongly positive words (true >= 2) that are read as such.
        badly_reconstructed: share of them that are read as negative.
    """

    n_words: int
    n_positive: int
    n_negative: int
    tau: Estimate
    tau_positive: Estimate
    tau_negative: Estimate
    pearson: Estimate
    spearman: Estimate
    sign_accuracy: Estimate
    absolute_error: Estimate
    recovered: Estimate
    badly_reconstructed: Estimate

    def estimates(self) -> dict[str, Estimate]:
        """The figures by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Estimate)}

    def to_dict(self) -> dict[str, Any]:
        """JSON values: counts, and ``[value, low, high]`` of each figure, None where undefined."""
        counts = {"n_words": self.n_words, "n_positive": self.n_positive, "n_negative": self.n_negative}
        return {
            **counts,
            **{
                name: [_json(e.value), _json(e.interval.low), _json(e.interval.high)]
                for name, e in self.estimates().items()
            },
        }

    def to_frame(self) -> pd.DataFrame:
        """One row a figure: value, low, high."""
        import pandas as pd

        rows = {name: [e.value, *e.interval] for name, e in self.estimates().items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"])

    def __str__(self) -> str:
        head = f"{self.n_words} words, {self.n_positive} positive and {self.n_negative} negative (95 % intervals)"
        return "\n".join([head, *(f"  {name:<20}{e}" for name, e in self.estimates().items())])


def feedback_agreement(
    predicted: Float[np.ndarray, " n"],
    true: Float[np.ndarray, " n"],
    *,
    n_bootstrap: int = 1000,
    seed: int = 0,
) -> FeedbackAgreement:
    """Compare the feedback read for each of n distinct words with the true one, value by value.

    Shares have Wilson's interval, the other figures the percentile interval over `n_bootstrap` resamples of the words.

    Raises:
        ValueError: fewer than two words, arrays of different lengths, or a value that isn't finite.
    """
    predicted, true = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    if predicted.ndim != 1 or predicted.shape != true.shape or len(true) < 2:
        raise ValueError(
            f"predicted has shape {predicted.shape}, true {true.shape}: give one value a word, of two words or more"
        )
    if not (np.isfinite(predicted).all() and np.isfinite(true).all()):
        raise ValueError("predicted and true must be finite: leave out words whose feedback isn't known")
    at_least("n_bootstrap", n_bootstrap, 1)

    def estimate(statistic: Statistic, chosen: np.ndarray) -> Estimate:
        return _bootstrapped(statistic, predicted[chosen], true[chosen], n_bootstrap, seed)

    everything, positive, negative = np.full(len(true), True), true > 0, true < 0
    signed, strong = true != 0, true >= STRONG
    return FeedbackAgreement(
        n_words=len(true),
        n_positive=int(positive.sum()),
        n_negative=int(negative.sum()),
        tau=estimate(kendall, everything),
        tau_positive=estimate(kendall, positive),
        tau_negative=estimate(kendall, negative),
        pearson=estimate(pearson, everything),
        spearman=estimate(spearman, everything),
        sign_accuracy=share((np.sign(predicted) == np.sign(true))[signed]),
        absolute_error=estimate(_absolute_error, everything),
        recovered=share((predicted >= STRONG)[strong]),
        badly_reconstructed=share((predicted < 0)[strong]),
    )


def kendall(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], weights: Float[np.ndarray, "b n"]
) -> Float[np.ndarray, " b"]:
    """Kendall's tau-b of samples in which pair i occurs `weights[., i]` times.

    tau_b = sum_ij a_ij b_ij / sqrt(sum_ij |a_ij| sum_ij |b_ij|) with a_ij = sign(x_i - x_j), b_ij = sign(y_i - y_j).
    NaN where x or y has no two different values.
    """
    sums = np.zeros((3, len(weights)))
    for start in range(0, len(x), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        a, b = np.sign(x[rows, None] - x), np.sign(y[rows, None] - y)
        for total, table in zip(sums, (a * b, np.abs(a), np.abs(b)), strict=True):
            total += ((weights @ table.T) * weights[:, rows]).sum(1)
    return _ratio(sums[0], np.sqrt(sums[1] * sums[2]))


def pearson(
    x: Float[np.ndarray, "*b n"], y: Float[np.ndarray, "*b n"], weights: Float[np.ndarray, "b n"]
) -> Float[np.ndarray, " b"]:
    """Pearson's correlation, weighted likewise."""
    total = weights.sum(1, keepdims=True)
    dx = x - (weights * x).sum(1, keepdims=True) / total
    dy = y - (weights * y).sum(1, keepdims=True) / total
    scale = np.sqrt((weights * dx**2).sum(1) * (weights * dy**2).sum(1))
    return _ratio((weights * dx * dy).sum(1), scale)


def spearman(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], weights: Float[np.ndarray, "b n"]
) -> Float[np.ndarray, " b"]:
    """Pearson's correlation of the ranks, ties at their mean rank, weighted likewise."""
    return pearson(_ranks(x, weights), _ranks(y, weights), weights)


def _ranks(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[b n]: what lies below each value in each sample, and half of what is equal to it."""
    group = np.unique(x, return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    in_group = np.add.reduceat(weights[:, order], starts, axis=1)
    return (in_group.cumsum(1) - in_group / 2)[:, group]


def _absolute_error(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return weights @ np.abs(x - y) / weights.sum(1)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    tiny = 1e-12 * max(1.0, float(np.max(denominator, initial=0)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominator > tiny, numerator / denominator, np.nan)


def _bootstrapped(
    statistic: Statistic, x: np.ndarray, y: np.ndarray, n_bootstrap: int, seed: int
) -> Estimate:
    undefined = Estimate(math.nan, Interval(math.nan, math.nan))
    if len(x) < 2:
        return undefined
    value = float(statistic(x, y, np.ones((1, len(x))))[0])
    if math.isnan(value):
        return undefined
    random = np.random.default_rng(seed)
    weights = random.multinomial(len(x), np.full(len(x), 1 / len(x)), size=n_bootstrap).astype(np.float64)
    drawn = statistic(x, y, weights)
    drawn = drawn[np.isfinite(drawn)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail]) if len(drawn) else (value, value)
    return Estimate(value, Interval(float(low), float(high)))


def share(hits: np.ndarray) -> Estimate:
    """The share of hits among them, with Wilson's interval; undefined of none."""
    if len(hits) == 0:
        return Estimate(math.nan, Interval(math.nan, math.nan))
    return Estimate(float(hits.mean()), wilson(int(hits.sum()), len(hits), confidence=CONFIDENCE))


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None
