"""How well a set of series forecasts the target on the steps that it was not fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from classic_ml.selection.lagged import lagged_matrix


@dataclass(frozen=True)
class ForecastScores:
    """R^2 (population variance of the held-out target), root mean square error and mean |error / target|."""

    r2: float
    rmse: float
    mape: float


def forecast_scores(X: Any, series: list[int], *, target: int, n_lags: int, n_train: int) -> ForecastScores:
    """Fit the linear model on windows of `series` over the first `n_train` steps of X (N, D), judge it on the rest.

    Raises ValueError where either part has too few steps.
    """
    X = np.asarray(X, dtype=np.float64)
    if not n_lags * (len(series) + 1) + 1 < n_train < len(X):
        raise ValueError(
            f"n_train = {n_train} must leave steps to judge (N = {len(X)}) and exceed the "
            f"{n_lags * (len(series) + 1) + 1} that {len(series)} series with {n_lags} lags need"
        )
    windows = lagged_matrix(X[:, series], n_lags).reshape(len(X) - n_lags, -1)
    design, y, split = np.c_[np.ones(len(windows)), windows], X[n_lags:, target], n_train - n_lags
    coefficients = np.linalg.lstsq(design[:split], y[:split], rcond=None)[0]
    later = y[split:]
    errors = later - design[split:] @ coefficients
    mse = float(np.square(errors).mean())
    return ForecastScores(1 - mse / float(later.var()), mse**0.5, float(np.abs(errors / later).mean()))
