"""The method's experiments: regret without variation, under stochastic and adversarial losses, and misspecified.

Expected figures are those of an independent prototype; scripts/reproduce has all their seeds and sizes. (P) is
asserted every round and (R) at the end of each run.
"""

from __future__ import annotations

import numpy as np
import pytest

from classic_ml.online import (
    L2Ball,
    LinearLosses,
    Losses,
    OnlineGradientDescent,
    SquaredLosses,
    UniversalOnlineLearner,
    run_online,
)

BALL = L2Ball(1.0, 5)
SLACK = 1e-6


class Watched(UniversalOnlineLearner):
    """Asserts (P) after every round."""

    def _learn(self, gradient: np.ndarray, played: np.ndarray) -> None:
        super()._learn(gradient, played)
        assert self.meta.potential_growth() <= SLACK


def universal_regret(losses: Losses, bound: float) -> float:
    learner = Watched(BALL, len(losses), bound)
    result = run_online(learner, losses)
    assert (learner.meta_regret() <= learner.meta_regret_bound() + SLACK).all()
    assert result.n_gradients == len(losses)
    return result.regret


def descent_regret(losses: Losses, bound: float, **options) -> float:
    return run_online(OnlineGradientDescent(BALL, bound, **options), losses).regret


def test_without_variation_regret_does_not_grow() -> None:
    for T, expected in ((250, 4.46), (4000, 16.32)):
        losses = LinearLosses(np.tile(np.eye(5)[0], (T, 1)))
        ours = universal_regret(losses, 1.0)
        assert ours <= 1.5
        assert ours >= 1.0  # the first decision is the centre, whatever follows
        tuned = descent_regret(losses, 1.0, step="horizon", horizon=T)
        assert tuned == pytest.approx(expected, abs=0.005)
    assert tuned / ours >= 10


def stochastic(seed: int, T: int) -> SquaredLosses:
    return SquaredLosses(BALL.project(0.5 * np.random.default_rng(seed).normal(size=(T, 5))))


def test_strongly_convex_losses_flatten() -> None:
    ours, descent = (
        {T: regret(stochastic(0, T), 2.0) for T in (1000, 4000)}
        for regret in (universal_regret, descent_regret)
    )
    assert ours[4000] / ours[1000] <= 1.5
    assert descent[4000] / descent[1000] >= 1.6


def adversarial(seed: int, T: int) -> LinearLosses:
    c = np.random.default_rng(seed).normal(size=(T, 5))
    return LinearLosses(c / np.linalg.norm(c, axis=1, keepdims=True))


def test_adversarial_losses_cost_a_root() -> None:
    ours = {T: np.mean([universal_regret(adversarial(s, T), 1.0) for s in range(3)]) for T in (1000, 4000)}
    descent = np.mean([descent_regret(adversarial(s, 4000), 1.0) for s in range(3)])
    wrong = np.mean([descent_regret(adversarial(s, 4000), 1.0, strong_convexity=1.0) for s in range(3)])
    assert 1.4 <= ours[4000] / ours[1000] <= 2.6
    assert descent / 1.5 <= ours[4000] <= 1.5 * descent
    assert wrong > max(ours[4000], descent)


def test_a_wrong_guess_of_the_curvature_does_not_matter() -> None:
    T = 1000
    angle = 2 * np.pi * np.arange(1, T + 1) / T
    costs = np.zeros((T, 5))
    costs[:, 0], costs[:, 1] = np.cos(angle), np.sin(angle)
    losses = LinearLosses(costs)
    ours, descent = universal_regret(losses, 1.0), descent_regret(losses, 1.0)
    assert ours == pytest.approx(-994.6, abs=0.05)
    assert descent == pytest.approx(-996.2, abs=0.05)
    assert abs(ours - descent) <= 5
    wrong = descent_regret(losses, 1.0, strong_convexity=1.0)
    assert wrong == pytest.approx(-53.8, abs=0.05)
    assert wrong - ours > 900
