"""Optimistic Adapt-ML-Prod: weights over learners, with a learning rate each, from their relative gains."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " N"]


class OptimisticAdaptMLProd:
    """Gaillard, Stoltz, van Erven 2014, with the optimism of Wei, Hong, Lu 2016 for the last learner alone.

    With decisions x_i, the point in play x = sum p_i x_i and the gradient g, regrets are r_i = <g, x - x_i> / unit, and
    optimism is m_N = <hint, x - x_N> / unit for the last, 0 for the others. A round plays p ~ rate w exp(rate m).

    Args:
        unit: 2 G D, so that |r| and |m| are at most 1/2.
        cap: the largest rate.

    Attributes:
        rates, log_weights: (N,) after the last update; weights are kept as logs, so that they can't underflow.
        optimism: m of the last learner in the round last played.
    """

    def __init__(self, n_learners: int, unit: float, cap: float = 0.25) -> None:
        self._unit, self._cap, self._log_n = unit, cap, math.log(n_learners)
        self._first_rate = min(cap, math.sqrt(self._log_n))
        self.rates: Vector = np.full(n_learners, self._first_rate)
        self.log_weights: Vector = np.full(n_learners, -self._log_n)
        self.optimism = 0.0
        self._sums = np.zeros((5, n_learners))
        self._rate_drops = 0.0

    def play(
        self, decisions: Float[np.ndarray, "N d"], hint: Float[np.ndarray, " d"], *, optimistic: bool = True
    ) -> tuple[Vector, Float[np.ndarray, " d"]]:
        """The weights p (N,) of a round and the point (d,) that they play.

        m depends on x, hence on p, hence on m. The other weights' proportions do not depend on m, so that the equation
        is m = gap * sigmoid(-(odds + rate m)) with the `gap` of their mean to the last learner: a right side that
        falls, or has a slope of at most |gap| rate / 4 < 1. The root is unique, and found by bisection.
        """
        from classic_ml.online.loops import play

        weights, point, self.optimism = play(
            decisions, hint, self._unit, self.rates, self.log_weights, optimistic
        )
        return weights, point

    def update(
        self,
        decisions: Float[np.ndarray, "N d"],
        gradient: Float[np.ndarray, " d"],
        point: Float[np.ndarray, " d"],
    ) -> None:
        """Learn from the gradient at the point that was played."""
        from classic_ml.online.loops import reweigh

        self._rate_drops += reweigh(
            decisions,
            gradient,
            point,
            self._unit,
            self.optimism,
            self._cap,
            self._log_n,
            self.rates,
            self.log_weights,
            self._sums,
        )

    def regrets(self) -> Vector:
        """Sums of r (N,) over all rounds."""
        return self._sums[0].copy()

    def potential_growth(self) -> float:
        """(P): how much the last round, before the power, changed the log of the sum of weights; never above 0."""
        logs = self._sums[3:]
        before, after = np.exp(logs - logs.max()).sum(1)
        return math.log(after / before)

    def regret_bound(self) -> Vector:
        """(R): what `regrets` (N,) can't exceed, whatever the sequence was."""
        potential = math.log1p(self._rate_drops / math.e) / self.rates
        return self._log_n / self._first_rate + self._sums[2] + potential
