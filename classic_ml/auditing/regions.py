"""Regions R_x of local explanations: where a local model claims to mimic the classifier."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from interp.core.messages import one_of

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

CHUNK_BYTES = 64 * 2**20
_COLUMNS = 32  # of a box, looked at together


def row_chunks(n_rows: int, bytes_per_row: int) -> Iterator[slice]:
    """Slices of rows whose temporaries stay below 64 MiB."""
    step = max(1, CHUNK_BYTES // max(1, bytes_per_row))
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))


class Region(ABC):
    """A set of inputs. Subclasses say which rows lie in it; the audit needs nothing else."""

    @abstractmethod
    def contains(self, Z: Any) -> BoolArray:
        """Which rows of Z (n, d) lie in the region [n]."""


class BallRegion(Region):
    """{z : |z - center| <= radius}, in the Euclidean ("l2") or the maximum ("linf") norm.

    Args:
        center: [d].
        radius: >= 0; inf is the whole space.
    """

    def __init__(self, center: npt.ArrayLike, radius: float, metric: Literal["l2", "linf"] = "l2") -> None:
        one_of("metric", metric, ("l2", "linf"))
        self.center = vector("center", center)
        if not radius >= 0:
            raise ValueError(f"radius = {radius} must be a number >= 0")
        self.radius, self.metric = float(radius), metric

    def contains(self, Z: Any) -> BoolArray:
        Z = rows_of(Z, len(self.center), "BallRegion")
        inside = np.empty(len(Z), bool)
        for part in row_chunks(len(Z), 8 * Z.shape[1]):
            inside[part] = distances(Z[part], self.center, self.metric) <= self.radius
        return inside

    def __repr__(self) -> str:
        return f"BallRegion(d={len(self.center)}, radius={self.radius:g}, metric={self.metric!r})"


class KernelRegion(BallRegion):
    """{z : exp(-|z - center|^2 / width^2) >= cutoff}: where LIME's weights count, a Euclidean ball.

    The `lime` package takes the square root of this kernel: its kernel_width is this width / sqrt(2).

    Args:
        center: [d].
        width: > 0.
        cutoff: the least weight that counts as near, in (0, 1].
    """

    def __init__(self, center: npt.ArrayLike, width: float, cutoff: float) -> None:
        if not 0 < width < math.inf:
            raise ValueError(f"width = {width} must be a positive number")
        if not 0 < cutoff <= 1:
            raise ValueError(
                f"cutoff = {cutoff} must lie in (0, 1]: it is the least kernel weight in the region"
            )
        super().__init__(center, width * math.sqrt(-math.log(cutoff)))
        self.width, self.cutoff = float(width), float(cutoff)

    def __repr__(self) -> str:
        return f"KernelRegion(d={len(self.center)}, width={self.width:g}, cutoff={self.cutoff:g})"


class BoxRegion(Region):
    """{z : lower <= z <= upper}, as Anchors give; infinite bounds leave a column free.

    Args:
        lower, upper: [d].
    """

    def __init__(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> None:
        self.lower, self.upper = (vector(n, v, finite=False) for n, v in (("lower", lower), ("upper", upper)))
        if self.lower.shape != self.upper.shape:
            raise ValueError(
                f"lower has {len(self.lower)} columns, upper {len(self.upper)}: give one each per column"
            )
        if (self.lower > self.upper).any():
            column = int(np.flatnonzero(self.lower > self.upper)[0])
            raise ValueError(
                f"lower > upper in column {column} ({self.lower[column]:g} > {self.upper[column]:g}): the box is empty"
            )

    def contains(self, Z: Any) -> BoolArray:
        Z = rows_of(Z, len(self.lower), "BoxRegion")
        rows = np.arange(len(Z))
        for first in range(0, Z.shape[1], _COLUMNS):
            columns = slice(first, first + _COLUMNS)
            part = Z[rows, columns]
            rows = rows[((part >= self.lower[columns]) & (part <= self.upper[columns])).all(1)]
        inside = np.zeros(len(Z), bool)
        inside[rows] = True
        return inside

    def __repr__(self) -> str:
        return f"BoxRegion(d={len(self.lower)})"


class HalfspaceRegion(Region):
    """{z : A z <= b}: a polytope, such as a tree's leaf.

    Args:
        A: [q, d].
        b: [q].
    """

    def __init__(self, A: npt.ArrayLike, b: npt.ArrayLike) -> None:
        self.A = np.asarray(A, np.float64)
        self.b = vector("b", b, finite=False)
        if self.A.ndim != 2 or len(self.A) != len(self.b):
            raise ValueError(f"A has shape {self.A.shape}, b {self.b.shape}: give A (q, d) and b (q,)")
        if not np.isfinite(self.A).all():
            raise ValueError("A holds NaN or infinite numbers")

    def contains(self, Z: Any) -> BoolArray:
        Z = rows_of(Z, self.A.shape[1], "HalfspaceRegion")
        inside = np.empty(len(Z), bool)
        for part in row_chunks(len(Z), 8 * len(self.b)):
            inside[part] = (Z[part] @ self.A.T <= self.b).all(1)
        return inside

    def __repr__(self) -> str:
        return f"HalfspaceRegion(d={self.A.shape[1]}, faces={len(self.b)})"


class CallableRegion(Region):
    """The rows for which `contains(Z) -> bool [n]` says so."""

    def __init__(self, contains: Callable[[Any], npt.ArrayLike]) -> None:
        if not callable(contains):
            raise TypeError(f"contains = {contains!r} must be a function (Z) -> bool [n]")
        self.function = contains

    def contains(self, Z: Any) -> BoolArray:
        inside = np.asarray(self.function(Z))
        if inside.shape != (len(Z),) or inside.dtype != bool:
            raise ValueError(
                f"the region's function gave {inside.dtype} of shape {inside.shape} for {len(Z)} rows: "
                f"it must give bool ({len(Z)},)"
            )
        return inside

    def __repr__(self) -> str:
        return f"CallableRegion({getattr(self.function, '__name__', 'function')})"


def distances(Z: FloatArray, center: FloatArray, metric: str) -> FloatArray:
    """Distances of rows Z [n, d] to one centre [d], or to one a row [n, d]."""
    difference = Z - center
    if metric == "linf":
        return np.abs(difference).max(1)
    return np.linalg.norm(difference, axis=1)


def vector(name: str, value: npt.ArrayLike, *, finite: bool = True) -> FloatArray:
    """`value` as numbers [d], NaN refused, and infinities with `finite`."""
    array = np.asarray(value, np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name} has shape {array.shape}: give one number per column, (d,)")
    if np.isnan(array).any() or (finite and not np.isfinite(array).all()):
        raise ValueError(f"{name} holds NaN or infinite numbers")
    return array


def rows_of(Z: Any, d: int, whose: str) -> FloatArray:
    """Z as rows [n, d] of numbers."""
    Z = np.asarray(Z, np.float64)
    if Z.ndim != 2 or Z.shape[1] != d:
        raise ValueError(f"{whose} has {d} columns, the rows have shape {Z.shape}: give (n, {d})")
    return Z
