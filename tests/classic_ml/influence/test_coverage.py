"""Greedy coverage against the plainest greedy there is, for every kind of worth."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest

from classic_ml.influence import RRCollection, greedy_max_coverage, sample_motif_rr, triangle_motifs
from classic_ml.influence.coverage import KINDS
from tests.classic_ml.influence import worlds

pytestmark = pytest.mark.filterwarnings("ignore:.*not strongly connected")


def plain_worth(c: RRCollection, seeds: list[int]) -> float:
    total = 0.0
    for s in range(len(c)):
        rows = range(c.sample_ptr[s], c.sample_ptr[s + 1])
        met = sum(bool(set(c.nodes[c.row_ptr[i] : c.row_ptr[i + 1]].tolist()) & set(seeds)) for i in rows)
        total += min(1, met / c.need[s]) if c.kind == "min" else met >= c.need[s]
    return total / len(c)


def plain_greedy(parts: list[RRCollection], weights: list[float], k: int) -> list[int]:
    seeds: list[int] = []
    for _ in range(k):
        value = {
            v: sum(w * plain_worth(c, [*seeds, v]) for c, w in zip(parts, weights, strict=True))
            for v in range(len(parts[0].labels))
            if v not in seeds
        }
        best = max(value.values())
        seeds.append(min(v for v in value if value[v] >= best * (1 - 1e-9)))
    return seeds


def collection(kind: str, seed: int = 0, n: int = 150) -> RRCollection:
    edges, motifs = worlds.random_world(seed, n=7)
    return sample_motif_rr(worlds.as_graph(edges), motifs, n, kind, random_state=seed)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_the_plain_one(kind) -> None:
    for seed in range(3):
        c = collection(kind, seed)
        cover = greedy_max_coverage(c, 4)
        assert cover.nodes.tolist() == plain_greedy([c], [1.0], 4)
        for k in range(5):
            assert cover.gains[:k].sum() == pytest.approx(plain_worth(c, cover.nodes[:k].tolist()))
        assert cover.worth == pytest.approx(c.coverage(cover.nodes.tolist()))


@pytest.mark.parametrize("kinds", [("seed", "any"), ("tree", "min"), ("any", "exact")])
def test_several_collections_are_weighed(kinds) -> None:
    parts = [collection(kinds[0], 1, 100), collection(kinds[1], 1, 150)]
    for weights in ([1.0, 1.0], [0.1, 2.0], [1e-12, 0.0]):
        cover = greedy_max_coverage(parts, 3, weights)
        assert cover.nodes.tolist() == plain_greedy(parts, weights, 3)
        expected = sum(w * plain_worth(c, cover.nodes.tolist()) for c, w in zip(parts, weights, strict=True))
        assert cover.worth == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["seed", "tree", "any", "min"])
def test_greedy_is_within_its_factor_of_the_best(kind) -> None:
    c = collection(kind, 2, 400)
    best = max(c.coverage(seeds) for seeds in itertools.combinations(range(7), 3))
    assert best + 1e-12 >= greedy_max_coverage(c, 3).worth >= (1 - 1 / math.e) * best


def test_ties_go_to_the_first_label_even_when_nothing_is_left_to_cover() -> None:
    graph = nx.cycle_graph(6)
    c = sample_motif_rr(
        nx.complete_graph(3), triangle_motifs(nx.complete_graph(3), threshold=1), 50, "any", random_state=0
    )
    assert greedy_max_coverage(c, 3).nodes.tolist() == [0, 1, 2]
    assert greedy_max_coverage(c, 3).gains.tolist() == [1, 0, 0]
    with pytest.raises(ValueError, match="n_seeds = 7 is more than the graph's 6 nodes"):
        greedy_max_coverage(sample_motif_rr(graph, [worlds.Motif((0,), 1)], 5), 7)


def test_empty_rows_count_in_the_denominator() -> None:
    edges, motifs = worlds.C  # with probability (3/4)^2 neither member listens to the other
    c = sample_motif_rr(worlds.as_graph(edges), motifs, 300, "tree", random_state=0)
    empty = (np.diff(c.row_ptr) == 0).mean()
    assert empty == pytest.approx(9 / 16, abs=5 * 0.5 / 300**0.5)
    assert c.coverage(range(3)) == pytest.approx(1 - empty)
    assert len(c) == 300
    assert c.nbytes == 4 * len(c.nodes) + 8 * 301 + 8 * 301 + 4 * 300


def test_what_does_not_go_together_is_refused() -> None:
    c = collection("seed")
    other = sample_motif_rr(nx.karate_club_graph(), triangle_motifs(nx.karate_club_graph()), 5)
    for call, message in (
        (lambda: greedy_max_coverage([], 1), "collections is empty"),
        (lambda: greedy_max_coverage([c, other], 1), "different graphs"),
        (lambda: greedy_max_coverage([c], 1, [1, 2]), "weights has 2 entries for 1 collections"),
        (lambda: greedy_max_coverage([collection("min"), collection("exact")], 1), "mix the kinds"),
        (lambda: greedy_max_coverage([c, c], 1, [1, -1]), "must not be negative"),
        (lambda: greedy_max_coverage(c, 0), "n_seeds = 0 must be at least 1"),
        (lambda: greedy_max_coverage(c, 8), "n_seeds = 8 is more than"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
