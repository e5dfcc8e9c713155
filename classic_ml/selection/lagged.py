"""Past windows of time series and the inner products between them that least squares needs."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from classic_ml.selection.distances import ROUNDING

TRENDS = ("c", "ct")


def usable_rows(n_steps: int, n_lags: int, groups: Any = None) -> Int[np.ndarray, " n"]:
    """Time steps t whose window t-1..t-L lies in one run of equal `groups` (None: one sequence): L..N-1 for one."""
    if groups is None:
        return np.arange(n_lags, n_steps)
    groups = np.asarray(groups)
    if groups.shape != (n_steps,):
        raise ValueError(
            f"groups must name the sequence of every row, shape ({n_steps},), got {groups.shape}"
        )
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    since = np.arange(n_steps) - np.repeat(starts, np.diff(np.r_[starts, n_steps]))
    return np.flatnonzero(since >= n_lags)


def lagged_matrix(X: Any, n_lags: int, *, groups: Any = None) -> Float[np.ndarray, "n D L"]:
    """Windows of the past: entry [i, j, l-1] is X[t_i - l, j] for the usable steps t_i. Lag 0 is not among them."""
    X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must be 2-D (time, series), got shape {X.shape}")
    check_lags(n_lags)
    rows = usable_rows(len(X), n_lags, groups)
    return np.stack([X[rows - lag] for lag in range(1, n_lags + 1)], axis=2)


def check_lags(n_lags: Any) -> None:
    if isinstance(n_lags, bool) or not isinstance(n_lags, int | np.integer) or n_lags < 1:
        raise ValueError(f"n_lags = {n_lags!r} must be a whole number of at least 1")


def of_unit_size(X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """Every series times a power of two, so that its largest |value| is in [0.5, 1): no digit changes, and the squares
    of series of any scale are floating-point numbers."""
    return np.ldexp(X, -np.frexp(np.abs(X).max(axis=0))[1])


class LaggedGram:
    """Inner products between the windows of D series, unit columns with the trend projected out.

    Everything a linear model on any subset of series needs (rank, coefficients, residual sum of squares, correlation
    of its residuals with any window) follows from these; the n rows are touched once per series that is selected,
    never per candidate. Kept are D blocks of L x L, and as many again per selected series. Column (j, l) is X_j(t - l)
    less its trend, divided by its norm; a constant one is 0, that is one which varies by no more than the rounding of
    its values in float64.

    Args:
        X: (N, D) float64 series.
        target: column of the series to be forecast.
        trend: "c" intercept, "ct" intercept and slope.
    """

    def __init__(
        self,
        X: Float[np.ndarray, "N D"],
        target: int,
        n_lags: int,
        *,
        trend: str = "c",
        groups: Any = None,
    ) -> None:
        self.X = X - np.median(X, axis=0)  # which one huge value doesn't move
        self.n_lags, self.n_series = n_lags, X.shape[1]
        self.rows = usable_rows(len(X), n_lags, groups)
        self.n = len(self.rows)
        powers = np.arange(self.n)[:, None] ** np.arange(len(trend))
        self.trend, _ = np.linalg.qr(powers.astype(np.float64))
        self.y = self._detrended(self.X[self.rows, target])
        self.total = float(self.y @ self.y)
        raw = np.stack([(A := self._detrended_windows(j)).T @ A for j in range(self.n_series)])
        squares = np.einsum("jll->jl", raw)
        noise = self.n * np.square(ROUNDING * np.abs(X).max(axis=0))
        constant = squares <= noise[:, None]
        self.target_is_constant = bool(self.total <= noise[target])
        self.scale = np.where(constant, 0, 1 / np.sqrt(np.where(constant, 1, squares)))
        self.diagonal: Float[np.ndarray, "D L L"] = raw * self.scale[:, :, None] * self.scale[:, None, :]
        self.with_target: Float[np.ndarray, "D L"] = self._products(self.y[None])[:, 0]
        self._cross: dict[int, np.ndarray] = {}

    @property
    def constant(self) -> Int[np.ndarray, " k"]:
        """Series without variation in any window."""
        return np.flatnonzero((self.scale == 0).all(axis=1))

    def windows(self, j: int) -> Float[np.ndarray, "n L"]:
        """The unit columns of one series."""
        return self._detrended_windows(j) * self.scale[j]

    def cross(self, j: int) -> Float[np.ndarray, "D L L"]:
        """Products of every series' windows [k, l] with those of j [., ., l']; computed once per j and kept."""
        if j not in self._cross:
            self._cross[j] = self._products(self.windows(j).T).transpose(0, 2, 1)
        return self._cross[j]

    def between(self, left: list[int], right: list[int]) -> Float[np.ndarray, "lL rL"]:
        """Products between two lists of series; those of the left with all others are kept."""
        if not left:
            return np.empty((0, len(right) * self.n_lags))
        return np.block([[self.diagonal[j] if j == k else self.cross(j)[k].T for k in right] for j in left])

    def target_products(self, series: list[int]) -> Float[np.ndarray, " sL"]:
        return self.with_target[series].reshape(-1)

    def past(self, lag: int) -> Float[np.ndarray, "n D"]:
        """Every series `lag` steps before the usable rows; a view where those are consecutive."""
        first, last = self.rows[0] - lag, self.rows[-1] - lag
        return self.X[first : last + 1] if last - first == self.n - 1 else self.X[self.rows - lag]

    def _detrended_windows(self, j: int) -> Float[np.ndarray, "n L"]:
        lags = range(1, self.n_lags + 1)
        return self._detrended(np.stack([self.past(lag)[:, j] for lag in lags], axis=1))

    def _products(self, left: Float[np.ndarray, "r n"]) -> Float[np.ndarray, "D r L"]:
        """`left` (trend-free rows) times the unit columns of every series."""
        lags = range(1, self.n_lags + 1)
        products = np.stack([left @ self.past(lag) for lag in lags], axis=2)  # r, D, L
        return products.transpose(1, 0, 2) * self.scale[:, None, :]

    def _detrended(self, values: np.ndarray) -> np.ndarray:
        return values - self.trend @ (self.trend.T @ values)
