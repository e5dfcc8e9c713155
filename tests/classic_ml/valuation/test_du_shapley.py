"""DU-Shapley against the paper's worked numbers, its invariants, its bound, and exact Shapley values of models."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from sklearn.datasets import make_regression
from sklearn.linear_model import Ridge

from classic_ml.valuation.bounds import du_shapley_bias_bound, du_shapley_binned_bias_bound
from classic_ml.valuation.closed_forms import (
    effective_sample_size,
    linear_regression_utility,
    size_utility,
)
from classic_ml.valuation.du_shapley import (
    du_shapley,
    du_shapley_binned,
    du_shapley_data,
    du_shapley_linear,
    sample_size,
)
from classic_ml.valuation.groups import by_owner
from classic_ml.valuation.models import model_utility
from classic_ml.valuation.monte_carlo import leave_one_out, monte_carlo_shapley
from classic_ml.valuation.shapley import exact_shapley, exact_shapley_by_size
from classic_ml.valuation.utility import Utility
from classic_ml.valuation.values import normalize_efficiency


def saturating(q):
    return q / (q + 10)


def test_worked_example():
    psi = du_shapley((10, 20, 30), saturating)
    expected = [Fraction(37, 189), Fraction(2, 7), Fraction(138, 385)]
    np.testing.assert_allclose(psi, [float(f) for f in expected], rtol=1e-14)
    assert psi.sum() == pytest.approx(0.8399, abs=5e-5)  # efficiency fails: u(all) - u(empty) is 6/7


def test_exact_where_it_must_be():
    for sizes in ((3, 50), (7, 7, 7, 7), (100, 5, 5, 5)):
        exact = exact_shapley_by_size(sizes, saturating)
        psi = du_shapley(sizes, saturating)
        assert psi[0] == pytest.approx(exact[0], rel=1e-12)
    np.testing.assert_allclose(du_shapley((3, 50), saturating), exact_shapley_by_size((3, 50), saturating))
    np.testing.assert_allclose(du_shapley((3, 9, 40), lambda q: 2 * q + 5), [6, 18, 80])
    assert du_shapley((30,), saturating).tolist() == [0.75]


def test_symmetry_dummy_linearity_and_one_sided_error():
    sizes = np.random.default_rng(1).integers(0, 60, 12)
    sizes[3] = sizes[5]
    sizes[7] = 0
    psi = du_shapley(sizes, saturating)
    assert psi[3] == psi[5]
    assert psi[7] == 0
    other = du_shapley(sizes, np.sqrt)
    np.testing.assert_allclose(du_shapley(sizes, lambda q: 3 * saturating(q) - np.sqrt(q)), 3 * psi - other)
    assert (psi <= exact_shapley_by_size(sizes, saturating) + 1e-15).all()


def test_sizes_are_not_rounded():
    """Two others of mean 1.5: the terms are w(n) - w(0), w(1.5 + n) - w(1.5), w(3 + n) - w(3)."""
    assert du_shapley((4, 1, 2), np.sqrt)[0] == pytest.approx(
        (2 + 5.5**0.5 - 1.5**0.5 + 7**0.5 - 3**0.5) / 3, rel=1e-14
    )


def test_no_data_may_have_a_value_of_its_own():
    psi = du_shapley((10, 20), lambda q: -1 / q, empty_value=-2.0)
    assert psi[0] == pytest.approx(((-1 / 10 + 2) + (-1 / 30 + 1 / 20)) / 2)
    assert du_shapley((5, 0, 0), lambda q: -1 / q, empty_value=-2.0).tolist() == pytest.approx([1.8, 0, 0])
    with pytest.raises(ValueError, match="give empty_value"), np.errstate(divide="ignore"):
        du_shapley((10, 20), lambda q: -1 / q)


def test_effective_sample_size():
    assert effective_sample_size((29, 30, 30), (0.1, 0.1, 0.1)) == 89
    assert effective_sample_size((10, 20), (1.0, 3.0)) == (10 + 60) ** 2 // (10 + 180)
    masks = np.array([[False, False], [True, False]])
    assert effective_sample_size((10, 20), (1.0, 3.0), masks).tolist() == [0, 10]
    scaled = [effective_sample_size((10, 20, 31), np.array([1.0, 3.0, 2.5]) * c) for c in (1, 10)]
    assert scaled[0] == scaled[1]  # only ratios of gammas count


def linear_by_hand(sizes, gamma, d):
    """The formulas term by term, in Python numbers."""
    count, psi = len(sizes), []
    for i in range(count):
        a = sum(g * n for j, (g, n) in enumerate(zip(gamma, sizes, strict=True)) if j != i)
        b = sum(g * g * n for j, (g, n) in enumerate(zip(gamma, sizes, strict=True)) if j != i)
        total = 0.0
        for k in range(count):
            r = k / (count - 1)
            with_i = int((gamma[i] * sizes[i] + r * a) ** 2 / (gamma[i] ** 2 * sizes[i] + r * b) + 1e-9)
            without = int(r * a * a / b + 1e-9)
            total += d / (d + 1 - with_i) - d / (d + 1 - without)
        psi.append(total / count)
    return psi


def test_linear_regression_against_its_formula_and_equal_gammas():
    sizes, gamma = (30, 41, 57, 33), (1.3, 2.0, 0.7, 5.0)
    np.testing.assert_allclose(
        du_shapley_linear(sizes, gamma, 10), linear_by_hand(sizes, gamma, 10), rtol=1e-12
    )
    equal = du_shapley_linear((30, 60, 30), (2.0, 2.0, 2.0), 4)
    same = du_shapley((30, 60, 30), lambda q: -4 / (np.floor(q + 1e-9) - 5), empty_value=4 / 5)
    np.testing.assert_allclose(equal, same, rtol=1e-12)
    traced = du_shapley_linear(sizes, gamma, 10, trace=20.0)
    np.testing.assert_allclose(traced, 2 * du_shapley_linear(sizes, gamma, 10), rtol=1e-12)
    assert du_shapley_linear((0, 30, 40), (1.0, 1.0, 2.0), 4)[0] == 0
    assert du_shapley_linear((30,), (3.0,), 4)[0] == pytest.approx(-4 / 25 - 4 / 5)


def test_linear_regression_is_near_the_exact_value():
    rng = np.random.default_rng(3)
    sizes, gamma = np.maximum(30, rng.integers(1, 1001, 10)), rng.uniform(0, 10, 10)
    game = linear_regression_utility(sizes, gamma, 10)
    exact = exact_shapley(game).values
    error = ((du_shapley_linear(sizes, gamma, 10) - exact) ** 2).mean()
    estimates = [monte_carlo_shapley(game, n_samples=100, random_state=s).values for s in range(5)]
    assert error < np.mean([((e - exact) ** 2).mean() for e in estimates]) / 10


def test_the_pole_of_linear_regression():
    with pytest.raises(ValueError, match=r"player 1 with 0% .* effective sample size of 11, but 10 features"):
        du_shapley_linear((50, 11, 50), (1.0, 1.0, 1.0), 10)
    with pytest.raises(ValueError, match=r"coalition \[1\] .* effective sample size of 11"):
        exact_shapley(linear_regression_utility((50, 11, 50), (1.0, 1.0, 1.0), 10))
    assert np.isfinite(du_shapley_linear((50, 12, 50), (1.0, 1.0, 1.0), 10)).all()
    given = du_shapley_linear((50, 11, 50), (1.0, 1.0, 1.0), 10, underdetermined=-100.0, empty=-200.0)
    assert given[1] == pytest.approx(((-100 + 200) + (-10 / 50 + 10 / 39) + (-10 / 100 + 10 / 89)) / 3)


def test_bins_are_weighted_games():
    counts, p = np.array([[1, 8], [2, 0], [5, 3]]), [0.25, 0.75]
    psi = du_shapley_binned(counts, p, saturating)
    by_hand = 0.25 * du_shapley(counts[:, 0], saturating) + 0.75 * du_shapley(counts[:, 1], saturating)
    np.testing.assert_allclose(psi, by_hand, rtol=1e-14)
    two = du_shapley_binned(counts, p, [saturating, np.sqrt])
    assert two[1] == pytest.approx(0.25 * du_shapley(counts[:, 0], saturating)[1])
    bound = du_shapley_binned_bias_bound(counts[[0, 2]], p, 8 / 27)
    assert (bound == 0).all()


def test_the_bias_is_within_its_bound():
    rng = np.random.default_rng(0)
    for _ in range(60):
        sizes = rng.integers(1, rng.integers(2, 200), rng.integers(3, 12))
        exact = exact_shapley_by_size(sizes, lambda q: q / (q + 100))
        error = np.abs(exact - du_shapley(sizes, lambda q: q / (q + 100)))
        lemma, theorem = (du_shapley_bias_bound(sizes, 8 / 27, form) for form in ("lemma", "theorem"))
        assert (error <= lemma + 1e-15).all()
        assert (theorem <= lemma).all()


def test_the_bound_in_numbers():
    """Others 1, 3 of player 0: mu 2, s^2 1, R 1, tau 3, n_max 3, so 0.5/(2*4) (9(1 + ln 2) + 2*9/3)."""
    assert du_shapley_bias_bound((5, 1, 3), 0.5)[0] == pytest.approx(0.5 / 8 * (9 * (1 + np.log(2)) + 6))
    assert du_shapley_bias_bound((5, 1, 3), 0.5, "theorem")[0] == pytest.approx(
        0.5 / 8 * (1 + np.log(2) + 0.75)
    )
    of_5_and_3 = 0.5 / 32 * (9 * (1 + np.log(2)) + 2 * (25 / 9) / 5)
    assert du_shapley_bias_bound((5, 0, 3), 0.5).tolist() == [np.inf, pytest.approx(of_5_and_3), np.inf]
    with pytest.raises(ValueError, match="kappa"):
        du_shapley_bias_bound((1, 2), -1.0)
    with pytest.raises(ValueError, match="did you mean 'lemma'"):
        du_shapley_bias_bound((1, 2), 1.0, "lema")  # type: ignore[arg-type]


def test_the_rate():
    def worst(count: int) -> float:
        errors = []
        for seed in range(4):
            sizes = np.random.default_rng(seed).integers(1, 101, count)
            exact = exact_shapley_by_size(sizes, lambda q: q / (q + 100))
            errors.append(np.abs(exact - du_shapley(sizes, lambda q: q / (q + 100))).max())
        return float(np.mean(errors))

    assert worst(80) < worst(20) / 2.5


def test_data_form_on_a_utility_of_the_size_is_the_size_form():
    """Sizes 2, 4, 6: k mu is whole, so sampling changes nothing."""
    groups = np.repeat([0, 1, 2], [2, 4, 6])
    result = du_shapley_data(groups, lambda s: saturating(len(s)), empty_value=0.0, random_state=0)
    np.testing.assert_allclose(result.values, du_shapley((2, 4, 6), saturating), rtol=1e-14)
    assert result.n_utility_calls == 2 * 9 - 3
    assert result.total_value == saturating(12)
    assert result.efficiency_gap == pytest.approx(12 / 22 - result.values.sum())


def test_data_form_samples_the_others_only_and_all_of_them_in_the_end():
    seen = []
    groups = np.repeat(list("abc"), [2, 3, 6])

    def remember(s: np.ndarray) -> float:
        seen.append(set(s.tolist()))
        return 0.0

    result = du_shapley_data(groups, remember, empty_value=0.0, random_state=1)
    assert result.names == ("a", "b", "c")
    own = {"a": set(range(2)), "b": set(range(2, 5)), "c": set(range(5, 11))}
    for part in own.values():
        others = set(range(11)) - part
        assert others in seen
        assert part in seen
    assert result.n_evaluations == len(seen) == len({frozenset(s) for s in seen})
    sizes = sorted(len(s) for s in seen)
    assert sizes == sorted([2, 4, 6, 9, 3, 4, 7, 8, 6, 2, 8, 5, 11])  # halves to even: 4.5 -> 4, 2.5 -> 2


def test_whole_pool_whatever_the_number_of_players():
    assert all(sample_size(i - 1, n, i) == n for i in range(2, 120) for n in (1, 7, 100, 999))
    assert sample_size(0, 10, 1) == 0


def test_duplicates_are_points_of_their_own():
    """The paper's toy: both x1 and x2 must be there; D3 holds x2 twice."""
    rows = [[0], [1], [2, 3]]

    def both(s: np.ndarray) -> float:
        return float(0 in s and len(s) > 1)

    result = exact_shapley(by_owner(Utility(both, n_points=4), rows))
    np.testing.assert_allclose(result.values, [2 / 3, 1 / 6, 1 / 6], rtol=1e-14)


def test_a_seed_gives_the_same_values_in_parallel():
    groups = np.repeat(np.arange(4), [3, 5, 7, 9])
    weights = np.random.default_rng(0).random(24)

    def value(s: np.ndarray) -> float:
        return float(np.sqrt(weights[s].sum()))

    one = du_shapley_data(groups, value, empty_value=0.0, n_repeats=3, random_state=5)
    two = du_shapley_data(groups, value, empty_value=0.0, n_repeats=3, random_state=5, n_jobs=2)
    other = du_shapley_data(groups, value, empty_value=0.0, n_repeats=3, random_state=6)
    assert one.values.tolist() == two.values.tolist()
    assert one.values.tolist() != other.values.tolist()
    assert one.samples is not None
    assert one.samples.shape == (3, 4)
    np.testing.assert_allclose(one.std, one.samples.std(0, ddof=1))


def test_real_models_du_is_ten_times_better_than_monte_carlo():
    X, y = make_regression(500, 10, noise=20, random_state=0)
    y = (y - y.mean()) / y.std()
    groups = np.repeat(np.arange(8), np.arange(1, 9) * 10)
    train, test = slice(0, 360), slice(360, None)
    rows = model_utility(
        Ridge(),
        X[train],
        y[train],
        X[test],
        y[test],
        "neg_mean_squared_error",
        empty_value=-float((y[test] ** 2).mean()),
    )
    game = by_owner(rows, groups)
    exact = exact_shapley(game).values
    du = ((du_shapley_data(groups, rows, random_state=0).values - exact) ** 2).mean()
    for method in ("permutation", "antithetic"):
        estimates = [monte_carlo_shapley(game, n_samples=8, method=method, random_state=s) for s in range(4)]
        assert du < np.mean([((e.values - exact) ** 2).mean() for e in estimates]) / 10
    loo = leave_one_out(groups, rows)
    everything = rows(np.arange(360))
    assert loo.values[0] == pytest.approx(everything - rows(np.flatnonzero(groups != 0)))


def test_bad_input():
    for sizes in ((-1, 2), (np.nan, 2), (), [[1, 2]], "abc"):
        with pytest.raises(ValueError, match="sizes"):
            du_shapley(sizes, saturating)
    with pytest.raises(TypeError, match="w = 'sqrt'"):
        du_shapley((1, 2), "sqrt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 sizes need 2 ratios"):
        du_shapley_linear((20, 20), (1.0,), 3)
    with pytest.raises(ValueError, match=r"gamma\[1\] = 0"):
        du_shapley_linear((20, 20), (1.0, 0.0), 3)
    with pytest.raises(ValueError, match="n_features = 0"):
        du_shapley_linear((20, 20), (1.0, 1.0), 0)
    with pytest.raises(ValueError, match="underdetermined = 'no'"):
        du_shapley_linear((20, 20), (1.0, 1.0), 2, underdetermined="no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="w: 4 amounts"):
        du_shapley((1, 2), lambda q: 1.0)
    with pytest.raises(ValueError, match="n_repeats = 0"):
        du_shapley_data([0, 1], len, empty_value=0.0, n_repeats=0)
    with pytest.raises(TypeError, match=r"n_repeats = 1\.5"):
        du_shapley_data([0, 1], len, empty_value=0.0, n_repeats=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="owner 1 has no rows"):
        du_shapley_data([[0, 1], []], len, empty_value=0.0)
    assert du_shapley_data([[0, 1], []], len, empty_value=0.0, allow_empty=True).values.tolist() == [2, 0]
    with pytest.raises(ValueError, match="sum to 1"):
        du_shapley_binned([[1, 2]], [0.5, 0.6], saturating)
    with pytest.raises(ValueError, match="subset = 'non'"):
        leave_one_out([0, 1], len, subset="non")  # type: ignore[arg-type]


def test_one_owner():
    result = du_shapley_data([7, 7, 7], lambda s: float(len(s)), empty_value=1.0)
    assert result.values.tolist() == [2.0]
    assert result.names == (7,)


def test_results_print_and_rescale():
    result = du_shapley_data(list("aabbb"), lambda s: np.sqrt(len(s)), empty_value=0.0, n_repeats=2)
    frame = result.to_frame()
    assert frame.loc["b", "value"] == result.values[1]
    assert "DU-Shapley: 2 datasets, 12 utilities asked for" in str(result)
    assert normalize_efficiency([1.0, 3.0], 2.0).tolist() == [0.5, 1.5]
    with pytest.raises(ValueError, match="can't be rescaled"):
        normalize_efficiency([1.0, -1.0], 2.0)


def test_size_utility_is_the_same_game():
    game = size_utility((10, 20, 30), saturating)
    assert game([0, 2]) == saturating(40)
    assert game([]) == 0
