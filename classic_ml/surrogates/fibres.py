"""Linear programs over a fibre F(u) = {p in the simplex : pV = u}: all label distributions that are embedded at u."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

_PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def least_over_fibre(
    cost: Float[np.ndarray, " n"], u: Float[np.ndarray, " d"], V: Float[np.ndarray, "n d"]
) -> float:
    """min of cost . p over F(u).  Raises ValueError where u lies outside conv(V)."""
    solved = linprog(
        cost,
        A_eq=np.vstack([V.T, np.ones(len(V))]),
        b_eq=np.append(u, 1.0),
        bounds=(0, None),
        method="highs",
        options=_PRECISE,
    )
    if solved.status == 2:
        raise ValueError(
            f"u = {np.array2string(u, precision=4, threshold=8)} lies outside the polytope: no label distribution is "
            "embedded there; project it first"
        )
    if solved.status != 0:
        raise RuntimeError(f"the linear program over the fibre of u failed: {solved.message}")
    return float(solved.fun)


def min_probability(u: Float[np.ndarray, " d"], y: int, V: Float[np.ndarray, "n d"]) -> float:
    """The least p_y over F(u): 0 where reporting y may be reporting a class of probability zero."""
    cost = np.zeros(len(V))
    cost[y] = 1
    return least_over_fibre(cost, u, V)


def fibre_margin(u: Float[np.ndarray, " d"], y: int, V: Float[np.ndarray, "n d"]) -> float:
    """The least p_y - p_k over F(u) and k != y: above 0 where y is the only mode of all of F(u).

    n - 1 linear programs; 1 for the only class of an embedding of one.
    """
    margin = 1.0
    for k in range(len(V)):
        if k != y:
            cost = np.zeros(len(V))
            cost[y], cost[k] = 1, -1
            margin = min(margin, least_over_fibre(cost, u, V))
    return margin
