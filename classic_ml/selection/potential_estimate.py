"""The kernel potential of a pool too long for all its pairs: exact to second order, the rest from sampled columns."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from classic_ml.random_state import RandomState, as_generator
from classic_ml.selection.kernels import LONG_POOL, GaussianRows, PoolKernel
from interp.core.messages import at_least
from interp.core.progress import progress

COLUMNS = 4096
_PILOT = 1024  # rows among which the polynomial is fitted
_ROWS, _PART = 4096, 1024  # a tile


@dataclass(frozen=True)
class PotentialEstimate:
    """mu_i of every row, and the standard deviation of each of these numbers over samples of columns."""

    values: Float[np.ndarray, " n"]
    standard_errors: Float[np.ndarray, " n"]
    n_columns: int

    def largest_error(self, probability: float = 0.95) -> float:
        """What no row's error exceeds with this probability, errors being normal (the sum over rows bounds the whole).

        alpha-MMD^2 computed with this potential is off by at most alpha (2 + alpha) times that, whatever the picks.
        """
        if not 0 < probability < 1:
            raise ValueError(f"probability = {probability} must lie strictly between 0 and 1")
        each = NormalDist().inv_cdf(1 - (1 - probability) / (2 * len(self.values)))
        return each * float(self.standard_errors.max())


def estimate_potential(
    kernel: PoolKernel, n_columns: int = COLUMNS, *, random_state: RandomState = None
) -> PotentialEstimate:
    """mu_i = (1/n) sum_j k(x_i, x_j) from `n_columns` random rows x_j, O(n s d) where `PoolKernel.potential` is n^2 d.

    Of a Gaussian kernel exp(-|z_i|^2 - |z_j|^2 + t), t = 2 z_i.z_j, the part w_i w_j (a_0 + a_1 t + a_2 t^2) has sums
    over j in closed form, O(n d^2): of w_j, w_j z_j and w_j z_j z_j'. (a_0, a_1, a_2) are least squares on a pilot
    sample. Only what this leaves of the kernel is sampled: a control variate, without bias whatever the a's. The
    diagonal is added exactly, and the sample is without replacement, so that with all columns nothing is estimated.
    Other kernels are sampled as they are.
    """
    at_least("n_columns", n_columns, 2)
    n, rng = kernel.n, as_generator(random_state)
    columns = np.sort(rng.choice(n, min(n_columns, n), replace=False))
    control = None
    if kernel.gaussian is not None:
        control = _Polynomial.fitted(kernel.gaussian, rng.choice(n, min(_PILOT, n), replace=False))
    sums = torch.zeros(2, n, dtype=torch.float64, device=kernel.device)  # of what is left, and of its squares
    tiles = [(a, b) for a in range(0, n, _ROWS) for b in range(0, len(columns), _PART)]
    for a, b in progress(tiles, desc="kernel potential, estimated", unit="tile", enabled=n >= LONG_POOL):
        rows, part = slice(a, min(a + _ROWS, n)), columns[b : b + _PART]
        left = kernel.tile(rows, part) if control is None else control.residuals(rows, part)
        here = np.flatnonzero((part >= a) & (part < rows.stop))
        left[torch.from_numpy(part[here] - a), torch.from_numpy(here)] = 0  # the diagonal is not sampled
        sums[0, rows] += left.sum(1)
        sums[1, rows] += torch.linalg.vector_norm(left, dim=1).double().square()
    drawn = torch.full((n,), float(len(columns)), dtype=torch.float64, device=kernel.device)
    drawn[torch.from_numpy(columns)] -= 1
    mean = sums[0] / drawn
    variance = (sums[1] / drawn - mean.square()).clamp_(min=0) * drawn / (drawn - 1).clamp(min=1)
    errors = (variance / drawn * (1 - drawn / max(1, n - 1))).clamp_(min=0).sqrt_() * ((n - 1) / n)
    known = _diagonal(kernel) if control is None else control.sums()
    values = (known + mean * (n - 1)) / n
    return PotentialEstimate(values.cpu().numpy(), errors.cpu().numpy(), len(columns))


@dataclass(frozen=True)
class _Polynomial:
    """w_i w_j (a_0 + a_1 t + a_2 t^2) in place of w_i w_j exp(t), w = exp(-|z|^2), t = 2 z_i.z_j."""

    rows: GaussianRows
    a: tuple[float, float, float]
    w: Float[Tensor, " n"]

    @classmethod
    def fitted(cls, rows: GaussianRows, pilot: np.ndarray) -> _Polynomial:
        w = rows.squares.neg().exp()
        left, right = np.array_split(pilot, 2)
        t, weight = rows.products(left, right).double(), torch.outer(w[left], w[right]).double()
        design = torch.stack([weight, weight * t, weight * t.square()], -1).reshape(-1, 3).cpu().numpy()
        values = rows.gaussian(left, right).double().reshape(-1).cpu().numpy()
        lengths = np.linalg.norm(design, axis=0)
        lengths = np.where(lengths > 0, lengths, 1)
        a0, a1, a2 = np.linalg.lstsq(design / lengths, values, rcond=None)[0] / lengths
        return cls(rows, (float(a0), float(a1), float(a2)), w)

    def at(self, t: Tensor) -> Tensor:
        a0, a1, a2 = self.a
        return t.mul(a2).add_(a1).mul_(t).add_(a0)

    def residuals(self, rows: slice, columns: np.ndarray) -> Float[Tensor, "r c"]:
        """Kernel values less the polynomial's."""
        t = self.rows.products(rows, columns)
        known = self.at(t).mul_(self.w[columns]).mul_(self.w[rows, None])
        t.sub_(self.rows.squares[columns]).sub_(self.rows.squares[rows, None]).clamp_(max=0).exp_()
        values = self.rows.mended(t, rows, columns, lambda squares: squares.neg_().exp_())
        return values.sub_(known)

    def sums(self) -> Float[Tensor, " n"]:
        """Per row, over all columns, but of the kernel itself on the diagonal."""
        Z, (a0, a1, a2), d = self.rows.Z, self.a, self.rows.Z.shape[1]
        blocks = [slice(a, a + _ROWS) for a in range(0, self.rows.n, _ROWS)]
        total = self.w.double().sum()
        first = torch.zeros(d, dtype=torch.float64, device=Z.device)
        second = torch.zeros(d, d, dtype=torch.float64, device=Z.device)
        for block in blocks:
            weighted = Z[block] * self.w[block, None]
            first += weighted.sum(0)
            second += Z[block].T @ weighted
        first, second = (2 * a1 * first).to(Z.dtype), (4 * a2 * second).to(Z.dtype)
        out = torch.empty(self.rows.n, dtype=torch.float64, device=Z.device)
        for block in blocks:
            z, w = Z[block], self.w[block]
            form = (z @ second).mul_(z).sum(1) + z @ first
            own = w * self.at(2 * self.rows.squares[block])
            out[block] = w * (form + a0 * total) - w * own + 1
        return out


def _diagonal(kernel: PoolKernel) -> Float[Tensor, " n"]:
    parts = []
    for a in range(0, kernel.n, 256):
        rows = np.arange(a, min(a + 256, kernel.n))
        parts.append(kernel.block(rows).diagonal())
    return torch.cat(parts)
