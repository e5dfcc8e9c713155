"""The six statistics and their changes, against definitions written out again with networkx."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from interp.recall.ergm_statistics import (
    STATISTICS,
    Network,
    Specification,
    State,
    as_adjacency,
    change_statistics,
    graph_statistics,
)

TAIL = nx.Graph([(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)])


def by_hand(graph: nx.Graph, lam: float) -> list[float]:
    g, nodes = 1 - 1 / lam, list(graph)
    shared = {(u, v): len(list(nx.common_neighbors(graph, u, v))) for u, v in combinations(nodes, 2)}
    degrees = [d for _, d in graph.degree]
    return [
        graph.number_of_edges(),
        sum(nx.triangles(graph).values()) // 3,
        sum(d * (d - 1) // 2 for d in degrees),
        lam * sum(1 - g**s for (u, v), s in shared.items() if graph.has_edge(u, v)),
        lam * sum(1 - g**s for s in shared.values()),
        lam**2 * sum(g**d + d / lam - 1 for d in degrees),
    ]


def test_worked_values() -> None:
    np.testing.assert_allclose(graph_statistics(TAIL, STATISTICS), [5, 1, 6, 3, 6, 5.5])
    np.testing.assert_allclose(graph_statistics(nx.complete_graph(4), STATISTICS), [6, 4, 12, 9, 9, 10])


@pytest.mark.parametrize("lam", [1.5, 2.0, 4.0])
def test_changes_are_differences_whether_the_edge_is_there_or_not(lam: float) -> None:
    for seed in range(4):
        graph = nx.gnp_random_graph(9, 0.4, seed=seed)
        for i, j in combinations(range(9), 2):
            with_edge, without = graph.copy(), graph.copy()
            with_edge.add_edge(i, j)
            without.remove_edges_from([(i, j)])
            expected = np.subtract(by_hand(with_edge, lam), by_hand(without, lam))
            for g in (with_edge, without):
                np.testing.assert_allclose(change_statistics(g, i, j, STATISTICS, lam), expected, atol=1e-12)


def test_toggles_keep_every_array_true() -> None:
    from interp.recall import ergm_loops

    spec, rng = Specification(STATISTICS), np.random.default_rng(0)
    state = State(Network.of(nx.gnp_random_graph(12, 0.3, seed=1)), spec)
    adjacency, neighbours, degree, shared = state.arrays[3:]
    delta, z = np.empty(6), state.z
    for _ in range(300):
        i, j = rng.choice(12, 2, replace=False)
        ergm_loops.change(*state.arrays, i, j, delta)
        z = z + (1 - 2 * adjacency[i, j]) * delta
        ergm_loops.toggle(*state.arrays[3:], i, j)
    fresh = State(Network.of(adjacency), spec)
    np.testing.assert_array_equal(shared, fresh.arrays[6])
    np.testing.assert_array_equal(degree, fresh.arrays[5])
    for row, mine, k in zip(adjacency, neighbours, degree, strict=True):
        assert sorted(mine[:k]) == list(np.flatnonzero(row))
    np.testing.assert_allclose(z, graph_statistics(adjacency, STATISTICS), atol=1e-9)


def test_a_change_looks_at_the_neighbours_of_the_two_ends_only() -> None:
    """O(degree): whatever stands elsewhere in the arrays cannot matter."""
    from interp.recall import ergm_loops

    graph = nx.path_graph(40)
    state = State(Network.of(graph), Specification(STATISTICS))
    adjacency, neighbours, degree, shared = state.arrays[3:]
    near = {9, 10, 11, 19, 20, 21}
    expected, spoiled = np.empty(6), np.empty(6)
    ergm_loops.change(*state.arrays, 10, 20, expected)
    for h in set(range(40)) - near:
        adjacency[h], neighbours[h], degree[h], shared[h] = 7, 39, 39, 39
        shared[:, h] = 39
    ergm_loops.change(*state.arrays, 10, 20, spoiled)
    np.testing.assert_array_equal(spoiled, expected)


def test_fixed_dyads_are_not_free() -> None:
    true, union = nx.path_graph(4), nx.cycle_graph(4)
    network = Network.of(union, fixed=true)
    assert {tuple(d) for d in network.free} == {(0, 2), (0, 3), (1, 3)}
    assert network.observed.tolist() == [0, 1, 0]
    mask = nx.to_numpy_array(true) > 0
    np.testing.assert_array_equal(Network.of(union, fixed=mask).free, network.free)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: as_adjacency(nx.DiGraph([(0, 1)])), "directed"),
        (lambda: as_adjacency(nx.MultiGraph([(0, 1)])), "parallel"),
        (lambda: as_adjacency(nx.Graph([(0, 0), (0, 1)])), "self-loops"),
        (lambda: as_adjacency(nx.empty_graph(1)), "two nodes"),
        (lambda: as_adjacency(np.array([[0, 2], [2, 0]])), "0 and 1"),
        (lambda: graph_statistics(TAIL, ["edge"]), "did you mean 'edges'"),
        (lambda: graph_statistics(TAIL, ["edges", "edges"]), "once"),
        (lambda: graph_statistics(TAIL, lam=1.0), "lam = 1.0"),
        (lambda: graph_statistics(TAIL, lam=float("inf")), "lam = inf"),
        (lambda: change_statistics(TAIL, 1, 1), "different nodes"),
        (lambda: change_statistics(TAIL, 0, 9), "from 0 to 4"),
        (lambda: Network.of(TAIL, fixed=np.ones((5, 5), bool)), "free"),
        (lambda: Network.of(TAIL, fixed=np.ones((4, 4), bool)), "mask"),
        (lambda: Network.of(TAIL, fixed=nx.path_graph(6)), "other nodes"),
    ],
)
def test_refusals(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
