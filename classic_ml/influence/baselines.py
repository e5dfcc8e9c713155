"""The seed choices that LB-MOIM is measured against.

Each returns `n_seeds` labels, best first; among equals the first label.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Float

from classic_ml.influence.coverage import check_n_seeds, greedy_max_coverage, sample_motif_rr
from classic_ml.influence.graph import InfluenceGraph, as_graph
from classic_ml.influence.maximizer import MotifInfluenceMaximizer
from classic_ml.influence.motifs import Motif, MotifTable, node_motifs
from classic_ml.random_state import RandomState, as_generator
from interp.core.messages import at_least

Seeds = list[Hashable]


def select_degree(graph: Any, n_seeds: int) -> Seeds:
    """The nodes with most outgoing edges."""
    graph = as_graph(graph)
    return _top(graph, np.bincount(graph.sources, minlength=graph.n_nodes), n_seeds)


def select_weighted_degree(graph: Any, n_seeds: int) -> Seeds:
    """The nodes with the largest sum of outgoing weights: the expected number of nodes they activate in one step."""
    graph = as_graph(graph)
    return _top(graph, np.bincount(graph.sources, graph.weights, graph.n_nodes), n_seeds)


def select_pagerank(graph: Any, n_seeds: int, *, damping: float = 0.85) -> Seeds:
    """The nodes with the largest `pagerank`."""
    graph = as_graph(graph)
    return _top(graph, pagerank(graph, damping=damping), n_seeds)


def pagerank(
    graph: Any, *, damping: float = 0.85, tolerance: float = 1e-10, max_iterations: int = 1000
) -> Float[np.ndarray, " n"]:
    """PageRank of the reversed graph [n]: who is listened to by those who are listened to. It sums to 1.

    A walker at v moves to a node that influences v in proportion to the weight, or anywhere with probability
    1 - damping or where nobody influences v. Raises RuntimeError where it does not settle.
    """
    from scipy.sparse import coo_array

    graph = as_graph(graph)
    if not 0 <= damping < 1:
        raise ValueError(f"damping = {damping} must lie in [0, 1), e.g. 0.85")
    n, total = graph.n_nodes, graph.total_weight
    share = graph.weights / np.where(total > 0, total, 1)[graph.targets]
    walk = coo_array((share, (graph.sources, graph.targets)), shape=(n, n)).tocsr()
    rank = np.full(n, 1 / n)
    for _ in range(max_iterations):
        stuck = rank[total == 0].sum()
        new = damping * (walk @ rank + stuck / n) + (1 - damping) / n
        if np.abs(new - rank).sum() < tolerance:
            return new
        rank = new
    raise RuntimeError(
        f"pagerank did not settle to {tolerance:g} within max_iterations = {max_iterations}; raise it"
    )


def select_motif_degree(graph: Any, motifs: Iterable[Motif], n_seeds: int) -> Seeds:
    """The nodes that are in most motifs, counted with the motifs' values."""
    graph = as_graph(graph)
    table = MotifTable.build(graph, motifs)
    worth = np.repeat(table.values, np.diff(table.ptr))
    return _top(graph, np.bincount(table.members, worth, graph.n_nodes), n_seeds)


def select_random(graph: Any, n_seeds: int, *, random_state: RandomState = None) -> Seeds:
    """Uniform without replacement."""
    graph = as_graph(graph)
    check_n_seeds(n_seeds, graph.n_nodes)
    picks = as_generator(random_state).choice(graph.n_nodes, n_seeds, replace=False)
    return [graph.labels[i] for i in picks]


def select_greedy(
    graph: Any,
    motifs: Iterable[Motif],
    n_seeds: int,
    *,
    n_samples: int = 20_000,
    cascade: str = "lt",
    n_jobs: int = 1,
    random_state: RandomState = None,
) -> Seeds:
    """Greedy on the influence itself over `n_samples` reverse samples: no guarantee, since it isn't submodular."""
    graph = as_graph(graph)
    options: dict[str, Any] = {"cascade": cascade, "n_jobs": n_jobs, "random_state": random_state}
    cover = greedy_max_coverage(sample_motif_rr(graph, motifs, n_samples, "exact", **options), n_seeds)
    return [graph.labels[i] for i in cover.nodes]


def select_node_influence(
    graph: Any,
    n_seeds: int,
    *,
    epsilon: float = 0.1,
    cascade: str = "lt",
    n_jobs: int = 1,
    random_state: RandomState = None,
) -> Seeds:
    """Classical influence maximisation, which is IMM: every node its own motif, so that the spread is maximised."""
    graph = as_graph(graph)
    model = MotifInfluenceMaximizer(
        n_seeds,
        strategy="lower",
        epsilon=epsilon,
        cascade=cascade,
        n_jobs=n_jobs,
        random_state=random_state,
    )
    return model.fit(graph, node_motifs(graph)).seeds_


def _top(graph: InfluenceGraph, score: np.ndarray, n_seeds: int) -> Seeds:
    at_least("n_seeds", n_seeds, 1)
    check_n_seeds(n_seeds, graph.n_nodes)
    # Ranks are sums in floating point: what differs by rounding only is a tie.
    rounded = np.round(score / max(float(score.max()), 1e-300), 9)
    return [graph.labels[i] for i in np.lexsort((np.arange(graph.n_nodes), -rounded))[:n_seeds]]
