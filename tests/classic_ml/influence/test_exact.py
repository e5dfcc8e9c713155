"""Exact values: the worked examples as fractions, random graphs against an independent enumeration, the theorems."""

from __future__ import annotations

import itertools
from fractions import Fraction as F

import numpy as np
import pytest

from classic_ml.influence import (
    LinearThresholdGraph,
    Motif,
    brute_force,
    exact_motif_influence,
    exact_spread,
)
from classic_ml.influence.exact import OBJECTIVES, exact_values
from classic_ml.influence.motifs import MotifTable
from tests.classic_ml.influence import worlds

pytestmark = pytest.mark.filterwarnings("ignore:.*not strongly connected")

# seeds: spread, influence, lower_tree, lower_seed, upper_min, upper_any; None where the source gives no figure.
EXAMPLES = {
    ("A", (0,)): (None, F(1, 4), None, None, F(5, 8), F(1)),
    ("A", (1,)): (None, F(1, 4), None, None, F(5, 8), F(1)),
    ("A", (0, 1)): (F(2), F(1), None, F(7, 16), F(1), F(1)),
    ("B", (0,)): (F(15, 8), F(5, 12), F(5, 12), F(5, 12), F(5, 8), F(5, 6)),
    ("B", (2,)): (F(9, 4), F(7, 6), F(7, 6), F(7, 6), F(7, 4), F(7, 3)),
    ("B", (4,)): (F(71, 48), F(9, 8), F(9, 8), F(9, 8), F(61, 48), F(17, 12)),
    ("B", (0, 4)): (F(79, 24), F(19, 12), F(35, 24), F(35, 24), F(29, 16), F(49, 24)),
    ("B", (1, 3)): (F(15, 4), F(5, 2), F(49, 24), F(49, 24), F(11, 4), F(3)),
    ("C", (0,)): (None, F(1, 2), F(1, 4), F(1, 2), None, None),
    ("C", (0, 1)): (None, F(3, 4), F(3, 8), F(5, 8), F(7, 8), F(1)),
    ("D", (0,)): (F(3), F(1, 4), None, None, None, None),
    ("D", (5,)): (None, F(7, 9), None, F(7, 9), None, None),
    ("D", (0, 5)): (F(44, 9), F(37, 36), None, None, None, None),
    ("D", (5, 6)): (None, F(5, 3), F(29, 27), F(11, 9), None, None),
    ("D", (1, 5)): (None, F(7, 9), None, None, None, F(3)),
}
ORDER = ("spread", "influence", "lower_tree", "lower_seed", "upper_min", "upper_any")


def all_values(edges, motifs, sets, cascade="lt") -> np.ndarray:
    graph = worlds.as_graph(edges, cascade=cascade)
    numbers = [graph.nodes(seeds) for seeds in sets]
    return exact_values(graph, MotifTable.build(graph, motifs), numbers, cascade)


@pytest.mark.parametrize(("world", "seeds"), list(EXAMPLES))
def test_worked_examples(world, seeds) -> None:
    edges, motifs = getattr(worlds, world)
    graph = worlds.as_graph(edges)
    ours = exact_motif_influence(graph, motifs, seeds)
    theirs = worlds.values(edges, motifs, seeds)
    for name, expected in zip(ORDER, EXAMPLES[world, seeds], strict=True):
        seen = exact_spread(graph, seeds) if name == "spread" else getattr(ours, name).mean
        assert seen == pytest.approx(float(theirs[name]), abs=1e-12), name
        if expected is not None:
            assert theirs[name] == expected, name
    assert ours.n_samples == 0
    assert ours.influence.stderr == 0
    assert "exact" in str(ours)


def test_best_sets_of_the_examples() -> None:
    b, motifs = worlds.as_graph(worlds.B[0]), worlds.B[1]
    for objective in OBJECTIVES:
        assert brute_force(b, motifs, 2, objective)[0] == [1, 3]
    d, motifs = worlds.as_graph(worlds.D[0]), worlds.D[1]
    assert brute_force(d, motifs, 1, "spread") == ([0], pytest.approx(3))
    assert brute_force(d, motifs, 1) == ([5], pytest.approx(7 / 9))
    assert brute_force(d, motifs, 2, "spread") == ([0, 5], pytest.approx(44 / 9))
    assert brute_force(d, motifs, 2, "influence") == ([5, 6], pytest.approx(5 / 3))
    assert brute_force(d, motifs, 2, "lower_seed") == ([5, 6], pytest.approx(11 / 9))
    assert brute_force(d, motifs, 2, "lower_tree") == ([5, 6], pytest.approx(29 / 27))
    # The upper bound alone can mislead: its best pair {1, 5} has an influence of 7/9 only.
    assert brute_force(d, motifs, 2, "upper_any") == ([1, 5], pytest.approx(3))


@pytest.mark.parametrize("cascade", ["lt", "ic"])
def test_random_graphs_against_fractions(cascade) -> None:
    sets = [(0,), (2, 4), (1, 3, 5)]
    for seed in range(2):
        edges, motifs = worlds.random_world(seed, cascade=cascade)
        ours = all_values(edges, motifs, sets, cascade)
        for row, seeds in zip(ours, sets, strict=True):
            theirs = worlds.values(edges, motifs, seeds, cascade)
            assert row == pytest.approx([float(theirs[name]) for name in OBJECTIVES], abs=1e-12)


@pytest.mark.parametrize(("cascade", "n_graphs"), [("lt", 50), ("ic", 10)])
def test_order_monotonicity_and_submodularity(cascade, n_graphs) -> None:
    sets = [tuple(v for v in range(6) if mask >> v & 1) for mask in range(64)]
    neither_sub, neither_super = 0, 0
    masks = np.arange(64)
    nested = [(a, b) for a, b in itertools.product(range(64), repeat=2) if a & b == a]
    small, large = (np.array(column) for column in zip(*nested, strict=True))
    for seed in range(n_graphs):
        edges, motifs = worlds.random_world(seed, cascade=cascade)
        value = all_values(edges, motifs, sets, cascade)
        assert (np.diff(value[:, :5], axis=1) >= -1e-12).all()
        for v in range(6):
            gain = value[masks | 1 << v] - value
            assert (gain >= -1e-12).all()
            outside = (large >> v & 1) == 0
            excess = (gain[small] - gain[large])[outside]
            assert (excess[:, [0, 1, 3, 4, 5]] >= -1e-12).all()
            neither_sub += (excess[:, 2] < -1e-9).any()
            neither_super += (excess[:, 2] > 1e-9).any()
    assert neither_sub > 0
    assert neither_super > 0


def test_all_are_equal_at_threshold_one() -> None:
    edges, motifs = worlds.random_world(3)
    ones = [Motif(motif.nodes, 1, motif.value) for motif in motifs]
    value = all_values(edges, ones, [(0,), (1, 4), (2, 3, 5)])
    assert value[:, :5] == pytest.approx(np.repeat(value[:, 2:3], 5, axis=1), abs=1e-12)


def test_a_single_seed_is_its_own_lower_bound() -> None:
    edges, motifs = worlds.random_world(5)
    value = all_values(edges, motifs, [(v,) for v in range(6)])
    assert value[:, 1] == pytest.approx(value[:, 2], abs=1e-12)


def test_a_cycle_of_certain_edges() -> None:
    ring = LinearThresholdGraph.from_edges([0, 1, 2], [1, 2, 0], [1.0, 1.0, 1.0], scheme="given")
    assert exact_motif_influence(ring, [Motif((0, 1, 2), 3)], [1]).influence.mean == pytest.approx(1)


def test_what_is_too_large_is_refused() -> None:
    path = np.arange(30)
    graph = LinearThresholdGraph.from_edges(path[:-1], path[1:], directed=False)
    with pytest.raises(ValueError, match=r"10\^14\.0 live-edge graphs.*use estimate_bounds"):
        exact_motif_influence(graph, [Motif((0, 1), 1)], [0])
    with pytest.raises(ValueError, match="live-edge graphs"):
        exact_spread(graph, [0], cascade="ic")
    with pytest.raises(ValueError, match="objective = 'best' is not known"):
        brute_force(graph, [Motif((0,), 1)], 1, "best")
