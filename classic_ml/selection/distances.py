"""Distances between the rows of a pool, right to rounding wherever the pool lies and however large its numbers are."""

from __future__ import annotations

import logging
import math
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from classic_ml.random_state import RandomState, as_generator
from interp.core.device import resolve_device
from interp.core.messages import at_least, one_of, warn_once

logger = logging.getLogger(__name__)

STANDARDIZE = (None, "zscore", "l2")
Subset = slice | np.ndarray
CHUNK = 4096  # rows converted at a time
CENTRE_ROWS = 1001
# Squared distances below this share of the squared lengths lose digits when they are found by products.
CANCELLED = 1e-4
# A spread of so few units in the last place of the largest value is rounding, not variation.
ROUNDING = 8 * np.finfo(np.float64).eps


def as_matrix(X: Any, name: str = "X") -> np.ndarray:
    """A finite 2-D float32 or float64 array from an array, frame or tensor (bfloat16 becomes float32).

    Raises ValueError for NaN, infinities, another number of dimensions or no rows.
    """
    from sklearn.utils import check_array

    if isinstance(X, Tensor):
        X = X.detach().cpu()
        X = (X if X.dtype == torch.float64 else X.float()).numpy()
    return check_array(X, dtype=(np.float64, np.float32), input_name=name)


def double_device(device: str | torch.device) -> torch.device:
    """The device asked for, or the CPU where that one has no float64."""
    resolved = resolve_device(device)
    if resolved.type == "mps":
        warn_once(logger, "mps", "device 'mps' has no float64, which the sums need; selecting on the CPU")
        return torch.device("cpu")
    return resolved


def standardized(X: np.ndarray, how: Literal["zscore", "l2"] | None) -> np.ndarray:
    """Rows as they are, columns of mean 0 and deviation 1 (constant ones 0), or rows of length 1 (zero ones 0).

    Means, deviations and lengths are float64; the result has X's precision.
    """
    one_of("standardize", how, STANDARDIZE)
    if how is None:
        return X
    if how == "l2":
        scaled = np.ldexp(X, -np.frexp(np.abs(X).max(axis=1, keepdims=True))[1])
        lengths = np.linalg.norm(scaled.astype(np.float64), axis=1, keepdims=True)
        return (scaled / np.where(lengths > 0, lengths, 1)).astype(X.dtype)
    largest = np.abs(X).max(axis=0)
    scaled = np.ldexp(X, -np.frexp(largest)[1]).astype(np.float64)  # the squares of any numbers are numbers
    centred = scaled - _middle(scaled)
    centred -= centred.mean(axis=0)
    spread = np.sqrt(np.square(centred).mean(axis=0))
    constant = spread <= ROUNDING
    return np.where(constant, 0, centred / np.where(constant, 1, spread)).astype(X.dtype)


class PoolRows:
    """The rows of a pool seen from a centre among them, in units that make the largest coordinate about 1.

    Distances depend on neither, but their rounding does: squares of rows far from the origin drown what they differ
    by, and squares of very large or small numbers are infinite or 0. The centre is a median, which outliers don't
    move, and the unit a power of two, which changes no digit.

    Attributes:
        unit: distances between these rows times `unit` are distances between the rows of X.
    """

    def __init__(self, X: np.ndarray, device: torch.device) -> None:
        self.X, self.n, self.device = X, len(X), device
        self.centre = _middle(X).astype(np.float64) / 4
        largest = max(np.abs(self._quarter(slice(a, a + CHUNK))).max() for a in range(0, self.n, CHUNK))
        self._exponent = int(np.frexp(largest)[1])
        self.unit = float(np.ldexp(1.0, self._exponent + 2))

    def exact(self, rows: Subset) -> Float[Tensor, "k d"]:
        """Some rows in float64."""
        return torch.from_numpy(np.ldexp(self._quarter(rows), -self._exponent)).to(self.device)

    def all(self) -> Float[Tensor, "n d"]:
        """Every row in X's precision: one copy of the pool."""
        dtype = torch.float32 if self.X.dtype == np.float32 else torch.float64
        out = torch.empty(self.X.shape, dtype=dtype, device=self.device)
        for a in range(0, self.n, CHUNK):
            out[a : a + CHUNK] = self.exact(slice(a, a + CHUNK))
        return out

    def _quarter(self, rows: Subset) -> np.ndarray:
        """A quarter of X less its centre, which can't overflow."""
        return self.X[rows].astype(np.float64) / 4 - self.centre


def _middle(X: np.ndarray) -> Float[np.ndarray, " d"]:
    """A value from the midst of every column: subtracting it costs no digits of values near it."""
    some = X[np.unique(np.linspace(0, len(X) - 1, min(len(X), CENTRE_ROWS)).astype(int))]
    half = (len(some) - 1) // 2
    return np.partition(some, half, axis=0)[half]


def squared_distances(
    A: Float[Tensor, "a d"], B: Float[Tensor, "b d"], lengths: Float[Tensor, " a"] | None = None
) -> Float[Tensor, "a b"]:
    """|a - b|^2 of float64 rows with a relative error near 1e-11, 0 for equal ones.

    By products, O(a b d) at the speed of a matrix product; pairs that lose digits there, being much closer to each
    other than to the origin, by their differences. `lengths` are |a|^2 where they are known.
    """
    a, b = A.square().sum(1) if lengths is None else lengths, B.square().sum(1)
    out = torch.addmm(b, A, B.T, alpha=-2).add_(a[:, None])
    lost = out <= CANCELLED * (a[:, None] + b)
    pairs = lost.nonzero()
    for some in pairs.split(max(1, 2**22 // max(1, A.shape[1]))):
        i, j = some[:, 0], some[:, 1]
        out[i, j] = (A[i] - B[j]).square_().sum(1)
    return out


def median_bandwidth(
    X: Any, *, max_points: int = 5000, random_state: RandomState = None, device: str | torch.device = "auto"
) -> float:
    """The median Euclidean distance between different rows of `X` (n, d), exact up to `max_points` rows.

    Longer pools are judged by all pairs of a random sample of `max_points` rows. An even number of pairs has the mean
    of the two middle ones for a median. Raises ValueError when the median is 0, that is when more than half of all
    pairs are duplicates.
    """
    X = as_matrix(X)
    at_least("max_points", max_points, 1)
    if len(X) < 2 or max_points < 2:
        raise ValueError(
            f"the median distance needs 2 rows, got {min(len(X), max_points)}; pass sigma instead"
        )
    if len(X) > max_points:
        rows = as_generator(random_state).choice(len(X), max_points, replace=False)
        X = X[np.sort(rows)]
    pool = PoolRows(X, double_device(device))
    Z = pool.exact(slice(None))
    parts = []
    for a in range(0, len(Z), 512):
        block = squared_distances(Z[a : a + 512], Z[a:])
        parts.append(block[torch.ones_like(block, dtype=torch.bool).triu_(1)].cpu())
    median = float(np.median(torch.cat(parts).sqrt_().numpy())) * pool.unit
    if median == 0:
        raise ValueError("sigma = 'median' is 0: most rows are duplicates; pass sigma or deduplicate X")
    return median


def gaussian_kernel(X: Any, Y: Any = None, *, sigma: float) -> Float[np.ndarray, "n m"]:
    """exp(-|x-y|^2 / sigma^2) between the rows of X and Y (default: X), float64; note sigma^2, not 2 sigma^2."""
    check_sigma(sigma)
    X = as_matrix(X)
    Y = X if Y is None else as_matrix(Y, "Y")
    if X.shape[1] != Y.shape[1]:
        raise ValueError(f"X has {X.shape[1]} columns and Y {Y.shape[1]}; give both the same")
    pool = PoolRows(np.concatenate([X, Y]), torch.device("cpu"))
    first, second = pool.exact(slice(len(X))), pool.exact(slice(len(X), None))
    distances = squared_distances(first, second).sqrt_().mul_(pool.unit / float(sigma))
    return distances.square_().neg_().exp_().numpy()


def check_sigma(sigma: Any) -> None:
    if not isinstance(sigma, Real) or not 0 < float(sigma) < math.inf:
        raise ValueError(f"sigma = {sigma!r} must be a positive number, or 'median' where that is offered")
