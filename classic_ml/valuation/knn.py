"""KNN-Shapley values of points, of datasets and of cells: the baselines that need no training, but validation rows.

Points: Jia et al. 2019, "Efficient task-specific data valuation for nearest neighbor algorithms", arXiv 1908.08619.
Cells: the nearest-neighbour surrogate of 2D-Shapley (Liu et al. 2023, arXiv 2306.10473) as Sun et al. 2024 (arXiv
2408.03572) compare with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from classic_ml.random_state import RandomState, as_generator
from classic_ml.valuation.cells import checked_table
from classic_ml.valuation.groups import owners
from classic_ml.valuation.utility import BoolArray, ClosedForm, FloatArray
from interp.core.progress import progress as progress_bar

if TYPE_CHECKING:
    from torch import Tensor

CELLS_AT_A_TIME = 1 << 24  # distances of validation rows to all rows


def knn_shapley(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    X_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    n_neighbors: int = 10,
    *,
    device: str = "cpu",
) -> FloatArray:
    """Exact Shapley values [n] of training points under a nearest-neighbour utility.

    A set is worth the number of right labels among its `n_neighbors` nearest to a validation point, over
    `n_neighbors` (even if it has fewer points), averaged over validation points.

    Args:
        X, X_val: [n d] and [n_val d], dense or sparse.
        device: where distances are computed and sorted: cpu, cuda:0, auto; in float64, on Apple's GPUs in float32.

    Raises:
        ValueError: shapes that don't fit, values that aren't finite, n_neighbors < 1.
    """
    import torch

    (table, labels), (val, val_labels) = checked_table(_dense(X), y), checked_table(_dense(X_val), y_val)
    _check(table, val, n_neighbors)
    a, b = _tensors(device, val, table)
    matches = torch.from_numpy(labels[None, :] == val_labels[:, None]).to(a.device)
    total = torch.zeros(len(table), dtype=a.dtype, device=a.device)
    step = max(1, CELLS_AT_A_TIME // len(table))
    for rows, match in zip(a.split(step), matches.split(step), strict=True):
        total += _from_distances(_squared_distances(rows, b), match, n_neighbors)
    return (total / len(val)).cpu().numpy().astype(np.float64)


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X


def _tensors(device: str, val: FloatArray, table: FloatArray) -> tuple[Tensor, Tensor]:
    """Both tables on the device; centred, as distances between points far from 0 would drown in rounding."""
    import torch

    from interp.core.device import resolve_device

    where = resolve_device(device)
    dtype = torch.float32 if where.type == "mps" else torch.float64
    centre = table.mean(0)
    first, second = (torch.from_numpy(part - centre).to(where, dtype) for part in (val, table))
    return first, second


def _squared_distances(a: Tensor, b: Tensor) -> Tensor:
    return (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)


def _from_distances(distances: Tensor, matches: Tensor, k: int) -> Tensor:
    """The recursion from the farthest point to the nearest for validation rows [rows n] at once; summed over them."""
    import torch

    n = distances.shape[1]
    order = torch.argsort(distances, dim=1, stable=True)
    a = matches.gather(1, order).to(distances.dtype)
    rank = torch.arange(1, n, dtype=a.dtype, device=a.device)
    steps = torch.empty_like(a)
    steps[:, -1] = a[:, -1] * min(k, n) / (k * n)
    steps[:, :-1] = (a[:, :-1] - a[:, 1:]) * (rank.clamp(max=k) / (k * rank))
    by_rank = steps.flip(1).cumsum(1).flip(1)
    return torch.empty_like(by_rank).scatter_(1, order, by_rank).sum(0)


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
    (table, labels), (val, val_labels) = checked_table(_dense(X), y), checked_table(_dense(X_val), y_val)
    _check(table, val, n_neighbors)
    _, parts = owners(groups, n_points=len(table))
    owner = np.empty(len(table), np.int64)
    for i, rows in enumerate(parts):
        owner[rows] = i
    distances = _squared_distances(*_tensors("cpu", val, table))
    order = np.argsort(distances.numpy(), axis=1, kind="stable")
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
    random_state: RandomState = None,
    progress: bool | Literal["auto"] = False,
    *,
    device: str = "cpu",
) -> FloatArray:
    """Cell values [n d]: what a feature adds to the KNN-Shapley value of a row, averaged over orders of the features.

    A feature that comes first in an order adds nothing to measure and isn't counted there; one that always came first
    is NaN.  O(n_permutations d n_val n log n).

    Args:
        X, X_val, device: as for `knn_shapley`.
        random_state: None, a seed or a generator of NumPy's.

    Raises:
        ValueError: fewer than two features, no permutations, shapes that don't fit.
    """
    import torch

    (table, labels), (val, val_labels) = checked_table(_dense(X), y), checked_table(_dense(X_val), y_val)
    _check(table, val, n_neighbors)
    n, d = table.shape
    if d < 2 or n_permutations < 1:
        raise ValueError(f"two_d_knn needs two features and a permutation, got {d} and {n_permutations}")
    rng = as_generator(random_state)
    a, b = _tensors(device, val, table)
    matches = torch.from_numpy(labels[None, :] == val_labels[:, None]).to(a.device)
    total, counts = torch.zeros((d, n), dtype=a.dtype, device=a.device), np.zeros((d, 1))
    for _ in progress_bar(range(n_permutations), desc="2D-KNN", unit="permutation", enabled=progress):
        distances = torch.zeros(matches.shape, dtype=a.dtype, device=a.device)
        before: Tensor | None = None
        for j in rng.permutation(d).tolist():
            distances += (a[:, j, None] - b[None, :, j]) ** 2
            now = _from_distances(distances, matches, n_neighbors) / len(val)
            if before is not None:
                total[j] += now - before
                counts[j] += 1
            before = now
    sums = total.cpu().numpy().astype(np.float64)
    return np.divide(sums, counts, out=np.full((d, n), np.nan), where=counts > 0).T


def _check(table: FloatArray, val: FloatArray, n_neighbors: int) -> None:
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors = {n_neighbors} must be at least 1")
    if table.shape[1] != val.shape[1]:
        raise ValueError(f"X has {table.shape[1]} features, X_val {val.shape[1]}")
