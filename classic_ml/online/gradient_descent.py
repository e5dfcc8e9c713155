"""Online gradient descent, the first baseline (Zinkevich 2003; strongly convex: Hazan et al. 2007), and optimistic."""

from __future__ import annotations

from typing import Literal

import numpy as np

from classic_ml.online.base_learners import GradientLearners
from classic_ml.online.domains import Domain
from classic_ml.online.learner import OneGradientLearner, Vector, check_bound
from interp.core.messages import at_least, one_of


class OnlineGradientDescent(OneGradientLearner):
    """x <- Pi[x - eta_t g].

    Args:
        gradient_bound: G; the steps of "anytime" and "horizon" need it.
        step: "anytime" is D / (G sqrt t), "horizon" D / (G sqrt T), a number a constant step.
        horizon: T, for "horizon".
        strong_convexity: lambda, and the step is 1 / (lambda t) whatever `step` says.
    """

    def __init__(
        self,
        domain: Domain,
        gradient_bound: float,
        *,
        step: Literal["anytime", "horizon"] | float = "anytime",
        horizon: int | None = None,
        strong_convexity: float | None = None,
    ) -> None:
        super().__init__(domain)
        scale = domain.diameter / check_bound(gradient_bound)
        if isinstance(step, str):
            one_of("step", step, ("anytime", "horizon"))
        elif not (np.isfinite(step) and step > 0):
            raise ValueError(f"step = {step} must be positive, 'anytime' or 'horizon'")
        if strong_convexity is not None:
            if not (np.isfinite(strong_convexity) and strong_convexity > 0):
                raise ValueError(f"strong_convexity = {strong_convexity} must be a positive number")
            self._first, self._power = 1 / strong_convexity, 1.0
        elif step == "anytime":
            self._first, self._power = scale, 0.5
        elif step == "horizon":
            if horizon is None:
                raise ValueError("step='horizon' needs the number of rounds: give horizon")
            at_least("horizon", horizon, 1)
            self._first, self._power = scale / horizon**0.5, 0.0
        else:
            self._first, self._power = float(step), 0.0
        self._round = 0
        self._x: Vector = domain.center.copy()

    def _decide(self) -> Vector:
        return self._x

    def _learn(self, gradient: Vector, played: Vector) -> None:
        self._round += 1
        self._x = self.domain.project(played - self._first / self._round**self._power * gradient)


class OptimisticOGD(OneGradientLearner):
    """The universal method's convex learner alone: hint g_{t-1}, step D / sqrt(1 + sum of |g_s - g_{s-1}|^2)."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(domain)
        self._learner = GradientLearners(domain, np.empty(0), 1.0)
        self._hint = np.zeros(domain.dim)

    def _decide(self) -> Vector:
        return self._learner.decide(self._hint)[0]

    def _learn(self, gradient: Vector, played: Vector) -> None:
        self._learner.learn(gradient, played)
        self._hint = gradient
