"""MetaGrad, the first universal method: Newton steps at a grid of learning rates (van Erven and Koolen 2016)."""

from __future__ import annotations

import math

import numpy as np

from classic_ml.online.domains import Domain
from classic_ml.online.learner import OneGradientLearner, Vector, check_bound
from interp.core.messages import at_least


class MetaGrad(OneGradientLearner):
    """Learners of rates eta_k = 2^-k / (5GD), k = 0 ... ceil(log2(T) / 2), each on its own quadratic surrogate
    -eta <g_t, x_t - x> + eta^2 <g_t, x_t - x>^2; plays the mean weighted by pi_k eta_k exp(-its surrogates' sum), with
    the prior pi_k ~ 1 / ((k + 1)(k + 2)).
    """

    def __init__(self, domain: Domain, horizon: int, gradient_bound: float) -> None:
        super().__init__(domain)
        at_least("horizon", horizon, 1)
        k = np.arange(math.ceil(math.log2(horizon) / 2) + 1)
        self.rates = 2.0**-k / (5 * check_bound(gradient_bound) * domain.diameter)
        self._log_weights = -np.log((k + 1.0) * (k + 2.0))
        self._outer = np.zeros((domain.dim, domain.dim))
        self._x = np.tile(domain.center, (len(k), 1))

    def _decide(self) -> Vector:
        logits = self._log_weights + np.log(self.rates)
        tilted = np.exp(logits - logits.max())
        return tilted @ self._x / tilted.sum()

    def _learn(self, gradient: Vector, played: Vector) -> None:
        ahead = self.rates * ((self._x - played) @ gradient)
        self._log_weights -= ahead + ahead**2
        self._outer += np.outer(gradient, gradient)
        spectrum, eigvecs = np.linalg.eigh(self._outer)
        eigvals = 1 / self.domain.diameter**2 + 2 * self.rates[:, None] ** 2 * spectrum
        slopes = (self.rates * (1 + 2 * ahead))[:, None] * gradient
        steps = (slopes @ eigvecs) / eigvals @ eigvecs.T
        self._x = self.domain.project_metric(self._x - steps, eigvals, eigvecs)
