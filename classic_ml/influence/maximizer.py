"""LB-MOIM: the k seeds that activate most motifs, by lower bound, upper bound, both at once or the best of several.

Zhou, Cao, Liao, Mao 2024, "Motif-oriented influence maximization for viral marketing in large-scale social networks",
NeurIPS. The problem, that both kinds of bound are maximised, the form of the guarantee and the complexity are the
paper's. Its own construction of the lower bound was not available to us: "tree" is how we read its "r-spanning tree"
inside the motif, and the default "seed" is ours, provably at least as tight.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from classic_ml.influence.coverage import Cover, RRCollection, check_n_seeds, draw_rr, greedy_max_coverage
from classic_ml.influence.estimate import Estimate, MotifInfluence, sampled_bounds, streams
from classic_ml.influence.graph import InfluenceGraph, as_graph, check_cascade
from classic_ml.influence.imm import GREEDY, SampleRule, Selection, imm
from classic_ml.influence.motifs import Motif, MotifTable
from classic_ml.random_state import RandomState
from interp.core.messages import at_least, one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

STRATEGIES = ("lower", "upper", "joint", "sandwich")
LOWER_BOUNDS, UPPER_BOUNDS = ("seed", "tree"), ("any", "min")
REPORT_SAMPLES = (10_000, 100_000)  # least and most on which an answer is judged, all fresh


@dataclass(frozen=True)
class MotifSeeds:
    """An answer, judged on samples that had no part in choosing it (as many, but 10,000 to 100,000).

    Attributes:
        seeds: labels in the order of choice.
        chosen_by: "lower", "upper", "joint" or "direct".
        bounds: influence and bounds.
        candidates: what the sandwich chose from; else the answer alone. Their influences share samples, with each other
            and not with `bounds`.
        tau: lower over upper bound of the answer: 1 where they pin its influence down. It stands in for the unknown
            L(S*) / f(S*) of the guarantee, and is no bound of it.
        gains: [k] what each seed added to the objective that chose it, on the samples it was chosen on: biased upwards.
        n_samples: reverse samples of the final choice, of all candidates.
        optimum_bound: the best influence of any k seeds is at most this, with probability 1 - eta^-ell less the 5 % of
            an interval; all motifs' value where nothing better is known.
        void: `max_samples` was reached.
    """

    seeds: list[Hashable]
    chosen_by: str
    bounds: MotifInfluence
    candidates: dict[str, tuple[list[Hashable], MotifInfluence]]
    tau: float
    gains: Float[np.ndarray, " k"]
    n_samples: int
    optimum_bound: float
    void: bool

    @property
    def guarantee(self) -> float:
        """Share of the best possible influence that the answer has at least (lower end of its interval over
        `optimum_bound`)."""
        return max(0.0, _ratio(self.bounds.influence.interval.low, self.optimum_bound))

    def to_frame(self) -> pd.DataFrame:
        """A row per candidate: influence with its standard error, the bounds, the seeds."""
        import pandas as pd

        rows = [
            {
                "candidate": name,
                "influence": bounds.influence.mean,
                "stderr": bounds.influence.stderr,
                "lower_tree": bounds.lower_tree.mean,
                "lower_seed": bounds.lower_seed.mean,
                "upper_min": bounds.upper_min.mean,
                "upper_any": bounds.upper_any.mean,
                "seeds": seeds,
            }
            for name, (seeds, bounds) in self.candidates.items()
        ]
        return pd.DataFrame(rows).set_index("candidate")

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.seeds[:10])) + (", ..." if len(self.seeds) > 10 else "")
        lines = [f"{len(self.seeds)} seeds ({self.chosen_by}): {shown}", str(self.bounds)]
        lines.append(f"  tau {self.tau:.3f}, at least {self.guarantee:.3f} of the best possible")
        if self.void:
            lines.append("  max_samples was reached: chosen without a guarantee")
        for name, (_, bounds) in self.candidates.items() if len(self.candidates) > 1 else ():
            lines.append(f"  {name:<10}  {bounds.influence}")
        return "\n".join(lines)

    def plot(self) -> Figure:
        """Gain per seed, and the influence between its bounds."""
        from classic_ml.influence.influence_plots import plot_seeds

        return plot_seeds(self)


class MotifInfluenceMaximizer(BaseEstimator):
    """Choose k seeds whose cascade activates as much motif value as possible.

    A motif counts when at least `threshold` of its members are active, which is neither sub- nor supermodular in the
    seeds. Bounds of it are submodular; they are maximised greedily on reverse samples of motifs, as many as IMM asks
    for. With probability 1 - eta^-ell (eta motifs), strategy "lower" has f(S) >= L(S*)/f(S*) (1 - 1/e - epsilon) f(S*),
    "upper" f(S) >= f(S)/U(S) (1 - 1/e - epsilon) f(S*). Time O((k + ell)(m + eta) log eta / epsilon^2).

    Args:
        n_seeds: k.
        strategy: "lower" or "upper" bound, "joint" (their sum in one pass), or "sandwich": lower, upper, and greedy on
            the influence itself with the lower's samples, the best by an independent estimate.
        lower_bound: "seed", some single seed reaches the threshold; or "tree", some reached member does inside the
            motif (our reading of the paper). "seed" is at least as tight.
        upper_bound: "any", a member is reached (the paper's super node); or "min", min(1, reached / threshold), which
            is at least as tight.
        epsilon: in (0, 1 - 1/e).
        ell: exponent of the failure probability.
        cascade: "lt" (linear threshold) or "ic" (independent cascade).
        max_samples: cap for every pool of samples; fit warns where it voids the guarantee.
        n_jobs: threads, -1 for all cores; results don't depend on it.
        random_state: None, an integer, a Generator or a RandomState.

    Attributes:
        result_: the `MotifSeeds`: prints, plots and turns into a table.
        seeds_: labels in the order of choice.
        influence_, lower_bound_, upper_bound_: Estimates on fresh samples (the bounds of the kinds above).
        tau_: lower_bound_ / upper_bound_.
        guarantee_: share of the best possible influence that the answer has at least.
        n_samples_: of the final choice.
        history_: a row per step: seed, gain and total of the objective on the samples of the choice (biased upwards).
    """

    def __init__(
        self,
        n_seeds: int = 10,
        *,
        strategy: str = "sandwich",
        lower_bound: str = "seed",
        upper_bound: str = "any",
        epsilon: float = 0.1,
        ell: float = 1.0,
        cascade: str = "lt",
        max_samples: int = 2_000_000,
        n_jobs: int = 1,
        random_state: RandomState = None,
    ) -> None:
        self.n_seeds = n_seeds
        self.strategy = strategy
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        self.epsilon = epsilon
        self.ell = ell
        self.cascade = cascade
        self.max_samples = max_samples
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, graph: Any, motifs: Iterable[Motif]) -> MotifInfluenceMaximizer:
        """Choose seeds of an `InfluenceGraph`, or of a networkx or igraph graph with weights 1/indegree.

        Raises ValueError for k outside 1 .. n, epsilon outside (0, 1 - 1/e), no motifs, members outside the graph,
        weights that don't suit the cascade.
        """
        self._check_parameters()
        graph = as_graph(graph)
        check_n_seeds(self.n_seeds, graph.n_nodes)
        check_cascade(graph, self.cascade)
        table = MotifTable.build(graph, motifs)
        keys = streams(self.random_state, "maximise", 6)
        both = (self.lower_bound, self.upper_bound)
        kinds = {"lower": both[:1], "upper": both[1:], "joint": both}
        names = ("lower", "upper") if self.strategy == "sandwich" else (self.strategy,)
        selections = {
            name: self._select(graph, table, kinds[name], keys[2 * i : 2 * i + 2])
            for i, name in enumerate(names)
        }
        covers = {name: selection.cover for name, selection in selections.items()}
        if self.strategy == "sandwich":
            same = draw_rr(
                graph, table, "exact", keys[1], 0, selections["lower"].n_samples, self.cascade, self.n_jobs
            )
            covers["direct"] = greedy_max_coverage(same, self.n_seeds)
            del same
        self.result_ = self._judged(graph, table, selections, covers, keys[4:])
        self.seeds_ = self.result_.seeds
        bounds = self.result_.bounds
        self.influence_ = bounds.influence
        self.lower_bound_: Estimate = getattr(bounds, f"lower_{self.lower_bound}")
        self.upper_bound_: Estimate = getattr(bounds, f"upper_{self.upper_bound}")
        self.tau_ = self.result_.tau
        self.guarantee_ = self.result_.guarantee
        self.n_samples_ = self.result_.n_samples
        gains = self.result_.gains
        self.history_ = [
            {"step": i + 1, "seed": seed, "gain": float(gains[i]), "total": float(gains[: i + 1].sum())}
            for i, seed in enumerate(self.seeds_)
        ]
        return self

    def score(self, graph: Any, motifs: Iterable[Motif]) -> float:
        """The influence of the seeds on this graph and these motifs, from as many fresh samples as fit's report."""
        check_is_fitted(self)
        graph = as_graph(graph)
        table = MotifTable.build(graph, motifs)
        key = streams(self.random_state, "score", 1)[0]
        seeds = graph.nodes(self.seeds_, "seeds_")
        n_fresh = self.result_.bounds.n_samples
        return sampled_bounds(graph, table, seeds, n_fresh, key, self.cascade, self.n_jobs).influence.mean

    def _check_parameters(self) -> None:
        one_of("strategy", self.strategy, STRATEGIES)
        one_of("lower_bound", self.lower_bound, LOWER_BOUNDS)
        one_of("upper_bound", self.upper_bound, UPPER_BOUNDS)
        at_least("n_seeds", self.n_seeds, 1)
        at_least("max_samples", self.max_samples, 1)
        if not 0 < self.epsilon < GREEDY:
            raise ValueError(f"epsilon = {self.epsilon} must lie in (0, 1 - 1/e = {GREEDY:.3f}), e.g. 0.1")
        if not (math.isfinite(self.ell) and self.ell > 0):
            raise ValueError(f"ell = {self.ell} must be positive, e.g. 1")

    def _select(
        self, graph: InfluenceGraph, table: MotifTable, kinds: tuple[str, ...], keys: list[np.uint64]
    ) -> Selection:
        def samples(key: np.uint64, first: int, last: int) -> list[RRCollection]:
            return [
                draw_rr(graph, table, kind, key, first, last, self.cascade, self.n_jobs) for kind in kinds
            ]

        rule = SampleRule(
            graph.n_nodes,
            self.n_seeds,
            len(table),
            table.total_value,
            self.epsilon,
            self.ell,
            self.max_samples,
        )
        return imm(rule, lambda a, b: samples(keys[0], a, b), lambda a, b: samples(keys[1], a, b))

    def _judged(
        self,
        graph: InfluenceGraph,
        table: MotifTable,
        selections: dict[str, Selection],
        covers: dict[str, Cover],
        keys: list[np.uint64],
    ) -> MotifSeeds:
        def judge(name: str, key: np.uint64) -> MotifInfluence:
            return sampled_bounds(graph, table, covers[name].nodes, n_fresh, key, self.cascade, self.n_jobs)

        n_chosen_on = max(selection.n_samples for selection in selections.values())
        n_fresh = int(np.clip(n_chosen_on, *REPORT_SAMPLES))
        first = {name: judge(name, keys[0]) for name in covers}
        best = max(first, key=lambda name: first[name].influence.mean)  # among equals the first
        labels = {name: [graph.labels[i] for i in cover.nodes] for name, cover in covers.items()}
        factor, optimum = GREEDY - self.epsilon, table.total_value
        for name in ("upper", "joint"):
            if name in selections and not selections[name].void:
                value = getattr(first[name], f"upper_{self.upper_bound}").interval.high
                if name == "joint":
                    value += getattr(first[name], f"lower_{self.lower_bound}").interval.high
                optimum = min(optimum, value / factor)
        bounds = judge(best, keys[1])
        lower, upper = (
            getattr(bounds, f"{side}_{getattr(self, f'{side}_bound')}") for side in ("lower", "upper")
        )
        return MotifSeeds(
            seeds=labels[best],
            chosen_by=best,
            bounds=bounds,
            tau=_ratio(lower.mean, upper.mean),
            candidates={name: (labels[name], first[name]) for name in covers},
            gains=table.total_value * covers[best].gains,
            n_samples=sum(selection.n_samples for selection in selections.values()),
            optimum_bound=optimum,
            void=any(selection.void for selection in selections.values()),
        )


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan
