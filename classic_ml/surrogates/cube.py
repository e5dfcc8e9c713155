"""The unit cube: class y at the bits of y, log2(n) dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from classic_ml.surrogates.hulls import TOLERANCE
from classic_ml.surrogates.points import as_labels, as_points
from classic_ml.surrogates.simple import SimplePolytope
from interp.core.messages import at_least

MAX_DIMENSION = 62  # class numbers are int64


class Cube(SimplePolytope):
    """The 2^d corners of [0, 1]^d, the first coordinate being the highest bit; decoded by thresholds at 1/2."""

    name = "cube"

    def __init__(self, dimension: int) -> None:
        at_least("dimension", dimension, 1)
        if dimension > MAX_DIMENSION:
            raise ValueError(f"dimension = {dimension}: class numbers hold at most {MAX_DIMENSION} bits")
        self.dimension, self.n_classes = int(dimension), 2 ** int(dimension)
        self._shifts = np.arange(self.dimension - 1, -1, -1)

    def transform(self, y: Any) -> Float[np.ndarray, "N d"]:
        return ((as_labels(y, self.n_classes)[:, None] >> self._shifts) & 1).astype(np.float64)

    def project(self, U: Any) -> Float[np.ndarray, "N d"]:
        return np.clip(as_points(U, self.dimension), 0, 1)

    def contains(self, U: Any) -> Bool[np.ndarray, " N"]:
        U = as_points(U, self.dimension)
        return ((U >= -TOLERANCE) & (U <= 1 + TOLERANCE)).all(1)

    def nearest(self, U: Any) -> Int[np.ndarray, " N"]:
        bits = as_points(U, self.dimension) > 0.5 + TOLERANCE
        return (bits.astype(np.int64) << self._shifts).sum(1)

    def link_with_ties(self, U: Any) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
        U = as_points(U, self.dimension)
        return self.nearest(U), 1 << (np.abs(U - 0.5) <= TOLERANCE).sum(1)

    def alpha_map(self) -> float:
        return 0.5

    def alpha_separation(self) -> float:
        return 0.5

    def _edge_coordinates(
        self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]
    ) -> Float[np.ndarray, "N m"]:
        return np.abs(U - self.transform(y))

    def _draw(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "N d"]:
        return rng.random((n, self.dimension))
