"""The selectors RDSS is measured against. Each returns `n_samples` different row indices of X (n, d)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from classic_ml.random_state import RandomState, as_generator
from classic_ml.selection.distances import (
    PoolRows,
    as_matrix,
    double_device,
    median_bandwidth,
    squared_distances,
)
from classic_ml.selection.herding import check_budget, kernel_herding
from classic_ml.selection.kernels import PoolKernel
from classic_ml.selection.kmeans import kmeans

Indices = Int[np.ndarray, " m"]
Device = str | torch.device

# Of USL, chosen by us: the original's constants differ from one of its data sets to the next.
USL_NEIGHBOURS, USL_WEIGHT, USL_POWER, USL_SWEEPS, USL_MOMENTUM = 20, 0.5, 0.5, 10, 0.9
_ROWS = 1024
_TINY = 1e-12


def select_random(X: Any, n_samples: int, *, random_state: RandomState = None) -> Indices:
    """Uniform without replacement."""
    check_budget(n_samples, len(X))
    return as_generator(random_state).choice(len(X), n_samples, replace=False)


def select_stratified(y: Any, n_samples: int, *, random_state: RandomState = None) -> Indices:
    """An equal number per true class, the remainder to random classes: an oracle, for reference only.

    Raises ValueError where a class has too few rows for its share.
    """
    y = np.asarray(y)
    check_budget(n_samples, len(y))
    rng = as_generator(random_state)
    classes = rng.permutation(np.unique(y))
    share, rest = divmod(n_samples, len(classes))
    picks = []
    for i, label in enumerate(classes):
        rows, wanted = np.flatnonzero(y == label), share + (i < rest)
        if wanted > len(rows):
            raise ValueError(f"class {label!r} has {len(rows)} rows, but its share of n_samples is {wanted}")
        picks.append(rng.choice(rows, wanted, replace=False))
    return rng.permutation(np.concatenate(picks))


def select_kmeans(
    X: Any, n_samples: int, *, random_state: RandomState = None, device: Device = "auto"
) -> Indices:
    """k-means with m clusters; for every centre the nearest row not taken yet."""
    pool = _pool(X, n_samples, device)
    centres = kmeans(pool, n_samples, as_generator(random_state)).centres
    return nearest_untaken(pool.exact(slice(None)), centres)


def select_kcenter(
    X: Any, n_samples: int, *, random_state: RandomState = None, device: Device = "auto"
) -> Indices:
    """k-center greedy (CoreSet): a random row, then repeatedly the row farthest from all picks.

    Source: Sener & Savarese 2018, Algorithm 1.
    """
    pool = _pool(X, n_samples, device)
    Z = pool.exact(slice(None))
    lengths = Z.square().sum(1)
    picks = [int(as_generator(random_state).integers(pool.n))]
    nearest = torch.full_like(lengths, torch.inf)
    while len(picks) < n_samples:
        nearest = torch.minimum(nearest, squared_distances(Z, Z[picks[-1:]], lengths)[:, 0])
        nearest[picks[-1]] = -1  # duplicates must not be picked twice
        picks.append(int(nearest.argmax()))
    return np.array(picks)


def select_herding(
    X: Any, n_samples: int, *, random_state: RandomState = None, device: Device = "auto"
) -> Indices:
    """Plain kernel herding (with replacement, alpha = 1, median bandwidth); repeats are given to its next best rows.

    A row picked twice needs one label only, so the budget left over is spent by herding on without replacement.
    """
    X = as_matrix(X)
    check_budget(n_samples, len(X))
    sigma = median_bandwidth(X, random_state=random_state, device=device)
    kernel = PoolKernel.from_rows(X, sigma=sigma, device=device)
    mu = kernel.potential()
    repeated = kernel_herding(kernel, n_samples, alpha=1.0, replacement=True, potential=mu).indices
    picks = list(dict.fromkeys(int(i) for i in repeated))
    spare = kernel_herding(kernel, n_samples, alpha=1.0, potential=mu).indices
    picks += [int(i) for i in spare if int(i) not in set(picks)][: n_samples - len(picks)]
    return np.array(picks)


def select_usl(
    X: Any, n_samples: int, *, random_state: RandomState = None, device: Device = "auto"
) -> Indices:
    """Unsupervised selective labelling: per k-means cluster the densest row, pushed away from the other picks.

    Density is 1 / mean distance to the 20 nearest neighbours; the push is an exponential average over 10 sweeps of
    sum_j |x - v_j|^-0.5, weight 0.5. Distances are in units of the pool's mean distance to a neighbour, so that the
    scale of X doesn't matter (this unit and these constants are ours). A cluster without rows, as there are when rows
    are duplicates, gives its pick to the best row left. Source: Wang, Lian & Yu 2022 (ECCV).
    """
    pool = _pool(X, n_samples, device)
    clusters = kmeans(pool, n_samples, as_generator(random_state)).labels.cpu().numpy()
    Z = pool.exact(slice(None))
    distances = _neighbour_distances(Z, min(USL_NEIGHBOURS, pool.n - 1))
    unit = float(distances.mean()) or 1.0
    density = 1 / np.maximum(distances / unit, _TINY)
    picks = _best_of_each(density, clusters, n_samples)
    push = np.zeros(pool.n)
    for _ in range(USL_SWEEPS):
        now = np.zeros(pool.n)
        for part in np.array_split(np.arange(pool.n), -(-pool.n // _ROWS)):
            apart = squared_distances(Z[part], Z[picks]).sqrt_().cpu().numpy() / unit
            closeness = np.maximum(apart, _TINY) ** -USL_POWER
            now[part] = np.where(clusters[part, None] == clusters[picks], 0, closeness).sum(1)
        push = USL_MOMENTUM * push + (1 - USL_MOMENTUM) * now
        picks = _best_of_each(density - USL_WEIGHT * push, clusters, n_samples)
    return picks


def nearest_untaken(Z: Float[Tensor, "n d"], centres: Float[Tensor, "m d"]) -> Indices:
    """For every centre in turn the nearest row that none before it took."""
    lengths, taken = Z.square().sum(1), torch.zeros(len(Z), dtype=torch.float64, device=Z.device)
    picks = []
    for centre in centres:
        picks.append(int((squared_distances(Z, centre[None], lengths)[:, 0] + taken).argmin()))
        taken[picks[-1]] = torch.inf
    return np.array(picks)


def _pool(X: Any, n_samples: int, device: Device) -> PoolRows:
    X = as_matrix(X)
    check_budget(n_samples, len(X))
    return PoolRows(X, double_device(device))


def _neighbour_distances(Z: Float[Tensor, "n d"], k: int) -> Float[np.ndarray, " n"]:
    """Mean distance to the k nearest other rows."""
    means = []
    for a in range(0, len(Z), _ROWS):
        distances = squared_distances(Z[a : a + _ROWS], Z)
        itself = torch.arange(len(distances), device=Z.device)
        distances[itself, itself + a] = torch.inf
        means.append(distances.topk(k, dim=1, largest=False).values.sqrt_().mean(1))
    return torch.cat(means).cpu().numpy()


def _best_of_each(score: Float[np.ndarray, " n"], clusters: np.ndarray, n_clusters: int) -> Indices:
    """The best row of every cluster; those of empty ones are the best that are left."""
    best = [np.flatnonzero(clusters == c) for c in range(n_clusters)]
    picks = [int(rows[score[rows].argmax()]) for rows in best if len(rows)]
    left = np.setdiff1d(np.arange(len(score)), picks)
    spare = left[np.argsort(-score[left], kind="stable")]
    return np.array([*picks, *spare[: n_clusters - len(picks)]], dtype=int)
