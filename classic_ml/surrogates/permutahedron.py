"""The permutahedron: class y at the y-th permutation of (1..d), decoded by ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import isotonic_regression

from classic_ml.surrogates.hulls import TOLERANCE
from classic_ml.surrogates.points import as_labels, as_points
from classic_ml.surrogates.simple import SimplePolytope
from interp.core.messages import at_least

MAX_DIMENSION = 20  # 21! does not fit class numbers of 64 bits


class Permutahedron(SimplePolytope):
    """The d! permutations of (1..d) in lexicographic order; the vertex of class (pi_1..pi_d) is (pi_1..pi_d) itself.

    u is decoded by its ranks, the smallest entry being 1.  Class numbers are Lehmer codes, so that nothing is listed.
    """

    name = "permutahedron"

    def __init__(self, dimension: int) -> None:
        at_least("dimension", dimension, 2)
        if dimension > MAX_DIMENSION:
            raise ValueError(f"dimension = {dimension}: class numbers of 64 bits end at {MAX_DIMENSION}!")
        self.dimension, self.n_classes = int(dimension), math.factorial(int(dimension))
        self._places = np.array([math.factorial(self.dimension - 1 - i) for i in range(self.dimension)])

    def transform(self, y: Any) -> Float[np.ndarray, "N d"]:
        labels, d = as_labels(y, self.n_classes), self.dimension
        ranks = np.empty((len(labels), d), np.int64)
        for i in range(d):
            ranks[:, i], labels = np.divmod(labels, self._places[i])
        # ranks[:, i] is pi_i's rank among pi_i..pi_d; from the right, whoever is not below makes room.
        for i in range(d - 2, -1, -1):
            ranks[:, i + 1 :] += ranks[:, i + 1 :] >= ranks[:, i, None]
        return ranks + 1.0

    def _labels(self, ranks: Int[np.ndarray, "N d"]) -> Int[np.ndarray, " N"]:
        labels = np.zeros(len(ranks), np.int64)
        for i in range(self.dimension):
            labels += (ranks[:, i + 1 :] < ranks[:, i, None]).sum(1) * self._places[i]
        return labels

    def project(self, U: Any) -> Float[np.ndarray, "N d"]:
        U = as_points(U, self.dimension).copy()
        outside = np.flatnonzero(~self.contains(U))
        steps = np.arange(1, self.dimension + 1)
        for row, order in zip(outside, np.argsort(U[outside], axis=1, kind="stable"), strict=True):
            U[row, order] -= isotonic_regression(U[row, order] - steps).x
        return U

    def contains(self, U: Any) -> Bool[np.ndarray, " N"]:
        U = as_points(U, self.dimension)
        c = np.cumsum(np.sort(U, axis=1) - np.arange(1, self.dimension + 1), axis=1)  # majorisation
        return (c >= -TOLERANCE * self.dimension).all(1) & (np.abs(c[:, -1]) <= TOLERANCE * self.dimension)

    def _groups(self, U: Float[np.ndarray, "N d"]) -> tuple[Int[np.ndarray, "N d"], Int[np.ndarray, "N d"]]:
        """For every entry the number of its group of ties, rising with its value; and the same, sorted."""
        order = np.argsort(U, axis=1, kind="stable")
        rising = np.take_along_axis(U, order, 1)
        sorted_groups = np.zeros(U.shape, np.int64)
        sorted_groups[:, 1:] = np.cumsum(np.diff(rising, axis=1) > TOLERANCE, axis=1)
        groups = np.empty_like(sorted_groups)
        np.put_along_axis(groups, order, sorted_groups, 1)
        return groups, sorted_groups

    def nearest(self, U: Any) -> Int[np.ndarray, " N"]:
        groups, _ = self._groups(as_points(U, self.dimension))
        return self._labels(np.argsort(np.argsort(groups, axis=1, kind="stable"), axis=1))

    def link_with_ties(self, U: Any) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
        U = as_points(U, self.dimension)
        _, rising = self._groups(U)
        ties, run = np.ones(len(U), np.int64), np.ones(len(U), np.int64)
        for i in range(1, self.dimension):  # the product of the groups' factorials
            run = np.where(rising[:, i] == rising[:, i - 1], run + 1, 1)
            ties *= run
        return self.nearest(U), ties

    def alpha_map(self) -> float:
        return 1 / self.dimension

    def alpha_separation(self) -> float:
        return 1 / self.dimension

    def _edge_coordinates(
        self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]
    ) -> Float[np.ndarray, "N m"]:
        # An edge swaps values k and k + 1, so c_k sums what lies above 1..k at the places where v_y has 1..k.
        order = np.argsort(self.transform(y), axis=1)
        return np.cumsum(np.take_along_axis(U, order, 1) - np.arange(1, self.dimension + 1), axis=1)[:, :-1]
