"""Trees: what is refused, distances against networkx, and where words stand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from interp.probes.grammar import ControlledGrammar
from interp.probes.treebank import DependencyTree, locate, relation_types


def tree(*heads: int) -> DependencyTree:
    n = len(heads)
    return DependencyTree(tuple("abcdefghij"[:n]), heads, tuple(f"r{i}" for i in range(n)))


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ((), "at least one word"),
        ((-1, 2), r"heads\[1\]=2"),
        ((-1, -2), r"heads\[1\]=-2"),
        ((-1, 1), "its own head"),
        ((1, 0), "0 roots"),
        ((-1, -1), "2 roots"),
        ((-1, 2, 1), "word 1 hangs in a cycle"),
    ],
)
def test_broken_trees_are_refused(heads: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tree(*heads)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="relations has 1 entries for 2 words"):
        DependencyTree(("a", "b"), (-1, 0), ("root",))


def test_distances_and_depths_agree_with_networkx() -> None:
    for sample in ControlledGrammar().sample(30, max_depth=3, seed=3):
        graph = nx.Graph([(head, word) for head, word, _ in sample.edges()])
        paths = dict(nx.all_pairs_shortest_path_length(graph))
        expected = [[paths[i][j] for j in range(len(sample))] for i in range(len(sample))]
        assert np.array_equal(sample.distances(), expected)
        assert np.array_equal(sample.depths, [paths[sample.root][i] for i in range(len(sample))])


def test_edges_leave_out_the_root_arc() -> None:
    assert tree(1, -1, 1).edges() == [(1, 0, "r0"), (1, 2, "r2")]
    assert relation_types([tree(1, -1, 1)]) == ("r0", "r2")
    assert tree(-1).edges() == []


def test_projectivity() -> None:
    assert tree(-1, 0, 1, 0).is_projective()
    assert not tree(2, 3, -1, 2).is_projective()


def test_words_are_found_in_the_text() -> None:
    assert locate(("I", "do", "n't", "."), "I don't.") == ((0, 1), (2, 4), (4, 7), (7, 8))
    assert tree(-1, 0).spans == ((0, 1), (2, 3))
    with pytest.raises(ValueError, match=r"words\[1\]='x'"):
        locate(("a", "x"), "a b")
