"""Motif makers against networkx, and the checks of what a motif is."""

from __future__ import annotations

import itertools
import warnings

import networkx as nx
import numpy as np
import pytest

from classic_ml.influence import (
    LinearThresholdGraph,
    Motif,
    clique_motifs,
    edge_motifs,
    node_motifs,
    random_connected_motifs,
    scc_motifs,
    triangle_motifs,
)
from classic_ml.influence.motifs import MotifTable


@pytest.fixture(scope="module")
def directed() -> nx.DiGraph:
    return nx.gnp_random_graph(25, 0.25, seed=3, directed=True)


def strongly_connected_cliques(graph: nx.DiGraph, size: int) -> set[frozenset]:
    cliques = (c for c in nx.enumerate_all_cliques(graph.to_undirected()) if len(c) == size)
    return {frozenset(c) for c in cliques if nx.is_strongly_connected(graph.subgraph(c))}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_cliques_are_networkxs(directed, size) -> None:
    found = clique_motifs(directed, size)
    expected = strongly_connected_cliques(directed, size)
    assert len(found) == len(expected) > 5
    assert {frozenset(motif.nodes) for motif in found} == expected
    assert all(motif.threshold == size for motif in found)
    assert [motif.nodes for motif in found] == sorted(motif.nodes for motif in found)


def test_known_numbers_of_triangles() -> None:
    assert len(triangle_motifs(nx.karate_club_graph())) == 45
    assert len(triangle_motifs(nx.les_miserables_graph(), threshold=2)) == 467
    assert len(edge_motifs(nx.karate_club_graph())) == 78
    assert len(clique_motifs(nx.complete_graph(7), 5)) == 21
    assert triangle_motifs(nx.path_graph(4)) == []
    assert [motif.nodes for motif in node_motifs(nx.path_graph(3))] == [(0,), (1,), (2,)]


def test_a_sample_of_motifs_is_part_of_them_and_repeats(directed) -> None:
    every = {motif.nodes for motif in triangle_motifs(directed, threshold=2)}
    some = triangle_motifs(directed, threshold=2, n_motifs=10, random_state=4)
    assert some == triangle_motifs(directed, threshold=2, n_motifs=10, random_state=4)
    assert len({motif.nodes for motif in some}) == 10
    assert {motif.nodes for motif in some} <= every
    with pytest.raises(ValueError, match=f"n_motifs = 5000, but the graph has only {len(every)}"):
        triangle_motifs(directed, n_motifs=5000)


def test_components() -> None:
    graph = nx.DiGraph([(0, 1), (1, 0), (1, 2), (2, 3), (3, 4), (4, 2), (5, 0)])
    assert [motif.nodes for motif in scc_motifs(graph)] == [(0, 1), (2, 3, 4)]
    assert [motif.nodes for motif in scc_motifs(graph, max_size=2, threshold=1)] == [(0, 1)]
    assert [motif.nodes for motif in scc_motifs(graph, min_size=1)] == [(0, 1), (2, 3, 4), (5,)]


def test_random_groups_are_connected() -> None:
    graph = nx.disjoint_union(nx.path_graph(3), nx.gnp_random_graph(20, 0.2, seed=1))
    groups = random_connected_motifs(graph, 4, 30, threshold=3, random_state=0)
    assert len(groups) == 30
    for motif in groups:
        assert nx.is_connected(graph.subgraph(motif.nodes))
        assert (len(motif.nodes), motif.threshold) == (4, 3)
    assert len({motif.nodes for motif in groups}) > 5
    with pytest.raises(ValueError, match="size = 21: no connected component"):
        random_connected_motifs(graph, 21, 1)


def test_a_loose_motif_is_told_and_a_strong_one_is_not(directed) -> None:
    graph = LinearThresholdGraph.from_networkx(directed)
    rng = np.random.default_rng(0)
    groups = [tuple(rng.choice(25, size, replace=False).tolist()) for size in rng.integers(1, 12, 60)]
    loose = [g for g in groups if not nx.is_strongly_connected(directed.subgraph(g))]
    assert 0 < len(loose) < 60
    with pytest.warns(UserWarning, match=f"{len(loose)} of 60 motifs are not strongly connected"):
        MotifTable.build(graph, [Motif(group, 1) for group in groups])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MotifTable.build(graph, [Motif(group, 1) for group in groups if group not in loose])


def test_a_hub_with_far_more_neighbours_than_its_motif_has_members() -> None:
    hub = nx.star_graph(40)
    hub.add_edge(1, 2)
    assert [motif.nodes for motif in triangle_motifs(hub)] == [(0, 1, 2)]
    one_way = nx.DiGraph([(leaf, 0) for leaf in range(1, 41)])
    with pytest.warns(UserWarning, match="1 of 1 motifs"):
        MotifTable.build(LinearThresholdGraph.from_networkx(one_way), [Motif((0, 1), 2)])


def test_tables_are_the_motifs() -> None:
    graph = LinearThresholdGraph.from_networkx(nx.complete_graph(4))
    table = MotifTable.build(graph, [Motif([2, 0], 1, 3.0), Motif((1, 2, 3), 2)])
    assert [group.tolist() for group in table.groups] == [[2, 0], [1, 2, 3]]
    assert (len(table), table.total_value, table.cumulative.tolist()) == (2, 4.0, [3.0, 4.0])
    pointers, motifs = table.by_node(4)
    of_node = [motifs[a:b].tolist() for a, b in itertools.pairwise(pointers)]
    assert of_node == [[0], [1], [0, 1], [1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Motif((), 1), "no nodes"),
        (lambda: Motif((1, 1), 1), r"motif \(1, 1\) has a node twice"),
        (lambda: Motif((1, 2), 3), "threshold = 3 of motif .* is more than its 2 nodes"),
        (lambda: Motif((1, 2), 0), "threshold = 0 must be at least 1"),
        (lambda: Motif((1,), 1, 0.0), "value = 0.0 .* must be positive"),
        (lambda: Motif((1,), 1, float("nan")), "must be positive and finite"),
    ],
)
def test_what_is_no_motif_is_refused(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_is_no_list_of_motifs_is_refused() -> None:
    graph = LinearThresholdGraph.from_networkx(nx.complete_graph(3))
    with pytest.raises(ValueError, match="motifs is empty"):
        MotifTable.build(graph, [])
    with pytest.raises(TypeError, match="motifs holds a tuple"):
        MotifTable.build(graph, [(0, 1)])
    with pytest.raises(ValueError, match=r"motifs: 'x' is not a node of the graph"):
        MotifTable.build(graph, [Motif((0, "x"), 1)])
    with pytest.raises(TypeError, match=r"threshold = 1\.5 is a float"):
        Motif((0, 1), 1.5)
