"""Shapley values by sampling (permutations, antithetic, orthogonal, Owen, stratified), and leave-one-out.

The budget `n_samples` is the number of marginal contributions per player, so that equal budgets compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from classic_ml.random_state import RandomState, as_generator, as_seed
from classic_ml.valuation.du_shapley import sample_size
from classic_ml.valuation.groups import owners
from classic_ml.valuation.utility import BoolArray, FloatArray, IntArray, Utility, as_game, as_utility
from classic_ml.valuation.values import DatasetValues
from interp.core.messages import at_least, one_of

Method: TypeAlias = Literal["permutation", "antithetic", "orthogonal", "owen", "stratified"]
METHODS = ("permutation", "antithetic", "orthogonal", "owen", "stratified")
CELLS_AT_A_TIME = 1 << 24  # of the boolean coalitions


def monte_carlo_shapley(
    utility: Utility | Callable[[IntArray], float],
    n_players: int | None = None,
    n_samples: int = 100,
    method: Method = "permutation",
    random_state: RandomState = None,
) -> DatasetValues:
    """Unbiased estimates of the Shapley values.

    Args:
        utility: a game of the players, as for `exact_shapley`.
        n_samples: marginal contributions per player.
        method: "permutation": random orders of arrival.  "antithetic": each order and its reverse.  "orthogonal":
            orders from random orthonormal directions and their negatives (Mitchell et al. 2022, arXiv 2104.12199).
            "owen": every other player present with a probability drawn from U(0, 1) (Okhrati & Lipani 2021, arXiv
            2010.12082).  "stratified": coalitions of every size equally often.
        random_state: None, a seed or a generator of NumPy's.

    Returns:
        `samples` holds one row per independent estimate: an order, a pair of orders, a draw, or a round of all
        sizes.  (Rows of "orthogonal" are negatively dependent within a basis; its standard error errs upwards.)

    Raises:
        ValueError: an unknown method; n_samples < 1, odd for "antithetic" or "orthogonal", or not a multiple of the
            players for "stratified".
    """
    one_of("method", method, METHODS)
    game, names = as_game(utility, n_players)
    count = len(names)
    per_row = {"antithetic": 2, "orthogonal": 2, "stratified": count}.get(method, 1)
    at_least("n_samples", n_samples, 1)
    if n_samples % per_row:
        raise ValueError(f"n_samples = {n_samples} must be a multiple of {per_row} for {method!r}")
    rng = as_generator(random_state)
    before = game.n_calls, game.n_evaluations
    n_rows = n_samples // per_row
    step = max(1, CELLS_AT_A_TIME // (per_row * count * 2 * (count + 1)))
    chunks = []
    for start in range(0, n_rows, step):
        rows = min(step, n_rows - start)
        if method in ("permutation", "antithetic", "orthogonal"):
            orders = _orders(method, rows, count, rng)
            marginals = _marginals_of_orders(game, orders)
        else:
            marginals = _marginals_of_pairs(game, *_pairs(method, rows, count, rng))
        chunks.append(marginals.reshape(rows, per_row, count).mean(1))
    samples = np.concatenate(chunks)
    cost = game.n_calls - before[0], game.n_evaluations - before[1]
    return DatasetValues(
        values=samples.mean(0),
        names=names,
        method=f"MC ({method})",
        empty_value=game([]),
        total_value=game(np.arange(count)),
        n_utility_calls=cost[0],
        n_evaluations=cost[1],
        samples=samples,
    )


def _orders(method: Method, rows: int, count: int, rng: np.random.Generator) -> IntArray:
    """Orders of arrival [rows * per_row, count], pairs beside one another."""
    if method == "permutation":
        return rng.permuted(np.tile(np.arange(count), (rows, 1)), axis=1)
    if method == "antithetic":
        forward = rng.permuted(np.tile(np.arange(count), (rows, 1)), axis=1)
        backward = forward[:, ::-1]
    else:
        directions = np.concatenate(list(_orthonormal(rows, count, rng)))[:rows]
        forward, backward = np.argsort(directions, axis=1), np.argsort(-directions, axis=1)
    return np.stack([forward, backward], 1).reshape(2 * rows, count)


def _orthonormal(rows: int, count: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Random orthonormal bases of the hyperplane sum(x) = 0 in R^count, until there are `rows` vectors."""
    if count == 1:
        yield np.zeros((rows, 1))
        return
    helmert = np.tril(np.ones((count - 1, count)), 0)
    helmert[np.arange(count - 1), np.arange(1, count)] = -np.arange(1, count)
    helmert /= np.linalg.norm(helmert, axis=1, keepdims=True)
    for _ in range(-(-rows // (count - 1))):
        yield np.linalg.qr(rng.standard_normal((count - 1, count - 1)))[0] @ helmert


def _marginals_of_orders(game: Utility, orders: IntArray) -> FloatArray:
    """What each player adds on arrival [orders, count]."""
    n_orders, count = orders.shape
    arrival = np.argsort(orders, axis=1)
    prefixes = arrival[:, None, :] < np.arange(count + 1)[None, :, None]
    u = game.masks(prefixes.reshape(-1, count)).reshape(n_orders, count + 1)
    return np.take_along_axis(np.diff(u, axis=1), arrival, axis=1)


def _pairs(method: Method, rows: int, count: int, rng: np.random.Generator) -> tuple[BoolArray, BoolArray]:
    """Coalitions [samples count(player) count] without and with each player."""
    if method == "owen":
        coalition = rng.random((rows, count, count)) < rng.random((rows, count, 1))
    else:
        # Round r, size k: for each player the first k of the others in a random order.
        keys = rng.random((rows, count, count, count))
        keys[..., np.arange(count), np.arange(count)] = np.inf
        rank = np.argsort(np.argsort(keys, axis=-1), axis=-1)
        coalition = (rank < np.arange(count)[:, None, None]).reshape(-1, count, count)
    own = np.eye(count, dtype=np.bool_)
    return coalition & ~own, coalition | own


def _marginals_of_pairs(game: Utility, without: BoolArray, with_i: BoolArray) -> FloatArray:
    count = with_i.shape[-1]
    u = game.masks(np.concatenate([without.reshape(-1, count), with_i.reshape(-1, count)]))
    return (u[len(u) // 2 :] - u[: len(u) // 2]).reshape(-1, count)


def leave_one_out(
    groups: Any,
    utility: Utility | Callable[[IntArray], float],
    *,
    subset: Literal["all", "random"] = "all",
    empty_value: float | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> DatasetValues:
    """What each dataset adds to the others' data, or to one random amount of it.

    Args:
        groups, utility, empty_value, random_state, n_jobs: as for `du_shapley_data`.
        subset: "all": u(all) - u(all but D_i).  "random": u(D + D_i) - u(D) for one D drawn from the others, of a
            random number of equal shares, as Garrido-Lucero et al. 2024 compare with.

    Raises:
        ValueError: an unknown subset, or bad groups.
    """
    one_of("subset", subset, ("all", "random"))
    known = utility.n_points if isinstance(utility, Utility) else None
    names, parts = owners(groups, n_points=known)
    everything = np.sort(np.concatenate(parts))
    u = as_utility(utility, n_points=len(everything), empty_value=empty_value, n_jobs=n_jobs)
    before = u.n_calls, u.n_evaluations
    sets: list[npt.ArrayLike] = []
    for own, seed in zip(parts, np.random.SeedSequence(as_seed(random_state)).spawn(len(parts)), strict=True):
        others = np.setdiff1d(everything, own, assume_unique=True)
        if subset == "random":
            rng = np.random.default_rng(seed)
            size = sample_size(int(rng.integers(len(parts))), len(others), len(parts))
            others = rng.choice(others, size, replace=False)
        sets += [others, np.concatenate([others, own])]
    without, with_i = u.many(sets).reshape(-1, 2).T
    cost = u.n_calls - before[0], u.n_evaluations - before[1]
    return DatasetValues(
        values=with_i - without,
        names=names,
        method="leave-one-out" if subset == "all" else "leave-one-out (random)",
        empty_value=u([]),
        total_value=u(everything),
        n_utility_calls=cost[0],
        n_evaluations=cost[1],
    )
