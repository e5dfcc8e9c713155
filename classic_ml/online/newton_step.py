"""The online Newton step for exp-concave losses (Hazan, Agarwal, Kale 2007)."""

from __future__ import annotations

import numpy as np

from classic_ml.online.domains import Domain
from classic_ml.online.learner import OneGradientLearner, Vector, check_bound


class OnlineNewtonStep(OneGradientLearner):
    """x <- Pi^A[x - A^-1 g / gamma], gamma = min(1/(4GD), alpha) / 2, A = I / (gamma D)^2 + sum of g g'.

    A of a round holds its own gradient.

    Args:
        exp_concavity: alpha.
    """

    def __init__(self, domain: Domain, gradient_bound: float, exp_concavity: float) -> None:
        super().__init__(domain)
        if not (np.isfinite(exp_concavity) and exp_concavity > 0):
            raise ValueError(f"exp_concavity = {exp_concavity} must be a positive number")
        largest = 1 / (4 * check_bound(gradient_bound) * domain.diameter)
        self._gamma = min(largest, exp_concavity) / 2
        self._A = np.eye(domain.dim) / (self._gamma * domain.diameter) ** 2
        self._x: Vector = domain.center.copy()

    def _decide(self) -> Vector:
        return self._x

    def _learn(self, gradient: Vector, played: Vector) -> None:
        self._A += np.outer(gradient, gradient)
        eigvals, eigvecs = np.linalg.eigh(self._A)
        step = eigvecs @ ((eigvecs.T @ gradient) / eigvals) / self._gamma
        self._x = self.domain.project_metric(played - step, eigvals, eigvecs)
