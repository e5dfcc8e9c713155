"""The method once more, as slowly and plainly as it is written down: one learner after the other, scipy for roots."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq

Vector = np.ndarray


def project_ball(x: Vector, center: Vector, radius: float) -> Vector:
    away = x - center
    return x if np.linalg.norm(away) <= radius else center + radius * away / np.linalg.norm(away)


def project_ball_metric(x: Vector, A: np.ndarray, center: Vector, radius: float) -> Vector:
    """Nearest point in the norm of A: x - center = (A + nu I)^-1 A (y - center) with the norm `radius`."""
    away = x - center
    if np.linalg.norm(away) <= radius:
        return x

    def moved(nu: float) -> Vector:
        return np.linalg.solve(A + nu * np.eye(len(x)), A @ away)

    most = np.linalg.eigvalsh(A)[-1] * np.linalg.norm(away) / radius
    nu = brentq(lambda v: np.linalg.norm(moved(v)) - radius, 0, most, xtol=1e-14, rtol=1e-14)
    return center + moved(nu)


@dataclass
class PlainUniversal:
    """Section 2 of the method, with every learner's state a row of a list."""

    center: Vector
    radius: float
    horizon: int
    bound: float
    sc_step: float = 4.0
    ons_identity: float = 4.0
    ons_weight: float = 0.25
    meta_cap: float = 0.25
    optimistic: bool = True
    last: Vector = field(init=False)

    def __post_init__(self) -> None:
        d = len(self.center)
        n_guesses = math.ceil(math.log2(self.horizon)) + 1
        pool = [min(1.0, 2**k / self.horizon) for k in range(n_guesses)]
        self.kinds = [("sc", c) for c in pool] + [("exp", c) for c in pool] + [("cvx", None)]
        n = len(self.kinds)
        self.anchors = [self.center.copy() for _ in range(n)]
        self.weights = np.full(n, 1 / n)
        self.rates = np.full(n, min(self.meta_cap, math.sqrt(math.log(n))))
        self.squares = np.zeros(n)
        self.outer, self.variation = np.zeros((d, d)), 0.0
        self.last, self.t = np.zeros(d), 0

    def _move(self, i: int, gradient: Vector) -> Vector:
        (kind, c), d = self.kinds[i], len(self.center)
        if kind == "exp":
            A = (1 + self.ons_identity * c * self.bound**2) * np.eye(d) + self.ons_weight * c * self.outer
            target = self.anchors[i] - np.linalg.solve(A, gradient)
            return project_ball_metric(target, A, self.center, self.radius)
        step = (
            self.sc_step / (c * self.t) if kind == "sc" else 2 * self.radius / math.sqrt(1 + self.variation)
        )
        return project_ball(self.anchors[i] - step * gradient, self.center, self.radius)

    def predict(self) -> Vector:
        self.t += 1
        self.xs = np.array([self._move(i, self.last) for i in range(len(self.kinds))])
        unit = 4 * self.radius * self.bound
        values = self.xs @ self.last

        def p_of(z: float) -> Vector:
            m = np.zeros(len(self.kinds))
            m[-1] = (z - values[-1]) / unit
            p = self.rates * self.weights * np.exp(self.rates * m)
            return p / p.sum()

        self.m = np.zeros(len(self.kinds))
        if self.optimistic and np.ptp(values) > 0:
            z = brentq(lambda z: p_of(z) @ values - z, values.min(), values.max(), xtol=1e-15, rtol=1e-15)
            self.m[-1] = (z - values[-1]) / unit
            self.p = p_of(z)
        else:
            self.p = self.rates * self.weights / (self.rates @ self.weights)
        self.x = self.p @ self.xs
        return self.x

    def update(self, g: Vector) -> None:
        r = (self.x - self.xs) @ g / (4 * self.radius * self.bound)
        n = len(self.kinds)
        gained = self.weights * np.exp(self.rates * r - self.rates**2 * (r - self.m) ** 2)
        self.squares += (r - self.m) ** 2
        rates = np.minimum(self.meta_cap, np.sqrt(math.log(n) / (1 + self.squares)))
        self.weights, self.rates = gained ** (rates / self.rates), rates
        for i, (kind, c) in enumerate(self.kinds):
            surrogate = g
            if kind == "sc":
                surrogate = g + c / 2 * (self.xs[i] - self.x)
            elif kind == "exp":
                surrogate = (1 + c / 2 * (g @ (self.xs[i] - self.x))) * g
            self.anchors[i] = self._move(i, surrogate)
        self.outer += np.outer(g, g)
        hint = self.last if self.optimistic else np.zeros_like(g)
        self.variation += float((g - hint) @ (g - hint))
        if self.optimistic:
            self.last = g
