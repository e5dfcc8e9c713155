"""Samples against exact values, backwards and forwards; what shares its choices and what doesn't."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from classic_ml.influence import (
    Estimate,
    LinearThresholdGraph,
    Motif,
    estimate_bounds,
    estimate_motif_influence,
    sample_motif_rr,
    simulate_independent_cascade,
    simulate_linear_threshold,
    triangle_motifs,
)
from classic_ml.influence.coverage import KINDS
from classic_ml.influence.estimate import BOUNDS
from tests.classic_ml.influence import worlds

pytestmark = pytest.mark.filterwarnings("ignore:.*not strongly connected")


def near(estimate: Estimate, exact: float) -> bool:
    return abs(estimate.mean - exact) <= 5 * estimate.stderr + 1e-9


@pytest.mark.parametrize("cascade", ["lt", "ic"])
def test_both_directions_agree_with_exact_values(cascade) -> None:
    for seed in range(2):
        edges, motifs = worlds.random_world(seed + 10, cascade=cascade)
        graph, seeds = worlds.as_graph(edges, cascade=cascade), (1, 4)
        exact = {name: float(value) for name, value in worlds.values(edges, motifs, seeds, cascade).items()}
        bounds = estimate_bounds(graph, motifs, seeds, 20_000, cascade=cascade, random_state=seed)
        for name in BOUNDS:
            assert near(getattr(bounds, name), exact[name]), name
        options = {"method": "forward", "cascade": cascade, "random_state": seed}
        assert near(estimate_motif_influence(graph, motifs, seeds, 20_000, **options), exact["influence"])
        simulate = simulate_linear_threshold if cascade == "lt" else simulate_independent_cascade
        spread = simulate(graph, seeds, 20_000, random_state=seed)
        assert near(spread.estimate, exact["spread"])
        assert spread.activation.sum() == pytest.approx(spread.sizes.mean())
        for v, alone in worlds.activation(edges, seeds, cascade).items():
            assert spread.activation[v] == pytest.approx(float(alone), abs=5 * 0.5 / 20_000**0.5)


def test_example_b_backwards_and_forwards() -> None:
    graph, motifs = worlds.as_graph(worlds.B[0]), worlds.B[1]
    bounds = estimate_bounds(graph, motifs, [1, 3], 200_000, random_state=0)
    assert bounds.influence.mean == pytest.approx(5 / 2, abs=0.02)
    assert bounds.lower_seed.mean == pytest.approx(49 / 24, abs=0.02)
    assert bounds.upper_min.mean == pytest.approx(11 / 4, abs=0.02)
    assert bounds.upper_any.mean == pytest.approx(3, abs=1e-9)
    forward = estimate_motif_influence(graph, motifs, [1, 3], 50_000, method="forward", random_state=0)
    assert forward.mean == pytest.approx(5 / 2, abs=0.024)


def test_members_of_a_motif_share_one_draw() -> None:
    """With a chain of its own for each member, example C gives (5/8)^2 = 0.391 for seed 0 instead of 1/2."""
    graph, motifs = worlds.as_graph(worlds.C[0]), worlds.C[1]
    assert estimate_motif_influence(graph, motifs, [0], 50_000, random_state=1).mean == pytest.approx(
        0.5, abs=0.02
    )
    rows = sample_motif_rr(graph, motifs, 50_000, "exact", random_state=1)
    assert rows.coverage([0]) == pytest.approx(0.5, abs=0.02)


def test_different_samples_share_nothing() -> None:
    graph, motifs = worlds.as_graph(worlds.C[0]), worlds.C[1]
    rows = sample_motif_rr(graph, motifs, 10_000, "any", random_state=2)
    seen = np.array([0 in rows.nodes[a:b] for a, b in zip(rows.row_ptr[:-1], rows.row_ptr[1:], strict=True)])
    centred = seen - seen.mean()
    for lag in (1, 2, 7):
        assert abs((centred[lag:] * centred[:-lag]).mean() / centred.var()) < 5 / 10_000**0.5


def test_a_chain_that_closes_a_cycle_stops_and_counts_its_seed() -> None:
    ring = LinearThresholdGraph.from_edges([0, 1, 2], [1, 2, 0], [1.0, 1.0, 1.0], scheme="given")
    rows = sample_motif_rr(ring, [Motif((0, 1), 2)], 50, "exact", random_state=0)
    assert (np.diff(rows.row_ptr) == 3).all()
    assert rows.coverage([2]) == 1
    assert estimate_motif_influence(ring, [Motif((0, 1), 2)], [2], 50, random_state=0) == Estimate(1.0, 0.0)


def test_parents_are_chosen_with_their_weights() -> None:
    weights = [0.05, 0.4, 0.15, 0.3]
    graph = LinearThresholdGraph.from_edges([1, 2, 3, 4], [0] * 4, weights, scheme="given")
    rows = sample_motif_rr(graph, [Motif((0,), 1)], 40_000, random_state=0)
    shares = np.bincount(rows.nodes, minlength=5) / 40_000
    assert shares == pytest.approx([1, *weights], abs=5 * 0.5 / 200)
    assert (np.diff(rows.row_ptr) == 1).mean() == pytest.approx(0.1, abs=5 * 0.3 / 200)


@pytest.mark.parametrize("cascade", ["lt", "ic"])
def test_kinds_are_views_of_the_same_samples(cascade) -> None:
    edges, motifs = worlds.random_world(4)
    graph = worlds.as_graph(edges)
    drawn = {
        kind: sample_motif_rr(graph, motifs, 300, kind, cascade=cascade, random_state=7) for kind in KINDS
    }
    assert (drawn["min"].nodes == drawn["exact"].nodes).all()

    def rows(kind: str) -> list[set[int]]:
        c = drawn[kind]
        return [set(c.nodes[a:b].tolist()) for a, b in zip(c.row_ptr[:-1], c.row_ptr[1:], strict=True)]

    tree, seed, some, members = rows("tree"), rows("seed"), rows("any"), rows("exact")
    ptr, need = drawn["exact"].sample_ptr, drawn["exact"].need
    for i in range(300):
        chains = members[ptr[i] : ptr[i + 1]]
        assert tree[i] <= seed[i] <= some[i] == set().union(*chains)
        assert seed[i] == {u for u in some[i] if sum(u in chain for chain in chains) >= need[i]}
    assert any(t < s for t, s in zip(tree, seed, strict=True))


def test_motifs_are_drawn_with_their_values() -> None:
    graph = LinearThresholdGraph.from_edges([0, 1, 2], [1, 2, 0])
    motifs = [Motif((0,), 1, 5.0), Motif((1,), 1, 1.0), Motif((2,), 1, 2.0)]
    rows = sample_motif_rr(graph, motifs, 20_000, random_state=0)
    assert rows.total_value == 8
    firsts = np.bincount(rows.nodes[rows.row_ptr[:-1]], minlength=3) / 20_000
    assert firsts == pytest.approx([5 / 8, 1 / 8, 1 / 4], abs=5 * 0.5 / 20_000**0.5)


def test_the_number_of_threads_and_of_samples_changes_no_sample() -> None:
    graph = nx.les_miserables_graph()
    motifs = triangle_motifs(graph, threshold=2)
    one, two = (estimate_bounds(graph, motifs, ["Valjean"], 9000, n_jobs=n, random_state=3) for n in (1, 2))
    assert one == two
    one, two = (
        estimate_motif_influence(graph, motifs, ["Valjean"], 5000, method="forward", n_jobs=n, random_state=3)
        for n in (1, 2)
    )
    assert one == two
    long = sample_motif_rr(graph, motifs, 9000, n_jobs=2, random_state=3)
    short = sample_motif_rr(graph, motifs, 5000, random_state=3)
    assert (long.nodes[: len(short.nodes)] == short.nodes).all()
    other = sample_motif_rr(graph, motifs, 5000, random_state=4)
    assert len(other.nodes) != len(short.nodes) or (other.nodes != short.nodes).any()


def test_no_seeds_reach_nothing_and_all_seeds_everything() -> None:
    graph = nx.karate_club_graph()
    motifs = triangle_motifs(graph)
    nothing = estimate_bounds(graph, motifs, [], 500, random_state=0)
    assert [getattr(nothing, name).mean for name in BOUNDS] == [0] * 5
    everything = estimate_bounds(graph, motifs, range(34), 500, random_state=0)
    assert everything.influence.mean == everything.upper_any.mean == pytest.approx(45)
    assert simulate_linear_threshold(graph, [], 5, random_state=0).sizes.tolist() == [0] * 5


def test_results_are_tables() -> None:
    graph, motifs = worlds.as_graph(worlds.B[0]), worlds.B[1]
    bounds = estimate_bounds(graph, motifs, [2], 5000, random_state=0)
    frame = bounds.to_frame()
    assert frame.index.tolist() == list(BOUNDS)
    assert frame.loc["influence", "low"] == pytest.approx(
        bounds.influence.mean - 1.96 * bounds.influence.stderr
    )
    assert "5,000 samples" in str(bounds)
    assert str(bounds.influence) in str(bounds)
    assert float(bounds.influence) == bounds.influence.mean
    spread = simulate_linear_threshold(graph, [2], 1000, random_state=0)
    assert spread.to_frame().loc[2, "activation"] == 1
    assert "(1,000 runs)" in str(spread)


def test_what_cannot_be_sampled_is_refused() -> None:
    graph, motifs = worlds.as_graph(worlds.B[0]), worlds.B[1]
    for call, message in (
        (lambda: estimate_bounds(graph, motifs, [9], 10), "seeds: 9 is not a node"),
        (lambda: estimate_bounds(graph, motifs, [1], 1), "n_samples = 1 must be at least 2"),
        (lambda: estimate_motif_influence(graph, motifs, [1], 10, method="sideways"), "method = 'sideways'"),
        (lambda: estimate_motif_influence(graph, motifs, [1], 1, method="forward"), "n_samples = 1 must"),
        (lambda: simulate_linear_threshold(graph, [1], 0), "n_runs = 0 must be at least 2"),
        (lambda: sample_motif_rr(graph, motifs, 10, "all"), "kind = 'all' is not known"),
        (lambda: sample_motif_rr(graph, motifs, 10, cascade="LT"), "cascade = 'LT' is not known"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
