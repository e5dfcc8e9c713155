"""The base learners' regret bounds, proven for every sequence, and their surrogates by finite differences.

With h the surrogate, M the hint and u any point of the domain, optimistic mirror descent with the steps and matrices
of the method satisfies (each follows by telescoping)

    convex           sum <g, x - u>       <=  sum eta_t |g - M|^2 + D^2 / (2 eta_T)
    strongly convex  sum h(x) - h(u)      <=  sum eta_t |h'(x) - M|^2 + lambda D^2 / 4
    exp-concave      sum h(x) - h(u)      <=  sum |h'(x) - M|^2 in A_t^-1 + (1 + 4 alpha G^2) D^2 / 2

The second uses that the step 4 / (lambda t) fits a strong convexity of lambda / 2, the third that the identity's weight
covers 2 (alpha / 4) G^2 and that A_t does not hold g_t yet.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from classic_ml.online import L2Ball
from classic_ml.online.base_learners import GradientLearners, NewtonLearners

D, G, T, DIM = 2.0, 1.5, 300, 3
BALL = L2Ball(D / 2, DIM)
CURVATURES = np.array([0.01, 0.2, 1.0])


def gradients(kind: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    g = rng.normal(size=(T, DIM))
    if kind == "drifting":
        g = np.cumsum(0.1 * g, axis=0)
    elif kind == "alternating":
        g = np.where(np.arange(T)[:, None] % 2, 1, -1) * np.array([1.0, 0.2, 0.0])
    return G * g / np.maximum(np.linalg.norm(g, axis=1, keepdims=True), 1)


KINDS = pytest.mark.parametrize("kind", ["independent", "drifting", "alternating"])


def rounds(kind: str) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Hint, gradient, and a played point that is not the learners' own."""
    g = gradients(kind)
    played = BALL.project(np.random.default_rng(8).normal(size=(T, DIM)))
    for t in range(T):
        yield (g[t - 1] if t else np.zeros(DIM)), g[t], played[t]


def comparators() -> np.ndarray:
    return BALL.project(3 * np.random.default_rng(9).normal(size=(200, DIM)))


@KINDS
def test_gradient_learners(kind: str) -> None:
    learners = GradientLearners(BALL, CURVATURES, 4.0)
    us = comparators()
    surplus, bound, seen = np.zeros((4, len(us))), np.zeros(4), 0.0
    for t, (hint, g, played) in enumerate(rounds(kind), 1):
        x = learners.decide(hint).copy()
        eta = np.append(4 / (CURVATURES * t), D / np.sqrt(1 + seen))
        for i, c in enumerate([*CURVATURES, 0.0]):
            surplus[i] += g @ x[i] + c / 4 * ((x[i] - played) ** 2).sum()
            surplus[i] -= us @ g + c / 4 * ((us - played) ** 2).sum(1)
            slope = g + c / 2 * (x[i] - played)
            bound[i] += eta[i] * ((slope - hint) ** 2).sum()
        learners.learn(g, played)
        seen += ((g - hint) ** 2).sum()
    bound += np.append(CURVATURES * D**2 / 4, D**2 / (2 * eta[-1]))
    assert (surplus.max(1) <= bound + 1e-9).all()


@KINDS
def test_newton_learners(kind: str) -> None:
    learners = NewtonLearners(BALL, CURVATURES, G, 4.0, 0.25)
    us = comparators()
    surplus, bound, outer = np.zeros((3, len(us))), np.zeros(3), np.zeros((DIM, DIM))
    for hint, g, played in rounds(kind):
        x = learners.decide(hint).copy()
        for i, c in enumerate(CURVATURES):
            A = (1 + 4 * c * G**2) * np.eye(DIM) + c / 4 * outer
            surplus[i] += g @ x[i] + c / 4 * (g @ (x[i] - played)) ** 2
            surplus[i] -= us @ g + c / 4 * ((us - played) @ g) ** 2
            off = (1 + c / 2 * (g @ (x[i] - played))) * g - hint
            bound[i] += off @ np.linalg.solve(A, off)
        learners.learn(g, played)
        outer += np.outer(g, g)
    bound += (1 + 4 * CURVATURES * G**2) * D**2 / 2
    assert (surplus.max(1) <= bound + 1e-9).all()


def test_surrogates_are_a_quarter_by_finite_differences() -> None:
    """One round deep inside a large ball, where nothing is projected: the step is the surrogate's gradient."""
    ball, rng = L2Ball(1e6, DIM), np.random.default_rng(1)
    g, played = rng.normal(size=DIM), rng.normal(size=DIM)

    def slope(h, x):
        return np.array([(h(x + e) - h(x - e)) / 2e-4 for e in 1e-4 * np.eye(DIM)])

    by_gradient = GradientLearners(ball, CURVATURES, 4.0)
    start = by_gradient.decide(np.zeros(DIM)).copy()
    by_gradient.learn(g, played)
    by_newton = NewtonLearners(ball, CURVATURES, 2.0, 4.0, 0.25)
    by_newton.decide(np.zeros(DIM))
    by_newton.learn(g, played)
    for i, c in enumerate(CURVATURES):
        expected = slope(lambda x, c=c: g @ x + c / 4 * ((x - played) ** 2).sum(), start[i])
        np.testing.assert_allclose((start - by_gradient._anchors)[i] * c / 4, expected, rtol=1e-6)
        expected = slope(lambda x, c=c: g @ x + c / 4 * (g @ (x - played)) ** 2, start[i])
        np.testing.assert_allclose(-by_newton._anchors[i] * (1 + 4 * c * 4.0), expected, rtol=1e-6)


def test_the_step_of_a_round_is_the_same_before_and_after_its_gradient() -> None:
    """With the hint equal to the surrogate's gradient the learners arrive where they stood in play."""
    rng = np.random.default_rng(2)
    by_gradient, by_newton = (
        GradientLearners(BALL, np.empty(0), 4.0),
        NewtonLearners(BALL, CURVATURES, G, 4.0, 0.25),
    )
    for _ in range(5):
        g = G * rng.uniform(-0.5, 0.5, DIM)
        x = by_gradient.decide(g).copy()
        by_gradient.learn(g, x[0])
        np.testing.assert_allclose(by_gradient._anchors, x)
        y = by_newton.decide(g).copy()
        by_newton.learn(g, y[1])
        np.testing.assert_allclose(by_newton._anchors[1], y[1], atol=1e-12)
