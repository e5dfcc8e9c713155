"""The weights: their fixed point, both invariants, and that the invariants notice what must not be done."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from classic_ml.online import OptimisticAdaptMLProd


def random_round(rng: np.random.Generator, n: int, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Decisions in the unit ball and a gradient of norm 1, so that the unit 2 G D is 4."""
    x = rng.normal(size=(n, d))
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    g = rng.normal(size=d)
    return x, g / np.linalg.norm(g)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(3, 30), rounds=st.integers(0, 30))
def test_the_fixed_point_is_one(seed: int, n: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    meta = OptimisticAdaptMLProd(n, 4.0)
    for _ in range(rounds):
        x, g = random_round(rng, n)
        _, point = meta.play(x, g)
        meta.update(x, g, point)
    x, hint = random_round(rng, n)
    values = x @ hint

    def mixture(z: float) -> np.ndarray:
        """All weights at once, by their definition."""
        m = np.zeros(n)
        m[-1] = (z - values[-1]) / 4
        p = meta.rates * np.exp(meta.log_weights + meta.rates * m)
        return p / p.sum()

    weights, point = meta.play(x, hint)
    z = brentq(lambda z: mixture(z) @ values - z, values.min() - 1e-9, values.max() + 1e-9, xtol=1e-15)
    assert point @ hint == pytest.approx(z, abs=1e-11)
    np.testing.assert_allclose(weights, mixture(z), atol=1e-12)
    np.testing.assert_allclose(point, weights @ x, atol=1e-14)
    assert meta.optimism == pytest.approx((point - x[-1]) @ hint / 4, abs=1e-12)
    # One root only: F(z) - z changes its sign once over the whole range.
    grid = np.linspace(values.min(), values.max(), 60)
    signs = np.sign([mixture(v) @ values - v for v in grid[1:-1]])
    assert (np.diff(signs) != 0).sum() <= 1


def test_only_the_last_learner_is_optimistic() -> None:
    rng = np.random.default_rng(0)
    x, hint = random_round(rng, 6)
    plain, eager = OptimisticAdaptMLProd(6, 4.0), OptimisticAdaptMLProd(6, 4.0)
    flat, _ = plain.play(x, hint, optimistic=False)
    tilted, _ = eager.play(x, hint)
    np.testing.assert_allclose(flat, 1 / 6)
    assert plain.optimism == 0
    np.testing.assert_allclose(tilted[:-1], tilted[0], rtol=1e-14)  # the others stay even among themselves
    ratio = tilted[-1] / tilted[0]
    assert np.log(ratio) == pytest.approx(0.25 * eager.optimism, abs=1e-12)
    assert eager.optimism != 0


@pytest.mark.parametrize("optimistic", [True, False])
def test_one_update_is_what_the_formulas_say(optimistic: bool) -> None:
    rng, n = np.random.default_rng(4), 5
    meta = OptimisticAdaptMLProd(n, 4.0)
    log_n = np.log(n)
    w, rates, squares, bound_terms = np.full(n, 1 / n), np.full(n, 0.25), np.zeros(n), np.zeros(n)
    regrets, drops = np.zeros(n), 0.0
    for _ in range(60):
        x, g = random_round(rng, n)
        hint = g + 0.1 * rng.normal(size=3)
        p, point = meta.play(x, hint, optimistic=optimistic)
        m = np.append(np.zeros(n - 1), meta.optimism)
        expected = rates * w * np.exp(rates * m)
        np.testing.assert_allclose(p, expected / expected.sum(), rtol=1e-10)
        meta.update(x, g, point)
        r = (point - x) @ g / 4
        assert p @ r == pytest.approx(0, abs=1e-15)
        before_power = w * np.exp(rates * r - rates**2 * (r - m) ** 2)
        assert meta.potential_growth() == pytest.approx(np.log(before_power.sum() / w.sum()), abs=1e-12)
        assert meta.potential_growth() <= 1e-15
        squares += (r - m) ** 2
        bound_terms += rates * (r - m) ** 2
        regrets += r
        new = np.minimum(0.25, np.sqrt(log_n / (1 + squares)))
        w, drops, rates = before_power ** (new / rates), drops + (rates / new - 1).sum(), new
        np.testing.assert_allclose(np.exp(meta.log_weights), w, rtol=1e-9)
        np.testing.assert_allclose(meta.rates, rates, rtol=1e-12)
    np.testing.assert_allclose(meta.regrets(), regrets, atol=1e-12)
    right = log_n / 0.25 + bound_terms + np.log(1 + drops / np.e) / rates
    np.testing.assert_allclose(meta.regret_bound(), right, rtol=1e-10)
    assert (regrets <= right).all()


def test_rates_fall_after_large_regrets_and_the_bound_still_holds() -> None:
    meta, n = OptimisticAdaptMLProd(4, 4.0), 4
    x = np.array([[1.0], [-1.0], [0.0], [1.0]])
    for t in range(4000):
        _, point = meta.play(x, np.zeros(1))
        meta.update(x, np.array([1.0 if t % 2 else -1.0]), point)
    assert (meta.rates[:2] < 0.25).all()
    assert (meta.regrets() <= meta.regret_bound()).all()
    np.testing.assert_allclose(meta.rates[1], np.sqrt(np.log(n) / (1 + meta._sums[1, 1])))


@pytest.mark.parametrize("low", [[0], [1, 2], [3], [0, 1, 2], [0, 1, 2, 3]])
def test_weights_that_underflow_stay_right(low: list[int]) -> None:
    meta = OptimisticAdaptMLProd(4, 4.0)
    meta.log_weights[low] = -3000.0  # exp is 0
    x, hint = np.array([[1.0], [-1.0], [-0.5], [0.5]]), np.array([1.0])
    p, point = meta.play(x, hint)
    kept = [i for i in range(4) if i not in low] or [0, 1, 2, 3]
    assert p.sum() == pytest.approx(1)
    assert p[kept].sum() == pytest.approx(1)
    z = point[0]
    shares = np.exp(0.25 * np.array([0, 0, 0, (z - 0.5) / 4]))[kept]
    np.testing.assert_allclose(p[kept], shares / shares.sum(), atol=1e-11)
    meta.update(x, hint, point)
    assert np.isfinite(meta.log_weights).all()
    assert meta.potential_growth() <= 1e-9  # of logs of size 3000


@pytest.mark.parametrize(
    ("weights_played", "breaks"), [("the rates' and w", False), ("w alone", True), ("even", True)]
)
def test_other_weights_than_those_of_the_proof_break_the_potential(weights_played: str, breaks: bool) -> None:
    meta = OptimisticAdaptMLProd(3, 4.0)
    meta.rates[:] = [0.25, 0.05, 0.05]
    meta.log_weights[:] = np.log([0.2, 0.5, 0.3])
    x, g = np.array([[0.1], [-0.1], [-0.1]]), np.array([-1.0])
    p, _ = meta.play(x, np.zeros(1))
    np.testing.assert_allclose(p, [5 / 9, 5 / 18, 1 / 6])
    p = {"the rates' and w": p, "w alone": np.array([0.2, 0.5, 0.3]), "even": np.full(3, 1 / 3)}[
        weights_played
    ]
    meta.update(x, g, p @ x)
    assert (meta.potential_growth() > 1e-5) == breaks
    assert breaks or meta.potential_growth() <= 0
