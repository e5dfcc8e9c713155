"""Attachment scores counted by hand, rank correlations against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from interp.probes.correlation import depth_spearman, distance_spearman
from interp.probes.grammar import ControlledGrammar
from interp.probes.scores import attachment_scores
from interp.probes.treebank import DependencyTree

A = DependencyTree(tuple("abcd"), (1, -1, 1, 2), ("x", "root", "y", "x"), tags=("X", "X", "X", "PUNCT"))
B = DependencyTree(tuple("ab"), (-1, 0), ("root", "y"), tags=("X", "X"))
LONE = DependencyTree(("a",), (-1,), ("root",), tags=("X",))

# Of A's three edges: one right, one with another label, one reversed; B's one edge is right.
PREDICTED = [[(1, 0, "x"), (1, 2, "x"), (3, 2, "x")], [(0, 1, "y")], []]


def test_counted_by_hand() -> None:
    macro = attachment_scores(PREDICTED, [A, B, LONE])
    assert (macro.uuas, macro.uas, macro.las) == pytest.approx((1.0, (2 / 3 + 1) / 2, (1 / 3 + 1) / 2))
    micro = attachment_scores(PREDICTED, [A, B, LONE], average="micro")
    assert (micro.uuas, micro.uas, micro.las) == pytest.approx((1.0, 3 / 4, 2 / 4))


def test_punctuation_left_out() -> None:
    micro = attachment_scores(PREDICTED, [A, B, LONE], average="micro", exclude_punct=True)
    assert (micro.uuas, micro.uas, micro.las) == pytest.approx((1.0, 1.0, 2 / 3))
    with pytest.raises(ValueError, match="no tags"):
        attachment_scores([[]], [DependencyTree(("a", "b"), (-1, 0), ("r", "r"))], exclude_punct=True)


def test_unknown_relations_are_wrong_and_two_heads_are_no_error() -> None:
    scores = attachment_scores([[(0, 1, "never seen"), (0, 1, "never seen")]], [B])
    assert (scores.uuas, scores.uas, scores.las) == (1.0, 1.0, 0.0)
    two_heads = attachment_scores([[(1, 0, "x"), (2, 0, "x"), (2, 3, "x")]], [A])
    assert two_heads.las == pytest.approx(2 / 3)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="1 predictions for 2 trees"):
        attachment_scores([[]], [A, B])
    with pytest.raises(ValueError, match="did you mean 'macro'"):
        attachment_scores([[]], [A], average="makro")
    with pytest.raises(ValueError, match="no sentence has an edge"):
        attachment_scores([[]], [LONE])


def test_distance_spearman_is_scipys() -> None:
    trees = ControlledGrammar().sample(8, seed=1)
    random = np.random.default_rng(0)
    predicted = [tree.distances() + random.exponential(size=(len(tree),) * 2) for tree in trees]
    by_length: dict[int, list[float]] = {}
    for matrix, tree in zip(predicted, trees, strict=True):
        rows = [spearmanr(a, b).statistic for a, b in zip(matrix, tree.distances(), strict=True)]
        by_length.setdefault(len(tree), []).extend(rows)
    expected = np.mean([np.mean(values) for values in by_length.values()])
    assert distance_spearman(predicted, trees) == pytest.approx(expected)
    whole = np.mean(
        [spearmanr(m.ravel(), t.distances().ravel()).statistic for m, t in zip(predicted, trees, strict=True)]
    )
    assert distance_spearman(predicted, trees, per="sentence") == pytest.approx(whole)


def test_perfect_order_is_one() -> None:
    trees = ControlledGrammar().sample(5, seed=2)
    assert distance_spearman([tree.distances() ** 2.0 for tree in trees], trees) == pytest.approx(1)
    assert depth_spearman([np.exp(tree.depths) for tree in trees], trees) == pytest.approx(1)
    assert depth_spearman([-tree.depths.astype(float) for tree in trees], trees) == pytest.approx(-1)
    assert np.isnan(depth_spearman([A.depths], [A]))  # four words: shorter than any length that counts
