"""The game: acceptance A, the example worked by hand, the guarantee on random games, the linear program's duality."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classic_ml.invariance import exact_oracle, game_value, n_rounds_for, play_game

ROWS = np.array([[0.3, 0.3, 0.3], [0.05, 0.05, 0.6], [0.0, 0.5, 0.1]])
BY_HAND = np.array([[0.0, 1.0], [0.6, 0.2]])


@pytest.mark.parametrize(("n_rounds", "seen"), [(10, 0.32), (100, 0.305), (1000, 0.3016), (10000, 0.3005)])
def test_acceptance_a_mixture(n_rounds: int, seen: float) -> None:
    game = play_game(exact_oracle(ROWS), 3, n_rounds=n_rounds)
    assert game.slack == pytest.approx(math.sqrt(math.log(3) / (2 * n_rounds)))
    assert game.worst <= 0.3 + game.slack
    assert game.worst == pytest.approx(seen, abs=5e-5)
    assert game.played <= 0.3 <= game.worst + 1e-9


def test_acceptance_a_value() -> None:
    found = game_value(ROWS)
    assert found.value == pytest.approx(0.3)
    assert found.predictors == pytest.approx([1, 0, 0], abs=1e-9)


def test_worked_by_hand() -> None:
    game = play_game(exact_oracle(BY_HAND), 2, n_rounds=2)
    assert game.eta == pytest.approx(1.6651, abs=1e-4)
    assert game.weights == pytest.approx(np.array([[0.5, 0.5], [0.66062, 0.33938]]), abs=1e-5)
    assert game.costs.tolist() == [[0.6, 0.2], [0.0, 1.0]]
    assert game.mixture_costs == pytest.approx([0.3, 0.6])
    assert game.worst <= 0.4286 + 0.4163
    assert game.slack == pytest.approx(0.4163, abs=1e-4)
    found = game_value(BY_HAND)
    assert found.value == pytest.approx(3 / 7)
    assert found.predictors == pytest.approx([2 / 7, 5 / 7])
    assert found.transforms == pytest.approx([4 / 7, 3 / 7])


@st.composite
def games(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    numbers = draw(st.lists(st.integers(0, 20), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.array(numbers, float).reshape(shape) / 20


@settings(max_examples=60, deadline=None, derandomize=True)
@given(games(), st.integers(1, 60))
def test_guarantee_and_duality(errors: np.ndarray, n_rounds: int) -> None:
    value, predictors, transforms = game_value(errors)
    assert predictors.sum() == pytest.approx(1)
    assert transforms.sum() == pytest.approx(1)
    assert (predictors @ errors).max() == pytest.approx(value, abs=1e-9)  # both optimal: v* from both sides
    assert (errors @ transforms).min() == pytest.approx(value, abs=1e-9)
    assert value <= errors.max(1).min() + 1e-9
    game = play_game(exact_oracle(errors), errors.shape[1], n_rounds=n_rounds)
    assert game.worst <= value + math.sqrt(math.log(errors.shape[1]) / (2 * n_rounds)) + 1e-9
    assert game.played <= value + 1e-9
    assert value <= game.worst + 1e-9
    assert game.worst <= game.bound + 1e-9
    assert (game.oracle_gaps <= 1e-9).all()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 40), st.floats(0.5, 2))
def test_bound_needs_no_oracle(seed: int, n_transforms: int, n_rounds: int, spread: float) -> None:
    """Whatever the costs, also such as lie more than 1 apart."""
    costs = np.random.default_rng(seed).uniform(-spread / 2, spread / 2, (n_rounds, n_transforms))
    rows = iter(costs)
    game = play_game(lambda q: next(rows), n_transforms, n_rounds=n_rounds)
    assert game.worst <= game.bound + 1e-9


def test_weights_go_up_where_the_cost_is_high() -> None:
    game = play_game(lambda q: np.array([0.1, 0.9]), 2, n_rounds=20)
    assert (np.diff(game.weights[:, 1]) > 0).all()


def test_last_answer_is_not_the_output() -> None:
    """The mixture nears 3/7; every single row has a worst case of 0.6 at least."""
    game = play_game(exact_oracle(BY_HAND), 2, n_rounds=2000)
    assert game.worst == pytest.approx(3 / 7, abs=math.sqrt(math.log(2) / 4000))
    assert game.costs[-1].max() >= 0.6


def test_early_stop_keeps_its_promise() -> None:
    game = play_game(exact_oracle(ROWS), 3, n_rounds=10000, tol=0.05)
    assert len(game.costs) < 1000
    assert game.gap <= 0.05
    assert game.worst <= 0.3 + 0.05
    assert game.worst <= game.bound
    one_less = play_game(exact_oracle(ROWS), 3, n_rounds=10000)
    frame = one_less.to_frame()
    assert (frame.gap.iloc[: len(game.costs) - 1] > 0.05).all()
    assert frame.gap.iloc[len(game.costs) - 1] == pytest.approx(game.gap)


def test_one_transformation_is_plain_erm() -> None:
    game = play_game(exact_oracle([[0.4], [0.2]]), 1)
    assert game.costs.tolist() == [[0.2]]
    assert (game.eta, game.slack, game.gap) == (0, 0, 0)
    assert play_game(exact_oracle([[0.4], [0.2]]), 1, n_rounds=7).worst == pytest.approx(0.2)


def test_oracle_gaps_show_an_answer_worse_than_an_earlier_one() -> None:
    rows = iter([BY_HAND[1], np.array([0.9, 0.9])])
    game = play_game(lambda q: next(rows), 2, n_rounds=2)
    assert game.oracle_gaps == pytest.approx([0, 0.9 - 0.46425], abs=1e-4)


def test_rounds() -> None:
    assert n_rounds_for(5, 0.05) == math.ceil(math.log(5) / 0.005) == 322
    assert n_rounds_for(1, 0.05) == 1
    with pytest.raises(ValueError, match="eps = 0 must be positive"):
        n_rounds_for(3, 0)
    with pytest.raises(ValueError, match="n_rounds = 0"):
        play_game(exact_oracle(ROWS), 3, n_rounds=0)


def test_table_and_figure() -> None:
    game = play_game(exact_oracle(ROWS), 3, n_rounds=10)
    assert game.to_frame().worst.iloc[-1] == pytest.approx(game.worst)
    assert str(game).startswith("10 rounds over 3 transformations: worst 0.3200")
    assert len(game.plot().axes) == 2
