"""Bivariate causality and held-out scores on processes with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from classic_ml.selection import forecast_scores, granger_p_value, select_granger


@pytest.fixture(scope="module")
def chain() -> np.ndarray:
    """Columns: y, its cause x, an effect of y, noise, a copy of x."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 5))
    X[1:, 0] = 0.8 * X[:-1, 1] + X[1:, 0]
    X[1:, 2] = 0.8 * X[:-1, 0] + 0.5 * X[1:, 2]
    X[:, 4] = 2 * X[:, 1] + 0.1 * rng.standard_normal(2000)
    return X


def test_causes_not_effects_but_copies_too(chain: np.ndarray) -> None:
    assert granger_p_value(chain[:, 1], chain[:, 0], 1) < 1e-100
    assert granger_p_value(chain[:, 3], chain[:, 0], 1) > 1e-3
    assert granger_p_value(1e-200 * chain[:, 1], 1e200 * chain[:, 0], 1) < 1e-100
    assert select_granger(chain, 1) == [1, 4]
    assert select_granger(chain, 1, target=2) == [0]
    assert granger_p_value(chain[:, 0], chain[:, 0], 2) == 1.0
    with pytest.raises(ValueError, match="target = 5"):
        select_granger(chain, 1, target=5)
    with pytest.raises(ValueError, match="finite"):
        granger_p_value(np.full(9, np.nan), chain[:9, 0], 1)


def test_two_way_causes_are_kept_on_request() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((1000, 2))
    for t in range(1, 1000):
        X[t] += 0.5 * X[t - 1, ::-1]
    assert select_granger(X, 1) == []
    assert select_granger(X, 1, one_way=False) == [1]


def test_scores_of_a_known_process(chain: np.ndarray) -> None:
    """Var y = 0.64 + 1, of which the cause explains 0.64."""
    scores = forecast_scores(chain, [0, 1], target=0, n_lags=1, n_train=1500)
    assert scores.r2 == pytest.approx(0.64 / 1.64, abs=0.06)
    assert scores.rmse == pytest.approx(1.0, abs=0.06)
    assert scores.mape > 0
    y, x = chain[1:, 0], chain[:-1, 1]
    fit = np.polyfit(x[:1499], y[:1499], 1)
    by_hand = np.sqrt(np.square(y[1499:] - np.polyval(fit, x[1499:])).mean())
    assert forecast_scores(chain, [1], target=0, n_lags=1, n_train=1500).rmse == pytest.approx(by_hand)
    for n_train in (3, 2000):
        with pytest.raises(ValueError, match=f"n_train = {n_train}"):
            forecast_scores(chain, [0, 1], target=0, n_lags=1, n_train=n_train)


def test_a_constant_series_causes_nothing_and_needs_no_cause(chain: np.ndarray) -> None:
    for constant in (np.zeros(2000), np.full(2000, 0.1), np.full(2000, -1e11)):
        assert granger_p_value(chain[:, 1], constant, 2) == 1.0
        assert granger_p_value(constant, chain[:, 0], 2) == 1.0
    with_constant = np.column_stack([chain, np.full(2000, 0.1)])
    assert select_granger(with_constant, 1) == [1, 4]
    assert select_granger(with_constant, 1, target=5) == []
    assert select_granger(chain + 1e11, 1) == [1, 4]


def test_too_few_steps_for_the_parameters_are_refused() -> None:
    """With as many parameters as rows every fit is perfect, and would be evidence for anything."""
    x, y = np.random.default_rng(0).standard_normal((2, 14))
    assert 0 < granger_p_value(x, y, 4) < 1
    with pytest.raises(ValueError, match=r"13 steps are too few for n_lags = 4.*at least 14"):
        granger_p_value(x[1:], y[1:], 4)
    with pytest.raises(ValueError, match="same length"):
        granger_p_value(x, y[1:], 1)


def test_scores_do_not_depend_on_where_or_how_large_a_series_is(chain: np.ndarray) -> None:
    near = forecast_scores(chain, [0, 1], target=0, n_lags=1, n_train=1500)
    for offset, scale in ((2.0**30, 1.0), (0.0, 1e-150), (0.0, 1e150)):
        far = forecast_scores(scale * chain + offset, [0, 1], target=0, n_lags=1, n_train=1500)
        assert far.r2 == pytest.approx(near.r2, abs=1e-5)
        assert far.rmse == pytest.approx(scale * near.rmse, rel=1e-5)
    silent = chain.copy()
    silent[1600, 0] = 0
    assert forecast_scores(silent, [1], target=0, n_lags=1, n_train=1500).mape == np.inf
    silent[1500:, 0] = 3
    with pytest.raises(ValueError, match="constant after n_train = 1500"):
        forecast_scores(silent, [1], target=0, n_lags=1, n_train=1500)
