"""Maps of the input space, and how a family of them is given: a list, arrays computed beforehand, or a sampler.

A transformation is a function of rows X (n, d) that returns as many rows of as many columns and acts on each row alone.
Labels stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from interp.core.messages import at_least

Rows: TypeAlias = Float[np.ndarray, "n d"]
Transform: TypeAlias = "Callable[[Rows], Rows] | Rows"
"""A function of rows, or the transformed rows themselves, aligned row by row with the data."""
Sampler: TypeAlias = Callable[[np.random.Generator], Callable[[Rows], Rows]]


@dataclass(frozen=True)
class Unchanged:
    """x -> x."""

    def __call__(self, X: Rows) -> Rows:
        return X


@dataclass(frozen=True, eq=False)
class PermuteColumns:
    """Column j of the result is column `order[j]`, for every row alike."""

    order: Any

    def __post_init__(self) -> None:
        if sorted(np.asarray(self.order).tolist()) != list(range(len(self.order))):
            raise ValueError(f"order = {self.order!r} must hold every column from 0 up once")

    @classmethod
    def draw(cls, n_columns: int, rng: np.random.Generator) -> PermuteColumns:
        """A uniform one."""
        return cls(rng.permutation(n_columns))

    def __call__(self, X: Rows) -> Rows:
        _check_width("order", len(self.order), X)
        return X[:, np.asarray(self.order)]


@dataclass(frozen=True, eq=False)
class BlockPermutation:
    """Columns in consecutive blocks of equal size: blocks change places, and columns inside each.

    Args:
        blocks: (b,) the block that comes to each place.
        inner: (b, s) the order inside each of them, in their new places.
    """

    blocks: Any
    inner: Any

    def __post_init__(self) -> None:
        inner, b = np.asarray(self.inner), len(self.blocks)
        if sorted(np.asarray(self.blocks).tolist()) != list(range(b)):
            raise ValueError(f"blocks = {self.blocks!r} must hold every block from 0 up once")
        if inner.ndim != 2 or len(inner) != b or (np.sort(inner, 1) != np.arange(inner.shape[1])).any():
            raise ValueError(f"inner must hold, for each of {b} blocks, every place from 0 up once")

    @classmethod
    def draw(cls, n_blocks: int, size: int, rng: np.random.Generator) -> BlockPermutation:
        """A uniform one."""
        return cls(rng.permutation(n_blocks), rng.permuted(np.tile(np.arange(size), (n_blocks, 1)), axis=1))

    def __call__(self, X: Rows) -> Rows:
        inner = np.asarray(self.inner)
        _check_width("inner", inner.size, X)
        return X[:, (np.asarray(self.blocks)[:, None] * inner.shape[1] + inner).ravel()]


@dataclass(frozen=True, eq=False)
class ScaleColumns:
    """Multiply `columns` (all by default) by `factor`, a number or one a column."""

    factor: Any
    columns: Any = None

    def __call__(self, X: Rows) -> Rows:
        if self.columns is None:
            return X * self.factor
        scaled = X.astype(np.result_type(X, np.float32))
        scaled[:, self.columns] *= self.factor
        return scaled


@dataclass(frozen=True, eq=False)
class Shift:
    """x -> x + amount * direction: a step along a steering vector."""

    direction: Any
    amount: float = 1.0

    def __call__(self, X: Rows) -> Rows:
        return X + self.amount * np.asarray(self.direction)


@dataclass(frozen=True, eq=False)
class LinearMap:
    """x -> A x, for a matrix A (d, d)."""

    matrix: Any

    def __call__(self, X: Rows) -> Rows:
        _check_width("matrix", np.shape(self.matrix)[1], X)
        return X @ np.asarray(self.matrix).T


@dataclass(frozen=True)
class Compose:
    """The first of `maps`, then the next."""

    maps: Sequence[Callable[[Rows], Rows]]

    def __call__(self, X: Rows) -> Rows:
        for one in self.maps:
            X = one(X)
        return X


def resolve_transforms(
    transforms: Any,
    *,
    n_transforms: int | None = None,
    include_identity: bool = False,
    rng: np.random.Generator,
) -> list[Any]:
    """The family as a list: what was given, or `n_transforms` draws of a sampler, the identity last where asked for.

    Raises:
        ValueError: an empty family; a sampler without `n_transforms`, or a list with it.
        TypeError: an element that is neither a function nor an array.
    """
    if callable(transforms):
        if n_transforms is None:
            raise ValueError(
                "transforms is a function: give a list of transformations, or with n_transforms = K a sampler "
                "rng -> transformation"
            )
        at_least("n_transforms", n_transforms, 1)
        family = [transforms(rng) for _ in range(n_transforms)]
    else:
        if n_transforms is not None:
            raise ValueError(
                f"n_transforms = {n_transforms} is for a sampler; transforms is a list, leave it None"
            )
        family = [] if transforms is None else list(transforms)
    if include_identity:
        family.append(Unchanged())
    if not family:
        raise ValueError("transforms is empty: give at least one transformation (or include_identity=True)")
    for k, one in enumerate(family):
        if not callable(one) and not isinstance(one, np.ndarray):
            raise TypeError(
                f"transforms[{k}] is a {type(one).__name__}: give a function of rows, or an array of transformed rows"
            )
    return family


def transformed(transform: Any, X: Rows, name: str = "transform") -> Rows:
    """T(X) in X's dtype. Raises ValueError where its shape is not X's, or where a value isn't finite."""
    result = np.asarray(transform(X) if callable(transform) else transform)
    if result.shape != X.shape:
        way = "returns" if callable(transform) else "holds rows of"
        raise ValueError(
            f"{name} {way} shape {result.shape} for X of shape {X.shape}; a transformation keeps rows and columns"
        )
    if not np.isfinite(result).all():
        raise ValueError(f"{name} gives NaN or infinite values; a transformation must keep rows finite")
    return result.astype(X.dtype, copy=False)


def transform_name(transform: Any, k: int) -> str:
    """For tables: a function's name, `T_k` where it has none."""
    named = getattr(transform, "__name__", None)
    if isinstance(transform, ScaleColumns | Shift):
        size = transform.factor if isinstance(transform, ScaleColumns) else transform.amount
        named = f"{type(transform).__name__}({size:g})" if isinstance(size, Real) else None
    elif isinstance(transform, Unchanged):
        named = "identity"
    return named if named and named != "<lambda>" else f"T_{k}"


def _check_width(argument: str, width: int, X: Rows) -> None:
    if X.shape[1] != width:
        raise ValueError(f"{argument} is for {width} columns, but X has {X.shape[1]}")
