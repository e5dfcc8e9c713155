"""Feasible sets with exact Euclidean and metric projections: ball, box, simplex."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from jaxtyping import Float

from classic_ml.online.metric_projection import project_metric_by_faces
from interp.core.messages import at_least

Rows = Float[np.ndarray, "... d"]


class Domain(ABC):
    """A convex compact set of R^d.

    Attributes:
        dim: d.
        center: (d,) where learners start.
        diameter: the largest Euclidean distance of two of its points.
    """

    dim: int
    center: Float[np.ndarray, " d"]
    diameter: float

    @abstractmethod
    def project(self, x: Rows) -> Rows:
        """The nearest points to the rows of x."""

    @abstractmethod
    def project_metric(self, x: Rows, eigvals: Rows, eigvecs: Float[np.ndarray, "d d"]) -> Rows:
        """The nearest points to the rows of x in the norms v' Q diag(a) Q' v: a row of positive `eigvals` a for each
        row of x, and one Q (orthogonal, eigenvectors in columns) for all."""

    @abstractmethod
    def contains(self, x: Float[np.ndarray, " d"], tol: float = 1e-9) -> bool:
        """Whether x lies in the set, up to `tol` times its diameter."""

    @abstractmethod
    def linear_minimizer(self, direction: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """A point of the set at which <direction, x> is least."""


class L2Ball(Domain):
    """All points at most `radius` from `center` (default: the origin of R^dim)."""

    def __init__(self, radius: float, dim: int, center: Any = None) -> None:
        at_least("dim", dim, 1)
        self.radius = _positive("radius", radius)
        self.dim = int(dim)
        self.center = np.zeros(dim) if center is None else _vector("center", center)
        if len(self.center) != dim:
            raise ValueError(f"center has {len(self.center)} coordinates and dim = {dim}; give as many")
        self.diameter = 2 * self.radius

    def project(self, x: Rows) -> Rows:
        from classic_ml.online.loops import project_ball

        if x.ndim == 2:
            return project_ball(x, self.center, self.radius)
        return project_ball(x.reshape(-1, self.dim), self.center, self.radius).reshape(x.shape)

    def project_metric(self, x: Rows, eigvals: Rows, eigvecs: Float[np.ndarray, "d d"]) -> Rows:
        from classic_ml.online.loops import project_ball_metric

        if x.ndim == 2:
            return project_ball_metric(x, eigvals, eigvecs, self.center, self.radius)
        rows, metrics = x.reshape(-1, self.dim), eigvals.reshape(-1, self.dim)
        return project_ball_metric(rows, metrics, eigvecs, self.center, self.radius).reshape(x.shape)

    def contains(self, x: Float[np.ndarray, " d"], tol: float = 1e-9) -> bool:
        away = x - self.center
        return float(away @ away) <= (self.radius + tol * self.diameter) ** 2

    def linear_minimizer(self, direction: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        norm = np.linalg.norm(direction)
        return self.center - direction * (self.radius / norm if norm > 0 else 0.0)


class Box(Domain):
    """lower <= x <= upper in every coordinate."""

    def __init__(self, lower: Any, upper: Any) -> None:
        self.lower, self.upper = _vector("lower", lower), _vector("upper", upper)
        if len(self.lower) != len(self.upper):
            raise ValueError(
                f"lower has {len(self.lower)} coordinates and upper {len(self.upper)}; give as many"
            )
        if not (self.lower < self.upper).all():
            wrong = int(np.flatnonzero(self.lower >= self.upper)[0])
            raise ValueError(
                f"lower = {self.lower[wrong]} must be below upper = {self.upper[wrong]} in coordinate {wrong}"
            )
        self.dim = len(self.lower)
        self.center = (self.lower + self.upper) / 2
        self.diameter = float(np.linalg.norm(self.upper - self.lower))

    def project(self, x: Rows) -> Rows:
        return np.clip(x, self.lower, self.upper)

    def project_metric(self, x: Rows, eigvals: Rows, eigvecs: Float[np.ndarray, "d d"]) -> Rows:
        def nearest(y: np.ndarray, a: np.ndarray) -> np.ndarray:
            if (y >= self.lower).all() and (y <= self.upper).all():
                return y
            metric = (eigvecs * a) @ eigvecs.T
            start = self.project(y)
            return project_metric_by_faces(y, metric, self.lower, self.upper, start, keep_sum=False)

        return _each_row(nearest, x, eigvals)

    def contains(self, x: Float[np.ndarray, " d"], tol: float = 1e-9) -> bool:
        slack = tol * self.diameter
        return bool((x >= self.lower - slack).all() and (x <= self.upper + slack).all())

    def linear_minimizer(self, direction: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        ends = np.where(direction > 0, self.lower, self.upper)
        return np.where(direction == 0, self.center, ends)


class Simplex(Domain):
    """x >= 0 with coordinates that add up to 1: distributions over dim >= 2 things."""

    def __init__(self, dim: int) -> None:
        at_least("dim", dim, 2)
        self.dim = int(dim)
        self.center = np.full(dim, 1 / dim)
        self.diameter = 2**0.5

    def project(self, x: Rows) -> Rows:
        ordered = -np.sort(-x, axis=-1)
        excess = (np.cumsum(ordered, -1) - 1) / np.arange(1, self.dim + 1)
        kept = (ordered > excess).sum(-1, keepdims=True)
        nearest = np.maximum(x - np.take_along_axis(excess, kept - 1, -1), 0)
        return nearest / nearest.sum(-1, keepdims=True)

    def project_metric(self, x: Rows, eigvals: Rows, eigvecs: Float[np.ndarray, "d d"]) -> Rows:
        lower, upper = np.zeros(self.dim), np.full(self.dim, np.inf)

        def nearest(y: np.ndarray, a: np.ndarray) -> np.ndarray:
            # On the plane of sum 1 first: along A^-1 1.
            along = eigvecs @ (eigvecs.sum(0) / a)
            on_plane = y - along * ((y.sum() - 1) / along.sum())
            if (on_plane >= 0).all():
                return on_plane / on_plane.sum()
            metric = (eigvecs * a) @ eigvecs.T
            start = self.project(on_plane)
            found = project_metric_by_faces(y, metric, lower, upper, start, keep_sum=True)
            return found / found.sum()

        return _each_row(nearest, x, eigvals)

    def contains(self, x: Float[np.ndarray, " d"], tol: float = 1e-9) -> bool:
        slack = tol * self.diameter
        return bool((x >= -slack).all() and abs(x.sum() - 1) <= slack)

    def linear_minimizer(self, direction: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        least = direction == direction.min()
        return least / least.sum()


def _each_row(nearest: Any, x: Rows, eigvals: Rows) -> Rows:
    rows = [nearest(y, a) for y, a in zip(np.atleast_2d(x), np.atleast_2d(eigvals), strict=True)]
    return np.reshape(rows, np.shape(x))


def _positive(name: str, value: float) -> float:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} = {value} must be a positive number")
    return float(value)


def _vector(name: str, value: Any) -> Float[np.ndarray, " d"]:
    vector = np.array(value, dtype=float)
    if vector.ndim != 1 or vector.size == 0 or not np.isfinite(vector).all():
        raise ValueError(f"{name} = {value!r} must be a vector of finite numbers")
    return vector
