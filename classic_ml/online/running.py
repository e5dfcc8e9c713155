"""Play a learner against a sequence of losses: regret, decisions, and how many gradients it asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from classic_ml.online.best_fixed import BestFixed, best_fixed
from classic_ml.online.domains import Domain
from classic_ml.online.learner import OnlineLearner
from classic_ml.online.losses import Losses

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class OnlineResult:
    """A run of T rounds.

    Attributes:
        losses: (T,) f_t(x_t).
        decisions: (T, d) x_t.
        comparator: (d,) the fixed point that regret is against, for all rounds the same.
        comparator_losses: (T,) of the comparator.
        comparator_gap: a bound on how far the comparator's total is above the least of the domain: the regret against
            the best is at most this larger. 0 where it is exact, NaN where a comparator was given.
        n_gradients: asked for in all rounds together.
        gradient_variation: sum of |g_t - g_{t-1}|^2 at the played points, g_0 = 0; empirical, not the theory's V_T.
    """

    losses: Float[np.ndarray, " T"]
    decisions: Float[np.ndarray, "T d"]
    comparator: Float[np.ndarray, " d"]
    comparator_losses: Float[np.ndarray, " T"]
    comparator_gap: float
    n_gradients: int
    gradient_variation: float

    @property
    def regret(self) -> float:
        return float(self.losses.sum() - self.comparator_losses.sum())

    @property
    def cumulative_regret(self) -> Float[np.ndarray, " T"]:
        """After each round, against the comparator of all T rounds."""
        return np.cumsum(self.losses - self.comparator_losses)

    def to_frame(self) -> pd.DataFrame:
        """A row a round: loss, comparator's loss, cumulative regret."""
        import pandas as pd

        columns = {
            "loss": self.losses,
            "comparator_loss": self.comparator_losses,
            "cumulative_regret": self.cumulative_regret,
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self.losses) + 1, name="round"))

    def __str__(self) -> str:
        lines = {
            "rounds": f"{len(self.losses)}",
            "loss": f"{self.losses.sum():.6g}",
            "best fixed point's loss"
            if np.isfinite(self.comparator_gap)
            else "comparator's loss": f"{self.comparator_losses.sum():.6g}",
            "regret": f"{self.regret:.6g}",
            "gradients": f"{self.n_gradients}",
            "empirical variation": f"{self.gradient_variation:.6g}",
        }
        wide = max(map(len, lines))
        return "\n".join(f"{name:<{wide}}  {value}" for name, value in lines.items())

    def plot(self) -> Figure:
        """Cumulative regret against the round."""
        from classic_ml.online.online_plots import plot_regret

        return plot_regret({"regret": self})


@dataclass(frozen=True)
class OnlineComparison:
    """Learners on the same losses, against the same comparator; `results` in the order given."""

    results: Mapping[str, OnlineResult]

    def to_frame(self) -> pd.DataFrame:
        """A row a learner: regret, total loss, gradients a round, empirical variation."""
        import pandas as pd

        rows = {
            name: {
                "regret": result.regret,
                "loss": float(result.losses.sum()),
                "gradients_per_round": result.n_gradients / len(result.losses),
                "gradient_variation": result.gradient_variation,
            }
            for name, result in self.results.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("learner")

    def __str__(self) -> str:
        return self.to_frame().to_string(float_format="{:.2f}".format)

    def plot(self) -> Figure:
        """Cumulative regret against the round, a line a learner."""
        from classic_ml.online.online_plots import plot_regret

        return plot_regret(self.results)


class _CountingOracle:
    """Gradients of one round's loss; remembers the first query."""

    def __init__(self, losses: Losses, t: int) -> None:
        self._losses, self._t, self.count = losses, t, 0
        self.first: tuple[np.ndarray, np.ndarray] | None = None

    def __call__(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        gradient = self._losses.gradient(self._t, x)
        if self.first is None:
            self.first = (x, gradient)
        self.count += 1
        return gradient


def run_online(learner: OnlineLearner, losses: Losses, comparator: Any = "best_fixed") -> OnlineResult:
    """Play all rounds of `losses` with a fresh learner.

    Args:
        comparator: "best_fixed", the point of the learner's domain with the least total loss, or an array (d,).

    Raises:
        ValueError: losses of another dimension than the domain's, a comparator of another shape or outside the domain.
    """
    best = _comparator(comparator, losses, learner.domain)
    decisions, values = np.empty((len(losses), losses.dim)), np.empty(len(losses))
    n_gradients, variation, last = 0, 0.0, np.zeros(losses.dim)
    for t in range(len(losses)):
        x = learner.predict()
        decisions[t], values[t] = x, losses.value(t, x)
        oracle = _CountingOracle(losses, t)
        learner.observe(oracle)
        if oracle.first is None or not np.array_equal(oracle.first[0], x):
            raise ValueError(
                f"{type(learner).__name__}.observe must first ask for the gradient at the played point"
            )
        n_gradients += oracle.count
        variation += float(np.square(oracle.first[1] - last).sum())
        last = oracle.first[1]
    return OnlineResult(
        values, decisions, best.point, losses.values(best.point), best.gap, n_gradients, variation
    )


def compare_online(
    learners: Mapping[str, OnlineLearner], losses: Losses, comparator: Any = "best_fixed"
) -> OnlineComparison:
    """`run_online` of every learner; the comparator is looked for once.

    Raises as `run_online` does, and ValueError where learners are none or of different domains.
    """
    if not learners:
        raise ValueError("learners is empty; give at least one")
    domains = {id(learner.domain): learner.domain for learner in learners.values()}
    if len(domains) > 1:
        raise ValueError("the learners have different domains; give all the same Domain object")
    best = _comparator(comparator, losses, next(iter(domains.values())))
    return OnlineComparison({name: run_online(learner, losses, best) for name, learner in learners.items()})


def _comparator(comparator: Any, losses: Losses, domain: Domain) -> BestFixed:
    if losses.dim != domain.dim:
        raise ValueError(f"the losses have dimension {losses.dim}, the domain {domain.dim}")
    if isinstance(comparator, BestFixed):
        return comparator
    if isinstance(comparator, str):
        if comparator != "best_fixed":
            raise ValueError(f"comparator = {comparator!r} must be 'best_fixed' or an array of {losses.dim}")
        return best_fixed(losses, domain)
    point = np.array(comparator, dtype=float)
    if point.shape != (domain.dim,):
        raise ValueError(f"comparator has shape {point.shape}; give ({domain.dim},) or 'best_fixed'")
    if not domain.contains(point):
        raise ValueError(f"comparator = {point} lies outside the domain; project it first")
    return BestFixed(point, float("nan"))
