"""Kernel herding with a trade-off: rows that look like the whole pool (alpha = 1) or unlike each other (alpha = 0)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from classic_ml.selection.kernels import LONG_POOL, PoolKernel
from interp.core.progress import progress


@dataclass
class Herd:
    """What `kernel_herding` picked, in order, and how the criterion went."""

    indices: Int[np.ndarray, " m"]
    alpha: float
    potential: Float[np.ndarray, " n"]
    path: Float[np.ndarray, " m"]
    """alpha-MMD^2 of the first 1, 2, ..., m picks."""
    mean_similarity: float

    @property
    def mean_kernel(self) -> float:
        """Kbar, the mean of all n^2 kernel values."""
        return float(self.potential.mean())

    @property
    def alpha_mmd2(self) -> float:
        return float(self.path[-1])

    @property
    def mmd2(self) -> float:
        """Biased squared maximum mean discrepancy between the picks and the pool."""
        return _criterion(1.0, self.mean_kernel, self.mean_similarity, self.potential[self.indices].mean())


def kernel_herding(
    kernel: PoolKernel | Any,
    n_samples: int,
    *,
    alpha: float,
    replacement: bool = False,
    potential: Any = None,
) -> Herd:
    """Pick `n_samples` rows by generalised kernel herding (GKHR; with `replacement`, GKH).

    Frank-Wolfe with step 1/p on alpha-MMD^2: pick p + 1 minimises S_i - alpha mu_i, where S is the mean kernel to
    the p picks so far and mu the pool's mean kernel potential. The first pick is the densest row (argmax mu), also
    at alpha = 0, where it is the limit. Ties go to the smallest index. m kernel rows, O(m n d).

    Args:
        kernel: a `PoolKernel`, or a kernel matrix (n, n).
        potential: mu (n,) if it is known already; computing it costs O(n^2 d), all else is cheap.

    Source: Shao et al. 2024 (RDSS), Section 4 and Algorithm 1. Raises ValueError for n_samples outside 1..n-1
    (1..n with replacement), alpha outside [0, 1] and kernel values that aren't finite.
    """
    kernel = _as_kernel(kernel)
    check_alpha(alpha)
    check_budget(n_samples, kernel.n, allow_all=replacement)
    mu = _potential(kernel, potential)
    mean_kernel = float(mu.mean())
    if not math.isfinite(mean_kernel):
        raise ValueError(
            "the kernel has values that are not finite: a sigma so far below the distances between rows overflows "
            "(take a larger one), and a kernel function must return numbers"
        )
    mean_to_picks = torch.zeros_like(mu)
    taken = torch.zeros_like(mu)  # infinity where a row is picked
    order: list[int] = []
    path = np.empty(n_samples)
    similarity = attraction = 0.0  # sums of K over pairs of picks and of mu over picks
    long = kernel.n >= LONG_POOL
    for p in progress(range(1, n_samples + 1), desc="herding", unit="pick", enabled=long):
        score = -mu if p == 1 else mean_to_picks - alpha * mu
        pick = int(torch.argmin(score + taken))
        row = kernel.row(pick)
        similarity += 2 * (p - 1) * float(mean_to_picks[pick]) + float(row[pick])
        attraction += float(mu[pick])
        mean_to_picks.mul_(1 - 1 / p).add_(row, alpha=1 / p)
        path[p - 1] = _criterion(alpha, mean_kernel, similarity / p**2, attraction / p)
        order.append(pick)
        if not replacement:
            taken[pick] = math.inf
    return Herd(np.array(order), alpha, mu.cpu().numpy(), path, similarity / n_samples**2)


def alpha_mmd2(kernel: PoolKernel | Any, indices: Any, *, alpha: float, potential: Any = None) -> float:
    """alpha^2 Kbar + S_k(I) - (2 alpha / m) sum_{i in I} mu_i, the squared RKHS distance between the mean of the rows
    `indices` and alpha times the mean of the pool. Diagonals included (Shao et al. 2024, Section 3)."""
    kernel = _as_kernel(kernel)
    check_alpha(alpha)
    chosen = np.asarray(indices)
    whole = chosen.ndim == 1 and chosen.dtype.kind in "iu"
    if not whole or len(chosen) == 0 or chosen.min() < 0 or chosen.max() >= kernel.n:
        raise ValueError(f"indices must be a non-empty list of rows between 0 and {kernel.n - 1}")
    mu = _potential(kernel, potential).cpu()
    similarity = float(kernel.block(chosen).mean())
    return _criterion(alpha, float(mu.mean()), similarity, float(mu[torch.from_numpy(chosen)].mean()))


def mmd2(kernel: PoolKernel | Any, indices: Any, *, potential: Any = None) -> float:
    """Biased squared maximum mean discrepancy between rows `indices` and the pool: `alpha_mmd2` at alpha = 1."""
    return alpha_mmd2(kernel, indices, alpha=1.0, potential=potential)


def default_alpha(n_samples: int) -> float:
    """1 - 1/sqrt(m), the paper's trade-off."""
    return 1 - 1 / math.sqrt(n_samples)


def check_alpha(alpha: float) -> None:
    if not isinstance(alpha, Real) or not 0 <= alpha <= 1:
        raise ValueError(f"alpha = {alpha!r} must lie in [0, 1]; the paper's choice is 1 - 1/sqrt(n_samples)")


def check_budget(n_samples: int, n: int, *, allow_all: bool = False) -> None:
    if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer):
        raise ValueError(f"n_samples = {n_samples!r} must be a whole number")
    largest = n if allow_all else n - 1
    if not 1 <= n_samples <= largest:
        raise ValueError(f"n_samples = {n_samples} must lie in 1..{largest} for a pool of {n} rows")


def _criterion(alpha: float, mean_kernel: float, similarity: float, attraction: float) -> float:
    return float(alpha**2 * mean_kernel + similarity - 2 * alpha * attraction)


def _potential(kernel: PoolKernel, known: Any) -> Float[Tensor, " n"]:
    if known is None:
        return kernel.potential()
    mu = torch.as_tensor(known, dtype=torch.float64, device=kernel.device)
    if mu.shape != (kernel.n,):
        raise ValueError(f"potential must have shape ({kernel.n},), got {tuple(mu.shape)}")
    return mu


def _as_kernel(kernel: PoolKernel | Any) -> PoolKernel:
    return kernel if isinstance(kernel, PoolKernel) else PoolKernel.from_matrix(kernel)
