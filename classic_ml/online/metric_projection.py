"""The nearest point of a polytope in the norm |v|_A = sqrt(v' A v), exactly, by non-negative least squares."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls


def project_polytope_metric(
    y: Float[np.ndarray, " d"],
    metric: Float[np.ndarray, "d d"],
    G: Float[np.ndarray, "m d"],
    h: Float[np.ndarray, " m"],
    inside: Float[np.ndarray, " d"],
) -> Float[np.ndarray, " d"]:
    """The point of {x : G x >= h} nearest to `y` in the norm of the positive definite `metric`.

    In u = L' (x - y), metric = L L', this is a least-distance problem, which one non-negative least-squares fit solves
    exactly (Lawson and Hanson 1974, chapter 23). `inside` is any point of the polytope: its distance is the unit of u.
    """
    L = np.linalg.cholesky(metric)
    unit = float(np.linalg.norm(L.T @ (inside - y)))
    lacking = h - G @ y
    if unit == 0 or lacking.max() <= 0:
        return y.copy()
    constraints = np.linalg.solve(L, G.T)  # columns: constraints on u
    scale = np.linalg.norm(constraints, axis=0)
    E = np.vstack([constraints / scale, lacking / scale / unit])
    target = np.zeros(len(E))
    target[-1] = 1
    residual = E @ nnls(E, target)[0] - target
    u = -residual[:-1] / residual[-1] * unit
    return y + np.linalg.solve(L.T, u)
