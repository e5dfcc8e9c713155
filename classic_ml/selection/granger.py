"""Bivariate Granger causality: the one-pair-at-a-time baseline for selecting series."""

from __future__ import annotations

from typing import Any

import numpy as np

from classic_ml.selection.lagged import LaggedGram, check_lags, of_unit_size
from classic_ml.selection.least_squares import Model, nested_test


def granger_p_value(x: Any, y: Any, n_lags: int, *, test: str = "lr") -> float:
    """Does the past of `x` help to forecast `y` beyond y's own past? Both (N,); the p-value of the nested test.

    1 where `x` is constant, which helps nothing, and where `y` is, which needs no help. Raises ValueError for values
    that aren't finite and for too few steps: N - n_lags must exceed the 2 n_lags + 1 parameters.
    """
    check_lags(n_lags)
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"x and y must be series of the same length, got shapes {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("x and y must be finite numbers")
    if len(x) - n_lags <= 2 * n_lags + 1:
        raise ValueError(
            f"{len(x)} steps are too few for n_lags = {n_lags}, that is {2 * n_lags + 1} parameters; give at least "
            f"{3 * n_lags + 2} steps or fewer n_lags"
        )
    gram = LaggedGram(of_unit_size(np.column_stack([y, x])), 0, n_lags)
    if gram.target_is_constant:
        return 1.0
    alone = Model.of(gram, [0])
    both = alone.append([1])
    return nested_test(alone.ssr, alone.rank, both.ssr, both.rank, gram.n, kind=test).p_value


def select_granger(
    X: Any, n_lags: int, *, target: int = 0, threshold: float = 1e-3, one_way: bool = True, test: str = "lr"
) -> list[int]:
    """Columns of X (N, D) that Granger-cause the target; with `one_way` only those that it does not cause in turn.

    No series is judged given another, so copies and series that merely share a cause are kept too.
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or not 0 <= target < X.shape[1]:
        raise ValueError(f"target = {target} must be a column of X (time, series), which has shape {X.shape}")
    chosen = []
    for j in range(X.shape[1]):
        if j == target or granger_p_value(X[:, j], X[:, target], n_lags, test=test) >= threshold:
            continue
        if not one_way or granger_p_value(X[:, target], X[:, j], n_lags, test=test) >= threshold:
            chosen.append(j)
    return chosen
