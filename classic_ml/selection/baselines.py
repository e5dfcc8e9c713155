"""The selectors RDSS is measured against. Each returns `n_samples` different row indices of X (n, d)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from classic_ml.selection.herding import check_budget, kernel_herding
from classic_ml.selection.kernels import PoolKernel, as_matrix, median_bandwidth, standardized

Indices = Int[np.ndarray, " m"]

# Of USL, chosen by us: the original's constants differ from one of its data sets to the next.
USL_NEIGHBOURS, USL_WEIGHT, USL_POWER, USL_SWEEPS, USL_MOMENTUM = 20, 0.5, 0.5, 10, 0.9
ACTIVEFT_TEMPERATURE, ACTIVEFT_LR, ACTIVEFT_STEPS = 0.07, 1e-3, 300


def select_random(X: Any, n_samples: int, *, random_state: int | None = None) -> Indices:
    """Uniform without replacement."""
    check_budget(n_samples, len(X))
    return np.random.default_rng(random_state).choice(len(X), n_samples, replace=False)


def select_stratified(y: Any, n_samples: int, *, random_state: int | None = None) -> Indices:
    """An equal number per true class, the remainder to random classes: an oracle, for reference only.

    Raises ValueError where a class has too few rows for its share.
    """
    y = np.asarray(y)
    check_budget(n_samples, len(y))
    rng = np.random.default_rng(random_state)
    classes = rng.permutation(np.unique(y))
    share, rest = divmod(n_samples, len(classes))
    picks = []
    for i, label in enumerate(classes):
        rows, wanted = np.flatnonzero(y == label), share + (i < rest)
        if wanted > len(rows):
            raise ValueError(f"class {label!r} has {len(rows)} rows, but its share of n_samples is {wanted}")
        picks.append(rng.choice(rows, wanted, replace=False))
    return rng.permutation(np.concatenate(picks))


def select_kmeans(X: Any, n_samples: int, *, random_state: int | None = None) -> Indices:
    """k-means with m clusters; for every centre the nearest row not taken yet."""
    X = as_matrix(X)
    check_budget(n_samples, len(X))
    return _nearest_untaken(X, _kmeans(X, n_samples, random_state).cluster_centers_)


def select_kcenter(X: Any, n_samples: int, *, random_state: int | None = None) -> Indices:
    """k-center greedy (CoreSet): a random row, then repeatedly the row farthest from all picks.

    Source: Sener & Savarese 2018, Algorithm 1.
    """
    X = as_matrix(X)
    check_budget(n_samples, len(X))
    picks = [int(np.random.default_rng(random_state).integers(len(X)))]
    nearest = np.full(len(X), np.inf)
    while len(picks) < n_samples:
        nearest = np.minimum(nearest, ((X - X[picks[-1]]) ** 2).sum(1))
        nearest[picks[-1]] = -1  # duplicates must not be picked twice
        picks.append(int(nearest.argmax()))
    return np.array(picks)


def select_herding(X: Any, n_samples: int, *, random_state: int | None = None) -> Indices:
    """Plain kernel herding (with replacement, alpha = 1, median bandwidth); repeats are given to its next best rows.

    A row picked twice needs one label only, so the budget left over is spent by herding on without replacement.
    """
    X = as_matrix(X)
    check_budget(n_samples, len(X))
    kernel = PoolKernel.from_rows(X, sigma=median_bandwidth(X, random_state=random_state))
    mu = kernel.potential()
    repeated = kernel_herding(kernel, n_samples, alpha=1.0, replacement=True, potential=mu).indices
    picks = list(dict.fromkeys(int(i) for i in repeated))
    spare = kernel_herding(kernel, n_samples, alpha=1.0, potential=mu).indices
    picks += [int(i) for i in spare if int(i) not in set(picks)][: n_samples - len(picks)]
    return np.array(picks)


def select_usl(X: Any, n_samples: int, *, random_state: int | None = None) -> Indices:
    """Unsupervised selective labelling: per k-means cluster the densest row, pushed away from the other picks.

    Density is 1 / mean distance to the 20 nearest neighbours; the push is an exponential average over 10 sweeps of
    sum_j |x - v_j|^-0.5, weight 0.5 (these constants are ours). Source: Wang, Lian & Yu 2022 (ECCV).
    """
    from sklearn.neighbors import NearestNeighbors

    X = as_matrix(X)
    check_budget(n_samples, len(X))
    neighbours = min(USL_NEIGHBOURS, len(X) - 1)
    distances, _ = NearestNeighbors(n_neighbors=neighbours).fit(X).kneighbors()
    density = 1 / np.maximum(distances.mean(1), 1e-12)
    clusters = _kmeans(X, n_samples, random_state).labels_
    picks = _best_of_each(density, clusters, n_samples)
    push = np.zeros(len(X))
    for _ in range(USL_SWEEPS):
        now = np.zeros(len(X))
        for cluster, pick in enumerate(picks):
            closeness = np.maximum(np.linalg.norm(X - X[pick], axis=1), 1e-12) ** -USL_POWER
            now += np.where(clusters == cluster, 0, closeness)
        push = USL_MOMENTUM * push + (1 - USL_MOMENTUM) * now
        picks = _best_of_each(density - USL_WEIGHT * push, clusters, n_samples)
    return picks


def select_activeft(X: Any, n_samples: int, *, random_state: int | None = None) -> Indices:
    """ActiveFT: optimise m prototypes to be near the rows and far from each other, then take the nearest rows.

    Cosine similarities, temperature 0.07, Adam at 1e-3 for 300 steps. Source: Xie et al. 2023 (CVPR), Section 3.
    """
    rows = standardized(as_matrix(X), "l2")
    check_budget(n_samples, len(rows))
    features = torch.from_numpy(rows)
    start = np.random.default_rng(random_state).choice(len(rows), n_samples, replace=False)
    theta = features[start].clone().requires_grad_()
    optimizer = torch.optim.Adam([theta], lr=ACTIVEFT_LR)
    itself = torch.eye(n_samples, dtype=torch.bool)
    for _ in range(ACTIVEFT_STEPS):
        attraction = (features @ theta.T / ACTIVEFT_TEMPERATURE).max(1).values.mean()
        among = (theta @ theta.T / ACTIVEFT_TEMPERATURE).masked_fill(itself, -torch.inf)
        repulsion = among.logsumexp(1).mean() if n_samples > 1 else 0.0
        optimizer.zero_grad()
        (repulsion - attraction).backward()
        optimizer.step()
        with torch.no_grad():
            theta.copy_(torch.nn.functional.normalize(theta, dim=1))
    return _nearest_untaken(rows, theta.detach().numpy())


def _kmeans(X: np.ndarray, n_clusters: int, random_state: int | None) -> Any:
    from sklearn.cluster import KMeans

    return KMeans(n_clusters, n_init=1, random_state=random_state).fit(X)


def _nearest_untaken(X: Float[np.ndarray, "n d"], centres: Float[np.ndarray, "m d"]) -> Indices:
    squares = (X**2).sum(1)
    taken = np.zeros(len(X))
    picks = []
    for centre in centres:
        picks.append(int((squares - 2 * X @ centre + taken).argmin()))
        taken[picks[-1]] = np.inf
    return np.array(picks)


def _best_of_each(score: Float[np.ndarray, " n"], clusters: np.ndarray, n_clusters: int) -> Indices:
    return np.array([np.where(clusters == c, score, -np.inf).argmax() for c in range(n_clusters)])
