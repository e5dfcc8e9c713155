"""Agreement against scipy, on samples with ties, resampled and not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from interp.core.intervals import wilson
from interp.probes.lfp.agreement import feedback_agreement, kendall, pearson, spearman


def tied(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    true = np.round(random.uniform(-3.9, 3.4, n), 1)
    return np.round(true + random.normal(0, 2, n)), true


@pytest.mark.parametrize("n", [2, 7, 60, 700])
def test_correlations_are_scipys(n: int) -> None:
    x, y = tied(n, n)
    once = np.ones((1, n))
    assert kendall(x, y, once)[0] == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
    assert pearson(x, y, once)[0] == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert spearman(x, y, once)[0] == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_weights_stand_for_repetitions() -> None:
    x, y = tied(40, 0)
    weights = np.random.default_rng(1).multinomial(40, np.full(40, 1 / 40), size=25).astype(float)
    for ours, theirs in ((kendall, stats.kendalltau), (pearson, stats.pearsonr), (spearman, stats.spearmanr)):
        expected = [theirs(np.repeat(x, w), np.repeat(y, w)).statistic for w in weights.astype(int)]
        assert np.allclose(ours(x, y, weights), expected, atol=1e-12)


def test_a_table_by_hand() -> None:
    true = np.array([3.0, 2.5, 2.0, 1.0, -1.0, -2.0, 0.0])
    read = np.array([3.1, -0.5, 2.0, -0.1, -3.0, -2.0, 5.0])
    a = feedback_agreement(read, true, n_bootstrap=50)
    assert (a.n_words, a.n_positive, a.n_negative) == (7, 4, 2)
    assert a.sign_accuracy.value == pytest.approx(4 / 6)
    assert a.sign_accuracy.interval == wilson(4, 6)
    assert a.recovered.value == pytest.approx(2 / 3)
    assert a.badly_reconstructed.value == pytest.approx(1 / 3)
    assert a.absolute_error.value == pytest.approx((0.1 + 3 + 0 + 1.1 + 2 + 0 + 5) / 7)
    # Within the positive words: of six pairs only (2.5, 2.0) and (2.5, 1.0) are in the wrong order.
    assert a.tau_positive.value == pytest.approx((4 - 2) / 6)
    assert a.tau_negative.value == pytest.approx(-1.0)
    json.dumps(a.to_dict(), allow_nan=False)
    assert list(a.to_frame().columns) == ["value", "low", "high"]
    assert "7 words, 4 positive and 2 negative" in str(a)


def test_it_compares_values_and_not_alphabetical_ranks() -> None:
    """Sorted lists of words, as the released code compares them, would agree perfectly here."""
    a = feedback_agreement(np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 3.0, 2.0, 1.0]), n_bootstrap=10)
    assert a.tau.value == pytest.approx(-1.0)


def test_intervals_hold_the_truth_and_shrink() -> None:
    """For a bivariate normal of correlation r, tau = 2 / pi asin r; 95 % intervals should cover it 19 times of 20."""
    tau, hits, widths = 2 / math.pi * math.asin(0.6), 0, {}
    for seed in range(60):
        random = np.random.default_rng(seed)
        x = random.standard_normal(100)
        y = 0.6 * x + 0.8 * random.standard_normal(100)
        interval = feedback_agreement(x, y, n_bootstrap=300, seed=seed).tau.interval
        hits += interval.low <= tau <= interval.high
        widths[100] = interval.high - interval.low
    assert 51 <= hits <= 60
    x = np.random.default_rng(0).standard_normal(1600)
    y = 0.6 * x + 0.8 * np.random.default_rng(1).standard_normal(1600)
    wide = feedback_agreement(x, y, n_bootstrap=300).tau.interval
    assert wide.high - wide.low == pytest.approx(widths[100] / 4, rel=0.35)


def test_the_same_seed_gives_the_same_intervals() -> None:
    x, y = tied(50, 3)
    assert feedback_agreement(x, y, seed=1) == feedback_agreement(x, y, seed=1)
    assert feedback_agreement(x, y, seed=1).tau.interval != feedback_agreement(x, y, seed=2).tau.interval


def test_what_is_not_defined_says_so() -> None:
    constant = feedback_agreement(np.zeros(5), np.array([1.0, 2.0, -1.0, -2.0, -3.0]), n_bootstrap=20)
    assert math.isnan(constant.tau.value)
    assert str(constant.tau) == "undefined"
    only_positive = feedback_agreement(np.arange(4.0), np.arange(1.0, 5.0), n_bootstrap=20)
    assert math.isnan(only_positive.tau_negative.value)
    assert only_positive.to_dict()["tau_negative"] == [None, None, None]


@pytest.mark.parametrize(
    ("read", "true"), [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, math.nan], [1.0, 2.0]), ([[1.0]], [[1.0]])]
)
def test_unusable_arrays_are_refused(read: list[float], true: list[float]) -> None:
    with pytest.raises(ValueError, match="word"):
        feedback_agreement(np.array(read), np.array(true))
