"""Utilities that are formulas: of the amount of data, and of linear regression under heterogeneous noise.

Garrido-Lucero et al. 2024, arXiv 2306.02071: use-cases 2 (homogeneous) and 3 (linear regression; local differential
privacy).  In the third, player i's rows have x ~ N(0, sigma_i^2 I_d) and y = x theta + N(0, eps_i^2), and only
gamma_i = sigma_i / eps_i counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classic_ml.valuation.utility import BoolArray, ClosedForm, FloatArray


def checked_sizes(sizes: npt.ArrayLike, name: str = "sizes") -> FloatArray:
    """Sizes as floats [I]; ValueError unless they are finite, not negative and at least one."""
    n = np.asarray(sizes)
    if n.dtype.kind not in "biuf":
        raise ValueError(f"{name}: give numbers of points, got {n.dtype}: {n.ravel()[:3]}")
    n = n.astype(np.float64)
    if n.ndim != 1 or len(n) < 1:
        raise ValueError(f"{name}: give one number a player [I], I >= 1, got shape {n.shape}")
    if not np.isfinite(n).all() or (n < 0).any():
        bad = int(np.flatnonzero(~np.isfinite(n) | (n < 0))[0])
        raise ValueError(f"{name}[{bad}] = {n[bad]} must be a finite number of points, not negative")
    return n


def checked_gamma(gamma: npt.ArrayLike, n_players: int) -> FloatArray:
    """Signal-to-noise ratios [I]; ValueError unless they are positive and as many as the sizes."""
    g = np.asarray(gamma, np.float64)
    if g.shape != (n_players,):
        raise ValueError(f"gamma: {n_players} sizes need {n_players} ratios, got shape {g.shape}")
    if not np.isfinite(g).all() or (g <= 0).any():
        bad = int(np.flatnonzero(~np.isfinite(g) | (g <= 0))[0])
        raise ValueError(f"gamma[{bad}] = {g[bad]} must be positive: sigma over eps of player {bad}")
    return g


def worth(w: Callable[[FloatArray], Any], amounts: FloatArray, empty_value: float | None) -> FloatArray:
    """w of an array of amounts, with `empty_value` (where given) in place of w(0).

    Raises ValueError unless `w` gives one finite number for each.
    """
    if not callable(w):
        raise TypeError(f"w = {w!r} can't be called; give a function of an array of amounts")
    filled = amounts > 0 if empty_value is not None else np.ones(amounts.shape, np.bool_)
    asked = amounts[filled]
    values = np.asarray(w(asked), np.float64)
    if values.shape != asked.shape:
        raise ValueError(f"w: {asked.size} amounts must give as many values, got shape {values.shape}")
    if not np.isfinite(values).all():
        bad = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(
            f"w({asked[bad]:g}) = {values[bad]} is not finite; give empty_value if it is for no data"
        )
    out = np.full(amounts.shape, 0.0 if empty_value is None else empty_value)
    out[filled] = values
    return out


def size_utility(
    sizes: npt.ArrayLike, w: Callable[[FloatArray], Any], *, empty_value: float | None = None
) -> ClosedForm:
    """u(S) = w(total size of S), with `w` vectorised over float arrays."""
    n = checked_sizes(sizes)
    return ClosedForm(lambda masks: worth(w, masks @ n, empty_value), len(n))


def effective_size(a: FloatArray, b: FloatArray) -> FloatArray:
    """floor(a^2 / b), and 0 where b = 0.  A quotient a rounding error short of an integer counts as that integer."""
    q = np.divide(a**2, b, out=np.zeros(np.broadcast(a, b).shape), where=b > 0)
    return np.floor(q + 1e-9 * np.maximum(1, q))


def effective_sample_size(
    sizes: npt.ArrayLike, gamma: npt.ArrayLike, coalition: npt.ArrayLike | None = None
) -> FloatArray:
    """q(S) = floor((sum gamma n)^2 / sum gamma^2 n): the rows of equal quality that a coalition amounts to.

    Args:
        coalition: a boolean mask [I] or several [m I]; None: everybody.

    Returns:
        [] or [m], whole numbers; q(empty) = 0.  Equal gammas give the number of rows.
    """
    n = checked_sizes(sizes)
    g = checked_gamma(gamma, len(n))
    masks = np.ones(len(n), np.bool_) if coalition is None else np.asarray(coalition)
    if masks.dtype != np.bool_ or masks.shape[-1:] != n.shape:
        raise ValueError(
            f"coalition: give booleans [{len(n)}] or [m {len(n)}], got {masks.dtype} {masks.shape}"
        )
    return effective_size(masks @ (g * n), masks @ (g**2 * n))


class LinearRegressionWorth:
    """w(q) = -trace / (q - d - 1): minus the excess error of generalised least squares on q effective rows.

    The formula has a pole at q = d + 1 and means nothing below it, so a coalition that has data, but not enough,
    is a ValueError unless `underdetermined` says what it is worth.  For no data the paper keeps the formula's
    trace / (d + 1), which is *above* every determined coalition: `empty="paper"`, or a number of your own.

    Args:
        n_features: d.
        trace: Tr E[x x'] of the test rows; None: d, for x ~ N(0, I).
    """

    def __init__(
        self,
        n_features: int,
        *,
        trace: float | None = None,
        empty: float | Literal["paper"] = "paper",
        underdetermined: float | Literal["raise"] = "raise",
    ) -> None:
        if n_features < 1:
            raise ValueError(f"n_features = {n_features} must be at least 1")
        self.n_features = n_features
        self.trace = float(n_features if trace is None else trace)
        if not (self.trace > 0 and math.isfinite(self.trace)):
            raise ValueError(f"trace = {trace} must be a positive number")
        self.empty = self.trace / (n_features + 1) if empty == "paper" else _number("empty", empty, "paper")
        self.underdetermined = (
            None if underdetermined == "raise" else _number("underdetermined", underdetermined, "raise")
        )

    def __call__(self, q: FloatArray, describe: Callable[[tuple[int, ...]], str]) -> FloatArray:
        """w of effective sizes; `describe(index)` names the coalition in an error."""
        few = (q > 0) & (q <= self.n_features + 1)
        if few.any() and self.underdetermined is None:
            where = tuple(int(axis[0]) for axis in np.nonzero(few))
            raise ValueError(
                f"{describe(where)} has an effective sample size of {q[where]:.0f}, but {self.n_features} features "
                f"need at least {self.n_features + 2}: give it more rows, or say with underdetermined= what too few "
                "are worth"
            )
        safe = np.where(q > self.n_features + 1, q, self.n_features + 2.0)
        values = -self.trace / (safe - self.n_features - 1)
        values[few] = self.underdetermined or 0.0
        values[q == 0] = self.empty
        return values


def _number(name: str, value: Any, word: str) -> float:
    if isinstance(value, str) or not math.isfinite(value):
        raise ValueError(f"{name} = {value!r} must be {word!r} or a finite number")
    return float(value)


def linear_regression_utility(
    sizes: npt.ArrayLike,
    gamma: npt.ArrayLike,
    n_features: int,
    *,
    trace: float | None = None,
    empty: float | Literal["paper"] = "paper",
    underdetermined: float | Literal["raise"] = "raise",
) -> ClosedForm:
    """u(S) = -d / (q(S) - d - 1) for linear regression on data of unequal quality; see `LinearRegressionWorth`."""
    n = checked_sizes(sizes)
    g = checked_gamma(gamma, len(n))
    w = LinearRegressionWorth(n_features, trace=trace, empty=empty, underdetermined=underdetermined)

    def formula(masks: BoolArray) -> FloatArray:
        def describe(where: tuple[int, ...]) -> str:
            return f"coalition {np.flatnonzero(masks[where[0]]).tolist()}"

        return w(effective_size(masks @ (g * n), masks @ (g**2 * n)), describe)

    return ClosedForm(formula, len(n))
