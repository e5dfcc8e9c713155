"""The universal learner: one gradient a round, and the regret of whichever curvature the losses turn out to have."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from classic_ml.online.adapt_ml_prod import OptimisticAdaptMLProd
from classic_ml.online.base_learners import GradientLearners, NewtonLearners
from classic_ml.online.domains import Domain
from classic_ml.online.learner import OneGradientLearner, Vector, Violations, check_bound
from interp.core.messages import at_least, one_of

_SLACK = 1e-9


def curvature_pool(horizon: int) -> Float[np.ndarray, " K"]:
    """Guesses min(1, 2^k / T) of a curvature within [1/T, 1], K = ceil(log2 T) + 1 of them."""
    at_least("horizon", horizon, 1)
    n_guesses = (int(horizon) - 1).bit_length() + 1
    return np.minimum(1.0, 2.0 ** np.arange(n_guesses) / horizon)


class UniversalOnlineLearner(OneGradientLearner):
    """Online convex optimisation without knowing the curvature (Yan, Zhao, Zhou, NeurIPS 2024; one-gradient version).

    2 K + 1 learners (K strongly convex and K exp-concave guesses of `curvature_pool`, one convex) run on surrogates
    made of the one gradient, and optimistic Adapt-ML-Prod weighs them. Its regret is O(log V_T) on strongly convex
    losses, O(d log V_T) on exp-concave and O(sqrt V_T) on convex ones, V_T being the gradients' variation.

        learner = UniversalOnlineLearner(L2Ball(1.0, dim=5), horizon=1000, gradient_bound=2.0)
        for loss in losses:
            x = learner.predict()
            learner.update(loss.gradient(x))

    Args:
        domain: where x_t may lie; box and simplex cost a small quadratic program per exp-concave learner and step.
        horizon: T, the number of rounds; more are refused unless `restart_doubling`.
        gradient_bound: G >= |gradient| everywhere.
        sc_step: c of the strongly convex learners' step c / (lambda t).
        ons_identity, ons_weight: the exp-concave learners' A = (1 + ons_identity alpha G^2) I + ons_weight alpha S.
        meta_cap: the largest learning rate of the weights, at most 1/2 (the guarantee needs rate * |r - m| <= 1/2).
        optimistic: expect the last gradient to come again; False takes the hint 0 instead, in all learners and weights.
        on_violation: a gradient above the bound, or a point outside the domain, raises ValueError or warns once.
        restart_doubling: start anew when the horizon is used up, with one twice as long: for an unknown T.

    Attributes:
        learner_labels_: (kind, curvature) of every learner; the convex one's curvature is None.
        weights_: (N,) of the round last predicted.
        base_decisions_: (N, d) of the round last predicted.
        gradient_variation_: sum of |g_t - g_{t-1}|^2 with g_0 = 0, over all rounds: empirical, not the theory's V_T.
        rounds_: gradients seen.
        meta: the weights' `OptimisticAdaptMLProd`, anew at a restart as labels and weights are.

    Raises:
        ValueError: a horizon below 1, a bound or constant that isn't positive, a cap above 1/2.
    """

    def __init__(
        self,
        domain: Domain,
        horizon: int,
        gradient_bound: float,
        *,
        sc_step: float = 4.0,
        ons_identity: float = 4.0,
        ons_weight: float = 0.25,
        meta_cap: float = 0.25,
        optimistic: bool = True,
        on_violation: Literal["raise", "warn"] = "raise",
        restart_doubling: bool = False,
    ) -> None:
        super().__init__(domain)
        at_least("horizon", horizon, 1)
        one_of("on_violation", on_violation, ("raise", "warn"))
        self.gradient_bound = check_bound(gradient_bound)
        for name, value in (("sc_step", sc_step), ("ons_identity", ons_identity), ("ons_weight", ons_weight)):
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"{name} = {value} must be a positive number")
        if not 0 < meta_cap <= 0.5:
            raise ValueError(
                f"meta_cap = {meta_cap} must lie in (0, 0.5]: else the weights' guarantee is lost"
            )
        self._constants: dict[str, Any] = {
            "sc_step": sc_step,
            "ons_identity": ons_identity,
            "ons_weight": ons_weight,
            "meta_cap": meta_cap,
        }
        self._optimistic, self._restart = optimistic, restart_doubling
        self._violations = Violations(on_violation)
        self._unit = 2 * self.gradient_bound * domain.diameter
        self._last_gradient = np.zeros(domain.dim)
        self.gradient_variation_ = 0.0
        self.rounds_ = 0
        self._start(int(horizon))

    def _start(self, horizon: int) -> None:
        self.horizon, self._round = horizon, 0
        pool, constants = curvature_pool(horizon), self._constants
        self._k = len(pool)
        self._gradient = GradientLearners(self.domain, pool, constants["sc_step"])
        self._newton = NewtonLearners(
            self.domain, pool, self.gradient_bound, constants["ons_identity"], constants["ons_weight"]
        )
        self.learner_labels_: list[tuple[str, float | None]] = [
            *(("strongly_convex", float(c)) for c in pool),
            *(("exp_concave", float(c)) for c in pool),
            ("convex", None),
        ]
        n = len(self.learner_labels_)
        self.meta = OptimisticAdaptMLProd(n, self._unit, constants["meta_cap"])
        self._hint = np.zeros(self.domain.dim)
        self.weights_: Float[np.ndarray, " N"] = np.full(n, 1 / n)
        self.base_decisions_: Float[np.ndarray, "N d"] = np.tile(self.domain.center, (n, 1))

    def _decide(self) -> Vector:
        if self._round == self.horizon:
            if not self._restart:
                raise RuntimeError(
                    f"all {self.horizon} rounds of the horizon are played; give a longer one, or restart_doubling=True"
                )
            self._start(2 * self.horizon)
        hint = self._hint
        by_gradient, by_newton = self._gradient.decide(hint), self._newton.decide(hint)
        self.base_decisions_ = np.concatenate((by_gradient[: self._k], by_newton, by_gradient[self._k :]))
        self.weights_, played = self.meta.play(self.base_decisions_, hint, optimistic=self._optimistic)
        if not self.domain.contains(played, _SLACK):
            self._violations.tell(f"the point in play, {played}, lies outside the domain")
        return played

    def _learn(self, gradient: Vector, played: Vector) -> None:
        norm = float(gradient @ gradient) ** 0.5
        if norm > self.gradient_bound * (1 + _SLACK):
            self._violations.tell(
                f"a gradient of norm {norm:.6g} is above gradient_bound = {self.gradient_bound:g}"
            )
        self.meta.update(self.base_decisions_, gradient, played)
        self._gradient.learn(gradient, played)
        self._newton.learn(gradient, played)
        away = gradient - self._last_gradient
        self.gradient_variation_ += float(away @ away)
        self._last_gradient = gradient
        if self._optimistic:
            self._hint = gradient
        self._round += 1
        self.rounds_ += 1

    def meta_regret(self) -> Float[np.ndarray, " N"]:
        """Sums of <g_t, x_t - x_{t,i}> over the rounds since the last restart."""
        return self._unit * self.meta.regrets()

    def meta_regret_bound(self) -> Float[np.ndarray, " N"]:
        """What `meta_regret` can't exceed, whatever the gradients within the bound are: (R) times 2GD."""
        return self._unit * self.meta.regret_bound()
