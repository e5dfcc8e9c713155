"""Local models, the two losses and the exact intervals, against hand-made figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from classic_ml.auditing import (
    BallRegion,
    BoxRegion,
    ConstantModel,
    LinearModel,
    LocalExplanation,
    certified_interval,
    clopper_pearson,
    explanation_loss,
    local_loss,
)
from classic_ml.auditing.certificate import proportion_upper_bound, sampling_slack

UNIT = BoxRegion([0], [1])


def test_linear_model() -> None:
    model = LinearModel([1, -1], 0.5)
    assert model.decision_function([[0, 1.0], [0, 0.5], [1, 0]]).tolist() == [-0.5, 0.0, 1.5]
    assert model.predict([[0, 1.0], [0, 0.5], [1, 0]]).tolist() == [-1, 1, 1]  # 0 counts as +1
    assert LinearModel([1], labels=("no", "yes")).predict([[-1.0], [1.0]]).tolist() == ["no", "yes"]
    assert ConstantModel("cat").predict(np.zeros((2, 3))).tolist() == ["cat", "cat"]
    assert "d=2" in repr(model)


def test_local_loss_by_hand() -> None:
    Z = np.array([[0.1], [0.2], [0.3], [0.4], [7.0]])
    f = np.array([1, -1, 1, 1, -1])
    loss = local_loss(LocalExplanation(UNIT, ConstantModel(1)), Z, f)
    assert loss == (0.25, 4)
    empty = local_loss(LocalExplanation(BoxRegion([8], [9]), ConstantModel(1)), Z, f)
    assert math.isnan(empty.loss)  # an empty region is neither right nor wrong
    assert empty.n_in_region == 0
    assert local_loss(LocalExplanation(UNIT, LinearModel([1], -0.25)), Z, f) == (0.25, 4)


def test_explanation_loss_is_a_share_of_points_and_not_the_mean_loss() -> None:
    losses = [0.0, 0.1, 0.3, 1.0]
    assert explanation_loss(losses, 0.3) == 0.5  # "at least": 0.3 counts
    assert explanation_loss(losses, 0.31) == 0.25
    assert np.mean(losses) == 0.35


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: explanation_loss([0.1, np.nan], 0.3), "1 of 2 are NaN"),
        (lambda: explanation_loss([], 0.3), r"shape \(0,\)"),
        (lambda: explanation_loss([0.1], 1.5), "gamma = 1.5"),
        (
            lambda: local_loss(LocalExplanation(UNIT, ConstantModel(1)), np.zeros((3, 1)), [1, 1]),
            "one label per row",
        ),
        (lambda: LinearModel([1], np.nan), "intercept = nan"),
        (lambda: LinearModel([np.inf]), "coef holds NaN"),
        (lambda: LinearModel([1], labels=(1, 1)), "two different labels"),
        (lambda: clopper_pearson([5], [4], 0.05), "between 0 and n"),
        (lambda: clopper_pearson([5], [6], 0), "failure = 0"),
    ],
)
def test_refusals(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_what_is_no_region_or_model_is_refused() -> None:
    with pytest.raises(TypeError, match=r"region = .*contains\(\)"):
        LocalExplanation(ConstantModel(1), ConstantModel(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"model = .*predict\(\)"):
        LocalExplanation(BallRegion([0], 1), BallRegion([0], 1))  # type: ignore[arg-type]

    class Columns:
        def predict(self, X: np.ndarray) -> np.ndarray:
            return np.zeros((len(X), 1))

    with pytest.raises(ValueError, match=r"shape \(2, 1\) for 2 rows"):
        local_loss(LocalExplanation(UNIT, Columns()), np.zeros((2, 1)), [1, 1])


def test_clopper_pearson_by_hand() -> None:
    low, high = clopper_pearson([4, 0, 10, 0], [10, 10, 10, 0], 0.05)
    assert low == pytest.approx([0.1216, 0, 0.025 ** (1 / 10), 0], abs=5e-5)
    assert high == pytest.approx([0.7376, 1 - 0.025 ** (1 / 10), 1, 1], abs=5e-5)
    assert proportion_upper_bound(0, 75) == pytest.approx(1 - 0.05 ** (1 / 75))
    assert proportion_upper_bound(7, 7) == 1


@given(st.integers(1, 60), st.floats(1e-6, 1), st.floats(1e-4, 0.5))
@settings(max_examples=60, deadline=None)
def test_clopper_pearson_covers(n: int, p: float, failure: float) -> None:
    """The exact probability that the bounds miss p, summed over all outcomes."""
    k = np.arange(n + 1)
    low, high = clopper_pearson(k, np.full(n + 1, n), failure)
    missed = binom.pmf(k, n, p)[(low > p * (1 + 1e-9)) | (high < p * (1 - 1e-9))].sum()
    assert missed <= failure * (1 + 1e-6)
    upper = np.array([proportion_upper_bound(int(j), n, failure) for j in k])
    assert binom.pmf(k, n, p)[upper < p * (1 - 1e-9)].sum() <= failure * (1 + 1e-6)


def test_the_certificate_counts_sure_and_open_points() -> None:
    low, high = np.array([0.4, 0.1, 0.0, 0.0]), np.array([0.8, 0.5, 0.2, 1.0])
    slack = sampling_slack(4, 0.5)
    assert slack == pytest.approx(math.sqrt(math.log(8) / 8))
    low, high = np.tile(low, 100), np.tile(high, 100)
    s = sampling_slack(400, 0.5)
    assert certified_interval(low, high, 0.3, 0.5) == pytest.approx((0.25 - s, 0.75 + s))
    assert certified_interval(low, high, 0.9, 0.5) == pytest.approx((0, 0.25 + s))
    assert certified_interval(low[:4], high[:4], 0.3, 0.05) == (0, 1)
