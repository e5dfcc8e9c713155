"""How well a set of series forecasts the target on the steps that it was not fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from classic_ml.selection.distances import ROUNDING
from classic_ml.selection.lagged import lagged_matrix


@dataclass(frozen=True)
class ForecastScores:
    """R^2 (population variance of the held-out target), root mean square error and mean |error / target|, which is
    infinite where the target is 0 somewhere."""

    r2: float
    rmse: float
    mape: float


def forecast_scores(X: Any, series: list[int], *, target: int, n_lags: int, n_train: int) -> ForecastScores:
    """Fit the linear model on windows of `series` over the first `n_train` steps of X (N, D), judge it on the rest.

    Raises ValueError where either part has too few steps, and where the held-out target is constant: R^2 is undefined.
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or not np.isfinite(X).all():
        raise ValueError(f"X must be finite numbers (time, series), got shape {X.shape}")
    if not n_lags * (len(series) + 1) + 1 < n_train < len(X):
        raise ValueError(
            f"n_train = {n_train} must leave steps to judge (N = {len(X)}) and exceed the "
            f"{n_lags * (len(series) + 1) + 1} that {len(series)} series with {n_lags} lags need"
        )
    windows = lagged_matrix(X[:, series], n_lags).reshape(len(X) - n_lags, -1)
    y, split = X[n_lags:, target], n_train - n_lags
    centre, level = np.median(windows[:split], axis=0), np.median(y[:split])
    design, later = (
        np.c_[np.ones(len(windows)), windows - centre],
        y[split:],
    )  # an offset would cost its digits
    scale = np.abs(design[:split]).max(axis=0)
    design /= np.where(scale > 0, scale, 1)
    spread = float(np.sqrt(np.square(later - np.median(later)).mean()))
    if spread <= ROUNDING * float(np.abs(later).max()):
        raise ValueError(
            f"the target, series {target}, is constant after n_train = {n_train}: there is nothing to forecast"
        )
    coefficients = np.linalg.lstsq(design[:split], y[:split] - level, rcond=None)[0]
    errors = (later - level) - design[split:] @ coefficients
    mse, variance = float(np.square(errors).mean()), float((later - level).var())
    with np.errstate(divide="ignore", invalid="ignore"):
        mape = float(np.where(later == 0, np.inf, np.abs(errors / later)).mean())
    return ForecastScores(1 - mse / variance, mse**0.5, mape)
