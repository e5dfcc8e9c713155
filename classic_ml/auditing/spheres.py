"""Why locality collapses in many columns: linear explanations in balls, of two concentric spheres.

Half of the data is uniform on the sphere of radius 1 (label -1), half on that of radius 1 + gap (label +1); the region
is a ball centred at a point x of the outer sphere, the local model linear along x.  With gap ~ 1/d the largest mass of
a region with a small loss decays exponentially in d; with a fixed gap it doesn't. (A ball that is not centred at x can
hold the whole inner sphere, and then a constant has a loss of 1/3 on a mass of 3/4.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize_scalar
from scipy.special import betainc

from classic_ml.auditing.explanations import in_unit_interval
from interp.core.messages import at_least

_RADII, _THRESHOLDS = 120, 256


@dataclass(frozen=True)
class SphereBall:
    """The largest region whose best linear model along x loses no more than asked."""

    d: int
    gap: float
    radius: float
    mass: float
    loss: float


def cap_share(angle: npt.ArrayLike, d: int) -> Any:
    """Share of the unit sphere in R^d within an angle in [0, pi] of a point."""
    angle = np.asarray(angle, np.float64)
    half = 0.5 * betainc((d - 1) / 2, 0.5, np.sin(angle) ** 2)
    return np.where(angle <= np.pi / 2, half, 1 - half)


def ball_on_spheres(d: int, radius: float, gap: float) -> tuple[float, float]:
    """(mass, loss) of the ball of this radius around a point of the outer sphere, with the best threshold and
    orientation of a linear model along x; (0, 0) for radius 0."""
    at_least("d", d, 2)
    if not (radius >= 0 and gap > 0):
        raise ValueError(f"radius = {radius} must be >= 0 and gap = {gap} > 0")
    c = 1 + gap
    inner_angle = np.arccos(np.clip((1 + c**2 - radius**2) / (2 * c), -1, 1))
    outer_angle = np.arccos(np.clip(1 - radius**2 / (2 * c**2), -1, 1))
    inner, outer = float(cap_share(inner_angle, d)), float(cap_share(outer_angle, d))
    if inner + outer == 0:
        return 0.0, 0.0

    def loss(s: npt.ArrayLike) -> Any:
        s = np.asarray(s, np.float64)
        above = np.minimum(cap_share(np.arccos(np.clip(s, -1, 1)), d), inner)
        below = outer - np.minimum(cap_share(np.arccos(np.clip(s / c, -1, 1)), d), outer)
        share = (above + below) / (inner + outer)
        return np.minimum(share, 1 - share)

    lowest = min(np.cos(inner_angle), c * np.cos(outer_angle))
    thresholds = np.linspace(lowest, c, _THRESHOLDS)
    values = loss(thresholds)
    best = int(values.argmin())
    around = (thresholds[max(best - 1, 0)], thresholds[min(best + 1, _THRESHOLDS - 1)])
    finer = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-12})
    return (inner + outer) / 2, float(min(values[best], finer.fun))


def largest_local_mass(d: int, gap: float | None = None, max_loss: float = 1 / 3) -> SphereBall:
    """The largest ball around x on which a linear model along x loses at most `max_loss` (below 1/2).

    Args:
        d: dimension, at least 2.
        gap: between the spheres; None is 1 / (10 d).
    """
    at_least("d", d, 2)
    in_unit_interval("2 max_loss", 2 * max_loss)
    gap = 1 / (10 * d) if gap is None else gap
    radii = np.linspace(0, 2 * (1 + gap), _RADII)

    def excess(radius: float) -> float:
        return ball_on_spheres(d, radius, gap)[1] - max_loss

    last = next(i for i in reversed(range(_RADII)) if excess(radii[i]) <= 0)
    radius = float(radii[last])
    if last + 1 < _RADII:
        radius = float(brentq(excess, radius, radii[last + 1], xtol=1e-9))
    return SphereBall(d, gap, radius, *ball_on_spheres(d, radius, gap))
