"""USC, the universal strategy that shows the true losses to its learners (Zhang, Wang, Yi, Yang 2022)."""

from __future__ import annotations

import numpy as np

from classic_ml.online.adapt_ml_prod import OptimisticAdaptMLProd
from classic_ml.online.domains import Domain
from classic_ml.online.gradient_descent import OnlineGradientDescent
from classic_ml.online.learner import (
    OneGradientLearner,
    OnlineLearner,
    Oracle,
    Vector,
    check_bound,
    check_gradient,
)
from classic_ml.online.newton_step import OnlineNewtonStep
from classic_ml.online.universal import curvature_pool


class USC(OnlineLearner):
    """One gradient at every learner's own decision and one at the played point: 2 K + 2 a round.

    The learners are gradient descent with step 1/(lambda t), online Newton steps, and D/(G sqrt t); the weights are
    Adapt-ML-Prod's (in the exponential form of `OptimisticAdaptMLProd`, without optimism) on <g_t, x_{t,i}>.
    """

    def __init__(self, domain: Domain, horizon: int, gradient_bound: float) -> None:
        super().__init__(domain)
        pool, bound = curvature_pool(horizon), check_bound(gradient_bound)
        self.learners: list[OneGradientLearner] = [
            *(OnlineGradientDescent(domain, bound, strong_convexity=float(c)) for c in pool),
            *(OnlineNewtonStep(domain, bound, float(c)) for c in pool),
            OnlineGradientDescent(domain, bound),
        ]
        self._meta = OptimisticAdaptMLProd(len(self.learners), 2 * bound * domain.diameter)
        self._decisions = np.empty((len(self.learners), domain.dim))
        self._no_hint = np.zeros(domain.dim)

    def _decide(self) -> Vector:
        self._decisions = np.array([learner.predict() for learner in self.learners])
        return self._meta.play(self._decisions, self._no_hint, optimistic=False)[1]

    def observe(self, oracle: Oracle) -> None:
        played = self._in_play()
        gradient = check_gradient(oracle(played.copy()), self.domain.dim)
        self._meta.update(self._decisions, gradient, played)
        for learner in self.learners:
            learner.observe(oracle)
        self._played = None
