"""The cross-polytope: classes in pairs at the two ends of an axis, n / 2 dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from classic_ml.surrogates.embedding import PolytopeEmbedding
from classic_ml.surrogates.hulls import TOLERANCE
from classic_ml.surrogates.points import as_labels, as_points
from interp.core.messages import at_least


class CrossPolytope(PolytopeEmbedding):
    """Class i at +e_i, class d + i at -e_i; coordinate i of p V is p_i - p_{d+i}.  Decoded by the largest |u_i|.

    The regions in closed form: u leaves a free mass s = 1 - |u|_1, spread in equal halves over pairs, so the worst
    rival k of class +i has |u_k| + s / 2.
    """

    name = "cross-polytope"
    _projects = False  # soft thresholds keep the order of |u_i|
    _starts = (0,)

    def __init__(self, dimension: int) -> None:
        at_least("dimension", dimension, 1)
        self.dimension, self.n_classes = int(dimension), 2 * int(dimension)

    def transform(self, y: Any) -> Float[np.ndarray, "N d"]:
        labels = as_labels(y, self.n_classes)
        V = np.zeros((len(labels), self.dimension))
        V[np.arange(len(labels)), labels % self.dimension] = np.where(labels < self.dimension, 1, -1)
        return V

    def project(self, U: Any) -> Float[np.ndarray, "N d"]:
        U = as_points(U, self.dimension)
        falling = -np.sort(-np.abs(U), axis=1)
        shifts = (np.cumsum(falling, 1) - 1) / np.arange(1, self.dimension + 1)
        last = (falling > shifts).sum(1) - 1
        shift = np.maximum(shifts[np.arange(len(U)), last], 0)[:, None]  # nothing to take inside the ball
        return np.sign(U) * np.maximum(np.abs(U) - shift, 0)

    def contains(self, U: Any) -> Bool[np.ndarray, " N"]:
        return np.abs(as_points(U, self.dimension)).sum(1) <= 1 + TOLERANCE * self.dimension

    def _near(self, U: Float[np.ndarray, "N d"]) -> Bool[np.ndarray, "N n"]:
        return np.hstack([U, -U]) >= np.abs(U).max(1, keepdims=True) - TOLERANCE

    def alpha_map(self) -> float:
        return 0.5

    def alpha_separation(self) -> float:
        return 0.5

    def _strict(self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]) -> Bool[np.ndarray, " N"]:
        size = np.abs(U)
        axis = y % self.dimension
        own = np.where(y < self.dimension, 1, -1) * U[np.arange(len(U)), axis]
        if self.dimension == 1:
            return own > TOLERANCE  # nothing but p_0 - p_1 = u
        size[np.arange(len(U)), axis] = -np.inf
        free = 1 - np.abs(U).sum(1)
        return own > size.max(1) + free / 2 + TOLERANCE

    def _hallucinates(self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]) -> Bool[np.ndarray, " N"]:
        # The least p_y is y's own coordinate, all free mass lying on another axis.
        if self.dimension == 1:
            return np.zeros(len(U), bool)
        own = np.where(y < self.dimension, 1, -1) * U[np.arange(len(U)), y % self.dimension]
        return own <= TOLERANCE

    def _draw(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "N d"]:
        size = rng.dirichlet(np.ones(self.dimension + 1), n)[:, : self.dimension]
        return size * rng.choice([-1, 1], size.shape)
