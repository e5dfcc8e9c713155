"""Convex hulls of listed points: projection, distance, extreme points, uniform draws."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import nnls
from scipy.spatial import ConvexHull

TOLERANCE = 1e-9  # times a polytope's size: nearer than that is on it


def hull_weights(u: Float[np.ndarray, " d"], V: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """Convex weights of the point of conv(V) nearest to `u`, exact to rounding, at most d + 1 of them above 0.

    min_w |(V - u)'w|^2 + (1'w - 1)^2 over w >= 0 is min over x in conv(V) of |x - u|^2 / (1 + |x - u|^2), which grows
    with |x - u|: one non-negative least squares, weights rescaled to sum 1.
    """
    offsets = V - u
    size = np.abs(offsets).max()
    A = np.vstack([offsets.T / (size if size > 0 else 1.0), np.ones(len(V))])
    b = np.zeros(len(A))
    b[-1] = 1
    weights, _ = nnls(A, b, maxiter=100 * len(V))
    return weights / weights.sum()


def project_onto_hull(U: Float[np.ndarray, "N d"], V: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "N d"]:
    """The nearest point of conv(V) to every row of U."""
    return np.array([hull_weights(u, V) @ V for u in U]).reshape(U.shape)


def hull_distance(u: Float[np.ndarray, " d"], V: Float[np.ndarray, "n d"]) -> float:
    """Euclidean distance of `u` to conv(V)."""
    return float(np.linalg.norm(hull_weights(u, V) @ V - u))


def size_of(V: Float[np.ndarray, "n d"]) -> float:
    """The largest extent of points along a coordinate; 1 for a single point."""
    return float(np.ptp(V, axis=0).max()) or 1.0


def not_extreme(V: Float[np.ndarray, "n d"]) -> Int[np.ndarray, " m"]:
    """Rows of V that lie in the hull of the others."""
    if len(V) < 2:
        return np.empty(0, int)
    far = TOLERANCE * size_of(V)
    return np.array([y for y in range(len(V)) if hull_distance(V[y], np.delete(V, y, 0)) <= far], int)


def affine_coordinates(
    V: Float[np.ndarray, "n d"],
) -> tuple[Float[np.ndarray, "n r"], Float[np.ndarray, "r d"]]:
    """Coordinates of V about its mean in the r directions that it spans, widest first, and these directions."""
    centred = V - V.mean(0)
    _, spread, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[spread > TOLERANCE * max(spread[0], 1e-300)]
    return centred @ directions.T, directions


def draw_from_hull(V: Float[np.ndarray, "n d"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "N d"]:
    """`n` points uniform on conv(V), by cutting it into the simplices between its middle and its facets."""
    coordinates, directions = affine_coordinates(V)
    rank = len(directions)
    if rank == 0:
        return np.repeat(V[:1], n, axis=0)
    if rank == 1:
        inside = rng.uniform(float(coordinates.min()), float(coordinates.max()), size=(n, 1))
    else:
        facets = coordinates[ConvexHull(coordinates).simplices]  # (facets, rank, rank), the middle is at 0
        volumes = np.abs(np.linalg.det(facets))
        chosen = facets[rng.choice(len(facets), n, p=volumes / volumes.sum())]
        weights = rng.dirichlet(np.ones(rank + 1), n)[:, :rank]
        inside = np.einsum("nk,nkr->nr", weights, chosen)
    return V.mean(0) + inside @ directions
