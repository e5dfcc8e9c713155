"""Plans: the sheet's figures, the smallest sample that does, the lower bound and where it is not known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from classic_ml.auditing import audit_plan, plot_plans, query_lower_bound

RATES = {"eps1": 0.5, "eps2": 0.1, "gamma": 0.3, "delta": 0.1}


@pytest.mark.parametrize(
    ("constants", "locality", "m", "k", "n2"),
    [
        ("paper", 0.1, 29204, 218, 31421),
        ("tight", 0.1, 738, 164, 2033),
        ("tight", 0.05, 738, 164, 4088),
        ("tight", 0.025, 738, 164, 8197),
        ("tight", 1.0, 738, 164, 164),
    ],
)
def test_known_plans(constants: str, locality: float, m: int, k: int, n2: int) -> None:
    plan = audit_plan(locality, **RATES, constants=constants)
    assert (plan.n_audit, plan.k_min, plan.n_reference, plan.n_total) == (m, k, n2, m + n2)
    assert math.isnan(plan.n_lower_bound)
    assert f"{m + n2:,}" in str(plan)


def test_both_prints_of_theorem_4_2_agree() -> None:
    plan = audit_plan(0.01, 0.1, 0.05, 0.2, 0.05, constants="paper")
    x = 0.05 * 0.05
    second = math.log(176 / x) / (2 * 0.01 * 0.2**2 * 0.1**2)
    second *= math.log(44 * math.log(176 / x) / (x * 0.2**2 * 0.1**2))
    assert plan.n_reference == math.ceil(second)


@given(
    st.floats(1e-4, 1), st.floats(0.2, 0.9), st.floats(0.02, 0.9), st.floats(0.1, 0.9), st.floats(0.01, 0.9)
)
@settings(max_examples=40, deadline=None)
def test_the_reference_is_the_smallest_that_fills_the_regions(
    locality: float, eps1: float, eps2: float, gamma: float, delta: float
) -> None:
    plan = audit_plan(locality, eps1, eps2, gamma, delta)
    failure = eps2 * delta / 8
    assert binom.cdf(plan.k_min - 1, plan.n_reference, locality) <= failure * (1 + 1e-6)
    if plan.n_reference > plan.k_min:
        assert binom.cdf(plan.k_min - 1, plan.n_reference - 1, locality) > failure * (1 - 1e-6)
    # The proof: Hoeffding at k_min, and the audited points' own deviation.
    assert 2 * math.exp(-2 * plan.k_min * (eps1 * gamma) ** 2) <= failure * (1 + 1e-9)
    assert 2 * math.exp(-plan.n_audit * eps2**2 / 2) <= delta / 2 * (1 + 1e-9)
    paper = audit_plan(locality, eps1, eps2, gamma, delta, "paper")
    assert paper.n_audit >= plan.n_audit
    assert paper.n_reference >= plan.n_reference


def test_tiny_regions_have_plans_too() -> None:
    plan = audit_plan(1e-12, **RATES)
    assert plan.n_reference * 1e-12 == pytest.approx(audit_plan(1e-6, **RATES).n_reference * 1e-6, rel=1e-4)


def test_lower_bound() -> None:
    assert query_lower_bound(1e-6, 0.01, 0.01, 0.3) == pytest.approx(12775.1, abs=0.05)
    assert query_lower_bound(1e-6, 0.001, 0.01, 0.3) == query_lower_bound(1e-6, 0.01, 0.001, 0.3)
    plan = audit_plan(1e-6, 0.01, 0.01, 0.3, 0.05)
    assert plan.n_lower_bound == pytest.approx(12775.1, abs=0.05)
    assert plan.n_total > plan.n_lower_bound


@pytest.mark.parametrize("rates", [(0.03, 0.01, 0.3), (0.01, 0.03, 0.3), (0.01, 0.01, 0.34)])
def test_lower_bound_outside_its_range_is_not_known(rates: tuple[float, float, float]) -> None:
    with pytest.warns(UserWarning, match="gamma < 1/3"):
        assert math.isnan(query_lower_bound(1e-6, *rates))


@pytest.mark.parametrize("name", ["eps1", "eps2", "gamma", "delta"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, float("nan")])
def test_rates_outside_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} = "):
        audit_plan(0.1, **{**RATES, name: value})


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="locality = 0"):
        audit_plan(0, **RATES)
    with pytest.raises(ValueError, match=r"locality = 1\.5"):
        query_lower_bound(1.5, 0.01, 0.01, 0.3)
    with pytest.raises(ValueError, match=r"constants = 'tigth'.*'tight'"):
        audit_plan(0.1, **RATES, constants="tigth")


def test_plot() -> None:
    plans = [audit_plan(x, **RATES, constants=c) for c in ("tight", "paper") for x in (0.1, 0.01)]
    figure = plot_plans(plans, ["tight"] * 2 + ["paper"] * 2)
    solid = [line for line in figure.axes[0].lines if line.get_linestyle() == "-"]
    assert [list(line.get_ydata()) for line in solid] == [
        [p.n_total for p in plans[:2]],
        [p.n_total for p in plans[2:]],
    ]
    assert len(plot_plans(plans).axes[0].lines) == 2
