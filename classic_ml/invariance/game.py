"""The game behind worst-case learning: one player picks a predictor, the other the transformation it is measured on.

Montasser, Shao & Abbe 2024, "Transformation-Invariant Learning and Theoretical Guarantees for OOD Generalization",
NeurIPS, arXiv 2410.23461.  With an oracle that answers weights q over transformations with a predictor h of least
sum_k q_k err(h, T_k), multiplicative weights find a mixture of predictors whose worst error is near the game's value:

    max_k mean_r err(h_r, T_k) <= v* + sqrt(ln K / (2 R)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from classic_ml.invariance.rules import as_errors
from interp.core.messages import at_least

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Oracle = Callable[[Float[np.ndarray, " K"]], Float[np.ndarray, " K"]]
"""Weights over transformations -> the costs, one a transformation, of the predictor that answers them."""


class GameValue(NamedTuple):
    """The value of the zero-sum game and optimal mixtures for it."""

    value: float
    predictors: Float[np.ndarray, " H"]
    transforms: Float[np.ndarray, " K"]


def game_value(errors: Any) -> GameValue:
    """min over mixtures of predictors of the largest mean error, by linear programming.

    Args:
        errors: (H, K), predictors by transformations.
    """
    from scipy.optimize import linprog

    errors = as_errors(errors)
    n_predictors, n_transforms = errors.shape
    solved = linprog(
        np.r_[np.zeros(n_predictors), 1.0],
        A_ub=np.c_[errors.T, -np.ones(n_transforms)],
        b_ub=np.zeros(n_transforms),
        A_eq=np.r_[np.ones(n_predictors), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * n_predictors + [(None, None)],
    )
    if not solved.success:
        raise RuntimeError(f"the linear program of the game was not solved: {solved.message}")
    return GameValue(
        float(solved.fun), np.maximum(solved.x[:-1], 0), np.maximum(-solved.ineqlin.marginals, 0)
    )


def n_rounds_for(n_transforms: int, eps: float) -> int:
    """R = ln K / (2 eps^2), rounded up and at least 1: rounds after which sqrt(ln K / (2 R)) <= eps."""
    if not eps > 0:
        raise ValueError(f"eps = {eps} must be positive")
    return max(1, math.ceil(math.log(n_transforms) / (2 * eps**2)))


@dataclass(frozen=True)
class GameRecord:
    """A game as it was played.

    Attributes:
        weights: (R, K) of the adversary in every round.
        costs: (R, K) of the predictor that answered.
        eta: the adversary's rate.
    """

    weights: Float[np.ndarray, "R K"]
    costs: Float[np.ndarray, "R K"]
    eta: float

    @property
    def mixture_costs(self) -> Float[np.ndarray, " K"]:
        """Of the uniform mixture over the rounds' predictors."""
        return self.costs.mean(0)

    @property
    def worst(self) -> float:
        return float(self.mixture_costs.max())

    @property
    def played(self) -> float:
        """Mean over rounds of sum_k q_k cost_k; with an exact oracle at most v*."""
        return float((self.weights * self.costs).sum(1).mean())

    @property
    def gap(self) -> float:
        """worst - played: with an exact oracle, the mixture is at least this near to the game's value."""
        return self.worst - self.played

    @property
    def slack(self) -> float:
        """What the gap is at most: ln K / (eta R) + eta / 8, sqrt(ln K / (2 R)) when all rounds were played.

        Holds for every oracle. Costs of one round that lie more than 1 apart (regrets of an inexact oracle) count
        by the square of that range.
        """
        rounds, n_transforms = self.costs.shape
        if n_transforms == 1:
            return 0.0
        ranges = np.maximum(np.ptp(self.costs, axis=1), 1.0)
        return math.log(n_transforms) / (self.eta * rounds) + self.eta / 8 * float((ranges**2).mean())

    @property
    def bound(self) -> float:
        """played + slack, never below `worst`; with an exact oracle at most v* + slack."""
        return self.played + self.slack

    @property
    def oracle_gaps(self) -> Float[np.ndarray, " R"]:
        """How much worse each answer is than the best earlier one at the same weights; 0 in the first round.

        Negative where the answer is better than all before. Persistently positive: the oracle doesn't minimise what the
        game is about, and the guarantee is for what it attains.
        """
        values = self.weights @ self.costs.T  # [round, predictor]
        gaps = np.zeros(len(values))
        for r in range(1, len(values)):
            gaps[r] = values[r, r] - values[r, :r].min()
        return gaps

    def to_frame(self) -> pd.DataFrame:
        """A row per round: the worst cost and the played one of the mixture so far, and the gap between them."""
        import pandas as pd

        rounds = np.arange(1, len(self.costs) + 1)
        worst = (self.costs.cumsum(0) / rounds[:, None]).max(1)
        played = (self.weights * self.costs).sum(1).cumsum() / rounds
        return pd.DataFrame({"worst": worst, "played": played, "gap": worst - played}, index=rounds)

    def __str__(self) -> str:
        rounds, n_transforms = self.costs.shape
        return (
            f"{rounds} rounds over {n_transforms} transformations: worst {self.worst:.4f}, played {self.played:.4f} "
            f"(gap {self.gap:.4f}, at most {self.slack:.4f})"
        )

    def plot(self) -> Figure:
        """Convergence, and the adversary's weights."""
        from classic_ml.invariance.plots import plot_game

        return plot_game(self)


def play_game(
    oracle: Oracle,
    n_transforms: int,
    *,
    n_rounds: int | None = None,
    eps: float = 0.05,
    tol: float | None = None,
) -> GameRecord:
    """Multiplicative weights: transformations that hurt weigh more, the oracle answers, eta = sqrt(8 ln K / R).

    Args:
        n_rounds: R; None for `n_rounds_for(n_transforms, eps)`.
        tol: stop as soon as the measured gap is at most this.
    """
    rounds = n_rounds_for(n_transforms, eps) if n_rounds is None else n_rounds
    at_least("n_rounds", rounds, 1)
    eta = math.sqrt(8 * math.log(n_transforms) / rounds)
    weights, costs = np.zeros((rounds, n_transforms)), np.zeros((rounds, n_transforms))
    losses, played = np.zeros(n_transforms), 0.0
    for r in range(rounds):
        scaled = np.exp(eta * (losses - losses.max()))
        weights[r] = scaled / scaled.sum()
        costs[r] = oracle(weights[r])
        losses += costs[r]
        played += float(weights[r] @ costs[r])
        if tol is not None and (losses.max() - played) / (r + 1) <= tol:
            return GameRecord(weights[: r + 1], costs[: r + 1], eta)
    return GameRecord(weights, costs, eta)


def exact_oracle(errors: Any) -> Oracle:
    """The oracle of a finite class with errors (H, K): the row of least weighted mean, the first of equals."""
    errors = as_errors(errors)
    return lambda q: errors[int((errors @ q).argmin())]
