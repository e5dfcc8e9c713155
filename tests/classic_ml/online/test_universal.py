"""The learner against a round by hand, against the method written plainly, and what it refuses."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classic_ml.online import Box, L2Ball, Simplex, UniversalOnlineLearner, curvature_pool, run_online
from classic_ml.online.losses import LinearLosses, SquaredLosses
from tests.classic_ml.online.reference import PlainUniversal


def play(learner: Any, gradients: np.ndarray) -> np.ndarray:
    played = []
    for g in gradients:
        played.append(learner.predict())
        learner.update(g)
    return np.array(played)


def test_two_rounds_by_hand() -> None:
    learner = UniversalOnlineLearner(L2Ball(1.0, 1), 2, 1.0)
    assert learner.learner_labels_ == [
        ("strongly_convex", 0.5),
        ("strongly_convex", 1.0),
        ("exp_concave", 0.5),
        ("exp_concave", 1.0),
        ("convex", None),
    ]
    assert learner.predict() == [0.0]
    np.testing.assert_array_equal(learner.base_decisions_, np.zeros((5, 1)))
    np.testing.assert_allclose(learner.weights_, 0.2)
    learner.update([1.0])
    np.testing.assert_allclose(np.exp(learner.meta.log_weights), 0.2)
    np.testing.assert_array_equal(learner.meta.rates, 0.25)
    np.testing.assert_allclose(learner._gradient._anchors.ravel(), [-1, -1, -1])
    np.testing.assert_allclose(learner._newton._anchors.ravel(), [-1 / 3, -1 / 5])
    x2 = learner.predict()[0]
    expected = [-1, -1, -1 / 3 - 0.32, -0.2 - 1 / 5.25, -1]
    np.testing.assert_allclose(learner.base_decisions_.ravel(), expected, rtol=1e-12)
    # z = F(z) with four weights of 1 and one of exp((z + 1) / 16), solved by hand: three iterations from the mean.
    z = float(np.mean(expected))
    assert z == pytest.approx(-0.808762, abs=5e-7)
    for _ in range(12):
        tilt = np.exp(0.25 * (z + 1) / 4)
        z = (sum(expected[:4]) - tilt) / (4 + tilt)
    assert x2 == pytest.approx(z, abs=1e-12)
    assert x2 < -0.808762
    assert learner.meta.optimism == pytest.approx((z + 1) / 4, abs=1e-12)


@pytest.mark.parametrize(("horizon", "n"), [(1, 3), (2, 5), (3, 7), (4, 7), (5, 9), (1000, 23), (1024, 23)])
def test_pool_and_number_of_learners(horizon: int, n: int) -> None:
    pool = curvature_pool(horizon)
    assert pool[0] == 1 / horizon
    assert pool[-1] == 1
    assert (pool[1:] <= 2 * pool[:-1]).all()
    learner = UniversalOnlineLearner(L2Ball(1.0, 2), horizon, 1.0)
    assert len(learner.learner_labels_) == n == 2 * len(pool) + 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimistic": False},
        {"sc_step": 1.0},
        {"ons_identity": 0.5},
        {"ons_weight": 2.0},
        {"meta_cap": 0.5},
        {"sc_step": 2.0, "ons_identity": 1.0, "ons_weight": 0.5, "meta_cap": 0.1, "optimistic": False},
    ],
)
@pytest.mark.parametrize("kind", ["drifting", "independent"])
def test_equals_the_method_written_plainly(options: dict[str, Any], kind: str) -> None:
    rng, d, rounds = np.random.default_rng(3), 3, 40
    steps = rng.normal(size=(rounds, d))
    g = np.cumsum(0.3 * steps, axis=0) if kind == "drifting" else steps
    g = 2.0 * g / np.maximum(1, np.linalg.norm(g, axis=1, keepdims=True))
    center = np.array([0.5, -1.0, 2.0])
    ours = UniversalOnlineLearner(L2Ball(0.7, d, center), rounds, 2.0, **options)
    plain = PlainUniversal(center, 0.7, rounds, 2.0, **options)
    for t in range(rounds):
        np.testing.assert_allclose(ours.predict(), plain.predict(), atol=1e-8)
        np.testing.assert_allclose(ours.weights_, plain.p, atol=1e-8)
        np.testing.assert_allclose(ours.base_decisions_, plain.xs, atol=1e-7)
        ours.update(g[t])
        plain.update(g[t])
    if not options:
        assert ours.gradient_variation_ == pytest.approx(plain.variation)


def test_hints_are_not_used_when_not_optimistic() -> None:
    g = np.tile([1.0, 0.0], (2, 1))
    learner = UniversalOnlineLearner(L2Ball(1.0, 2), 30, 1.0, optimistic=False)
    play(learner, g)
    assert learner.meta.optimism == 0
    eager = UniversalOnlineLearner(L2Ball(1.0, 2), 30, 1.0)
    play(eager, g)
    assert eager.meta.optimism > 0
    # Both report what the gradients did, whatever the hints were.
    assert learner.gradient_variation_ == eager.gradient_variation_ == 1.0


@settings(max_examples=16, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 4),
    domain=st.sampled_from(["ball", "box", "simplex"]),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    kind=st.sampled_from(["alternating", "independent", "constant", "sparse"]),
    cap=st.sampled_from([0.25, 0.5]),
)
def test_both_invariants_on_every_sequence(
    seed: int, d: int, domain: str, scale: float, kind: str, cap: float
) -> None:
    rng, rounds = np.random.default_rng(seed), 18
    where = {"ball": L2Ball(scale, d), "box": Box(np.full(d, -scale), np.full(d, 2 * scale))}
    X = where.get(domain) or Simplex(d + 1)
    g = rng.normal(size=(rounds, X.dim))
    if kind == "constant":
        g = np.tile(g[:1], (rounds, 1))
    elif kind == "alternating":
        g = np.where(np.arange(rounds)[:, None] % 2, g[:1], -g[:1])
    elif kind == "sparse":
        g[rng.random(rounds) < 0.7] = 0
    bound = float(np.linalg.norm(g, axis=1).max()) or 1.0
    learner = UniversalOnlineLearner(X, rounds, bound, meta_cap=cap)
    per_learner = np.zeros(len(learner.learner_labels_))
    for row in g:
        x = learner.predict()
        assert X.contains(x)
        assert learner.weights_.sum() == pytest.approx(1)
        np.testing.assert_allclose(learner.weights_ @ learner.base_decisions_, x, atol=1e-9 * X.diameter)
        per_learner += (x - learner.base_decisions_) @ row
        learner.update(row)
        assert learner.meta.potential_growth() <= 1e-12
    np.testing.assert_allclose(learner.meta_regret(), per_learner, atol=1e-9 * bound * X.diameter)
    assert (per_learner <= learner.meta_regret_bound() + 1e-9 * bound * X.diameter).all()


def test_one_gradient_a_round_and_none_at_other_points() -> None:
    asked = []

    class Watched(SquaredLosses):
        def gradient(self, t: int, x: np.ndarray) -> np.ndarray:
            asked.append((t, x.copy()))
            return super().gradient(t, x)

    losses = Watched(np.random.default_rng(0).uniform(-0.4, 0.4, (20, 2)))
    result = run_online(UniversalOnlineLearner(L2Ball(1.0, 2), 20, 2.0), losses)
    assert result.n_gradients == len(asked) == 20
    np.testing.assert_array_equal([x for _, x in asked], result.decisions)
    assert [t for t, _ in asked] == list(range(20))


def test_predict_is_idempotent_and_its_result_the_callers() -> None:
    learner, twin = (UniversalOnlineLearner(L2Ball(1.0, 2), 9, 1.0) for _ in range(2))
    for g in ([1.0, 0.0], [0.6, -0.8], [0.0, 1.0]):
        first = learner.predict()
        again = learner.predict()
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(first, twin.predict())
        first[:] = 99
        learner.update(g)
        twin.update(np.array(g))


def test_gradients_are_copied() -> None:
    learner, twin = (UniversalOnlineLearner(L2Ball(1.0, 2), 9, 1.0) for _ in range(2))
    g = np.array([1.0, 0.0])
    for new in ([0.0, 1.0], [0.6, 0.8]):
        learner.predict(), twin.predict()
        learner.update(g)
        twin.update(g.copy())
        g[:] = new
    np.testing.assert_array_equal(learner.predict(), twin.predict())


def test_goes_on_from_a_pickle_with_the_same_bits() -> None:
    g = np.random.default_rng(1).normal(size=(30, 3)) / 10
    whole = UniversalOnlineLearner(L2Ball(1.0, 3), 30, 1.0)
    expected = play(whole, g)
    part = UniversalOnlineLearner(L2Ball(1.0, 3), 30, 1.0)
    play(part, g[:11])
    part.predict()
    resumed = pickle.loads(pickle.dumps(part))
    np.testing.assert_array_equal(play(resumed, g[11:]), expected[11:])


def test_restarts_with_twice_the_horizon() -> None:
    g = np.random.default_rng(2).normal(size=(14, 2)) / 5
    learner = UniversalOnlineLearner(L2Ball(1.0, 2), 2, 1.0, restart_doubling=True)
    played = play(learner, g)
    assert (learner.horizon, learner.rounds_) == (8, 14)
    first = 0
    for horizon in (2, 4, 8):
        fresh = UniversalOnlineLearner(L2Ball(1.0, 2), horizon, 1.0)
        np.testing.assert_array_equal(
            play(fresh, g[first : first + horizon]), played[first : first + horizon]
        )
        first += horizon
    assert learner.learner_labels_ == fresh.learner_labels_
    np.testing.assert_array_equal(learner.meta_regret(), fresh.meta_regret())
    change = np.diff(g, axis=0, prepend=np.zeros((1, 2)))
    assert learner.gradient_variation_ == pytest.approx((change**2).sum())


def test_without_restart_the_horizon_is_the_end() -> None:
    learner = UniversalOnlineLearner(L2Ball(1.0, 1), 2, 1.0)
    play(learner, np.zeros((2, 1)))
    with pytest.raises(RuntimeError, match=r"all 2 rounds of the horizon are played.*restart_doubling=True"):
        learner.predict()


def test_the_bound_on_gradients_is_watched() -> None:
    strict = UniversalOnlineLearner(L2Ball(1.0, 2), 5, 1.0)
    strict.predict()
    with pytest.raises(ValueError, match=r"norm 1.5 is above gradient_bound = 1 .*on_violation='warn'"):
        strict.update([0.0, 1.5])
    strict.update([0.0, 1.0 + 1e-10])  # rounding is no violation, and the refused gradient left no trace
    twin = UniversalOnlineLearner(L2Ball(1.0, 2), 5, 1.0)
    twin.predict()
    twin.update([0.0, 1.0 + 1e-10])
    np.testing.assert_array_equal(strict.predict(), twin.predict())
    lenient = UniversalOnlineLearner(L2Ball(1.0, 2), 5, 1.0, on_violation="warn")
    with pytest.warns(UserWarning, match="the guarantee no longer holds") as said:
        play(lenient, np.full((5, 2), 3.0))
    assert len(said) == 1
    assert said[0].filename == __file__


def test_a_point_outside_the_domain_is_a_violation() -> None:
    class Leaky(L2Ball):
        def project(self, x: np.ndarray) -> np.ndarray:
            return x

    learner = UniversalOnlineLearner(Leaky(1.0, 2), 5, 1.0)
    learner.predict()
    learner.update([1.0, 0.0])
    with pytest.raises(ValueError, match="lies outside the domain"):
        learner.predict()


def test_what_is_refused() -> None:
    ball = L2Ball(1.0, 2)
    for wrong in (0, -3):
        with pytest.raises(ValueError, match=f"horizon = {wrong} must be at least 1"):
            UniversalOnlineLearner(ball, wrong, 1.0)
    with pytest.raises(TypeError, match=r"horizon = 2.5 is a float"):
        UniversalOnlineLearner(ball, 2.5, 1.0)  # type: ignore[arg-type]
    for bound in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"gradient_bound = .* must be positive"):
            UniversalOnlineLearner(ball, 5, bound)
    for name in ("sc_step", "ons_identity", "ons_weight"):
        with pytest.raises(ValueError, match=f"{name} = 0 must be a positive number"):
            UniversalOnlineLearner(ball, 5, 1.0, **{name: 0})
    for cap in (0.0, 0.6):
        with pytest.raises(ValueError, match=f"meta_cap = {cap} must lie in"):
            UniversalOnlineLearner(ball, 5, 1.0, meta_cap=cap)
    with pytest.raises(ValueError, match="on_violation = 'ignore' is not known"):
        UniversalOnlineLearner(ball, 5, 1.0, on_violation="ignore")  # type: ignore[arg-type]
    learner = UniversalOnlineLearner(ball, 5, 1.0)
    with pytest.raises(RuntimeError, match=r"call predict\(\) before each update"):
        learner.update([0.0, 0.0])
    learner.predict()
    for wrong_gradient in ([0.0], [[0.0, 0.0]], 0.0, [0.0, 0.0, 0.0]):
        with pytest.raises(ValueError, match="the domain's dimension is 2"):
            learner.update(wrong_gradient)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="holds NaN or infinity"):
            learner.update([bad, 0.0])
    learner.update([0.0, 0.0])
    with pytest.raises(RuntimeError, match="no point in play"):
        learner.update([0.0, 0.0])


def test_base_learners_start_at_the_centre_and_stay_inside() -> None:
    box = Box([0.0, -3.0], [2.0, 5.0])
    learner = UniversalOnlineLearner(box, 6, 1.0)
    np.testing.assert_allclose(learner.predict(), [1.0, 1.0])
    losses = LinearLosses(np.tile([1.0, 0.0], (6, 1)))
    result = run_online(UniversalOnlineLearner(box, 6, 1.0), losses)
    assert result.decisions[-1][0] < 1e-6  # the best corner's side
    np.testing.assert_allclose(result.comparator, [0.0, 1.0])


def test_no_warnings_in_ordinary_use() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(UniversalOnlineLearner(L2Ball(1.0, 2), 20, 1.0), np.zeros((20, 2)))
        play(UniversalOnlineLearner(Simplex(3), 20, 1.0), np.eye(3)[np.arange(20) % 3])
