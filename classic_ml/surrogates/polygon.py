"""The regular polygon: any number of classes in two dimensions, with little room for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from classic_ml.surrogates.hulls import TOLERANCE
from classic_ml.surrogates.points import as_points
from classic_ml.surrogates.simple import SimplePolytope
from interp.core.messages import at_least


class Polygon(SimplePolytope):
    """Class y at (cos 2 pi y / n, sin 2 pi y / n)."""

    name = "polygon"

    def __init__(self, n_classes: int) -> None:
        at_least("n_classes", n_classes, 3)
        angles = 2 * np.pi * np.arange(n_classes) / n_classes
        self._set(np.c_[np.cos(angles), np.sin(angles)])

    def contains(self, U: Any) -> Bool[np.ndarray, " N"]:
        U = as_points(U, 2)
        return (self._edge_coordinates(U, self.nearest(U)) >= -TOLERANCE * self.n_classes).all(1)

    def _edge_coordinates(
        self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]
    ) -> Float[np.ndarray, "N m"]:
        V = self._vertices
        edges = np.stack([V[(y + 1) % len(V)] - V[y], V[y - 1] - V[y]], axis=2)
        return np.linalg.solve(edges, (U - V[y])[:, :, None])[:, :, 0]
