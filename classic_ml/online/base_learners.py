"""The base learners of the universal method, each kind in one array: optimistic mirror descent in closed form."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.linalg.lapack import dsyevd

from classic_ml.online.domains import Domain

Vector = Float[np.ndarray, " d"]
Rows = Float[np.ndarray, "k d"]


class GradientLearners:
    """Optimistic gradient descent: a row for each guess of strong convexity, and last the convex learner.

    Row i < k steps by sc_step / (lambda_i t), which suits surrogates of strong convexity lambda_i / 2; the convex one
    by D / sqrt(1 + the sum so far of |g - hint|^2). `decide` and `learn` of a round take the same step sizes.
    """

    def __init__(self, domain: Domain, curvatures: Float[np.ndarray, " k"], sc_step: float) -> None:
        self._domain = domain
        self._half_curvatures = np.append(curvatures / 2, 0.0)
        self._first_steps = np.append(sc_step / curvatures, 0.0)
        self._steps = self._first_steps
        self._round, self._variation = 0, 0.0
        self._anchors: Rows = np.tile(domain.center, (len(curvatures) + 1, 1))
        self._hint = np.zeros(domain.dim)
        self.decisions: Rows = self._anchors

    def decide(self, hint: Vector) -> Rows:
        """Decisions (k + 1, d) of the round, from `hint`, the gradient that is expected."""
        self._round += 1
        self._steps = self._first_steps / self._round
        self._steps[-1] = self._domain.diameter / (1 + self._variation) ** 0.5
        self._hint = hint
        self.decisions = self._domain.project(self._anchors - self._steps[:, None] * hint)
        return self.decisions

    def learn(self, gradient: Vector, played: Vector) -> None:
        """From g at the played point: surrogate <g, x> + (lambda/4) |x - played|^2, the convex one's <g, x>."""
        from classic_ml.online.loops import gradient_points

        points = gradient_points(
            self._anchors, self.decisions, self._half_curvatures, self._steps, gradient, played
        )
        self._anchors = self._domain.project(points)
        away = gradient - self._hint
        self._variation += float(away @ away)


class NewtonLearners:
    """Optimistic online Newton steps: a row for each guess alpha_i of exp-concavity.

    A_i = (1 + identity alpha_i G^2) I + weight alpha_i S, S the sum of g g' of all rounds before: the same eigenvectors
    for all, one eigendecomposition a round.
    """

    def __init__(
        self,
        domain: Domain,
        curvatures: Float[np.ndarray, " k"],
        gradient_bound: float,
        identity: float,
        weight: float,
    ) -> None:
        self._domain, self._half_curvatures = domain, curvatures / 2
        self._plain = np.ones(len(curvatures))
        self._ridge = (1 + identity * curvatures * gradient_bound**2)[:, None]
        self._weight = weight * curvatures[:, None]
        self._outer = np.zeros((domain.dim, domain.dim))
        self._eigvecs = np.eye(domain.dim, order="F")
        self._eigvals = np.tile(self._ridge, domain.dim)
        self._anchors: Rows = np.tile(domain.center, (len(curvatures), 1))
        self.decisions: Rows = self._anchors

    def decide(self, hint: Vector) -> Rows:
        """Decisions (k, d) of the round, from `hint`, the gradient that is expected."""
        # The same as numpy.linalg.eigh, which takes longer than all of a round's other steps for a small d.
        spectrum, self._eigvecs, failed = dsyevd(self._outer)
        if failed:
            raise np.linalg.LinAlgError("the gradients' outer products have no eigendecomposition")
        self._eigvals = self._ridge + self._weight * spectrum
        self.decisions = self._step(hint, self._plain)
        return self.decisions

    def learn(self, gradient: Vector, played: Vector) -> None:
        """From g at the played point: surrogate <g, x> + (alpha/4) <g, x - played>^2."""
        from classic_ml.online.loops import newton_scales

        scales = newton_scales(self.decisions, self._half_curvatures, gradient, played, self._outer)
        self._anchors = self._step(gradient, scales)

    def _step(self, gradient: Vector, scales: Float[np.ndarray, " k"]) -> Rows:
        from classic_ml.online.loops import newton_points

        points = newton_points(self._anchors, self._eigvals, self._eigvecs, gradient, scales)
        return self._domain.project_metric(points, self._eigvals, self._eigvecs)
