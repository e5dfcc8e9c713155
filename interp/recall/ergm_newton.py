"""Maximising a concave log-likelihood of a few parameters, and finding the directions in which it has no maximum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

TOO_LARGE = 15.0  # a coefficient beyond this is taken for infinite
Objective = Callable[[ndarray], tuple[float, ndarray, ndarray]]


def newton(
    objective: Objective, start: Float[ndarray, " p"], *, tolerance: float = 1e-9, max_steps: int = 200
) -> Float[ndarray, " p"]:
    """The maximum of `objective(theta) -> (value, gradient, information)`, by Newton's method with halved steps.

    Directions of no information (collinear statistics) are left alone: the shortest step is taken.
    """
    theta = start.astype(float)
    value, gradient, information = objective(theta)
    for _ in range(max_steps):
        step = np.linalg.pinv(information, rcond=1e-10, hermitian=True) @ gradient
        if np.abs(gradient).max() < tolerance or np.abs(theta).max() > 1e3:
            break
        scale = 1.0
        while scale > 1e-10:
            trial = objective(theta + scale * step)
            if trial[0] >= value - 1e-12 * abs(value):
                break
            scale /= 2
        else:
            break
        theta = theta + scale * step
        value, gradient, information = trial
    return theta


def recession(rows: Float[ndarray, "r p"]) -> tuple[Bool[ndarray, " p"], Float[ndarray, " p"]]:
    """The directions v with `rows @ v >= 0`, in which a likelihood built on `rows` never falls.

    Returns which coordinates are nonzero in some such direction (their coefficients have no finite estimate),
    and one direction from the middle of them all. Linear programs of p unknowns.
    """
    from scipy.optimize import linprog

    rows = np.unique(rows, axis=0)
    p = rows.shape[1]
    unbounded, middle = np.zeros(p, bool), np.zeros(p)
    objectives = [sign * unit for unit in np.eye(p) for sign in (1.0, -1.0)]
    for objective in [*objectives, -rows.sum(0)]:
        found = linprog(objective, A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=(-1, 1), method="highs")
        v = np.where(np.abs(found.x) > 1e-7, found.x, 0.0)
        unbounded |= v != 0
        middle += v
    return unbounded, middle
