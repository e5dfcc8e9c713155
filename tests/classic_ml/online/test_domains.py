"""Projections by what characterises them, by brute force over faces, and in closed form."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classic_ml.online import Box, Domain, L2Ball, Simplex

KINDS = st.sampled_from(["ball", "box", "simplex"])


def a_domain(kind: str, d: int, rng: np.random.Generator) -> Domain:
    if kind == "ball":
        return L2Ball(10 ** rng.uniform(-2, 2), d, rng.normal(size=d))
    if kind == "box":
        lower = rng.normal(size=d)
        return Box(lower, lower + 10 ** rng.uniform(-2, 2, d))
    return Simplex(max(d, 2))


def a_metric(d: int, rng: np.random.Generator, spread: float) -> tuple[np.ndarray, np.ndarray]:
    return 10 ** rng.uniform(0, spread + 1e-9, d), np.linalg.qr(rng.normal(size=(d, d)))[0]


@settings(max_examples=80, deadline=None)
@given(KINDS, st.integers(1, 7), st.integers(0, 10**6), st.floats(-3, 4), st.sampled_from([0, 2, 6]))
def test_the_nearest_point_in_any_metric(kind: str, d: int, seed: int, far: float, spread: float) -> None:
    """x is nearest to y exactly if <A (x - y), v - x> >= 0 for all v of the set, least at a linear minimiser."""
    rng = np.random.default_rng(seed)
    X = a_domain(kind, d, rng)
    y = X.center + 10**far * X.diameter * rng.normal(size=X.dim)
    a, Q = a_metric(X.dim, rng, spread)
    x = X.project_metric(y, a, Q)
    assert X.contains(x, 1e-12)
    slope = Q @ (a * (Q.T @ (x - y)))
    size = a.max() * (np.abs(x).max() + np.abs(y).max()) * X.diameter
    assert slope @ (x - X.linear_minimizer(slope)) <= 1e-12 * size
    # In the identity's metric it is the Euclidean projection.
    np.testing.assert_allclose(
        X.project_metric(y, np.ones(X.dim), Q), X.project(y), atol=1e-12 * (1 + np.abs(y).max())
    )


@settings(max_examples=60, deadline=None)
@given(KINDS, st.integers(1, 6), st.integers(0, 10**6), st.floats(-3, 4))
def test_the_nearest_point(kind: str, d: int, seed: int, far: float) -> None:
    rng = np.random.default_rng(seed)
    X = a_domain(kind, d, rng)
    y = X.center + 10**far * X.diameter * rng.normal(size=(4, X.dim))
    x = X.project(y)
    for point, target in zip(x, y, strict=True):
        assert X.contains(point, 1e-12)
        slope = point - target
        size = (np.abs(point).max() + np.abs(target).max()) * X.diameter
        assert slope @ (point - X.linear_minimizer(slope)) <= 1e-12 * size
        np.testing.assert_array_equal(X.project(target), point)  # one row or many
        np.testing.assert_allclose(X.project(point), point, atol=1e-13 * (1 + np.abs(point).max()))


@pytest.mark.parametrize("kind", ["ball", "box", "simplex"])
def test_rows_have_their_own_metrics(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = a_domain(kind, 3, rng)
    _, Q = a_metric(3, rng, 0)
    a = 10 ** rng.uniform(0, 3, (5, 3))
    y = X.center + X.diameter * rng.normal(size=(5, 3))
    together = X.project_metric(y, a, Q)
    for i in range(5):
        np.testing.assert_array_equal(together[i], X.project_metric(y[i], a[i], Q))
    assert np.ptp(np.linalg.norm(together - X.project(y), axis=1)) > 0.01 * X.diameter


def least_on_faces(
    y: np.ndarray, A: np.ndarray, lower: np.ndarray, upper: np.ndarray, keep_sum: bool
) -> np.ndarray:
    """Every face of the set, its stationary point by a linear system, the feasible one of least distance."""
    d, best = len(y), (np.inf, y)
    for where in product((0, -1, 1), repeat=d):
        free, x = np.array([w == 0 for w in where]), np.where(np.array(where) < 0, lower, upper)
        if not np.isfinite(x[~free]).all():
            continue
        n, fixed = int(free.sum()), np.where(free, 0.0, x)
        right = (A @ (y - fixed))[free]
        matrix = A[np.ix_(free, free)]
        if keep_sum:
            matrix = np.block([[matrix, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
            right = np.append(right, 1 - fixed.sum())
        if n:
            x = np.where(free, 0.0, x)
            x[free] = np.linalg.solve(matrix, right)[:n]
        inside = (x >= lower - 1e-12).all() and (x <= upper + 1e-12).all()
        if inside and (not keep_sum or abs(x.sum() - 1) < 1e-12) and (x - y) @ A @ (x - y) < best[0]:
            best = ((x - y) @ A @ (x - y), x)
    return best[1]


@pytest.mark.parametrize("seed", range(12))
def test_against_all_faces(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = 2 + seed % 3
    # Small integers, so that many points lie on faces, edges and corners exactly.
    B = rng.integers(-2, 3, (d, d))
    A = (B @ B.T + np.eye(d)).astype(float)
    a, Q = np.linalg.eigh(A)
    y = rng.integers(-3, 5, d).astype(float)
    box, simplex = Box(np.zeros(d), np.full(d, 2.0)), Simplex(d)
    expected = least_on_faces(y, A, box.lower, box.upper, False)
    np.testing.assert_allclose(box.project_metric(y, a, Q), expected, atol=1e-10)
    expected = least_on_faces(y, A, np.zeros(d), np.full(d, np.inf), True)
    np.testing.assert_allclose(simplex.project_metric(y, a, Q), expected, atol=1e-10)


def test_known_projections() -> None:
    ball = L2Ball(2.0, 2, [1.0, 0.0])
    np.testing.assert_allclose(
        ball.project(np.array([[5.0, 0.0], [1.0, -8.0], [1.5, 0.5]])), [[3, 0], [1, -2], [1.5, 0.5]]
    )
    box = Box([0, 0], [1, 2])
    np.testing.assert_array_equal(box.project(np.array([-1.0, 5.0])), [0, 2])
    simplex = Simplex(3)
    np.testing.assert_allclose(simplex.project(np.array([0.0, 0.0, 9.0])), [0, 0, 1])
    np.testing.assert_allclose(simplex.project(np.array([0.5, 0.5, -1.0])), [0.5, 0.5, 0])
    np.testing.assert_allclose(simplex.project(np.array([1.0, 1.0, 1.0])), np.full(3, 1 / 3))
    # In the metric diag(1, 4) the nearest point of the unit ball to (2, 2): x = a y / (a + nu).
    x = L2Ball(1.0, 2).project_metric(np.array([2.0, 2.0]), np.array([1.0, 4.0]), np.eye(2))
    nu = 2 / x[0] - 1
    assert 8 / (4 + nu) == pytest.approx(x[1], rel=1e-12)
    assert np.linalg.norm(x) == pytest.approx(1, rel=1e-14)


def test_facts() -> None:
    ball, box, simplex = L2Ball(2.0, 3), Box([0, 0], [3, 4]), Simplex(4)
    assert (ball.diameter, box.diameter, simplex.diameter) == (4, 5, 2**0.5)
    assert (ball.dim, box.dim, simplex.dim) == (3, 2, 4)
    np.testing.assert_array_equal(box.center, [1.5, 2])
    np.testing.assert_array_equal(simplex.center, np.full(4, 0.25))
    for X in (ball, box, simplex):
        assert X.contains(X.center)
        assert not X.contains(X.center + X.diameter)
    assert ball.contains(np.array([2 + 3e-9, 0, 0]))
    assert not ball.contains(np.array([2 + 3e-9, 0, 0]), tol=1e-12)
    assert not simplex.contains(np.array([0.5, 0.6, 0, -0.1]))
    assert not simplex.contains(np.full(4, 0.3))


def test_linear_minimisers() -> None:
    c = np.array([3.0, -4.0])
    np.testing.assert_allclose(L2Ball(2.0, 2, [1, 1]).linear_minimizer(c), [1 - 1.2, 1 + 1.6])
    np.testing.assert_array_equal(L2Ball(2.0, 2, [1, 1]).linear_minimizer(np.zeros(2)), [1, 1])
    np.testing.assert_array_equal(Box([0, 0], [1, 2]).linear_minimizer(c), [0, 2])
    np.testing.assert_array_equal(Box([0, 0], [1, 2]).linear_minimizer(np.array([0.0, 1.0])), [0.5, 0])
    np.testing.assert_array_equal(Simplex(3).linear_minimizer(np.array([1.0, -1.0, -1.0])), [0, 0.5, 0.5])


def test_what_is_refused() -> None:
    for radius in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"radius = .* must be a positive number"):
            L2Ball(radius, 2)
    with pytest.raises(ValueError, match="dim = 0 must be at least 1"):
        L2Ball(1.0, 0)
    with pytest.raises(ValueError, match="center has 3 coordinates and dim = 2"):
        L2Ball(1.0, 2, [0, 0, 0])
    with pytest.raises(ValueError, match=r"lower = 1.0 must be below upper = 1.0 in coordinate 1"):
        Box([0, 1], [1, 1])
    with pytest.raises(ValueError, match="lower has 1 coordinates and upper 2"):
        Box([0], [1, 1])
    with pytest.raises(ValueError, match=r"upper = .* must be a vector of finite numbers"):
        Box([0, 0], [1, np.inf])
    with pytest.raises(ValueError, match="dim = 1 must be at least 2"):
        Simplex(1)
    with pytest.raises(TypeError, match="give an integer"):
        Simplex(2.0)  # type: ignore[arg-type]
