"""The baselines by their formulas and by their regret bounds."""

from __future__ import annotations

import numpy as np
import pytest

from classic_ml.online import (
    USC,
    L2Ball,
    LinearLosses,
    LogisticLosses,
    MetaGrad,
    OnlineGradientDescent,
    OnlineNewtonStep,
    OptimisticOGD,
    Simplex,
    SquaredLosses,
    UniversalOnlineLearner,
    curvature_pool,
    run_online,
)
from classic_ml.online.learner import OneGradientLearner
from tests.classic_ml.online.reference import project_ball, project_ball_metric

BALL = L2Ball(1.0, 3)
ZERO = np.zeros(3)


def unit_rows(seed: int, n: int) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, 3))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def trajectory(learner: OneGradientLearner, g: np.ndarray) -> np.ndarray:
    played = []
    for row in g:
        played.append(learner.predict())
        learner.update(row)
    return np.array(played)


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({}, lambda t: 2 / (1.5 * t**0.5)),
        ({"step": "horizon", "horizon": 40}, lambda t: 2 / (1.5 * 40**0.5)),
        ({"step": 0.3}, lambda t: 0.3),
        ({"strong_convexity": 0.5}, lambda t: 2 / t),
    ],
)
def test_gradient_descent(options: dict, step) -> None:
    g = unit_rows(0, 40)
    played = trajectory(OnlineGradientDescent(BALL, 1.5, **options), g)
    x = ZERO
    for t in range(40):
        np.testing.assert_allclose(played[t], x, atol=1e-12)
        x = project_ball(x - step(t + 1) * g[t], ZERO, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_descents_bounds(seed: int) -> None:
    """3/2 G D sqrt T; G^2 / (2 lambda) (1 + ln T) for strongly convex losses."""
    linear = LinearLosses(unit_rows(seed, 400))
    assert run_online(OnlineGradientDescent(BALL, 1.0), linear).regret <= 1.5 * 2 * 400**0.5
    fixed = OnlineGradientDescent(BALL, 1.0, step="horizon", horizon=400)
    assert run_online(fixed, linear).regret <= 2 * 400**0.5
    squared = SquaredLosses(0.5 * unit_rows(seed, 400))
    strong = OnlineGradientDescent(BALL, 1.5, strong_convexity=1.0)
    assert run_online(strong, squared).regret <= 1.5**2 / 2 * (1 + np.log(400))


def test_optimistic_descent_is_the_universal_learners_convex_one() -> None:
    g = unit_rows(1, 30)
    played = trajectory(OptimisticOGD(BALL), g)
    universal = UniversalOnlineLearner(BALL, 30, 1.0)
    for t in range(30):
        universal.predict()
        np.testing.assert_array_equal(universal.base_decisions_[-1], played[t])
        universal.update(g[t])


def test_optimistic_descent_pays_once_for_a_constant_gradient() -> None:
    losses = LinearLosses(np.tile([1.0, 0.0, 0.0], (500, 1)))
    assert run_online(OptimisticOGD(BALL), losses).regret == pytest.approx(1.0)  # the first round's


def test_newton_step() -> None:
    g, bound, alpha = unit_rows(2, 25), 1.2, 0.05
    played = trajectory(OnlineNewtonStep(BALL, bound, alpha), g)
    gamma = 0.5 * min(1 / (4 * bound * 2), alpha)
    A, x = np.eye(3) / (gamma * 2) ** 2, ZERO
    for t in range(25):
        np.testing.assert_allclose(played[t], x, atol=1e-9)
        A += np.outer(g[t], g[t])
        x = project_ball_metric(x - np.linalg.solve(A, g[t]) / gamma, A, ZERO, 1.0)


def logistic(n: int) -> LogisticLosses:
    rows = unit_rows(3, n)
    noise = np.random.default_rng(4).logistic(size=n)
    return LogisticLosses(rows, np.where(rows @ [1.0, -2.0, 0.5] + noise > 0, 1, -1))


def test_newton_steps_bound() -> None:
    """5 (1/alpha + G D) d ln T on alpha-exp-concave losses; the logistic one is exp(-1)-exp-concave on this ball."""
    alpha, T = np.exp(-1), 500
    result = run_online(OnlineNewtonStep(BALL, 1.0, alpha), logistic(T))
    assert result.regret <= 5 * (1 / alpha + 2) * 3 * np.log(T)
    assert result.comparator_gap < 1e-3


def test_metagrad() -> None:
    g, T, bound = unit_rows(5, 30), 30, 1.3
    learner = MetaGrad(BALL, T, bound)
    etas = [2.0**-k / (5 * bound * 2) for k in range(4)]  # ceil(log2(30) / 2) = 3
    np.testing.assert_allclose(learner.rates, etas)
    logs = [-np.log((k + 1) * (k + 2)) for k in range(4)]
    xs, S = [ZERO] * 4, np.zeros((3, 3))
    for t in range(T):
        tilted = np.array([np.exp(w) * eta for w, eta in zip(logs, etas, strict=True)])
        played = learner.predict()
        np.testing.assert_allclose(played, tilted @ np.array(xs) / tilted.sum(), atol=1e-9)
        learner.update(g[t])
        S += np.outer(g[t], g[t])
        for k, eta in enumerate(etas):
            ahead = g[t] @ (played - xs[k])
            logs[k] -= -eta * ahead + (eta * ahead) ** 2
            slope = eta * (1 - 2 * eta * ahead) * g[t]
            A = np.eye(3) / 4 + 2 * eta**2 * S
            xs[k] = project_ball_metric(xs[k] - np.linalg.solve(A, slope), A, ZERO, 1.0)


def test_metagrad_with_one_round() -> None:
    learner = MetaGrad(Simplex(3), 1, 1.0)
    np.testing.assert_allclose(learner.rates, [1 / (5 * 2**0.5)])
    np.testing.assert_allclose(learner.predict(), np.full(3, 1 / 3))


def test_usc_shows_the_true_losses_to_its_learners() -> None:
    T = 12
    losses = SquaredLosses(0.5 * unit_rows(6, T))
    learner = USC(BALL, T, 1.5)
    result = run_online(learner, losses)
    pool = curvature_pool(T)
    assert len(learner.learners) == 2 * len(pool) + 1
    assert result.n_gradients == T * (2 * len(pool) + 2)
    # Its learners are the baselines, each run on the losses alone.
    alone = [
        *(OnlineGradientDescent(BALL, 1.5, strong_convexity=c) for c in pool),
        *(OnlineNewtonStep(BALL, 1.5, c) for c in pool),
        OnlineGradientDescent(BALL, 1.5),
    ]
    for inside, outside in zip(learner.learners, alone, strict=True):
        last = run_online(outside, losses).decisions[-1]
        assert not np.array_equal(last, ZERO)
        np.testing.assert_array_equal(inside.predict(), outside.predict())


def test_usc_refuses_an_update_without_a_prediction() -> None:
    with pytest.raises(RuntimeError, match="no point in play"):
        USC(BALL, 5, 1.0).observe(lambda x: x)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="step = 'fast' is not known"):
        OnlineGradientDescent(BALL, 1.0, step="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"step = -1.0 must be positive"):
        OnlineGradientDescent(BALL, 1.0, step=-1.0)
    with pytest.raises(ValueError, match="step='horizon' needs the number of rounds"):
        OnlineGradientDescent(BALL, 1.0, step="horizon")
    with pytest.raises(ValueError, match="strong_convexity = 0 must be a positive number"):
        OnlineGradientDescent(BALL, 1.0, strong_convexity=0)
    with pytest.raises(ValueError, match="exp_concavity = -1 must be a positive number"):
        OnlineNewtonStep(BALL, 1.0, -1)
    for make in (
        lambda: OnlineGradientDescent(BALL, 0),
        lambda: OnlineNewtonStep(BALL, 0, 1),
        lambda: MetaGrad(BALL, 4, 0),
        lambda: USC(BALL, 4, 0),
    ):
        with pytest.raises(ValueError, match="gradient_bound = 0 must be positive"):
            make()
    for make in (lambda: MetaGrad(BALL, 0, 1), lambda: USC(BALL, 0, 1)):
        with pytest.raises(ValueError, match="horizon = 0 must be at least 1"):
            make()
