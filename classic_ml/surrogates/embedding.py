"""A polytope embedding: n classes as the vertices of a polytope in d dimensions, and decoding points back to classes.

Nueve, Kimpara, Waggoner, Finocchiaro 2024, "Trading off Consistency and Dimensionality of Convex Surrogates for
Multiclass Classification", NeurIPS (arXiv 2402.10818).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from classic_ml.random_state import RandomState, as_generator
from classic_ml.surrogates import fibres, thresholds
from classic_ml.surrogates.hulls import (
    TOLERANCE,
    draw_from_hull,
    hull_distance,
    not_extreme,
    project_onto_hull,
    size_of,
)
from classic_ml.surrogates.points import as_distributions, as_labels, as_points
from classic_ml.surrogates.regions import RegionFractions, region_fractions
from interp.core.messages import at_least

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_LISTED = 100_000  # vertices that `vertices` writes out


class PolytopeEmbedding:
    """Class y stands at vertex v_y, a label distribution p at the mean p V = sum_y p_y v_y.

    The mean is what minimising a Bregman loss finds (`classic_ml.surrogates.losses`; squared error in the plain case),
    `link` decodes it: project on the polytope P, take the nearest vertex.  With d < n - 1 dimensions that can't be
    the mode for every p; `in_strict_region` says where it is, whatever p was, `in_hallucination_region` where it may
    be a class of probability zero, `alpha_map` up to which label noise it is the mode.

    The named polytopes (`cube`, `permutahedron`, `cross_polytope`, `simplex`, `polygon`) never list their vertices to
    encode, decode or judge a point; this class itself holds any vertices (n, d) given, rows being classes 0..n-1, and
    decides by non-negative least squares.

    Raises:
        ValueError: vertices that are not finite or distinct, or lie in the hull of the others.
    """

    name = "custom"
    _projects = (
        True  # decoding needs the projection: the nearest vertex to u and to its projection may differ
    )
    _starts: tuple[int, ...] | None = None  # vertices from which noise thresholds are computed; None for all

    def __init__(self, vertices: Any) -> None:
        V = as_points(vertices, None, "vertices")
        distinct, counts = np.unique(V, axis=0, return_counts=True)
        if len(distinct) < len(V):
            raise ValueError(
                f"vertices: {distinct[counts > 1][0].tolist()} is there twice; give each class its own"
            )
        if len(inner := not_extreme(V)):
            raise ValueError(
                f"vertices: row {inner[0]} lies in the hull of the others ({len(inner)} of {len(V)} rows do), so it "
                "can't be told from mixtures of them; move it outwards"
            )
        self._set(V)

    def _set(self, V: Float[np.ndarray, "n d"]) -> None:
        self._vertices = V
        self.n_classes, self.dimension = V.shape

    @classmethod
    def simplex(cls, n_classes: int) -> PolytopeEmbedding:
        """One-hot: n classes in n dimensions, always consistent."""
        from classic_ml.surrogates.simplex import Simplex

        return Simplex(n_classes)

    @classmethod
    def cube(cls, dimension: int, n_classes: int | None = None) -> PolytopeEmbedding:
        """The 2^d corners of [0, 1]^d in lexicographic order, or the first `n_classes` of them."""
        from classic_ml.surrogates.cube import Cube

        return first_of(Cube(dimension), n_classes)

    @classmethod
    def permutahedron(cls, dimension: int, n_classes: int | None = None) -> PolytopeEmbedding:
        """The d! permutations of (1..d) in lexicographic order, or the first `n_classes` of them."""
        from classic_ml.surrogates.permutahedron import Permutahedron

        return first_of(Permutahedron(dimension), n_classes)

    @classmethod
    def cross_polytope(cls, dimension: int, n_classes: int | None = None) -> PolytopeEmbedding:
        """+e_1..+e_d, -e_1..-e_d, or the first `n_classes` of them."""
        from classic_ml.surrogates.cross_polytope import CrossPolytope

        return first_of(CrossPolytope(dimension), n_classes)

    @classmethod
    def polygon(cls, n_classes: int) -> PolytopeEmbedding:
        """n >= 3 points evenly on the unit circle: two dimensions for any number of classes."""
        from classic_ml.surrogates.polygon import Polygon

        return Polygon(n_classes)

    def __repr__(self) -> str:
        return f"<{self.name} embedding: {self.n_classes} classes in {self.dimension} dimensions>"

    @property
    def vertices(self) -> Float[np.ndarray, "n d"]:
        """V, row y = v_y.  Raises ValueError above 100,000 classes, where only `transform` makes sense."""
        if self.n_classes > MAX_LISTED:
            raise ValueError(
                f"{self!r}: more than {MAX_LISTED:,} vertices are too many to list; `transform` gives those you need"
            )
        return self.transform(np.arange(self.n_classes))

    def transform(self, y: Any) -> Float[np.ndarray, "N d"]:
        """v_y of every class in y (N,).  Raises ValueError for one outside 0..n-1."""
        return self._vertices[as_labels(y, self.n_classes)]

    def embed_distribution(self, P: Any) -> Float[np.ndarray, "N d"]:
        """p V of every label distribution in P (N, n)."""
        return as_distributions(P, self.n_classes) @ self.vertices

    def project(self, U: Any) -> Float[np.ndarray, "N d"]:
        """The nearest point of P to every row of U (N, d)."""
        return project_onto_hull(as_points(U, self.dimension), self._vertices)

    def contains(self, U: Any) -> Bool[np.ndarray, " N"]:
        """Whether rows of U lie in P, up to 1e-9 of its size."""
        U = as_points(U, self.dimension)
        return np.linalg.norm(self.project(U) - U, axis=1) <= TOLERANCE * size_of(self._vertices)

    def nearest(self, U: Any) -> Int[np.ndarray, " N"]:
        """The nearest vertex to every row of U without projecting; ties go to the lowest class."""
        return self._near(as_points(U, self.dimension)).argmax(1)

    def _near(self, U: Float[np.ndarray, "N d"]) -> Bool[np.ndarray, "N n"]:
        V = self._vertices
        squares = np.square(V).sum(1) - 2 * U @ V.T
        reach = TOLERANCE * (size_of(V) ** 2 + np.square(U).max(1, keepdims=True))
        return squares <= squares.min(1, keepdims=True) + reach

    def link(self, U: Any) -> Int[np.ndarray, " N"]:
        """Decoded classes, psi(u) = the vertex nearest to u's projection on P; ties go to the lowest class."""
        return self.nearest(self.project(U) if self._projects else U)

    def link_with_ties(self, U: Any) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
        """`link`, and how many vertices are equally near (1 where the decoded class is the only one)."""
        near = self._near(self.project(U) if self._projects else as_points(U, self.dimension))
        return near.argmax(1), near.sum(1)

    def alpha_map(self) -> float:
        """`link` gives the mode of every p with 1 - max p below this (at it, ties are possible)."""
        return thresholds.alpha_map(self.vertices, self._starts)

    def alpha_separation(self) -> float:
        """Some link gives the mode of every p with 1 - max p below this; at least `alpha_map`, at most 1/2."""
        return thresholds.alpha_separation(self.vertices, self._starts)

    def min_probability(self, u: Any, y: int | None = None) -> float:
        """The least probability that class y (default: the decoded one) has in any p embedded at u (d,)."""
        point, y = self._point_and_class(u, y)
        return fibres.min_probability(point, y, self.vertices)

    def fibre_margin(self, u: Any, y: int | None = None) -> float:
        """The least p_y - p_k of any p embedded at u (d,) and any other class k; y defaults to the decoded class."""
        point, y = self._point_and_class(u, y)
        return fibres.fibre_margin(point, y, self.vertices)

    def _point_and_class(self, u: Any, y: int | None) -> tuple[Float[np.ndarray, " d"], int]:
        U = as_points(np.asarray(u)[None], self.dimension, "u")
        return U[0], int(self.link(U)[0] if y is None else as_labels([y], self.n_classes)[0])

    def in_strict_region(self, U: Any) -> Bool[np.ndarray, " N"]:
        """Whether the class decoded from u is the only mode of every p embedded at u; False outside P."""
        U = as_points(U, self.dimension)
        inside = self.contains(U)
        strict = np.zeros(len(U), bool)
        strict[inside] = self._strict(U[inside], self.link(U[inside]))
        return strict

    def in_hallucination_region(self, U: Any) -> Bool[np.ndarray, " N"]:
        """Whether some p embedded at u gives the class decoded from u probability zero; False outside P."""
        U = as_points(U, self.dimension)
        inside = self.contains(U)
        zero = np.zeros(len(U), bool)
        zero[inside] = self._hallucinates(U[inside], self.link(U[inside]))
        return zero

    def _strict(self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]) -> Bool[np.ndarray, " N"]:
        # {p : p_k >= p_y} has as its vertices all classes but y, and y and k in equal halves.
        V, near = self._vertices, TOLERANCE * size_of(self._vertices)

        def beats_all(u: Float[np.ndarray, " d"], y: int) -> bool:
            others = np.delete(V, y, 0)
            halves = (others + V[y]) / 2
            return all(hull_distance(u, np.vstack([others, half])) > near for half in halves)

        return np.array([beats_all(u, c) for u, c in zip(U, y, strict=True)], bool)

    def _hallucinates(self, U: Float[np.ndarray, "N d"], y: Int[np.ndarray, " N"]) -> Bool[np.ndarray, " N"]:
        V, near = self._vertices, TOLERANCE * size_of(self._vertices)
        distances = [hull_distance(u, np.delete(V, c, 0)) for u, c in zip(U, y, strict=True)]
        return np.array(distances, float) <= near

    def draw(self, n_samples: int, random_state: RandomState = None) -> Float[np.ndarray, "N d"]:
        """Points uniform on P."""
        at_least("n_samples", n_samples, 1)
        return self._draw(n_samples, as_generator(random_state))

    def _draw(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "N d"]:
        return draw_from_hull(self.vertices, n, rng)

    def volume_fractions(self, n_samples: int = 10_000, random_state: RandomState = None) -> RegionFractions:
        """Which share of P's volume is strict, and which may hallucinate, from uniform draws."""
        return region_fractions(self, self.draw(n_samples, random_state))

    def plot(self, n_samples: int = 20_000, random_state: RandomState = 0) -> Figure:
        """The regions of P in its two widest directions."""
        return self.volume_fractions(n_samples, random_state).plot()


def first_of(whole: PolytopeEmbedding, n_classes: int | None) -> PolytopeEmbedding:
    """The embedding of the first `n_classes` vertices; all of them for None.

    Its polytope is their hull, smaller than the whole: regions and thresholds are its own.  Raises ValueError for
    more classes than there are vertices.
    """
    if n_classes is None or n_classes == whole.n_classes:
        return whole
    at_least("n_classes", n_classes, 1)
    if n_classes > whole.n_classes:
        raise ValueError(
            f"n_classes = {n_classes}, but {whole!r} has only {whole.n_classes} vertices; raise the dimension"
        )
    part = PolytopeEmbedding.__new__(PolytopeEmbedding)  # vertices of a polytope need no test
    part._set(whole.transform(np.arange(n_classes)))
    part.name = f"part of a {whole.name}"
    return part
