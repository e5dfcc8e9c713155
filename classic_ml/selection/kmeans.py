"""k-means on any device, in float64: greedy k-means++ seeds, Lloyd's iterations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from classic_ml.selection.distances import PoolRows
from interp.core.device import deterministic_algorithms

TOLERANCE, MAX_ITERATIONS = 1e-4, 300
_ROWS = 4096


@dataclass(frozen=True)
class Clusters:
    """Centres in the coordinates of `PoolRows.exact`, and every row's cluster; some have no rows where the pool has
    fewer different rows than there are clusters."""

    centres: Float[Tensor, "k d"]
    labels: Int[Tensor, " n"]


def kmeans(pool: PoolRows, n_clusters: int, rng: np.random.Generator) -> Clusters:
    """Minimise the sum of squared distances to the nearest centre, one start.

    Seeds: of 2 + ln k candidates, drawn in proportion to the squared distance to the seeds so far, the one that leaves
    least (Arthur & Vassilvitskii 2007, Section 5). A cluster without rows moves to the row that is worst off. Stops
    when no label changes, or when the centres move by less than 1e-4 of the mean variance of a column.
    """
    with deterministic_algorithms(pool.device.type == "cuda"):  # sums over labels are of any order otherwise
        Z = pool.exact(slice(None))
        squares = Z.square().sum(1)
        centres = Z[_seeds(Z, squares, n_clusters, rng)]
        enough = TOLERANCE * float(Z.var(0, correction=0).mean())
        labels = torch.full((len(Z),), -1, dtype=torch.int64, device=Z.device)
        for _ in range(MAX_ITERATIONS):
            before, (labels, distances) = labels, _assigned(Z, squares, centres)
            if bool((labels == before).all()):
                break
            moved = _means(Z, labels, distances, centres)
            shift, centres = float((moved - centres).square().sum()), moved
            if shift <= enough:
                labels, _ = _assigned(Z, squares, centres)
                break
    return Clusters(centres, labels)


def _seeds(Z: Tensor, squares: Tensor, k: int, rng: np.random.Generator) -> Tensor:
    trials = 2 + int(math.log(k))
    chosen = [int(rng.integers(len(Z)))]
    nearest = _squares_to(Z, squares, torch.tensor(chosen, device=Z.device))[:, 0]
    while len(chosen) < k:
        cumulative = nearest.cumsum(0)
        draws = torch.from_numpy(rng.random(trials)).to(Z.device) * cumulative[-1]
        candidates = torch.searchsorted(cumulative, draws, right=True).clamp_(max=len(Z) - 1)
        after = torch.minimum(_squares_to(Z, squares, candidates), nearest[:, None])
        best = int(after.sum(0).argmin())
        chosen.append(int(candidates[best]))
        nearest = after[:, best]
    return torch.tensor(chosen, device=Z.device)


def _squares_to(Z: Tensor, squares: Tensor, rows: Tensor) -> Float[Tensor, "n c"]:
    out = (squares[:, None] + squares[rows]).addmm_(Z, Z[rows].T, alpha=-2).clamp_(min=0)
    out[rows, torch.arange(len(rows), device=Z.device)] = 0  # rounding would let a seed be drawn again
    return out


def _assigned(Z: Tensor, squares: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Nearest centre of every row, and its squared distance."""
    lengths = centres.square().sum(1)
    nearest = [
        torch.addmm(lengths, Z[a : a + _ROWS], centres.T, alpha=-2).min(1) for a in range(0, len(Z), _ROWS)
    ]
    distances = torch.cat([part.values for part in nearest]) + squares
    return torch.cat([part.indices for part in nearest]), distances


def _means(Z: Tensor, labels: Tensor, distances: Tensor, centres: Tensor) -> Tensor:
    counts = torch.bincount(labels, minlength=len(centres))
    sums = torch.zeros_like(centres).index_add_(0, labels, Z)
    means = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres)
    empty = (counts == 0).nonzero()[:, 0]
    means[empty] = Z[distances.topk(len(empty)).indices]
    return means
