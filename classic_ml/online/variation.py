"""How much gradients change from round to round, which is what the universal regret depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from classic_ml.online.losses import Losses

Gradient = Callable[[Float[np.ndarray, " d"]], Any]


def gradient_variation(gradient_t: Gradient, gradient_before: Gradient, points: Any) -> float:
    """The largest |grad f_t(x) - grad f_{t-1}(x)|^2 over rows of `points` [n d]: the theory's supremum from below."""
    rows = np.atleast_2d(np.asarray(points, dtype=float))
    return max(
        float(np.square(np.asarray(gradient_t(x)) - np.asarray(gradient_before(x))).sum()) for x in rows
    )


def sampled_variation(losses: Losses, points: Any) -> float:
    """V_T, the sum over t >= 2 of `gradient_variation`: exact for linear and squared losses, else from below."""

    def at(t: int) -> Gradient:
        return lambda x: losses.gradient(t, x)

    return sum(gradient_variation(at(t), at(t - 1), points) for t in range(1, len(losses)))
