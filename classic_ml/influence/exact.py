"""Exact values on small graphs: every live-edge graph with its probability."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from classic_ml.influence.coverage import check_n_seeds
from classic_ml.influence.estimate import BOUNDS, MotifInfluence
from classic_ml.influence.graph import InfluenceGraph, as_graph, check_cascade
from classic_ml.influence.motifs import NO_MOTIFS, Motif, MotifTable
from interp.core.messages import one_of

MAX_LIVE_GRAPHS = 2e6
_AT_ONCE, _SETS_AT_ONCE = 2**13, 128  # live-edge graphs, and seed sets, in memory
OBJECTIVES = (*BOUNDS, "spread")


def exact_motif_influence(
    graph: Any, motifs: Iterable[Motif], seeds: Iterable[Hashable], *, cascade: str = "lt"
) -> MotifInfluence:
    """The influence of `seeds` and its bounds, by enumeration of all live-edge graphs.

    Raises ValueError where there may be more than 2e6 of them: prod(indegree + 1) for "lt", 2^m for "ic".
    """
    graph = as_graph(graph)
    table = MotifTable.build(graph, motifs)
    values = exact_values(graph, table, [graph.nodes(seeds)], cascade)[0]
    return MotifInfluence.of(values[: len(BOUNDS)], np.zeros(len(BOUNDS)))


def exact_spread(graph: Any, seeds: Iterable[Hashable], *, cascade: str = "lt") -> float:
    """The expected number of active nodes. Raises as `exact_motif_influence` does."""
    graph = as_graph(graph)
    return float(exact_values(graph, NO_MOTIFS, [graph.nodes(seeds)], cascade)[0, -1])


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
    sets = [np.array(seeds) for seeds in itertools.combinations(range(graph.n_nodes), n_seeds)]
    total = exact_values(graph, table, sets, cascade)[:, OBJECTIVES.index(objective)]
    best = int(np.flatnonzero(total >= total.max() - 1e-12)[0])
    return [graph.labels[i] for i in sets[best]], float(total[best])


def exact_values(
    graph: InfluenceGraph, table: MotifTable, sets: Sequence[Int[np.ndarray, " k"]], cascade: str
) -> Float[np.ndarray, "sets 6"]:
    """A row per seed set (node numbers), a column per entry of `OBJECTIVES`."""
    total = np.zeros((len(sets), len(OBJECTIVES)))
    chosen = np.zeros((len(sets), graph.n_nodes), np.float32)
    for row, seeds in zip(chosen, sets, strict=True):
        row[seeds] = 1
    for live, probability in live_graphs(graph, cascade):
        reach = _reach(graph, live)
        roots = [_reach(graph, live, group)[:, group][:, :, group].sum(2) for group in table.groups]
        for start in range(0, len(sets), _SETS_AT_ONCE):
            part = slice(start, start + _SETS_AT_ONCE)
            active = chosen[part] @ reach.astype(np.float32) > 0  # [graphs, sets, n]
            value = total[part]
            value[:, 5] += probability @ active.sum(2)
            motifs = zip(table.groups, roots, table.thresholds, table.values, strict=True)
            for group, inner, need, worth in motifs:
                members = active[:, :, group]
                reached = members.sum(2)
                alone = reach[:, :, group].sum(2) >= need  # [graphs, n]: by which single seed
                value[:, 0] += worth * (probability @ (members & (inner >= need)[:, None]).any(2))
                value[:, 1] += worth * (probability @ (alone.astype(np.float32) @ chosen[part].T > 0))
                value[:, 2] += worth * (probability @ (reached >= need))
                value[:, 3] += worth * (probability @ np.minimum(1, reached / need))
                value[:, 4] += worth * (probability @ (reached > 0))
    return total


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
