"""The simplex: one-hot labels, the embedding that loses nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from classic_ml.surrogates.hulls import TOLERANCE
from classic_ml.surrogates.points import as_labels, as_points
from classic_ml.surrogates.simple import SimplePolytope
from interp.core.messages import at_least


class Simplex(SimplePolytope):
    """Class y at e_y in R^n; u is the distribution itself, decoded by its largest entry."""

    name = "simplex"

    def __init__(self, n_classes: int) -> None:
        at_least("n_classes", n_classes, 1)
        self.n_classes = self.dimension = int(n_classes)

    def transform(self, y: Any) -> Float[np.ndarray, "N d"]:
        labels = as_labels(y, self.n_classes)
        V = np.zeros((len(labels), self.n_classes))
        V[np.arange(len(labels)), labels] = 1
        return V

    def project(self, U: Any) -> Float[np.ndarray, "N d"]:
        U = as_points(U, self.dimension)
        falling = -np.sort(-U, axis=1)
        shifts = (np.cumsum(falling, 1) - 1) / np.arange(1, self.dimension + 1)
        last = (falling > shifts).sum(1) - 1
        return np.maximum(U - shifts[np.arange(len(U)), last][:, None], 0)

    def contains(self, U: Any) -> Bool[np.ndarray, " N"]:
        U = as_points(U, self.dimension)
        return (U >= -TOLERANCE).all(1) & (np.abs(U.sum(1) - 1) <= TOLERANCE * self.dimension)

    def _near(self, U: Float[np.ndarray, "N d"]) -> Bool[np.ndarray, "N n"]:
        return U.max(1, keepdims=True) - TOLERANCE <= U

    def alpha_map(self) -> float:
        return 0.5

    def alpha_separation(self) -> float:
        return 0.5

    def _edge_coordinates(
        self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]
    ) -> Float[np.ndarray, "N m"]:
        others = np.ones(U.shape, bool)
        others[np.arange(len(U)), y] = False
        return U[others].reshape(len(U), self.dimension - 1)

    def _draw(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "N d"]:
        return rng.dirichlet(np.ones(self.dimension), n)
