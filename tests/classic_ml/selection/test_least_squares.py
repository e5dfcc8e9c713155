"""Windows, inner products, growing models and nested tests, against plain least squares on the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from classic_ml.selection import lagged_matrix, nested_test
from classic_ml.selection.epilogi_phases import association
from classic_ml.selection.lagged import LaggedGram, usable_rows
from classic_ml.selection.least_squares import Blocks, Model

T = np.array([1, 2, 5, 1, 3, 7, 2, 1, 4.0])
X1 = np.array([1, 3, 0, 2, 4, 1, 0, 3, 2.0])


def plain_fit(X: np.ndarray, y: np.ndarray, windows: np.ndarray, series: list[int], trend: str = "c"):
    """Rank, residual sum of squares and residuals by lstsq on an intercept and all windows."""
    n = len(windows)
    design = np.column_stack(
        [np.arange(n)[:, None] ** np.arange(len(trend)), windows[:, series].reshape(n, -1)]
    )
    coefficients, _, rank, _ = np.linalg.lstsq(design, y, rcond=1e-9)
    residuals = y - design @ coefficients
    return rank, residuals @ residuals, residuals


@pytest.fixture(scope="module")
def series() -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 6)).cumsum(0) * 0.3 + rng.standard_normal((120, 6)) + [0, 5, -3, 100, 0, 0]
    X[:, 4] = 3 - 2 * X[:, 1]  # an exact copy
    X[1:, 5] = X[:-1, 2]  # a delayed one: all but one of its columns are there already
    return X


def test_windows_hold_the_past_and_not_the_present() -> None:
    X = np.arange(10.0).reshape(5, 2)
    windows = lagged_matrix(X, 2)
    assert windows.shape == (3, 2, 2)
    np.testing.assert_array_equal(windows[0, 1], [X[1, 1], X[0, 1]])
    np.testing.assert_array_equal(windows[2, 0], [X[3, 0], X[2, 0]])


def test_windows_never_cross_sequences() -> None:
    groups = np.array(list("aaabbbbcd"))
    assert usable_rows(9, 2, groups).tolist() == [2, 5, 6]
    assert lagged_matrix(np.zeros((9, 1)), 3, groups=groups).shape == (1, 1, 3)
    with pytest.raises(ValueError, match="groups must name"):
        lagged_matrix(np.zeros((9, 1)), 2, groups=groups[:4])


@pytest.mark.parametrize("n_lags", [0, -1, 1.5, True])
def test_lags_must_be_whole_and_positive(n_lags: object) -> None:
    with pytest.raises(ValueError, match="n_lags ="):
        lagged_matrix(np.zeros((9, 2)), n_lags)


def test_worked_example() -> None:
    """n = 8, L = 1; the same numbers come from statsmodels' OLS."""
    gram = LaggedGram(np.c_[T, X1], 0, 1)
    small, large = Model.of(gram, [0]), Model.of(gram, [0, 1])
    assert small.ssr == pytest.approx(29.0820896, abs=1e-7)
    assert large.ssr == pytest.approx(1.52726782, abs=1e-8)
    lr = nested_test(small.ssr, small.rank, large.ssr, large.rank, 8)
    assert (lr.statistic, lr.df, lr.p_value) == (
        pytest.approx(23.5731368),
        1,
        pytest.approx(1.20255e-6, rel=1e-5),
    )
    f = nested_test(small.ssr, small.rank, large.ssr, large.rank, 8, kind="f")
    assert (f.statistic, f.df, f.p_value) == (
        pytest.approx(90.2095278),
        1,
        pytest.approx(2.18739e-4, rel=1e-5),
    )
    assert association(small, [1], "pearson")[0] == pytest.approx(0.919153916, abs=1e-9)


def test_p_values_are_scipys() -> None:
    lr = nested_test(10.0, 2, 8.0, 5, 50)
    assert lr.p_value == pytest.approx(stats.chi2.sf(50 * np.log(10 / 8), 3))
    f = nested_test(10.0, 2, 8.0, 5, 50, kind="f")
    assert f.p_value == pytest.approx(stats.f.sf((2 / 3) / (8 / 45), 3, 45))
    assert nested_test(10.0, 4, 10.0, 4, 50).p_value == 1.0
    with pytest.raises(ValueError, match="more rows than parameters"):
        nested_test(10.0, 2, 8.0, 5, 5, kind="f")
    with pytest.raises(ValueError, match="test = 'wald'"):
        nested_test(10.0, 2, 8.0, 5, 50, kind="wald")


@pytest.mark.parametrize("trend", ["c", "ct"])
@pytest.mark.parametrize("chosen", [[0], [0, 1], [0, 3, 2], [0, 1, 4], [0, 2, 5, 1], [0, 1, 2, 3, 4, 5]])
def test_models_match_least_squares_on_the_rows(series: np.ndarray, trend: str, chosen: list[int]) -> None:
    gram = LaggedGram(series, 0, 3, trend=trend)
    windows = lagged_matrix(series, 3)
    rank, ssr, residuals = plain_fit(series, series[3:, 0], windows, chosen, trend)
    grown = Model(gram)
    for j in chosen:
        grown = grown.append([j])
    for model in (Model.of(gram, chosen), grown):
        assert model.rank == rank
        assert model.ssr == pytest.approx(ssr, rel=1e-9)
        np.testing.assert_allclose(model.residuals(), residuals, atol=1e-7)
    by_products = association(grown, [1, 2, 3], "pearson")
    past = windows[:, [1, 2, 3]]
    if trend == "c":
        by_rows = [max(abs(np.corrcoef(residuals, past[:, i, l])[0, 1]) for l in range(3)) for i in range(3)]
        np.testing.assert_allclose(by_products, by_rows, atol=1e-7)


def test_spearman_is_of_the_ranks(series: np.ndarray) -> None:
    model = Model.of(LaggedGram(series, 0, 2), [0])
    windows, residuals = lagged_matrix(series, 2), model.residuals()
    expected = [
        max(abs(stats.spearmanr(residuals, windows[:, j, l]).statistic) for l in range(2)) for j in (1, 3)
    ]
    np.testing.assert_allclose(association(model, [1, 3], "spearman"), expected, atol=1e-10)


def test_blocks_are_the_models_they_stand_for(series: np.ndarray) -> None:
    gram = LaggedGram(series, 0, 3)
    base = Model.of(gram, [0, 2])
    blocks = Blocks.given(base, 1, [3, 4, 5])
    for position, k in enumerate([3, 4, 5]):
        for fit, chosen in zip(blocks.pair(position), ([0, 2, k], [0, 2, k, 1]), strict=True):
            model = Model.of(gram, chosen)
            assert fit.rank == model.rank
            assert fit.ssr == pytest.approx(model.ssr, rel=1e-9)
    assert blocks.with_j().ssr == pytest.approx(Model.of(gram, [0, 2, 1]).ssr)


def test_blocks_on_residuals_are_two_small_regressions(series: np.ndarray) -> None:
    gram = LaggedGram(series, 0, 2)
    model = Model.of(gram, [0])
    blocks = Blocks.on_residuals(model, 1, [2, 3])
    windows, e = lagged_matrix(series, 2), model.residuals()
    alone, both = blocks.pair(1)
    assert alone.ssr == pytest.approx(plain_fit(series, e, windows, [3])[1])
    assert both.ssr == pytest.approx(plain_fit(series, e, windows, [3, 1])[1])
    assert blocks.with_j().ssr == pytest.approx(plain_fit(series, e, windows, [1])[1])


def test_groups_drop_the_windows_that_cross(series: np.ndarray) -> None:
    groups = np.repeat([0, 1], [50, 70])
    gram = LaggedGram(series, 0, 3, groups=groups)
    windows = lagged_matrix(series, 3, groups=groups)
    assert gram.n == 47 + 67
    y = series[usable_rows(120, 3, groups), 0]
    assert Model.of(gram, [0, 1]).ssr == pytest.approx(plain_fit(series, y, windows, [0, 1])[1])


def test_a_perfect_forecast_has_a_floor() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    X[1:, 0] = X[:-1, 1]
    model = Model.of(LaggedGram(X, 0, 1), [0, 1])
    assert model.ssr == pytest.approx(1e-12 * model.gram.total)


@pytest.mark.parametrize("kind", ["lr", "f"])
def test_perfect_fits_are_certain_or_no_evidence(kind: str) -> None:
    assert nested_test(0.0, 1, 0.0, 2, 10, kind=kind).p_value == 1.0
    assert nested_test(2.0, 1, 0.0, 2, 10, kind=kind).p_value == 0.0
    with pytest.raises(ValueError, match="sums of squares"):
        nested_test(-1.0, 1, 1.0, 2, 10, kind=kind)
