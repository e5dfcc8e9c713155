"""Trees from points: against networkx, with ties, and oriented by hand-made prototypes."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from interp.probes.grammar import ControlledGrammar
from interp.probes.planted import sums_from_root
from interp.probes.readout import (
    Pairs,
    by_sentence,
    cosines,
    decode,
    nearest_words,
    orient,
    orient_from_root,
    spanning_forest,
)
from interp.probes.treebank import DependencyTree

STARTS = np.array([0, 6, 7, 15])


def test_pairs_stay_within_sentences() -> None:
    pairs = Pairs.within(np.array([0, 3, 4, 6]))
    assert list(zip(pairs.a.tolist(), pairs.b.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 2), (4, 5)]
    kept = Pairs.within(np.array([0, 3, 4, 6]), np.array([True, False, True, True, True, True]))
    assert list(zip(kept.a.tolist(), kept.b.tolist(), strict=True)) == [(0, 2), (4, 5)]


def test_distances_of_pairs() -> None:
    z = np.random.default_rng(0).standard_normal((15, 4))
    pairs = Pairs.within(STARTS)
    assert np.allclose(pairs.squared_distances(z), ((z[pairs.a] - z[pairs.b]) ** 2).sum(1))


@pytest.mark.parametrize("seed", range(5))
def test_spanning_trees_are_networkx_ones(seed: int) -> None:
    pairs = Pairs.within(STARTS)
    weights = np.random.default_rng(seed).exponential(size=len(pairs.a))
    graph = nx.Graph()
    graph.add_nodes_from(range(15))
    graph.add_weighted_edges_from(zip(pairs.a.tolist(), pairs.b.tolist(), weights.tolist(), strict=True))
    expected = {tuple(sorted(edge)) for edge in nx.minimum_spanning_edges(graph, data=False)}
    u, v = spanning_forest(weights, pairs)
    assert set(zip(u.tolist(), v.tolist(), strict=True)) == expected
    assert len(u) == 15 - 3


def test_ties_and_zeros_are_broken_by_the_words() -> None:
    pairs = Pairs.within(np.array([0, 4]))
    for weights in (np.zeros(6), np.full(6, 2.5)):
        u, v = spanning_forest(weights, pairs)
        assert list(zip(u.tolist(), v.tolist(), strict=True)) == [(0, 1), (0, 2), (0, 3)]


def test_cosines_of_nothing_are_zero() -> None:
    assert cosines(np.zeros((1, 2)), np.eye(2)).tolist() == [[0.0, 0.0]]
    assert cosines(np.array([[0.0, -3.0]]), np.eye(2)).tolist() == [[0.0, -1.0]]


def geometry(tree: DependencyTree) -> tuple[np.ndarray, np.ndarray]:
    """Points whose distances are exactly those of the tree and whose edges lean to their relation's axis.

    Every edge has an axis of its own besides, much longer than the relation's.
    """
    relations = sorted(set(tree.relations))
    own = np.eye(len(tree)) * 10
    kinds = np.array([[float(r == name) for name in relations] for r in tree.relations])
    points = sums_from_root(tree, np.concatenate([own, kinds], axis=1))
    prototypes = np.concatenate([np.zeros((len(relations), len(tree))), np.eye(len(relations))], axis=1)
    return points, prototypes


@pytest.mark.parametrize("rooted", [False, True])
def test_exact_geometry_is_decoded_exactly(rooted: bool) -> None:
    for tree in ControlledGrammar().sample(10, seed=8):
        points, prototypes = geometry(tree)
        starts = np.array([0, len(tree)])
        edges = decode(Pairs.within(starts), points, prototypes, starts, rooted=rooted)
        (found,) = by_sentence(edges, starts, sorted(set(tree.relations)))
        assert set(found) == set(tree.edges())


def test_the_sign_tells_the_head() -> None:
    z, prototypes = np.array([[0.0, 0.0], [1.0, 0.1]]), np.eye(2)
    edges = orient(np.array([0]), np.array([1]), z, prototypes)
    # z_head - z_dependent must point along the first axis: the head is word 1.
    assert (edges.heads.tolist(), edges.dependents.tolist(), edges.types.tolist()) == ([1], [0], [0])
    flipped = orient(np.array([0]), np.array([1]), -z, prototypes)
    assert (flipped.heads.tolist(), flipped.types.tolist()) == ([0], [0])


def test_rooted_trees_have_one_head_a_word() -> None:
    # A chain 0 - 1 - 2 in which both ends claim to be heads of 1: unrooted, word 1 has two heads.
    z = np.array([[2.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    u, v, starts = np.array([0, 1]), np.array([1, 2]), np.array([0, 3])
    free = orient(u, v, z, np.eye(2))
    assert sorted(free.dependents.tolist()) == [1, 1]
    # Both roots, 0 and 2, agree with one edge; the stronger is equal, so the first word wins.
    rooted = orient_from_root(u, v, z, np.eye(2), starts)
    assert (rooted.heads.tolist(), rooted.dependents.tolist()) == ([0, 1], [1, 2])
    given = orient_from_root(u, v, z, np.eye(2), starts, np.array([2]))
    assert (given.heads.tolist(), given.dependents.tolist()) == ([2, 1], [1, 0])


def test_nearest_words() -> None:
    z = np.array([[3.0], [1.0], [2.0], [5.0], [4.0]])
    assert nearest_words(z, np.zeros(1), np.array([0, 3, 5])).tolist() == [1, 4]
