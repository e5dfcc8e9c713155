"""The best fixed point in hindsight, with a certificate of how far from the best it can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from classic_ml.online.domains import Domain
from classic_ml.online.losses import Losses


@dataclass(frozen=True)
class BestFixed:
    """A point of the domain whose total loss is at most `gap` above the least possible."""

    point: Float[np.ndarray, " d"]
    gap: float


def best_fixed(losses: Losses, domain: Domain, *, tol: float = 1e-6, max_steps: int = 20_000) -> BestFixed:
    """Minimise the sum of the losses over the domain, not over all of R^d.

    In closed form where the losses have one, else by accelerated projected gradient (Beck and Teboulle 2009, restarted
    where the total rises) until the gap max_v <F'(x), x - v> over the domain, which bounds F(x) - min F of a convex F,
    is at most `tol` times max(1, |F(x)|).

    Raises:
        RuntimeError: the gap is above that after `max_steps` steps.
    """
    closed = losses.closed_form_minimizer(domain)
    if closed is not None:
        return BestFixed(closed, 0.0)
    x = momentum = domain.project(domain.center)
    total, weight, smoothness = float(losses.values(x).sum()), 1.0, 1.0
    gap = np.inf
    for _ in range(max_steps):
        gradient = losses.total_gradient(x)
        gap = float(gradient @ (x - domain.linear_minimizer(gradient)))
        if gap <= tol * max(1.0, abs(total)):
            return BestFixed(x, max(gap, 0.0))
        slope = gradient if momentum is x else losses.total_gradient(momentum)
        at_momentum = total if momentum is x else float(losses.values(momentum).sum())
        while True:
            new = domain.project(momentum - slope / smoothness)
            step = new - momentum
            new_total = float(losses.values(new).sum())
            allowed = at_momentum + slope @ step + smoothness / 2 * step @ step
            if new_total <= allowed + 1e-12 * abs(at_momentum) or smoothness > 1e300:
                break
            smoothness *= 2
        if new_total > total and momentum is not x:
            momentum, weight = x, 1.0
            continue
        next_weight = (1 + (1 + 4 * weight**2) ** 0.5) / 2
        momentum = new + (weight - 1) / next_weight * (new - x)
        x, total, weight = new, new_total, next_weight
    raise RuntimeError(
        f"the best fixed point is known only up to {gap:.3g} in total loss after {max_steps} steps; are the losses "
        "convex and their gradients right? A comparator can be given as an array instead"
    )
