"""Kernel values between the rows of one pool, a tile at a time, so that n x n numbers never exist together."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from classic_ml.selection.potential_file import PotentialFile
from interp.core.device import resolve_device
from interp.core.messages import one_of, warn_once
from interp.core.progress import progress

logger = logging.getLogger(__name__)

KERNELS = ("gaussian", "laplacian", "precomputed")
STANDARDIZE = (None, "zscore", "l2")
KernelFunction = Callable[[np.ndarray, np.ndarray], Any]
Rows = slice | np.ndarray
Tile = Callable[[Rows, Rows], Tensor]
TILE = 4096  # rows and columns computed at a time
LONG_POOL = 20_000  # rows from which the potential deserves a progress bar


def as_matrix(X: Any, name: str = "X") -> np.ndarray:
    """A finite 2-D float32 or float64 array from an array, frame or tensor (bfloat16 becomes float32).

    Raises ValueError for NaN, infinities, another number of dimensions or no rows.
    """
    from sklearn.utils import check_array

    if isinstance(X, Tensor):
        X = X.detach().cpu()
        X = (X if X.dtype == torch.float64 else X.float()).numpy()
    return check_array(X, dtype=(np.float64, np.float32), input_name=name)


def standardized(X: np.ndarray, how: Literal["zscore", "l2"] | None) -> np.ndarray:
    """Rows as they are, columns of mean 0 and deviation 1 (constant ones 0), or rows of length 1."""
    one_of("standardize", how, STANDARDIZE)
    if how is None:
        return X
    if how == "zscore":
        spread = X.std(axis=0)
        return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(lengths > 0, lengths, 1)


def median_bandwidth(X: Any, *, max_points: int = 5000, random_state: int | None = None) -> float:
    """The median Euclidean distance between different rows of `X` (n, d), exact up to `max_points` rows.

    Longer pools are judged by all pairs of a random sample of `max_points` rows. Raises ValueError when the median
    is 0, that is when more than half of all pairs are duplicates.
    """
    X = as_matrix(X)
    if len(X) < 2 or max_points < 2:
        raise ValueError(
            f"the median distance needs 2 rows, got {min(len(X), max_points)}; pass sigma instead"
        )
    if len(X) > max_points:
        rows = np.random.default_rng(random_state).choice(len(X), max_points, replace=False)
        X = X[np.sort(rows)]
    median = float(np.sqrt(np.median(_squared_distances_of_pairs(X))))
    if median == 0:
        raise ValueError("sigma = 'median' is 0: most rows are duplicates; pass sigma or deduplicate X")
    return median


def _squared_distances_of_pairs(X: np.ndarray) -> Float[np.ndarray, " pairs"]:
    """All n (n-1) / 2 of them by matrix products, 0 where they are no more than rounding."""
    Z = torch.from_numpy(X - X.mean(axis=0)).double()
    squares = Z.square().sum(1)
    parts = []
    for a in range(0, len(Z), 512):
        block = torch.addmm(squares[a:], Z[a : a + 512], Z[a:].T, alpha=-2).add_(squares[a : a + 512, None])
        above = torch.ones(block.shape, dtype=torch.bool).triu_(1)
        parts.append(block[above])
    distances = torch.cat(parts)
    distances[distances < 1e-13 * float(squares.mean())] = 0
    return distances.numpy()


class PoolKernel:
    """Kernel values k(x_i, x_j) of a pool of `n` rows, computed where they are asked for.

    `tile(rows, columns)` returns values for two slices or index arrays. Build one with `from_rows` or `from_matrix`.
    """

    def __init__(
        self,
        n: int,
        tile: Tile,
        *,
        block_size: int = TILE,
        device: torch.device | None = None,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size = {block_size} must be at least 1")
        self.n, self.tile, self.block_size = n, tile, block_size
        self.device = device or torch.device("cpu")

    @classmethod
    def from_rows(
        cls,
        X: Any,
        *,
        sigma: Any = None,
        kernel: Literal["gaussian", "laplacian"] | KernelFunction = "gaussian",
        block_size: int = TILE,
        device: str | torch.device = "auto",
    ) -> PoolKernel:
        """The kernel of a pool X (n, d): exp(-|x-y|^2 / sigma^2), exp(-|x-y| / sigma), or any `kernel(X, Y)`.

        Values have X's precision, sums float64. X is copied once to `device`, centred: distances between float32
        rows far from the origin would otherwise drown in rounding.
        """
        X = as_matrix(X)
        if callable(kernel):
            return cls(len(X), _of_function(X, kernel), block_size=block_size)
        one_of("kernel", kernel, KERNELS[:2])
        check_sigma(sigma)
        place = double_device(device)
        Z = torch.from_numpy(X - X.mean(axis=0)).to(place).div_(sigma)
        if kernel == "laplacian":
            exact = "donot_use_mm_for_euclid_dist"
            return cls(
                len(X),
                lambda rows, columns: torch.cdist(Z[rows], Z[columns], compute_mode=exact).neg_().exp_(),
                block_size=block_size,
                device=place,
            )
        squares = torch.linalg.vector_norm(Z, dim=1).square_().neg_()  # no copy of Z, as Z.square() would be

        def gaussian(rows: Rows, columns: Rows) -> Tensor:
            out = torch.addmm(squares[columns], Z[rows], Z[columns].T, alpha=2)
            return out.add_(squares[rows, None]).clamp_(max=0).exp_()

        return cls(len(X), gaussian, block_size=block_size, device=place)

    @classmethod
    def from_matrix(cls, K: Any, *, block_size: int = TILE, device: str | torch.device = "cpu") -> PoolKernel:
        """A kernel matrix that exists already. Raises ValueError unless K is square and symmetric, diagonal >= 0."""
        K = as_matrix(K, "K")
        if K.shape[0] != K.shape[1]:
            raise ValueError(f"a precomputed kernel must be square, got shape {K.shape}; is it X, not K?")
        if not np.allclose(K, K.T, rtol=0, atol=1e-8 if K.dtype == np.float64 else 1e-5):
            gap = float(np.abs(K - K.T).max())
            raise ValueError(f"a precomputed kernel must be symmetric, entries differ by up to {gap:.2g}")
        if (np.diagonal(K) < 0).any():
            raise ValueError("a precomputed kernel has a negative diagonal entry, so it is no inner product")
        place = double_device(device)
        values = torch.from_numpy(K).to(place)
        return cls(
            len(K), lambda rows, columns: values[rows][:, columns], block_size=block_size, device=place
        )

    def row(self, i: int) -> Float[Tensor, " n"]:
        """k(x_i, .) in float64."""
        step = self.block_size
        parts = [self.tile(slice(i, i + 1), slice(b, b + step))[0] for b in range(0, self.n, step)]
        return torch.cat(parts).double()

    def block(self, indices: np.ndarray) -> Float[Tensor, "m m"]:
        """Values among some rows, float64."""
        return self.tile(indices, indices).double()

    def potential(self, file: str | os.PathLike[str] | None = None) -> Float[Tensor, " n"]:
        """mu_i = (1/n) sum_j k(x_i, x_j), j = i included, float64; half the tiles, for k is symmetric.

        O(n^2 d): with a `file`, an interrupted computation goes on from there, and a finished one is read back.
        """
        step = self.block_size
        starts = range(0, self.n, step)
        pairs = [(a, b) for a in starts for b in starts if b >= a]
        done, sums, kept = 0, torch.zeros(self.n, dtype=torch.float64), None
        if file is not None:
            kept = PotentialFile(file, step, torch.stack([self.row(0), self.row(self.n // 2)]))
            done, sums = kept.load()
        sums = sums.to(self.device)
        bar = progress(pairs[done:], desc="kernel potential", unit="tile", enabled=self.n >= LONG_POOL)
        try:
            for a, b in bar:
                values = self.tile(slice(a, a + step), slice(b, b + step))
                by_row, by_column = values.sum(1), values.sum(0)
                sums[a : a + step] += by_row
                if b > a:
                    sums[b : b + step] += by_column
                done += 1
                if kept is not None:
                    kept.save(done, sums, at_once=done == len(pairs))
        finally:
            bar.close()
        return sums / self.n


def _of_function(X: np.ndarray, function: KernelFunction) -> Tile:
    def tile(rows: Rows, columns: Rows) -> Tensor:
        values = torch.as_tensor(np.asarray(function(X[rows], X[columns]), np.float64))
        expected = (len(X[rows]), len(X[columns]))
        if values.shape != expected:
            raise ValueError(f"kernel(X, Y) must return shape {expected}, got {tuple(values.shape)}")
        return values

    return tile


def check_sigma(sigma: Any) -> None:
    if not isinstance(sigma, Real) or not 0 < float(sigma) < math.inf:
        raise ValueError(f"sigma = {sigma!r} must be a positive number, or 'median' where that is offered")


def double_device(device: str | torch.device) -> torch.device:
    """The device asked for, or the CPU where that one has no float64."""
    resolved = resolve_device(device)
    if resolved.type == "mps":
        warn_once(logger, "mps", "device 'mps' has no float64, which the sums need; selecting on the CPU")
        return torch.device("cpu")
    return resolved


def gaussian_kernel(X: Any, Y: Any = None, *, sigma: float) -> Float[np.ndarray, "n m"]:
    """exp(-|x-y|^2 / sigma^2) between the rows of X and Y (default: X); note sigma^2, not 2 sigma^2."""
    from scipy.spatial.distance import cdist

    check_sigma(sigma)
    X = as_matrix(X)
    Y = X if Y is None else as_matrix(Y, "Y")
    return np.exp(-cdist(X, Y, "sqeuclidean") / sigma**2)
