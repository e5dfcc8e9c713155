"""How many samples a greedy choice needs: the two phases of IMM with motifs as roots.

Tang, Shi, Xiao 2015, "Influence Maximization in Near-Linear Time: A Martingale Approach", SIGMOD. Two departures. The
optimum of a lower bound can be far below 1, so the search for it stops at `max_samples`, not at 1. And the samples of
the final choice are fresh ones: those of the search depend on when it stopped.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.special import gammaln

from classic_ml.influence.coverage import Cover, RRCollection, greedy_max_coverage, joined

Draw = Callable[[int, int], Sequence[RRCollection]]
"""(first, last) -> those samples, a collection for each bound that is maximised."""

GREEDY = 1 - 1 / math.e


@dataclass(frozen=True)
class SampleRule:
    """Sample numbers for a choice within 1 - 1/e - epsilon of the best, but with probability eta^-ell.

    eta motifs of total value B, k of n nodes. Each phase fails with probability at most eta^-ell / 2; the rounds of the
    search share its half.
    """

    n_nodes: int
    n_seeds: int
    n_motifs: int
    total_value: float
    epsilon: float
    ell: float
    max_samples: int

    @property
    def _log_sets(self) -> float:
        n, k = self.n_nodes, self.n_seeds
        return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))

    @property
    def _log_failure(self) -> float:
        return self.ell * math.log(self.n_motifs) + math.log(2)

    @property
    def search_epsilon(self) -> float:
        return math.sqrt(2) * self.epsilon

    @property
    def search(self) -> float:
        """Samples times x at which an optimum of x shows (lambda')."""
        rounds = max(math.log2(self.n_motifs), math.log2(self.max_samples), 2.0)
        logs = self._log_sets + self._log_failure + math.log(rounds)
        return (2 + 2 / 3 * self.search_epsilon) * logs * self.total_value / self.search_epsilon**2

    @property
    def selection(self) -> float:
        """Samples times the optimum that the choice needs (lambda*)."""
        alpha = math.sqrt(self._log_failure + math.log(2))
        beta = math.sqrt(GREEDY * (self._log_sets + self._log_failure + math.log(2)))
        return 2 * self.total_value * (GREEDY * alpha + beta) ** 2 / self.epsilon**2


@dataclass(frozen=True)
class Selection:
    """A greedy choice on fresh samples.

    Attributes:
        n_samples: they were chosen on.
        optimum: lower bound of the best value, found by the search.
        void: `max_samples` was reached, so that nothing is guaranteed.
    """

    cover: Cover
    n_samples: int
    optimum: float
    void: bool


def imm(rule: SampleRule, search: Draw, selection: Draw) -> Selection:
    """Search the optimum with the samples of `search`, then choose with those of `selection`.

    Where several collections are drawn, their mean is maximised. Warns where `max_samples` voids the guarantee.
    """
    pools: list[list[RRCollection]] = []
    drawn, void, i = 0, False, 0
    while True:
        i += 1
        x = rule.total_value / 2**i
        needed = math.ceil(rule.search / x)
        void = needed > rule.max_samples
        needed = min(needed, rule.max_samples)
        if needed > drawn:
            pools.append(list(search(drawn, needed)))
            drawn = needed
        value = rule.total_value * _best(pools, rule.n_seeds).worth
        if void or value >= (1 + rule.search_epsilon) * x:
            break
    optimum = value / (1 + rule.search_epsilon)
    needed = math.ceil(rule.selection / max(optimum, 1e-300))
    void = void or needed > rule.max_samples
    n_samples = min(needed, rule.max_samples)
    if void:
        warnings.warn(
            f"max_samples = {rule.max_samples:,} is too few for epsilon = {rule.epsilon:g}: the answer is a "
            "heuristic one, its guarantee is void; raise max_samples or epsilon",
            UserWarning,
            stacklevel=3,
        )
    del pools
    return Selection(_best([list(selection(0, n_samples))], rule.n_seeds), n_samples, optimum, void)


def _best(pools: list[list[RRCollection]], n_seeds: int) -> Cover:
    collections = [joined(parts) for parts in zip(*pools, strict=True)]
    return greedy_max_coverage(collections, n_seeds, [1 / len(collections)] * len(collections))
