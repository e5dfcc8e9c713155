"""Regions in closed form at a simple vertex: one with as many edges as the polytope has dimensions.

Let c be the coordinates of u - v_y in the basis of y's edges, so that y's neighbours are the unit vectors. All other
vertices have sum c >= 1 and, where they are no neighbours, sum c >= 2 here, so cutting y off leaves

    conv of the others                         {u in P : sum c >= 1}            hallucination
    conv of the others and y halfway to k      {u in P : sum c + c_k >= 1}      k ties with y for some p

and u is strict for y where sum c + max c < 1.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from jaxtyping import Bool, Float, Int

from classic_ml.surrogates.embedding import PolytopeEmbedding
from classic_ml.surrogates.hulls import TOLERANCE


class SimplePolytope(PolytopeEmbedding):
    """A named polytope that is simple and whose symmetries carry every vertex to every other."""

    _projects = False  # mirror images: a point and its projection lie on the same side of every mirror
    _starts = (0,)

    @abstractmethod
    def _edge_coordinates(
        self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]
    ) -> Float[np.ndarray, "N m"]:
        """u - v_y in the basis of the edges from v_y to its neighbours."""

    def _strict(self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]) -> Bool[np.ndarray, " N"]:
        c = self._edge_coordinates(U, y)
        return c.sum(1) + c.max(1, initial=0) < 1 - TOLERANCE

    def _hallucinates(self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]) -> Bool[np.ndarray, " N"]:
        return self._edge_coordinates(U, y).sum(1) >= 1 - TOLERANCE
