"""Exact Shapley values against hand calculation and permutations; sampling is unbiased and counts its budget."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from classic_ml.valuation.closed_forms import size_utility
from classic_ml.valuation.monte_carlo import METHODS, monte_carlo_shapley
from classic_ml.valuation.shapley import exact_shapley, exact_shapley_by_size, shapley_from_table
from classic_ml.valuation.utility import ClosedForm
from classic_ml.valuation.value_plots import plot_convergence, plot_values


def by_permutations(utility, count):
    values = np.zeros(count)
    orders = list(itertools.permutations(range(count)))
    for order in orders:
        for k, i in enumerate(order):
            values[i] += utility(order[: k + 1]) - utility(order[:k])
    return values / len(orders)


def uneven(players) -> float:
    """A game without structure: a fixed random number for each coalition."""
    key = sum(1 << int(i) for i in players)
    return float(np.random.default_rng(key).standard_normal())


def test_worked_example():
    exact = exact_shapley(size_utility((10, 20, 30), lambda q: q / (q + 10)))
    np.testing.assert_allclose(exact.values, [62 / 315, 187 / 630, 229 / 630], rtol=1e-14)
    assert exact.efficiency_gap == pytest.approx(0, abs=1e-15)
    assert exact.n_utility_calls == 8


def test_against_all_permutations():
    result = exact_shapley(uneven, 5)
    np.testing.assert_allclose(result.values, by_permutations(uneven, 5), atol=1e-14)
    assert result.n_evaluations == 32
    assert exact_shapley(uneven, 1).values[0] == pytest.approx(uneven([0]) - uneven([]))


@pytest.mark.parametrize("sizes", [(5,), (0, 0), (0, 3, 4), (7, 7, 7), (1, 30, 2, 2, 19, 4, 11, 8, 3, 50)])
def test_by_size_against_enumeration(sizes):
    enumerated = exact_shapley(size_utility(sizes, np.sqrt)).values
    np.testing.assert_allclose(exact_shapley_by_size(sizes, np.sqrt), enumerated, atol=2e-15)


def test_by_size_at_a_hundred_players_is_efficient():
    sizes = np.random.default_rng(0).integers(1, 30, 100)
    values = exact_shapley_by_size(sizes, lambda q: q / (q + 100))
    assert values.sum() == pytest.approx(sizes.sum() / (sizes.sum() + 100), rel=1e-11)
    order = np.argsort(sizes, kind="stable")
    assert (np.diff(values[order]) >= -1e-13).all()


def test_too_many_or_odd():
    with pytest.raises(ValueError, match=r"n_players = 21: 2\^21 coalitions"):
        exact_shapley(uneven, 21)
    with pytest.raises(ValueError, match="whole number"):
        exact_shapley_by_size((1.5, 2), np.sqrt)
    with pytest.raises(ValueError, match="got 6"):
        shapley_from_table(np.zeros(6))


@pytest.mark.parametrize("method", METHODS)
def test_sampling_converges_to_the_exact_values(method):
    exact = exact_shapley(uneven, 5).values
    game = ClosedForm(table_of(uneven, 5), 5)
    result = monte_carlo_shapley(game, n_samples=20_000, method=method, random_state=0)
    assert result.standard_error is not None
    assert (np.abs(result.values - exact) < 4.5 * result.standard_error + 1e-12).all()
    assert (result.standard_error < 0.02).all()
    again = monte_carlo_shapley(game, n_samples=20_000, method=method, random_state=0)
    assert again.values.tolist() == result.values.tolist()


def table_of(utility, count):
    table = np.array(
        [utility(np.flatnonzero(row)) for row in np.arange(1 << count)[:, None] >> np.arange(count) & 1]
    )
    return lambda masks: table[masks @ (1 << np.arange(count))]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_exact_for_additive_games(method):
    game = size_utility((1, 2, 3, 4), lambda q: 2 * q)
    result = monte_carlo_shapley(game, n_samples=4, method=method, random_state=3)
    np.testing.assert_allclose(result.values, [2, 4, 6, 8], rtol=1e-12)


def test_permutations_are_efficient_and_pairs_reversed():
    game = size_utility((1, 5, 9, 2), np.sqrt)
    for method in ("permutation", "antithetic", "orthogonal"):
        result = monte_carlo_shapley(game, n_samples=12, method=method, random_state=1)
        assert result.efficiency_gap == pytest.approx(0, abs=1e-14)
    two = size_utility((1, 5), np.sqrt)
    exact = exact_shapley(two).values
    for method in ("antithetic", "orthogonal"):  # two players: an order and its reverse are all orders
        np.testing.assert_allclose(monte_carlo_shapley(two, n_samples=2, method=method).values, exact)


def test_strata_visit_every_size_equally():
    """In a game of the number of players alone, one round of all sizes is exact."""
    game = size_utility(np.ones(6), np.sqrt)
    result = monte_carlo_shapley(game, n_samples=6, method="stratified", random_state=0)
    np.testing.assert_allclose(result.values, np.sqrt(6) / 6, rtol=1e-12)


def test_budgets_are_counted():
    def calls(method: str) -> tuple[int, int]:
        result = monte_carlo_shapley(uneven, 4, n_samples=8, method=method, random_state=0)
        return result.n_utility_calls, result.n_evaluations

    assert calls("permutation")[0] == 8 * 5
    assert calls("stratified")[0] == 2 * 8 * 4
    assert all(calls(method)[1] <= 16 for method in METHODS)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n_samples": 0}, "n_samples = 0 must be at least 1"),
        ({"n_samples": 3, "method": "antithetic"}, "multiple of 2"),
        ({"n_samples": 6, "method": "stratified"}, "multiple of 4"),
        ({"method": "permutations"}, "did you mean 'permutation'"),
    ],
)
def test_bad_budgets(arguments, match):
    with pytest.raises(ValueError, match=match):
        monte_carlo_shapley(uneven, 4, **arguments)


def test_one_player_by_sampling():
    for method in METHODS:
        result = monte_carlo_shapley(uneven, 1, n_samples=2, method=method)
        assert result.values[0] == pytest.approx(uneven([0]) - uneven([]))


def test_convergence_and_value_plots():
    game = size_utility((1, 5, 9, 2), np.sqrt)
    exact = exact_shapley(game)
    runs = [monte_carlo_shapley(game, n_samples=40, method=m, random_state=0) for m in METHODS]
    np.testing.assert_allclose(runs[0].running[-1], runs[0].values)
    ax = plot_convergence(runs, exact.values).axes[0]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [r.method for r in runs]
    assert ax.lines[0].get_xdata()[-1] == runs[0].n_utility_calls
    assert len(runs[0].plot_convergence().axes[0].lines) == 4
    bars = plot_values([exact, runs[0]]).axes[0].patches
    assert [bar.get_height() for bar in bars[:4]] == exact.values.tolist()
    with pytest.raises(ValueError, match="not sampled"):
        exact.plot_convergence()
