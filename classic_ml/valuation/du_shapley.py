"""DU-Shapley: the value of a dataset from random *amounts* of the others' data, not from coalitions of the others.

Garrido-Lucero, Heymann, Vono, Loiseau, Perchet 2024, "DU-Shapley: a Shapley value proxy for efficient dataset
valuation", NeurIPS, arXiv 2306.02071v3.  The Shapley value of owner i needs the utility of every coalition of the
others; the proxy is

    psi_i = (1/I) sum_{k=0}^{I-1} [ u(D^(k) + D_i) - u(D^(k)) ],

D^(k) being a uniform sample, without replacement, of k |D_{-i}| / (I - 1) of the others' points: 2 I utilities for
each owner.  It is exact for I = 2, for equal other sizes and for affine utilities of the size, keeps symmetry, dummy
and linearity, and gives up efficiency: the values need not sum to u(all) - u(empty).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classic_ml.random_state import RandomState, as_seed
from classic_ml.valuation.closed_forms import (
    LinearRegressionWorth,
    checked_gamma,
    checked_sizes,
    effective_size,
    worth,
)
from classic_ml.valuation.groups import owners
from classic_ml.valuation.utility import FloatArray, IntArray, Utility, as_utility
from classic_ml.valuation.values import DatasetValues
from interp.core.messages import at_least

CELLS_AT_A_TIME = 1 << 22  # of the I x I tables


def du_shapley(
    sizes: npt.ArrayLike, w: Callable[[FloatArray], Any], *, empty_value: float | None = None
) -> FloatArray:
    """DU-Shapley values [I] where the utility is a function of the number of points alone (use-case 2).

    Args:
        sizes: [I], points of each owner; an owner of none is worth 0.
        w: utility of an amount, vectorised over float arrays.  Amounts are real numbers, not rounded.
        empty_value: w(0) where `w` isn't defined there.

    Raises:
        ValueError: sizes that are negative or not finite, or a `w` that is not finite or of another shape.
    """
    n = checked_sizes(sizes)
    count = len(n)
    mean_of_others = (n.sum() - n) / max(1, count - 1)
    values = np.empty(count)
    for rows in _row_blocks(count):
        amounts = np.arange(count) * mean_of_others[rows, None]
        gains = worth(w, amounts + n[rows, None], empty_value) - worth(w, amounts, empty_value)
        values[rows] = gains.mean(1)
    return values


def du_shapley_linear(
    sizes: npt.ArrayLike,
    gamma: npt.ArrayLike,
    n_features: int,
    *,
    trace: float | None = None,
    empty: float | Literal["paper"] = "paper",
    underdetermined: float | Literal["raise"] = "raise",
) -> FloatArray:
    """DU-Shapley values [I] for linear regression with data of unequal quality, as under local privacy (use-case 3).

    Args:
        gamma: [I], sigma_i / eps_i > 0: how much the rows of owner i say.
        n_features, trace, empty, underdetermined: as for `LinearRegressionWorth`.

    Raises:
        ValueError: bad sizes or gammas, or an owner with data but fewer than n_features + 2 rows, unless
            `underdetermined` says what that is worth.
    """
    n = checked_sizes(sizes)
    g = checked_gamma(gamma, len(n))
    w = LinearRegressionWorth(n_features, trace=trace, empty=empty, underdetermined=underdetermined)
    count = len(n)
    a, b = g * n, g**2 * n
    share = np.arange(count) / max(1, count - 1)
    values = np.empty(count)
    for rows in _row_blocks(count):
        a_others, b_others = share * (a.sum() - a)[rows, None], share * (b.sum() - b)[rows, None]
        first = rows.start

        def describe(where: tuple[int, ...], first: int = first) -> str:
            return f"player {first + where[0]} with {share[where[1]]:.0%} of the others' data"

        def describe_others(where: tuple[int, ...], first: int = first) -> str:
            return f"{share[where[1]]:.0%} of the data of the others than player {first + where[0]}"

        with_i = w(effective_size(a_others + a[rows, None], b_others + b[rows, None]), describe)
        without_i = w(effective_size(a_others, b_others), describe_others)
        values[rows] = (with_i - without_i).mean(1)
    return values


def du_shapley_binned(
    counts: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    w: Callable[[FloatArray], Any] | Sequence[Callable[[FloatArray], Any]],
    *,
    empty_value: float | None = None,
) -> FloatArray:
    """DU-Shapley values [I] where u(S) = sum_b P_b w_b(points of S in bin b) (use-case 1, by linearity).

    Args:
        counts: [I n_bins], points of each owner in each bin.
        probabilities: [n_bins], not negative, summing to 1.
        w: one function of the amount for all bins, or one a bin.

    Raises:
        ValueError: shapes that don't fit, probabilities that are none, bad counts.
    """
    table = np.asarray(counts, np.float64)
    p = checked_probabilities(table, probabilities)
    functions = list(w) if isinstance(w, Sequence) else [w] * len(p)
    if len(functions) != len(p):
        raise ValueError(f"w: {len(p)} bins need one function or {len(p)}, got {len(functions)}")
    parts = [p[b] * du_shapley(table[:, b], functions[b], empty_value=empty_value) for b in np.flatnonzero(p)]
    return np.sum(parts, 0)


def checked_probabilities(table: FloatArray, probabilities: npt.ArrayLike) -> FloatArray:
    """Probabilities of the columns of `table` [I n_bins]; ValueError unless they are such."""
    p = np.asarray(probabilities, np.float64)
    if table.ndim != 2 or p.shape != table.shape[1:]:
        raise ValueError(
            f"counts [I n_bins] and probabilities [n_bins] don't fit: {table.shape} and {p.shape}"
        )
    if not np.isfinite(p).all() or (p < 0).any() or abs(p.sum() - 1) > 1e-6:
        raise ValueError(f"probabilities must be >= 0 and sum to 1, got a sum of {p.sum():.6g}")
    return p


def du_shapley_data(
    groups: Any,
    utility: Utility | Callable[[IntArray], float],
    *,
    empty_value: float | None = None,
    n_repeats: int = 1,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    allow_empty: bool = False,
) -> DatasetValues:
    """DU-Shapley values of real datasets, for any utility of a set of rows.

    Asks for 2 I^2 utilities a repeat, less the I that are u(empty); u(all) comes up I times and is computed once.
    Every sample has a seed of its own, so the values don't depend on `n_jobs` or on interruptions.  A size
    k |D_{-i}| / (I - 1) that isn't whole is rounded, halves to even (the paper doesn't say).

    Args:
        groups: an owner for every row [n], or a list of index arrays, one an owner.
        utility: a `Utility` over rows (`model_utility` makes one), or a function of sorted row indices.
        empty_value: u of no data, for a plain function; None: the function is asked.
        n_repeats: averaging takes away the noise of sampling, not the bias; the paper uses 1.
        random_state: None, a seed or a generator of NumPy's, of which a seed is drawn.
        n_jobs: processes, for a plain function.
        allow_empty: let a list hold owners without rows (their value is 0).

    Raises:
        ValueError: rows without an owner or with two, owners without rows, n_repeats < 1, a utility that isn't finite.
    """
    at_least("n_repeats", n_repeats, 1)
    known = utility.n_points if isinstance(utility, Utility) else None
    names, parts = owners(groups, n_points=known, allow_empty=allow_empty)
    n_rows = sum(map(len, parts))
    u = as_utility(utility, n_points=n_rows, empty_value=empty_value, n_jobs=n_jobs)
    before = u.n_calls, u.n_evaluations
    count = len(parts)
    sets = _sets(parts, n_repeats, np.random.SeedSequence(as_seed(random_state)))
    asked = u.many(sets, total=2 * count * count * n_repeats).reshape(n_repeats, count, count, 2)
    samples = (asked[..., 1] - asked[..., 0]).mean(2)
    cost = u.n_calls - before[0], u.n_evaluations - before[1]
    return DatasetValues(
        values=samples.mean(0),
        names=names,
        method="DU-Shapley",
        empty_value=u([]),
        total_value=u(np.arange(n_rows)),
        n_utility_calls=cost[0],
        n_evaluations=cost[1],
        samples=samples,
    )


def sample_size(k: int, n_others: int, n_players: int) -> int:
    """Rows in D^(k): k of I - 1 equal shares of the others' rows, halves to even; all of them for k = I - 1."""
    return round(k * n_others / (n_players - 1)) if n_players > 1 else 0


def _sets(parts: list[IntArray], n_repeats: int, seed: np.random.SeedSequence) -> Iterator[IntArray]:
    """D^(k), then D^(k) with D_i, for every repeat, i and k."""
    everything = np.sort(np.concatenate(parts))
    for repeat in range(n_repeats):
        for i, own in enumerate(parts):
            pool = np.setdiff1d(everything, own, assume_unique=True)
            for k in range(len(parts)):
                key = (*seed.spawn_key, repeat, i, k)
                rng = np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=key))
                drawn = rng.choice(pool, sample_size(k, len(pool), len(parts)), replace=False)
                yield drawn
                yield np.concatenate([drawn, own])


def _row_blocks(count: int) -> Iterator[slice]:
    step = max(1, CELLS_AT_A_TIME // count)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
