"""Seed choices side by side: the motif influence of each on the same fresh samples, and its spread."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from classic_ml.influence import baselines
from classic_ml.influence.estimate import estimate_bounds
from classic_ml.influence.graph import InfluenceGraph, as_graph
from classic_ml.influence.maximizer import MotifInfluenceMaximizer
from classic_ml.influence.motifs import Motif, node_motifs
from classic_ml.random_state import RandomState, as_seed
from interp.core.device import derive_seed
from interp.core.messages import each_once, one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Chooser = Callable[..., list[Hashable]]
"""(graph, motifs, n_seeds, cascade=, epsilon=, random_state=) -> labels."""


def _moim(strategy: str) -> Chooser:
    def choose(graph: InfluenceGraph, motifs: list[Motif], n_seeds: int, **options: Any) -> list[Hashable]:
        return MotifInfluenceMaximizer(n_seeds, strategy=strategy, **options).fit(graph, motifs).seeds_

    return choose


CHOOSERS: dict[str, Chooser] = {
    "moim": _moim("sandwich"),
    "lower": _moim("lower"),
    "upper": _moim("upper"),
    "joint": _moim("joint"),
    "node-im": lambda graph, motifs, k, **options: baselines.select_node_influence(graph, k, **options),
    "greedy": lambda graph, motifs, k, cascade, random_state, **_: baselines.select_greedy(
        graph, motifs, k, cascade=cascade, random_state=random_state
    ),
    "degree": lambda graph, motifs, k, **_: baselines.select_degree(graph, k),
    "weighted-degree": lambda graph, motifs, k, **_: baselines.select_weighted_degree(graph, k),
    "pagerank": lambda graph, motifs, k, **_: baselines.select_pagerank(graph, k),
    "motif-degree": lambda graph, motifs, k, **_: baselines.select_motif_degree(graph, motifs, k),
    "random": lambda graph, motifs, k, random_state, **_: baselines.select_random(
        graph, k, random_state=random_state
    ),
}


@dataclass
class SeedComparison:
    """A row per way of choosing and number of seeds."""

    n_motifs: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    def to_frame(self) -> pd.DataFrame:
        """Columns chooser, n_seeds, influence, stderr, spread, cpu_seconds, seeds."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __str__(self) -> str:
        table = self.to_frame().drop(columns="seeds").set_index(["chooser", "n_seeds"])
        formats = {"influence": "{:.1f}", "stderr": "{:.1f}", "spread": "{:.1f}", "cpu_seconds": "{:.2f}"}
        return f"{self.n_motifs} motifs\n" + table.to_string(
            formatters={name: text.format for name, text in formats.items()}
        )

    def plot(self) -> Figure:
        """Influence against the number of seeds, one line per way of choosing."""
        from classic_ml.influence.influence_plots import plot_comparison

        return plot_comparison(self)


def compare_seeds(
    graph: Any,
    motifs: Iterable[Motif],
    n_seeds: int | Sequence[int],
    choosers: Mapping[str, Chooser] | Sequence[str] = ("moim", "node-im", "degree", "motif-degree", "random"),
    *,
    cascade: str = "lt",
    epsilon: float = 0.1,
    n_samples: int = 50_000,
    random_state: RandomState = 0,
) -> SeedComparison:
    """Let every chooser choose and judge all on the same `n_samples` fresh reverse samples (of nodes, for the spread).

    Choosers are names from `CHOOSERS` or a mapping of your own. Raises ValueError for unknown names, no or repeated
    numbers of seeds, and what the choosers refuse.
    """
    graph, motifs = as_graph(graph), list(motifs)
    if not isinstance(choosers, Mapping):
        for name in choosers:
            one_of("choosers", name, tuple(CHOOSERS))
        each_once("choosers", choosers)
        choosers = {name: CHOOSERS[name] for name in choosers}
    budgets = list(n_seeds) if isinstance(n_seeds, Sequence) else [n_seeds]
    each_once("n_seeds", budgets)
    if not budgets or not choosers:
        raise ValueError(
            "n_seeds or choosers is empty, so there is nothing to compare; give at least one of each"
        )
    seed, result = as_seed(random_state), SeedComparison(len(motifs))
    nodes = node_motifs(graph)
    for k in budgets:
        for name, choose in choosers.items():
            options = {"cascade": cascade, "epsilon": epsilon, "random_state": derive_seed(seed, "choose")}
            start = time.process_time()
            seeds = choose(graph, motifs, k, **options)
            seconds = time.process_time() - start
            judged = [
                estimate_bounds(
                    graph, groups, seeds, n_samples, cascade=cascade, random_state=derive_seed(seed, "judge")
                )
                for groups in (motifs, nodes)
            ]
            result.rows.append(
                {
                    "chooser": name,
                    "n_seeds": k,
                    "influence": judged[0].influence.mean,
                    "stderr": judged[0].influence.stderr,
                    "spread": judged[1].influence.mean,
                    "cpu_seconds": seconds,
                    "seeds": seeds,
                }
            )
    return result
