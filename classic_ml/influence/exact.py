"""Exact values on small graphs: every live-edge graph with its probability."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from classic_ml.influence.coverage import check_n_seeds
from classic_ml.influence.estimate import BOUNDS, Estimate, MotifInfluence
from classic_ml.influence.graph import InfluenceGraph, as_graph, check_cascade
from classic_ml.influence.motifs import Motif, MotifTable
from interp.core.messages import one_of

MAX_LIVE_GRAPHS = 2e6
_AT_ONCE = 2**15  # live-edge graphs in memory
OBJECTIVES = (*BOUNDS, "spread")


def exact_motif_influence(
    graph: Any, motifs: Iterable[Motif], seeds: Iterable[Hashable], *, cascade: str = "lt"
) -> MotifInfluence:
    """The influence of `seeds` and its bounds, by enumeration of all live-edge graphs.

    Raises ValueError where there may be more than 2e6 of them: prod(indegree + 1) for "lt", 2^m for "ic".
    """
    graph = as_graph(graph)
    table = MotifTable.build(graph, motifs)
    chosen = graph.nodes(seeds)
    total = np.zeros(len(BOUNDS))
    for live, probability in live_graphs(graph, cascade):
        reach = _reach(graph, live)
        total += [float(probability @ value) for value in _values(graph, table, live, reach, chosen).values()]
    return MotifInfluence(*(Estimate(float(value)) for value in total))


def exact_spread(graph: Any, seeds: Iterable[Hashable], *, cascade: str = "lt") -> float:
    """The expected number of active nodes. Raises as `exact_motif_influence` does."""
    graph = as_graph(graph)
    chosen = graph.nodes(seeds)
    return sum(
        float(probability @ _reach(graph, live)[:, chosen].any(1).sum(1))
        for live, probability in live_graphs(graph, cascade)
    )


def brute_force(
    graph: Any, motifs: Iterable[Motif], n_seeds: int, objective: str = "influence", *, cascade: str = "lt"
) -> tuple[list[Hashable], float]:
    """The best of all seed sets of `n_seeds` nodes and its value; among equals (to 1e-12) the first in label order.

    `objective` is a field of `MotifInfluence` or "spread". Raises as `exact_motif_influence` does.
    """
    graph = as_graph(graph)
    one_of("objective", objective, OBJECTIVES)
    check_n_seeds(n_seeds, graph.n_nodes)
    table = MotifTable.build(graph, motifs)
    sets = list(itertools.combinations(range(graph.n_nodes), n_seeds))
    total = np.zeros(len(sets))
    for live, probability in live_graphs(graph, cascade):
        reach = _reach(graph, live)
        for i, seeds in enumerate(sets):
            chosen = np.array(seeds)
            if objective == "spread":
                total[i] += float(probability @ reach[:, chosen].any(1).sum(1))
            else:
                total[i] += float(probability @ _values(graph, table, live, reach, chosen)[objective])
    best = int(np.flatnonzero(total >= total.max() - 1e-12)[0])
    return [graph.labels[i] for i in sets[best]], float(total[best])


def live_graphs(
    graph: InfluenceGraph, cascade: str
) -> Iterator[tuple[Bool[np.ndarray, "c m"], Float[np.ndarray, " c"]]]:
    """Blocks of live-edge graphs as flags of edges, and their probabilities, which sum to 1 over all blocks."""
    check_cascade(graph, cascade)
    m = graph.n_edges
    log_count = float(np.log(graph.indegree + 1).sum()) if cascade == "lt" else m * math.log(2)
    if log_count > math.log(MAX_LIVE_GRAPHS):
        raise ValueError(
            f"the graph has about 10^{log_count / math.log(10):.1f} live-edge graphs, exact values take at most "
            f"{MAX_LIVE_GRAPHS:g}; use estimate_bounds"
        )
    choices: list[
        list[tuple[int, float]]
    ] = []  # per node (lt) or edge (ic): the live edge, -1 for none, and its odds
    if cascade == "lt":
        for v in range(graph.n_nodes):
            edges = range(graph.in_ptr[v], graph.in_ptr[v + 1])
            options = [(e, float(graph.weights[e])) for e in edges] + [
                (-1, 1.0 - float(graph.total_weight[v]))
            ]
            choices.append(options)
    else:
        choices = [[(e, float(w)), (-1, 1.0 - float(w))] for e, w in enumerate(graph.weights)]
    choices = [[option for option in options if option[1] > 1e-12] for options in choices]
    sizes = [len(options) for options in choices]
    for start in range(0, math.prod(sizes), _AT_ONCE):
        number = np.arange(start, min(start + _AT_ONCE, math.prod(sizes)))
        live, probability = np.zeros((len(number), m + 1), bool), np.ones(len(number))
        for options in choices:
            number, digit = np.divmod(number, len(options))
            edge, odds = (np.array(column) for column in zip(*options, strict=True))
            live[np.arange(len(live)), edge[digit]] = True  # column m collects "none"
            probability *= odds[digit]
        yield live[:, :m], probability


def _reach(
    graph: InfluenceGraph, live: Bool[np.ndarray, "c m"], allowed: Int[np.ndarray, " a"] | None = None
) -> Bool[np.ndarray, "c n n"]:
    """reach[., u, v]: u reaches v over live edges (between `allowed` nodes)."""
    reach = np.broadcast_to(
        np.eye(graph.n_nodes, dtype=bool), (len(live), graph.n_nodes, graph.n_nodes)
    ).copy()
    edges = np.arange(graph.n_edges)
    if allowed is not None:
        edges = edges[np.isin(graph.sources, allowed) & np.isin(graph.targets, allowed)]
    while True:
        before = reach.copy()
        for e in edges:
            reach[:, :, graph.targets[e]] |= reach[:, :, graph.sources[e]] & live[:, e, None]
        if (reach == before).all():
            return reach


def _values(
    graph: InfluenceGraph,
    table: MotifTable,
    live: Bool[np.ndarray, "c m"],
    reach: Bool[np.ndarray, "c n n"],
    seeds: Int[np.ndarray, " k"],
) -> dict[str, Float[np.ndarray, " c"]]:
    """Per live-edge graph the value of each bound, summed over motifs."""
    total = {name: np.zeros(len(live)) for name in BOUNDS}
    for i in range(len(table)):
        members = table.members[table.ptr[i] : table.ptr[i + 1]]
        need, value = table.thresholds[i], table.values[i]
        by_seed = reach[:, seeds][:, :, members]
        reached = by_seed.any(1)
        roots = _reach(graph, live, members)[:, members][:, :, members].sum(2) >= need
        total["lower_tree"] += value * (reached & roots).any(1)
        total["lower_seed"] += value * (by_seed.sum(2) >= need).any(1)
        total["influence"] += value * (reached.sum(1) >= need)
        total["upper_min"] += value * np.minimum(1, reached.sum(1) / need)
        total["upper_any"] += value * reached.any(1)
    return total
