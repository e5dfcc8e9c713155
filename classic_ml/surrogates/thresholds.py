"""How much label noise an embedding bears: 1 - max p up to which decoding its mean gives the mode."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog


def alpha_map(V: Float[np.ndarray, "n d"], from_vertices: Iterable[int] | None = None) -> float:
    """The noise below which the nearest vertex to the mean embedding is the mode's.

    min over y, k != y of (|v_y - v_k|^2 / 2) / max_j <v_y - v_j, v_y - v_k>: there (1 - alpha) v_y + alpha P leaves y's
    nearest-vertex cell.  `from_vertices` are the y to look at; one is enough where symmetries carry every vertex to
    every other.  O(n^2) memory.
    """
    gram, least = V @ V.T, np.inf
    for y in range(len(V)) if from_vertices is None else from_vertices:
        rest = np.arange(len(V)) != y
        toward = gram[y, y] - gram[y][:, None] - gram[y][None] + gram  # [j, k] <v_y - v_j, v_y - v_k>
        ratio = np.diagonal(toward)[rest] / 2 / toward.max(0)[rest]
        least = min(least, float(ratio.min()))
    return least


def alpha_separation(V: Float[np.ndarray, "n d"], from_vertices: Iterable[int] | None = None) -> float:
    """The noise below which the copies (1 - alpha) v_y + alpha P are disjoint, so that some link gives the mode.

    min over pairs of g / (1 + g), g the least t with v_y - v_k in t (P - P): a linear program a pair.
    """
    n = len(V)
    ones, zeros = np.ones(n), np.zeros(n)
    A = np.vstack([np.hstack([V.T, -V.T]), np.append(ones, zeros), np.append(zeros, ones)])
    A = np.hstack([A, np.append(np.zeros(V.shape[1]), [-1, -1])[:, None]])  # the last variable is t
    cost = np.append(np.zeros(2 * n), 1)
    least = np.inf
    pairs = (
        [(y, k) for y in range(n) for k in range(y)]
        if from_vertices is None
        else [(y, k) for y in from_vertices for k in range(n) if k != y]
    )
    for y, k in pairs:
        solved = linprog(cost, A_eq=A, b_eq=np.append(V[y] - V[k], [0, 0]), bounds=(0, None), method="highs")
        if solved.status != 0:
            raise RuntimeError(f"the linear program of vertices {y} and {k} failed: {solved.message}")
        least = min(least, float(solved.fun / (1 + solved.fun)))
    return least
