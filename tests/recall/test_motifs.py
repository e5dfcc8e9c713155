"""Censuses against counting with isomorphism tests."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import pytest

from interp.recall.motifs import MOTIFS, motif_census

PATTERNS = {
    "empty": [],
    "edge": [(0, 1)],
    "matching": [(0, 1), (2, 3)],
    "two_path": [(0, 1), (1, 2)],
    "triangle": [(0, 1), (1, 2), (0, 2)],
    "path": [(0, 1), (1, 2), (2, 3)],
    "star": [(0, 1), (0, 2), (0, 3)],
    "cycle": [(0, 1), (1, 2), (2, 3), (3, 0)],
    "paw": [(0, 1), (1, 2), (0, 2), (2, 3)],
    "diamond": [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)],
    "clique": list(combinations(range(4), 2)),
}


@pytest.mark.parametrize("size", [3, 4])
def test_census_by_isomorphism(size: int) -> None:
    patterns = {}
    for name in MOTIFS[size]:
        patterns[name] = nx.empty_graph(size)
        patterns[name].add_edges_from(PATTERNS[name])
    for seed, p in enumerate((0.2, 0.5, 0.8)):
        graph = nx.gnp_random_graph(8, p, seed=seed)
        expected = dict.fromkeys(MOTIFS[size], 0)
        for nodes in combinations(graph, size):
            part = graph.subgraph(nodes)
            expected[next(n for n, g in patterns.items() if nx.is_isomorphic(g, part))] += 1
        assert motif_census(graph, size) == expected


def test_small_graphs_and_refusals() -> None:
    assert sum(motif_census(nx.path_graph(3), 4).values()) == 0
    assert motif_census(nx.complete_graph(5))["clique"] == 5
    with pytest.raises(ValueError, match="size = 5"):
        motif_census(nx.path_graph(6), 5)
