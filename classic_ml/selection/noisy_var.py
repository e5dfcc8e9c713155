"""The ChronoEpilogi paper's synthetic series, vector autoregressions with noisy copies, and scores for classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from classic_ml.random_state import RandomState, as_generator

COPY_NOISE = 0.1
OTHER_PARENTS, OTHER_VARIABLES = 10, 20
COPIES_PER_PARENT = ((10, 2), (100, 5), (np.inf, 20))  # total series up to, factor


def make_noisy_var(
    n_steps: int,
    n_series: int,
    *,
    n_parents: int,
    n_lags: int,
    random_state: RandomState = None,
    n_replaceable: int | None = None,
    n_redundant: int | None = None,
) -> tuple[Float[np.ndarray, "N D"], list[list[int]]]:
    """Series and the true classes [[target], [a, a'], [b], ...]; one member per class forecasts the target best.

    Variable 0 of a stable VAR is the target, with `n_parents` parents at one random lag each. A third of them stay as
    they are; the others are replaced by classes of noisy copies, delayed by less than
    their lag, so that what they know stays inside the window. The rest is redundant
    (copies of non-parents) or irrelevant (other, independent VARs). Columns are shuffled.

    Source: Vareille et al. 2024, synthetic experiments. Raises ValueError where the parts do not fit in `n_series`.
    """
    for name, value in (("n_steps", n_steps), ("n_lags", n_lags), ("n_parents", n_parents)):
        if value < 1:
            raise ValueError(f"{name} = {value} must be at least 1")
    rng = as_generator(random_state)
    base, lag_of = _simulate_var(rng, n_steps + n_lags, 1 + n_parents + 20, n_parents, n_lags)
    single = n_parents // 3
    several = n_parents - single
    factor = next(f for limit, f in COPIES_PER_PARENT if n_series <= limit)
    copies = factor * several if n_replaceable is None else n_replaceable
    if 1 + n_parents == n_series:
        single, several, copies = n_parents, 0, 0
    left = n_series - 1 - single - copies
    redundant = left // 3 if n_redundant is None else n_redundant
    if left < 0 or redundant > left or (several and copies < 2 * several):
        raise ValueError(
            f"n_series = {n_series} does not hold 1 target, {single} single and {copies} copied parents (at least two "
            f"each for {several}) and {n_redundant or 0} redundant ones"
        )
    columns, classes = [base[:, 0]], [[0]]
    order = rng.permutation(list(lag_of))
    for parent in order[:single]:
        classes.append([len(columns)])
        columns.append(base[:, parent])
    for parent, size in zip(order[single:], _sizes(rng, copies, several), strict=True):
        classes.append(list(range(len(columns), len(columns) + size)))
        for number in range(size):
            delay = rng.integers(lag_of[parent]) if number else 0
            columns.append(_noisy(rng, np.roll(base[:, parent], delay)))
    others = np.setdiff1d(np.arange(1, base.shape[1]), list(lag_of))
    columns += [_noisy(rng, base[:, rng.choice(others)]) for _ in range(redundant)]
    while len(columns) < n_series:
        block, _ = _simulate_var(rng, n_steps + n_lags, OTHER_VARIABLES, OTHER_PARENTS, n_lags)
        columns += list(block.T[: n_series - len(columns)])
    X = np.stack(columns, axis=1)[n_lags:]
    place = rng.permutation(n_series)  # column j goes to place[j]
    shuffled = np.empty_like(X)
    shuffled[:, place] = X
    return shuffled, [[int(place[j]) for j in members] for members in classes]


def class_f1_scores(found: Sequence[Sequence[Any]], true: Sequence[Sequence[Any]]) -> dict[str, float]:
    """F1 of the irreplaceable series (classes of one, target included), the replaceable ones, and all together.

    A score of two empty sets is 1.
    """
    scores = {}
    for name, keep in (
        ("irreplaceable", lambda members: len(members) == 1),
        ("replaceable", lambda members: len(members) > 1),
        ("union", lambda members: True),
    ):
        ours, theirs = ({j for c in classes if keep(c) for j in c} for classes in (found, true))
        both = len(ours) + len(theirs)
        scores[name] = 2 * len(ours & theirs) / both if both else 1.0
    return scores


def _simulate_var(
    rng: np.random.Generator, n_steps: int, n_variables: int, n_parents: int, n_lags: int
) -> tuple[np.ndarray, dict[int, int]]:
    """A stable VAR's steps, and the lag (1..L) at which each parent acts on variable 0."""
    A = np.zeros((n_lags, n_variables, n_variables))
    everyone = np.arange(n_variables)
    lag_of: dict[int, int] = {}
    for i in range(n_variables):
        parents = rng.choice(np.delete(everyone, i), n_parents, replace=False)
        lags = rng.integers(n_lags, size=n_parents)
        A[lags, i, parents] = _coefficients(rng, n_parents)
        A[:, i, i] = _coefficients(rng, n_lags)
        if i == 0:
            lag_of = {int(parent): int(lag) + 1 for parent, lag in zip(parents, lags, strict=True)}
    stable = False
    while not stable:
        A *= rng.uniform(0.5, 0.97)
        stable = _spectral_radius(A) < 1
    burn_in = 200
    noise = rng.standard_normal((n_steps + burn_in, n_variables))
    X = np.zeros((n_steps + burn_in + n_lags, n_variables))
    stacked = A.transpose(1, 0, 2).reshape(n_variables, -1)
    for t in range(n_steps + burn_in):
        past = X[t : t + n_lags][::-1].reshape(-1)
        X[t + n_lags] = stacked @ past + noise[t]
    return X[-n_steps:], lag_of


def _coefficients(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(0.5, 0.9, n) * rng.choice([-1, 1], n)


def _spectral_radius(A: np.ndarray) -> float:
    n_lags, d, _ = A.shape
    companion = np.eye(n_lags * d, k=-d)
    companion[:d] = A.transpose(1, 0, 2).reshape(d, -1)
    return float(np.abs(np.linalg.eigvals(companion)).max())


def _sizes(rng: np.random.Generator, total: int, parts: int) -> np.ndarray:
    """`total` split at random into `parts` of at least 2."""
    return 2 + rng.multinomial(total - 2 * parts, np.full(parts, 1 / parts)) if parts else np.empty(0, int)


def _noisy(rng: np.random.Generator, series: np.ndarray) -> np.ndarray:
    return series + COPY_NOISE * rng.standard_normal(len(series))
