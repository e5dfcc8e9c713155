"""Schedules, and the identities that make several small instances fully consistent."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classic_ml.surrogates import (
    beats_all,
    comparison_matrix,
    copeland_scores,
    exact_reports,
    instance_vertices,
    knockout_modes,
    margin_scores,
    round_robin_schedule,
)


def test_the_six_class_schedule() -> None:
    assert round_robin_schedule(6) == [
        ((0, 5), (1, 4), (2, 3)),
        ((0, 4), (5, 3), (1, 2)),
        ((0, 3), (4, 2), (5, 1)),
        ((0, 2), (3, 1), (4, 5)),
        ((0, 1), (2, 5), (3, 4)),
    ]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 17), st.data())
def test_all_pairs_once_in_the_fewest_instances_of_disjoint_pairs(n: int, data) -> None:
    d = data.draw(st.integers(1, n // 2))
    schedule = round_robin_schedule(n, d)
    assert len(schedule) == math.ceil(n * (n - 1) / 2 / d)
    met = [frozenset(pair) for pairs in schedule for pair in pairs]
    assert len(met) == len(set(met)) == math.comb(n, 2)
    assert set(itertools.chain.from_iterable(met)) == set(range(n))  # no bye among them
    for pairs in schedule:
        assert 1 <= len(pairs) <= d
        assert len({c for pair in pairs for c in pair}) == 2 * len(pairs)


def test_rounds_of_even_and_odd_numbers() -> None:
    assert [len(round_robin_schedule(n)) for n in (2, 3, 6, 7, 10)] == [1, 3, 5, 7, 9]
    assert all(len(pairs) == 3 for pairs in round_robin_schedule(7))
    assert len(round_robin_schedule(10, 1)) == 45


def test_instance_vertices() -> None:
    V = instance_vertices([(0, 3), (2, 1)], 5)
    np.testing.assert_array_equal(V, [[1, 0], [0, -1], [0, 1], [-1, 0], [0, 0]])


@pytest.mark.parametrize(("n", "dimension"), [(6, None), (8, None), (7, None), (6, 2), (5, 1)])
def test_exact_reports_recover_the_distribution_and_its_mode(n: int, dimension: int | None) -> None:
    P = np.random.default_rng(0).dirichlet(np.ones(n), 20_000)
    schedule = round_robin_schedule(n, dimension)
    reports = exact_reports(P, schedule)
    scores = margin_scores(reports, schedule, n)
    assert np.abs(scores - P).max() < 1e-12
    assert (scores.argmax(1) == P.argmax(1)).all()
    wins = copeland_scores(reports, schedule, n)
    assert (wins.argmax(1) == P.argmax(1)).all()
    assert beats_all(wins).all()
    few = [u[:50] for u in reports]
    D = comparison_matrix(few, schedule, n)
    np.testing.assert_allclose(D, P[:50, :, None] - P[:50, None], atol=1e-15)
    np.testing.assert_array_equal(wins[:50], (D > 0).sum(2))
    np.testing.assert_allclose(scores[:50], (1 + D.sum(2)) / n, atol=1e-15)


def test_estimates_can_beat_each_other_in_a_circle() -> None:
    schedule = round_robin_schedule(3)
    D = np.array([[0, 1, -2], [-1, 0, 1], [2, -1, 0]])  # 0 beats 1 beats 2 beats 0, most clearly the last
    reports = [np.array([[float(D[a, b])] for ((a, b),) in [pairs]]) for pairs in schedule]
    wins = copeland_scores(reports, schedule, 3)
    assert wins.tolist() == [[1, 1, 1]]
    assert not beats_all(wins)[0]
    assert margin_scores(reports, schedule, 3).argmax(1).tolist() == [2]
    np.testing.assert_array_equal(comparison_matrix(reports, schedule, 3)[0], D)


def test_exact_ties_are_won_by_nobody() -> None:
    P = np.array([[0.4, 0.4, 0.2]])
    schedule = round_robin_schedule(3)
    wins = copeland_scores(exact_reports(P, schedule), schedule, 3)
    assert wins.tolist() == [[1, 1, 0]]
    assert not beats_all(wins)[0]


@pytest.mark.parametrize(("n", "rounds"), [(1, 0), (2, 1), (5, 3), (8, 3), (9, 4)])
def test_knockout_finds_the_mode_in_log_rounds(n: int, rounds: int) -> None:
    P = np.random.default_rng(0).dirichlet(np.ones(n), 500)
    modes, taken = knockout_modes(P)
    assert taken == rounds
    assert (modes == P.argmax(1)).all()
    assert knockout_modes(np.full((1, n), 1 / n))[0].tolist() == [0]


def test_dimensions_outside_the_schedule_are_refused() -> None:
    with pytest.raises(ValueError, match="5 classes make at most 2 disjoint pairs"):
        round_robin_schedule(5, 3)
    with pytest.raises(ValueError, match="dimension = 0"):
        round_robin_schedule(5, 0)
    with pytest.raises(ValueError, match="n_classes = 1"):
        round_robin_schedule(1)
