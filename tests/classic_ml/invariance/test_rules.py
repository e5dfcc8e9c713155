"""Rules on tables of errors, and the calculators: acceptance A, the sheet's examples, brute force."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classic_ml.invariance import (
    average_erm,
    favourable_count,
    hoeffding_gap,
    sample_size,
    sauer_vc_bound,
    worst_case_erm,
    worst_case_regret,
)

ROWS = [[0.3, 0.3, 0.3], [0.05, 0.05, 0.6], [0.0, 0.5, 0.1]]


def test_acceptance_a() -> None:
    worst = worst_case_erm(ROWS)
    assert (worst.index, worst.value) == (0, 0.3)
    mean = average_erm(ROWS)
    assert (mean.index, mean.errors.max(1)[mean.index]) == (2, 0.5)
    assert mean.value == pytest.approx(0.2)
    count = favourable_count(ROWS, 0.1)
    assert count.scores.tolist() == [0, 2, 2]
    assert (count.index, count.value) == (2, 2)  # the tie goes to the smaller mean
    regret = worst_case_regret(ROWS)
    assert regret.scores == pytest.approx([0.3, 0.5, 0.45])
    assert regret.index == 0


def test_augmentation_minimises_the_mean_and_can_fail() -> None:
    errors = [[0, 0, 0, 1], [0.4, 0.4, 0.4, 0.4]]
    assert average_erm(errors).index == 0
    assert average_erm(errors).value == 0.25
    assert (worst_case_erm(errors).index, worst_case_erm(errors).value) == (1, 0.4)


def test_count_with_a_prior_and_a_slack() -> None:
    assert favourable_count(ROWS, 0.1, prior=[0, 0, 1]).index == 2
    assert favourable_count(ROWS, 0.1, prior=[1, 3, 1]).scores.tolist() == [0, 4, 2]
    assert favourable_count(ROWS, 0.1, eps=0.2).scores.tolist() == [3, 2, 2]
    assert favourable_count([[0.3]], 0.1, eps=0.2).value == 1  # 0.1 + 0.2 is not 0.3 in floating point


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(0, 0.2), st.floats(0, 0.6))
def test_guarantees_from_measured_errors(seed: int, eps: float, eps0: float) -> None:
    """Every rule keeps its promise on the true errors when all measured ones are within eps."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(size=(6, 5))
    seen = np.clip(true + rng.uniform(-eps, eps, true.shape), 0, 1)
    assert true[worst_case_erm(seen).index].max() <= true.max(1).min() + 2 * eps + 1e-9
    assert true[average_erm(seen).index].mean() <= true.mean(1).min() + 2 * eps + 1e-9
    chosen = favourable_count(seen, eps0, eps=eps).index
    assert (true[chosen] <= eps0 + 2 * eps + 1e-9).sum() >= (true <= eps0).sum(1).max()
    regret = (true - true.min(0)).max(1)
    assert regret[worst_case_regret(seen).index] <= regret.min() + 4 * eps + 1e-9


def test_results_print_and_plot() -> None:
    result = worst_case_erm(ROWS)
    assert str(result).startswith("worst-case error: predictor 0, 0.3")
    assert result.to_frame().chosen.tolist() == [True, False, False]
    axes = result.plot().axes[0]
    assert [label.get_fontweight() for label in axes.get_yticklabels()] == ["bold", "normal", "normal"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: worst_case_erm([0.1, 0.2]), "must be \\(predictors, transformations\\)"),
        (lambda: worst_case_erm([[]]), "none of them 0"),
        (lambda: average_erm([[1.2]]), "lie in \\[0, 1\\]"),
        (lambda: worst_case_regret([[np.nan]]), "lie in \\[0, 1\\]"),
        (lambda: favourable_count(ROWS, 2), "eps0 = 2"),
        (lambda: favourable_count(ROWS, 0.1, prior=[1, 2]), "prior must hold"),
        (lambda: sample_size(1, 2, 0), "eps = 0 must lie"),
        (lambda: sample_size(1, 2, 0.1, 1), "delta = 1 must lie"),
        (lambda: sample_size(1, 2, 0.1, constant=0), "constant = 0"),
        (lambda: sauer_vc_bound(-1, 2), "vc = -1"),
        (lambda: hoeffding_gap(0, 1, 1), "n_predictors = 0"),
    ],
)
def test_what_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 12), st.integers(1, 10**6))
def test_vc_bound_by_brute_force(vc: int, n_transforms: int) -> None:
    def shatters(m: int) -> bool:
        return n_transforms * sum(math.comb(m, i) for i in range(vc + 1)) >= 2**m

    assert sauer_vc_bound(vc, n_transforms) == max(m for m in range(200) if shatters(m))


def test_vc_bound_known_values() -> None:
    assert sauer_vc_bound(1, 1) == 1
    assert sauer_vc_bound(2, 8) == 8
    assert sauer_vc_bound(7, 1) == 7  # one transformation adds nothing
    assert sauer_vc_bound(0, 1024) == 10  # log2 of the number of labellings
    grown = [sauer_vc_bound(3, 10**k) for k in (3, 6, 9, 12)]  # logarithmic in the number of transformations
    assert all(b - a <= math.log2(1000) + 5 for a, b in pairwise(grown))


def test_vc_bound_holds_for_thresholds_and_reflections() -> None:
    """Thresholds sign(x - a) (vc 1) with x and -x label 2 points in all ways, and no 3; the bound says at most 3."""
    points, cuts = np.array([0.0, 1.0, 2.0]), np.array([-0.5, 0.5, 1.5, 2.5])
    labellings = {tuple((s * points > s * c).tolist()) for s in (1, -1) for c in cuts}
    assert {pattern[:2] for pattern in labellings} == {(a, b) for a in (False, True) for b in (False, True)}
    assert len(labellings) == 6 < 8
    assert sauer_vc_bound(1, 2) == 3


def test_sample_sizes() -> None:
    assert sample_size(2, 8, 0.1, 0.05) == math.ceil((8 + math.log(20)) / 0.01)
    assert sample_size(2, None, 0.1, 0.05) == math.ceil((2 + math.log(20)) / 0.01)
    assert sample_size(2, None, 0.1, 0.05, constant=3) == math.ceil(3 * (2 + math.log(20)) / 0.01)
    assert hoeffding_gap(3, 5, 1000, 0.05) == pytest.approx(math.sqrt(math.log(600) / 2000))


def test_hoeffding_gap_covers() -> None:
    """The largest of 15 deviations of shares of 200 stays within the gap in 95 % of 2000 draws."""
    rng = np.random.default_rng(0)
    true = rng.uniform(0.2, 0.8, 15)
    seen = rng.binomial(200, true, (2000, 15)) / 200
    assert (np.abs(seen - true).max(1) <= hoeffding_gap(3, 5, 200, 0.05)).mean() >= 0.95
