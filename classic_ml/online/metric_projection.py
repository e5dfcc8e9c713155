"""The nearest point of a box or a simplex in the norm |v|_A = sqrt(v' A v), exactly, by a walk over their faces."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " d"]
_NOTHING = 1e-13  # a multiplier below this share of the largest term it is the sum of


def project_metric_by_faces(
    y: Vector,
    metric: Float[np.ndarray, "d d"],
    lower: Vector,
    upper: Vector,
    start: Vector,
    *,
    keep_sum: bool,
) -> Vector:
    """The point of lower <= x <= upper (and with sum x = sum start, where `keep_sum`) nearest to y.

    The primal active-set method of convex quadratic programs: least distance on the face of x, by a linear system; stop
    at the first bound in the way, else let go of the bound whose multiplier has the wrong sign most. `start` is any
    point of the set. Each face is left for one with a smaller distance, so that the walk ends at the nearest point.
    """
    x = start.copy()
    free = (x > lower) & (x < upper)
    for _ in range(100 * (len(x) + 1)):
        x, hit = _walk_on_face(x, free, y, metric, lower, upper, keep_sum)
        if hit is not None:
            free[hit] = False
            continue
        slope = metric @ (x - y)
        size = np.abs(metric) @ np.abs(x - y)
        if keep_sum:
            slope, size = slope - slope[free].mean(), size + size[free].mean()
        wrong = np.where(x <= lower, -slope, slope) / np.where(size > 0, size, 1)
        wrong[free] = 0
        if wrong.max() <= _NOTHING:
            return x
        free[wrong.argmax()] = True
    raise ArithmeticError(f"no nearest point to {y} was found; is the metric positive definite?")


def _walk_on_face(
    x: Vector,
    free: np.ndarray,
    y: Vector,
    metric: Float[np.ndarray, "d d"],
    lower: Vector,
    upper: Vector,
    keep_sum: bool,
) -> tuple[Vector, int | None]:
    """The least distance on the face, or as far as the first bound in the way, and that bound's coordinate."""
    n = int(free.sum())
    if n == 0 or (keep_sum and n == 1):
        return x, None
    matrix, right = metric[np.ix_(free, free)], -(metric @ (x - y))[free]
    if keep_sum:
        scale = np.abs(np.diag(matrix)).mean()
        border = np.full((n, 1), scale)
        matrix = np.block([[matrix, border], [border.T, np.zeros((1, 1))]])
        right = np.append(right, 0.0)
    step = np.zeros_like(x)
    step[free] = np.linalg.solve(matrix, right)[:n]
    ends = np.where(step > 0, upper, lower)
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(step == 0, np.inf, (ends - x) / step)
    hit = int(room.argmin())
    if room[hit] >= 1:
        return np.clip(x + step, lower, upper), None
    x = np.clip(x + room[hit] * step, lower, upper)
    x[hit] = ends[hit]
    return x, hit
