"""Losses, the best fixed point of the domain, what a run reports, and variations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from classic_ml.online import (
    USC,
    Box,
    L2Ball,
    LinearLosses,
    LogisticLosses,
    Losses,
    LossFunctions,
    OneGradientLearner,
    OnlineGradientDescent,
    Simplex,
    SquaredLosses,
    UniversalOnlineLearner,
    best_fixed,
    compare_online,
    gradient_variation,
    plot_regret,
    plot_weights,
    run_online,
    sampled_variation,
)

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(12, 3))
SIGNS = np.where(RNG.random(12) < 0.5, 1, -1)
KINDS = {
    "linear": LinearLosses(ROWS),
    "squared": SquaredLosses(ROWS),
    "logistic": LogisticLosses(ROWS, SIGNS),
    "functions": LossFunctions(
        [(lambda x, c=c: np.exp(c @ x), lambda x, c=c: np.exp(c @ x) * c) for c in ROWS], 3
    ),
}
DOMAINS = {"ball": L2Ball(0.8, 3, [0.1, 0, 0]), "box": Box([-1, 0, -1], [1, 2, 0]), "simplex": Simplex(3)}


@pytest.mark.parametrize("kind", KINDS)
def test_losses_agree_with_themselves(kind: str) -> None:
    losses, x = KINDS[kind], np.array([0.3, -0.2, 0.5])
    assert (len(losses), losses.dim) == (12, 3)
    for t in (0, 5, 11):
        slope = [(losses.value(t, x + e) - losses.value(t, x - e)) / 2e-5 for e in 1e-5 * np.eye(3)]
        np.testing.assert_allclose(losses.gradient(t, x), slope, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(losses.values(x), [losses.value(t, x) for t in range(12)])
    total = np.sum([losses.gradient(t, x) for t in range(12)], axis=0)
    np.testing.assert_allclose(losses.total_gradient(x), total)


def test_losses_by_hand() -> None:
    x = np.array([1.0, 2.0])
    assert LinearLosses([[3.0, 4.0]]).value(0, x) == 11
    assert SquaredLosses([[0.0, 0.0]]).value(0, x) == 2.5
    assert LogisticLosses([[1.0, 1.0]], [-1]).value(0, x) == pytest.approx(np.log1p(np.exp(3)))
    big = LogisticLosses([[1000.0, 0.0]], [-1])
    assert big.value(0, x) == 1000
    np.testing.assert_array_equal(big.gradient(0, x), [1000, 0])


@pytest.mark.parametrize("where", DOMAINS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_best_fixed_point_is_the_constrained_minimum(kind: str, where: str) -> None:
    losses, domain = KINDS[kind], DOMAINS[where]
    found = best_fixed(losses, domain)
    assert domain.contains(found.point)
    constraints = {
        "ball": [{"type": "ineq", "fun": lambda x: 0.64 - ((x - [0.1, 0, 0]) ** 2).sum()}],
        "simplex": [{"type": "eq", "fun": lambda x: x.sum() - 1}],
    }
    bounds = {"box": [(-1, 1), (0, 2), (-1, 0)], "simplex": [(0, 1)] * 3}
    other = minimize(
        lambda x: losses.values(x).sum(),
        domain.center,
        jac=losses.total_gradient,
        method="SLSQP",
        bounds=bounds.get(where),
        constraints=constraints.get(where, ()),
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert losses.values(found.point).sum() == pytest.approx(other.fun, abs=1e-5)
    assert 0 <= found.gap <= 1e-6 * max(1, abs(other.fun)) * 1.01


def test_the_minimum_is_of_the_domain_not_of_the_space() -> None:
    """A mean outside the ball, whose loss over R^d would make the regret too large."""
    losses = SquaredLosses(np.tile([3.0, 0.0], (5, 1)))
    result = run_online(OnlineGradientDescent(L2Ball(1.0, 2), 4.0), losses)
    np.testing.assert_allclose(result.comparator, [1, 0])
    assert result.comparator_losses.sum() == pytest.approx(10)
    assert result.regret >= 0


def test_a_best_point_that_is_not_found_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"is known only up to .* after 2 steps"):
        best_fixed(KINDS["functions"], DOMAINS["ball"], tol=1e-12, max_steps=2)


def test_what_a_run_reports() -> None:
    domain, losses = L2Ball(1.0, 3), KINDS["logistic"]
    learner = OnlineGradientDescent(domain, 4.0, step=0.25)
    result = run_online(learner, losses)
    x, values, last, variation = np.zeros(3), [], np.zeros(3), 0.0
    for t in range(12):
        values.append(losses.value(t, x))
        g = losses.gradient(t, x)
        variation, last = variation + ((g - last) ** 2).sum(), g
        np.testing.assert_allclose(result.decisions[t], x, atol=1e-12)
        x = domain.project(x - 0.25 * g)
    np.testing.assert_allclose(result.losses, values)
    best = best_fixed(losses, domain).point
    np.testing.assert_allclose(result.comparator_losses, losses.values(best))
    assert result.regret == pytest.approx(sum(values) - losses.values(best).sum())
    np.testing.assert_allclose(result.cumulative_regret, np.cumsum(values - losses.values(best)))
    assert result.gradient_variation == pytest.approx(variation)
    assert result.n_gradients == 12
    frame = result.to_frame()
    assert list(frame.columns) == ["loss", "comparator_loss", "cumulative_regret"]
    assert frame.index.tolist() == list(range(1, 13))
    assert frame.cumulative_regret.iloc[-1] == pytest.approx(result.regret)
    assert f"{result.regret:.6g}" in str(result)
    assert "best fixed point's loss" in str(result)
    line = result.plot().axes[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), result.cumulative_regret)


def test_a_comparator_of_ones_own() -> None:
    point = np.array([0.0, 0.5, 0.0])
    result = run_online(OnlineGradientDescent(L2Ball(1.0, 3), 4.0), KINDS["linear"], comparator=point)
    np.testing.assert_array_equal(result.comparator, point)
    np.testing.assert_allclose(result.comparator_losses, ROWS @ point)
    assert np.isnan(result.comparator_gap)
    assert "comparator's loss" in str(result)
    assert "best fixed" not in str(result)


def test_learners_side_by_side() -> None:
    domain, losses = L2Ball(1.0, 3), KINDS["squared"]
    bound = 1 + np.linalg.norm(ROWS, axis=1).max()
    comparison = compare_online(
        {"universal": UniversalOnlineLearner(domain, 12, bound), "usc": USC(domain, 12, bound)}, losses
    )
    alone = run_online(UniversalOnlineLearner(domain, 12, bound), losses)
    frame = comparison.to_frame()
    assert frame.loc["universal", "regret"] == alone.regret
    assert frame.loc["universal", "loss"] == alone.losses.sum()
    assert frame.gradients_per_round.tolist() == [1, 12]
    assert list(frame.index) == ["universal", "usc"]
    assert all(name in str(comparison) for name in ("universal", "usc", "regret"))
    axes = comparison.plot().axes[0]
    assert [line.get_label() for line in axes.lines[:2]] == ["universal", "usc"]
    assert plot_regret(comparison.results, log=True, title="t").axes[0].get_xscale() == "log"


def test_weights_are_drawn_by_kind() -> None:
    learner = UniversalOnlineLearner(L2Ball(1.0, 3), 12, 4.0)
    weights = []
    for t in range(12):
        learner.predict()
        weights.append(learner.weights_)
        learner.update(KINDS["linear"].gradient(t, np.zeros(3)))
    axes = plot_weights(np.array(weights), learner.learner_labels_).axes[0]
    assert [p.get_label() for p in axes.collections] == ["strongly convex", "exp concave", "convex"]
    top = axes.collections[-1].get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(1)


def test_variations() -> None:
    points = RNG.normal(size=(30, 3))
    assert gradient_variation(lambda x: 2 * x, lambda x: x, points) == pytest.approx((points**2).sum(1).max())
    assert gradient_variation(lambda x: x + 3, lambda x: x + 1, points[0]) == pytest.approx(12)
    for kind in ("linear", "squared"):  # gradients differ by the same everywhere
        expected = (np.diff(ROWS, axis=0) ** 2).sum()
        assert sampled_variation(KINDS[kind], points[:1]) == pytest.approx(expected)
    few = sampled_variation(KINDS["logistic"], points[:3])
    assert 0 < few <= sampled_variation(KINDS["logistic"], points)


def test_the_empirical_variation_is_another_thing() -> None:
    """Constant losses vary by nothing, but the gradients that a learner sees on its way do."""
    losses = SquaredLosses(np.tile([0.5, 0.0, 0.0], (12, 1)))
    result = run_online(OnlineGradientDescent(L2Ball(1.0, 3), 1.5), losses)
    assert sampled_variation(losses, ROWS) == 0
    assert result.gradient_variation >= 0.25


class Impostor(OneGradientLearner):
    """Asks for the gradient elsewhere."""

    def observe(self, oracle) -> None:
        self.update(oracle(self._in_play() + 1))

    def _decide(self) -> np.ndarray:
        return np.zeros(3)

    def _learn(self, gradient: np.ndarray, played: np.ndarray) -> None:
        pass


def test_what_is_refused() -> None:
    ball, linear = L2Ball(1.0, 3), KINDS["linear"]
    learner = OnlineGradientDescent(ball, 1.0)
    with pytest.raises(
        ValueError, match=r"Impostor.observe must first ask for the gradient at the played point"
    ):
        run_online(Impostor(ball), linear)
    with pytest.raises(ValueError, match="the losses have dimension 3, the domain 2"):
        run_online(OnlineGradientDescent(L2Ball(1.0, 2), 1.0), linear)
    with pytest.raises(ValueError, match="comparator = 'best' must be 'best_fixed' or an array of 3"):
        run_online(learner, linear, comparator="best")
    with pytest.raises(ValueError, match=r"comparator has shape \(2,\); give \(3,\)"):
        run_online(learner, linear, comparator=[0, 0])
    with pytest.raises(ValueError, match="lies outside the domain; project it first"):
        run_online(learner, linear, comparator=[3, 0, 0])
    with pytest.raises(ValueError, match="learners is empty"):
        compare_online({}, linear)
    with pytest.raises(ValueError, match="the learners have different domains"):
        compare_online({"a": learner, "b": OnlineGradientDescent(L2Ball(2.0, 3), 1.0)}, linear)
    with pytest.raises(ValueError, match=r"costs has shape \(3,\)"):
        LinearLosses([1, 2, 3])
    with pytest.raises(ValueError, match=r"targets has shape .* finite numbers"):
        SquaredLosses([[np.nan]])
    with pytest.raises(ValueError, match="signs must be -1 or 1 for each of the 12 rows"):
        LogisticLosses(ROWS, np.zeros(12))
    with pytest.raises(ValueError, match="rounds is empty"):
        LossFunctions([], 3)
    assert issubclass(LinearLosses, Losses)
