"""Slopes, fractions and intervals on hand-made propensity tables."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from interp.core.intervals import bootstrap, wilson
from interp.steering.layers import SWEEP_MULTIPLIERS
from interp.steering.propensity import DEFAULT_MULTIPLIERS
from interp.steering.steerability import steerability

MULTIPLIERS = [-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5]
LAMBDA = np.array(MULTIPLIERS)


def test_lines_give_back_their_slopes() -> None:
    slopes, intercepts = np.array([2.0, -1.0, 0.0, 3.0]), np.array([0.5, 1.0, -2.0, 0.0])
    result = steerability(MULTIPLIERS, intercepts[:, None] + slopes[:, None] * LAMBDA)
    np.testing.assert_allclose(result.slopes, slopes, atol=1e-12)
    np.testing.assert_allclose(result.intercepts, intercepts, atol=1e-12)
    np.testing.assert_allclose(result.rss, 0, atol=1e-12)
    assert result.mean == pytest.approx(1.0)
    assert result.variance == pytest.approx(10 / 3)  # (1 + 4 + 1 + 4) / 3
    assert result.median == pytest.approx(1.0)
    assert result.anti_fraction == 0.5  # a slope of exactly 0 counts as anti-steerable
    np.testing.assert_allclose(result.spearman, [1, -1, np.nan, 1])
    assert result.by_range == pytest.approx({0.5: 1.0, 1.0: 1.0, 1.5: 1.0})


def test_curves_agree_with_scipy_and_the_closed_form() -> None:
    y = np.random.default_rng(0).normal(size=(20, 7))
    result = steerability(MULTIPLIERS, y)
    np.testing.assert_allclose(
        result.slopes, (y * LAMBDA).sum(1) / 7
    )  # the default multipliers: sum of squares 7
    for i, row in enumerate(y):
        line = stats.linregress(LAMBDA, row)
        assert result.intercepts[i] == pytest.approx(line.intercept)
        assert result.rss[i] == pytest.approx(((row - line.slope * LAMBDA - line.intercept) ** 2).sum())
        assert result.spearman[i] == pytest.approx(stats.spearmanr(LAMBDA, row).statistic)
    assert result.mean == pytest.approx(stats.linregress(LAMBDA, y.mean(0)).slope)
    assert result.kurtosis == pytest.approx(stats.kurtosis(result.slopes))
    assert result.rmse == pytest.approx(np.sqrt(result.rss / 7))


def test_an_intercept_is_fitted_on_lopsided_multipliers() -> None:
    result = steerability([0.0, 1.0, 2.0], np.array([[5.0, 6.0, 7.0]]))
    assert result.mean == pytest.approx(1.0)  # through the origin it would be 4


def test_the_range_check_shows_saturation() -> None:
    """tanh(2 m) is steep at 0 and flat at 1.5."""
    result = steerability(MULTIPLIERS, np.tanh(2 * LAMBDA)[None])
    near, wide = 2 * np.tanh(1.0), (LAMBDA * np.tanh(2 * LAMBDA)).sum() / 7
    assert result.by_range[0.5] == pytest.approx(near)
    assert result.by_range[1.5] == pytest.approx(wide)
    assert near > 1.5 * wide


def test_the_mean_hides_what_the_samples_show() -> None:
    slopes = np.array([3.0] * 6 + [-1.0] * 4)
    result = steerability(MULTIPLIERS, slopes[:, None] * LAMBDA)
    assert result.mean == pytest.approx(1.4)
    assert result.anti_fraction == pytest.approx(0.4)
    low, high = result.anti_interval
    assert (low, high) == pytest.approx((0.1682, 0.6873), abs=1e-4)  # Wilson's interval of 4 in 10


def test_wilson_is_honest_at_none() -> None:
    assert wilson(0, 30) == pytest.approx((0.0, 0.1135), abs=1e-4)
    low, high = stats.binomtest(4, 10).proportion_ci(0.9, method="wilson")
    assert wilson(4, 10, confidence=0.9) == pytest.approx((low, high))


def test_the_bootstrap_agrees_with_the_normal_interval_and_repeats() -> None:
    values = np.random.default_rng(1).normal(2.0, 1.0, 400)
    interval = bootstrap(values, lambda v: v.mean(1), seed=3)
    half = 1.96 * values.std() / 20
    assert interval.low == pytest.approx(values.mean() - half, abs=0.02)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.02)
    assert bootstrap(values, lambda v: v.mean(1), seed=3) == interval
    assert bootstrap(values, lambda v: v.mean(1), seed=4) != interval


def test_equal_slopes_have_no_spread() -> None:
    result = steerability([0.0, 1.0], np.array([[0.0, 1.0]] * 3))
    assert result.variance == 0
    assert np.isnan(result.kurtosis)
    assert result.mean_interval == (1.0, 1.0)


def test_the_table_and_the_frame_say_the_figures() -> None:
    result = steerability(MULTIPLIERS, np.array([2 * LAMBDA, -LAMBDA]), name="toy")
    text = str(result)
    assert "toy over 2 samples" in text
    assert "anti-steerable   50.0%" in text
    assert "mean slope       0.500" in text
    assert list(result.to_frame().columns) == ["slope", "intercept", "rss", "rmse", "spearman"]
    assert result.to_frame()["slope"].tolist() == pytest.approx([2.0, -1.0])
    assert result.summary()["anti_fraction"] == 0.5


@pytest.mark.parametrize(
    ("multipliers", "values", "message"),
    [
        ([1.0, 1.0], np.zeros((2, 2)), "two distinct"),
        ([0.0, 1.0, 2.0], np.zeros((2, 2)), r"one column for each of the 3 multipliers.*\(2, 2\)"),
        ([0.0, 1.0], np.zeros((0, 2)), "at least one"),
        ([0.0, 1.0], np.array([[0.0, 1.0], [np.nan, 0.0]]), "sample 1 holds a value that isn't finite"),
    ],
)
def test_tables_that_make_no_slope_are_refused(multipliers: list, values: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        steerability(multipliers, values)


def test_impossible_intervals_are_refused() -> None:
    with pytest.raises(ValueError, match="confidence=95"):
        bootstrap(np.ones(3), lambda v: v.mean(1), confidence=95)
    with pytest.raises(ValueError, match="nothing to resample"):
        bootstrap(np.ones(0), lambda v: v.mean(1))
    with pytest.raises(ValueError, match="at least one trial"):
        wilson(0, 0)


@pytest.mark.parametrize("multipliers", [DEFAULT_MULTIPLIERS, SWEEP_MULTIPLIERS, (0.1, 0.2, 0.7)])
def test_a_flat_curve_is_not_steered(multipliers: tuple[float, ...]) -> None:
    """Constants, as they are and off by the last bit of float32, on either side."""
    rng = np.random.default_rng(0)
    constants = np.repeat(20 * rng.normal(size=(300, 1)), len(multipliers), axis=1)
    rounded = np.nextafter(
        constants.astype(np.float32), np.float32(100) * rng.choice([-1, 1], constants.shape)
    )
    for values in (constants, rounded.astype(np.float64)):
        flat = steerability(multipliers, values)
        assert flat.anti_fraction == 1
        assert not flat.slopes.any()
        assert np.isnan(flat.spearman).all()
        assert set(flat.by_range.values()) == {0.0}
    # A hundred times that is a slope.
    steep = constants + 1e-5 * np.abs(constants) * np.array(multipliers)
    assert steerability(multipliers, steep).anti_fraction == 0
    assert steerability(multipliers, steep).slopes == pytest.approx(1e-5 * np.abs(constants[:, 0]), rel=1e-6)


def test_the_rounding_of_the_logits_may_be_given() -> None:
    """A difference of 0.01 between logits of 20 is known to their rounding, not to its own."""
    values = 0.01 + np.array([[-1e-6, 0.0, 1e-6]])
    assert steerability((-1, 0, 1), values).anti_fraction == 0
    assert steerability((-1, 0, 1), values, resolution=np.array([4.8e-6])).anti_fraction == 1
