"""Kernel values between the rows of one pool, a tile at a time, so that n x n numbers never exist together."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from classic_ml.selection.distances import (
    PoolRows,
    Subset,
    as_matrix,
    check_sigma,
    double_device,
    squared_distances,
)
from classic_ml.selection.potential_file import PotentialFile
from interp.core.bit_sums import array_digest
from interp.core.identity import Identity
from interp.core.messages import at_least, one_of
from interp.core.progress import progress

KERNELS = ("gaussian", "laplacian", "precomputed")
KernelFunction = Callable[[np.ndarray, np.ndarray], Any]
Tile = Callable[[Subset, Subset], Tensor]
TILE = 4096  # rows and columns computed at a time
LONG_POOL = 20_000  # rows from which the potential deserves a progress bar
# Rows of larger |z|^2, z in units of sigma, are compared with each other in float64 and by what they differ by. Up to
# here a product leaves a kernel value right to 2e-6 (float32) and 1e-9 (float64).
NEAR = {torch.float32: 8.0, torch.float64: 1e6}


class PoolKernel:
    """Kernel values k(x_i, x_j) of a pool of `n` rows, computed where they are asked for.

    `tile(rows, columns)` returns values for two slices or index arrays. Build one with `from_rows` or `from_matrix`.

    Attributes:
        about: all that the values depend on, by name, so that a potential on disk can be told from another's.
        gaussian: the rows behind a Gaussian kernel, None for others.
    """

    def __init__(
        self,
        n: int,
        tile: Tile,
        *,
        block_size: int = TILE,
        device: torch.device | None = None,
        about: dict[str, Any] | None = None,
        gaussian: GaussianRows | None = None,
    ) -> None:
        at_least("block_size", block_size, 1)
        self.n, self.tile, self.block_size = n, tile, block_size
        self.device = device or torch.device("cpu")
        self.about, self.gaussian = about, gaussian

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

        Values have X's precision, sums float64. X is copied once to `device`, seen from its centre: distances between
        float32 rows far from the origin would otherwise drown in rounding. Raises ValueError for a bandwidth that is
        not positive, or so small that squared distances in its units are infinite.
        """
        X = as_matrix(X)
        if callable(kernel):
            about = {"kernel": kernel, "pool": X}
            return cls(len(X), _of_function(X, kernel), block_size=block_size, about=about)
        one_of("kernel", kernel, KERNELS[:2])
        check_sigma(sigma)
        rows = GaussianRows(PoolRows(X, double_device(device)), float(sigma))
        tile = rows.gaussian if kernel == "gaussian" else rows.laplacian
        return cls(
            len(X),
            tile,
            block_size=block_size,
            device=rows.device,
            about={"kernel": kernel, "sigma": float(sigma), "pool": X},
            gaussian=rows if kernel == "gaussian" else None,
        )

    @classmethod
    def from_matrix(cls, K: Any, *, block_size: int = TILE, device: str | torch.device = "cpu") -> PoolKernel:
        """A kernel matrix that exists already. Raises ValueError unless K is square, symmetric up to a share 1e-8
        (float32: 1e-5) of its largest entry, and has a diagonal >= 0."""
        K = as_matrix(K, "K")
        if K.shape[0] != K.shape[1]:
            raise ValueError(f"a precomputed kernel must be square, got shape {K.shape}; is it X, not K?")
        gap, largest = float(np.abs(K - K.T).max()), float(np.abs(K).max())
        if gap > (1e-8 if K.dtype == np.float64 else 1e-5) * largest:
            raise ValueError(
                f"a precomputed kernel must be symmetric, entries differ by up to {gap:.2g} (the largest is "
                f"{largest:.2g})"
            )
        if (np.diagonal(K) < 0).any():
            raise ValueError("a precomputed kernel has a negative diagonal entry, so it is no inner product")
        place = double_device(device)
        values = torch.from_numpy(np.ascontiguousarray(K)).to(place)
        return cls(
            len(K),
            lambda rows, columns: values[rows][:, columns],
            block_size=block_size,
            device=place,
            about={"kernel": "precomputed", "pool": K},
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

        O(n^2 d): with a `file`, an interrupted computation goes on from there, and a finished one is read back. For
        pools of which that is too much, `classic_ml.selection.estimate_potential`.
        """
        step = self.block_size
        starts = range(0, self.n, step)
        pairs = [(a, b) for a in starts for b in starts if b >= a]
        done, sums, kept = 0, torch.zeros(self.n, dtype=torch.float64), None
        if file is not None:
            kept = PotentialFile(file, self.n, len(pairs), self._identity())
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

    def _identity(self) -> Identity:
        """Every bit of the pool, the kernel and the bandwidth."""
        if self.about is None:
            raise ValueError(
                "this PoolKernel doesn't say what its values depend on, so its potential can't be kept; build it with "
                "from_rows or from_matrix, or give about={'pool': array, ...}"
            )
        pool = np.ascontiguousarray(self.about["pool"])
        digest = array_digest(pool)
        about = self.about | {"pool": {"shape": pool.shape, "dtype": str(pool.dtype), "digest": digest}}
        return Identity.of("kernel potential", **about, block_size=self.block_size)


class GaussianRows:
    """Tiles of exp(-|z_i - z_j|^2) or exp(-|z_i - z_j|), z in units of sigma, from a centre among them.

    |z_i - z_j|^2 = |z_i|^2 + |z_j|^2 - 2 z_i.z_j loses what two far rows differ by, so pairs of rows beyond `NEAR` are
    done again by `squared_distances`; between a far and a near row the kernel is 0 anyway.
    """

    def __init__(self, pool: PoolRows, sigma: float) -> None:
        self.pool, self.n, self.device = pool, pool.n, pool.device
        self.scale = pool.unit / sigma
        self.Z = pool.all()
        lengths = torch.linalg.vector_norm(self.Z, dim=1, dtype=torch.float64).mul_(self.scale)
        if not bool(lengths.square().isfinite().all()):
            raise ValueError(
                f"sigma = {sigma}: a sigma so far below the distances between rows overflows; take a larger one"
            )
        near = NEAR[self.Z.dtype]
        self.far: Tensor = lengths.square() > near
        # Rows this far out are as far from every near row as makes no difference to the kernel.
        shrink = torch.clamp(10 * near**0.5 / lengths.clamp(min=1e-300), max=1)
        self.Z.mul_((shrink * self.scale).to(self.Z.dtype)[:, None])
        self.squares: Float[Tensor, " n"] = torch.linalg.vector_norm(self.Z, dim=1).square_()
        self._any_far = bool(self.far.any())

    def products(self, rows: Subset, columns: Subset) -> Float[Tensor, "r c"]:
        """2 z_i.z_j."""
        return (self.Z[rows] @ self.Z[columns].T).mul_(2)

    def gaussian(self, rows: Subset, columns: Subset) -> Float[Tensor, "r c"]:
        out = torch.addmm(self.squares[columns], self.Z[rows], self.Z[columns].T, beta=-1, alpha=2)
        out = out.sub_(self.squares[rows, None]).clamp_(max=0).exp_()
        return self.mended(out, rows, columns, lambda squares: squares.neg_().exp_())

    def laplacian(self, rows: Subset, columns: Subset) -> Float[Tensor, "r c"]:
        exact = "donot_use_mm_for_euclid_dist"
        out = torch.cdist(self.Z[rows], self.Z[columns], compute_mode=exact).neg_().exp_()
        return self.mended(out, rows, columns, lambda squares: squares.sqrt_().neg_().exp_())

    def mended(
        self, out: Float[Tensor, "r c"], rows: Subset, columns: Subset, kernel: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "r c"]:
        """`out` with the values between far rows computed from what these differ by."""
        if not self._any_far:
            return out
        everywhere = np.arange(self.n)
        i, j = (self.far[part].nonzero()[:, 0] for part in (rows, columns))
        if len(i) and len(j):
            left, right = (
                self.pool.exact(everywhere[part][k.cpu().numpy()]).mul_(self.scale)
                for part, k in ((rows, i), (columns, j))
            )
            out[i[:, None], j] = kernel(squared_distances(left, right)).to(out.dtype)
        return out


def _of_function(X: np.ndarray, function: KernelFunction) -> Tile:
    def tile(rows: Subset, columns: Subset) -> Tensor:
        values = torch.as_tensor(np.asarray(function(X[rows], X[columns]), np.float64))
        expected = (len(X[rows]), len(X[columns]))
        if values.shape != expected:
            raise ValueError(f"kernel(X, Y) must return shape {expected}, got {tuple(values.shape)}")
        return values

    return tile
