"""Exact Shapley values: by enumeration for up to 20 players, at any number for utilities of the total size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from classic_ml.valuation.closed_forms import checked_sizes, worth
from classic_ml.valuation.utility import BoolArray, FloatArray, IntArray, Utility, as_game
from classic_ml.valuation.values import DatasetValues

MAX_PLAYERS = 20
CACHED_CELLS = 1 << 14  # complex numbers of the I x frequency table worked on at a time


def exact_shapley(
    utility: Utility | Callable[[IntArray], float], n_players: int | None = None
) -> DatasetValues:
    """Shapley values from the utilities of all 2^I coalitions.

    Args:
        utility: a game of the players: a `ClosedForm`, a `GroupedUtility` of datasets, or a function of sorted
            player indices (asked for the empty coalition too).
        n_players: I <= 20; may be left out where the utility knows it.

    Raises:
        ValueError: more than 20 players, or a utility that isn't finite.
    """
    game, names = as_game(utility, n_players)
    count = len(names)
    if count > MAX_PLAYERS:
        raise ValueError(
            f"n_players = {count}: 2^{count} coalitions are too many (at most {MAX_PLAYERS}); use "
            "monte_carlo_shapley, du_shapley_data, or exact_shapley_by_size where only sizes count"
        )
    before = game.n_calls, game.n_evaluations
    u = game.masks(all_coalitions(count))
    return DatasetValues(
        values=shapley_from_table(u),
        names=names,
        method="Shapley",
        empty_value=float(u[0]),
        total_value=float(u[-1]),
        n_utility_calls=game.n_calls - before[0],
        n_evaluations=game.n_evaluations - before[1],
    )


def all_coalitions(n_players: int) -> BoolArray:
    """All coalitions [2^I I]; player i is in row r where bit i of r is set."""
    rows = np.arange(1 << n_players, dtype=np.int64)
    return (rows[:, None] >> np.arange(n_players) & 1).astype(np.bool_)


def shapley_from_table(u: FloatArray) -> FloatArray:
    """Shapley values [I] from the utilities of all coalitions [2^I], ordered as `all_coalitions`."""
    count = len(u).bit_length() - 1
    if count < 1 or len(u) != 1 << count:
        raise ValueError(f"u: a table of all coalitions has 2, 4, 8, ... entries, got {len(u)}")
    sizes = np.zeros(len(u) // 2, np.int64)  # of the coalitions of the others, bit i taken out
    for bit in range(count - 1):
        sizes += np.arange(len(sizes)) >> bit & 1
    weights = np.array([1 / (count * math.comb(count - 1, k)) for k in range(count)])[sizes]
    values = np.empty(count)
    for i in range(count):
        pairs = u.reshape(-1, 2, 1 << i)
        values[i] = weights @ (pairs[:, 1] - pairs[:, 0]).ravel()
    return values


def exact_shapley_by_size(
    sizes: npt.ArrayLike, w: Callable[[FloatArray], Any], *, empty_value: float | None = None
) -> FloatArray:
    """Shapley values [I] of u(S) = w(total size of S) for any number of players with whole sizes.

    The Shapley value is the marginal contribution to a coalition that everybody else joins with probability t,
    averaged over t in (0, 1) (Owen 1972).  The size of such a coalition has the characteristic function
    prod_j (1 - t + t z^n_j), a polynomial in t of degree I - 1, so Gauss-Legendre with I/2 nodes integrates it
    exactly and a Fourier transform gives the probabilities.  O(I^2 sum(n)), exact to rounding.

    Raises:
        ValueError: sizes that are negative or not whole.
    """
    n = checked_sizes(sizes)
    if (n != np.floor(n)).any():
        bad = int(np.flatnonzero(n != np.floor(n))[0])
        raise ValueError(
            f"sizes[{bad}] = {n[bad]} must be a whole number: exact values by size need integers"
        )
    whole, total = n.astype(np.int64), int(n.sum())
    u = worth(w, np.arange(total + 1, dtype=np.float64), empty_value)
    probabilities = _sizes_of_the_others(whole, total + 1)
    values = np.empty(len(n))
    for i, own in enumerate(whole):
        values[i] = probabilities[i, : total + 1 - own] @ (u[own:] - u[: total + 1 - own])
    return values


def _sizes_of_the_others(sizes: IntArray, length: int) -> FloatArray:
    """[I length]: for each player, the probability of every total size of those who came before."""
    nodes, weights = np.polynomial.legendre.leggauss(len(sizes) // 2 + 1)
    transform = np.zeros((len(sizes), length // 2 + 1), np.complex128)
    step = max(1, CACHED_CELLS // len(sizes))
    for start in range(0, transform.shape[1], step):
        block = transform[:, start : start + step]
        frequencies = np.arange(start, start + block.shape[1])
        z = np.exp(-2j * np.pi * (sizes[:, None] * frequencies % length) / length)
        for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            block += weight * _products_of_the_others(1 - t + t * z)
    return np.fft.irfft(transform, length)


def _products_of_the_others(factors: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
    """For each row the product of all other rows; no division, as a factor can be 0."""
    products = np.ones_like(factors)
    for i in range(1, len(factors)):
        np.multiply(products[i - 1], factors[i - 1], out=products[i])
    after = np.ones_like(factors[0])
    for i in range(len(factors) - 1, -1, -1):
        products[i] *= after
        after *= factors[i]
    return products
