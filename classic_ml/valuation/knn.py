"""KNN-Shapley values of points, of datasets and of cells: the baselines that need no training, but validation rows.

Points: Jia et al. 2019, "Efficient task-specific data valuation for nearest neighbor algorithms", arXiv 1908.08619.
Cells: the nearest-neighbour surrogate of 2D-Shapley (Liu et al. 2023, arXiv 2306.10473) as Sun et al. 2024 (arXiv
2408.03572) compare with.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classic_ml.valuation.cells import checked_table
from classic_ml.valuation.groups import owners
from classic_ml.valuation.utility import BoolArray, ClosedForm, FloatArray
from interp.core.progress import progress as progress_bar


def knn_shapley(
    X: npt.ArrayLike, y: npt.ArrayLike, X_val: npt.ArrayLike, y_val: npt.ArrayLike, n_neighbors: int = 10
) -> FloatArray:
    """Exact Shapley values [n] of training points under a nearest-neighbour utility.

    A set is worth the number of right labels among its `n_neighbors` nearest to a validation point, over
    `n_neighbors` (even if it has fewer points), averaged over validation points.
    """
    (table, labels), (val, val_labels) = checked_table(X, y), checked_table(X_val, y_val)
    _check(table, val, n_neighbors)
    matches = labels[None, :] == val_labels[:, None]
    return _from_distances(_squared_distances(val, table), matches, n_neighbors)


def _squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    return (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)


def _from_distances(distances: FloatArray, matches: BoolArray, k: int) -> FloatArray:
    """The recursion from the farthest point to the nearest, for all validation rows [n_val n] at once."""
    n = distances.shape[1]
    order = np.argsort(distances, axis=1, kind="stable")
    a = np.take_along_axis(matches, order, axis=1).astype(np.float64)
    rank = np.arange(1, n)
    steps = np.empty_like(a)
    steps[:, -1] = a[:, -1] * min(k, n) / (k * n)
    steps[:, :-1] = (a[:, :-1] - a[:, 1:]) * (np.minimum(k, rank) / (k * rank))
    by_rank = np.cumsum(steps[:, ::-1], axis=1)[:, ::-1]
    values = np.empty_like(by_rank)
    np.put_along_axis(values, order, by_rank, axis=1)
    return values.mean(0)


def knn_utility(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    X_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    groups: Any,
    n_neighbors: int = 10,
) -> ClosedForm:
    """The game that `knn_shapley` solves, between owners of several points (Jia et al. 2019, appendix E.3).

    Give it to `exact_shapley` or `monte_carlo_shapley`; nothing is trained, so a coalition costs a look-up.
    """
    (table, labels), (val, val_labels) = checked_table(X, y), checked_table(X_val, y_val)
    _check(table, val, n_neighbors)
    _, parts = owners(groups, n_points=len(table))
    owner = np.empty(len(table), np.int64)
    for i, rows in enumerate(parts):
        owner[rows] = i
    order = np.argsort(_squared_distances(val, table), axis=1, kind="stable")
    owners_by_rank = owner[order]
    matches = labels[order] == val_labels[:, None]

    def formula(masks: BoolArray) -> FloatArray:
        total = np.zeros(len(masks))
        for who, match in zip(owners_by_rank, matches, strict=True):
            present = masks[:, who]
            chosen = present & (np.cumsum(present, axis=1) <= n_neighbors)
            total += (chosen & match).sum(1)
        return total / (n_neighbors * len(val))

    return ClosedForm(formula, len(parts))


def two_d_knn(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    X_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    n_neighbors: int = 10,
    n_permutations: int = 1000,
    random_state: int | None = None,
    progress: bool | Literal["auto"] = False,
) -> FloatArray:
    """Cell values [n d]: what a feature adds to the KNN-Shapley value of a row, averaged over orders of the features.

    A feature that comes first in an order adds nothing to measure and isn't counted there; one that always came first
    is NaN.  O(n_permutations d n_val n log n).

    Raises:
        ValueError: fewer than two features, no permutations, shapes that don't fit.
    """
    (table, labels), (val, val_labels) = checked_table(X, y), checked_table(X_val, y_val)
    _check(table, val, n_neighbors)
    n, d = table.shape
    if d < 2 or n_permutations < 1:
        raise ValueError(f"two_d_knn needs two features and a permutation, got {d} and {n_permutations}")
    rng = np.random.default_rng(random_state)
    matches = labels[None, :] == val_labels[:, None]
    total, counts = np.zeros((d, n)), np.zeros((d, 1))
    for _ in progress_bar(range(n_permutations), desc="2D-KNN", unit="permutation", enabled=progress):
        distances = np.zeros(matches.shape)
        before: FloatArray | None = None
        for j in rng.permutation(d):
            distances += (val[:, j, None] - table[None, :, j]) ** 2
            now = _from_distances(distances, matches, n_neighbors)
            if before is not None:
                total[j] += now - before
                counts[j] += 1
            before = now
    return np.divide(total, counts, out=np.full((d, n), np.nan), where=counts > 0).T


def _check(table: FloatArray, val: FloatArray, n_neighbors: int) -> None:
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors = {n_neighbors} must be at least 1")
    if table.shape[1] != val.shape[1]:
        raise ValueError(f"X has {table.shape[1]} features, X_val {val.shape[1]}")
