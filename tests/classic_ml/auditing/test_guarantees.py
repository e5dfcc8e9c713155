"""The theorems: the promise by simulation, undecidable audits that stay undecided, and advice that is enough."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from classic_ml.auditing import (
    CallableRegion,
    ConstantModel,
    ExplanationAuditor,
    LocalExplanation,
    UndecidedError,
    audit_plan,
    clopper_pearson,
    constant_box_explainer,
)
from classic_ml.auditing.certificate import certified_interval
from classic_ml.auditing.judging import judge
from classic_ml.auditing.pool import QueryPool
from classic_ml.auditing.report import naive_shares
from tests.classic_ml.auditing.worlds import RATES, SHARES, Cells, step


def test_exact_instance_in_one_dimension() -> None:
    """f a step at 1/2, regions [x - h, x + h]: L_gamma = 2 h (1 - 2 gamma), mean loss h / 2, locality h."""
    X = np.random.default_rng(0).uniform(size=(22_000, 1))
    auditor = ExplanationAuditor(**{**RATES, "gamma": 0.25}, n_audit=2000, random_state=0)
    report = auditor.audit(X, step(X), constant_box_explainer(step, 0.1))
    assert report.decided_by == "counts"
    assert 0.08 <= report.estimate <= 0.12
    assert report.mean_local_loss == pytest.approx(0.05, abs=0.01)
    assert report.n_in_region.min() / 20_000 == pytest.approx(0.1, abs=0.01)
    assert report.locality_quantiles[1] == pytest.approx(0.2, abs=0.01)
    assert report.self_agreement == 1  # the audited points themselves would have shown nothing
    for gamma, loss in ((0.1, 0.16), (0.25, 0.10), (0.4, 0.04)):
        assert (report.local_losses >= gamma).mean() == pytest.approx(loss, abs=0.03)
        assert report.at(gamma).low <= loss <= report.at(gamma).high


def test_the_promise_by_simulation() -> None:
    """L_{.45} = .3 and L_{.15} = .4 here: (1) says .2 <= A <= .5, with probability .9; L_{.3} = .3."""
    world, plan = Cells(SHARES), audit_plan(0.1, **RATES)
    assert (plan.n_audit, plan.n_reference) == (738, 2033)
    estimates, failures, missed = [], 0, 0
    for seed in range(100):
        auditor = ExplanationAuditor(**RATES, n_audit=738, random_state=seed)
        report = auditor.audit(*world.queries(plan.n_total, seed))
        missed += not report.interval.low <= 0.3 <= report.interval.high
        if report.decided_by == "counts":
            estimates.append(report.estimate)
            failures += not 0.2 <= report.estimate <= 0.5
    assert len(estimates) >= 90
    assert failures <= 10
    assert missed <= 10
    assert np.mean(estimates) == pytest.approx(0.3, abs=0.02)


def test_counts_that_cannot_suffice_give_no_number() -> None:
    world = Cells(SHARES)
    for seed in range(20):
        report = ExplanationAuditor(**RATES, n_audit=738, random_state=seed).audit(*world.queries(938, seed))
        assert report.status == "needs_more_queries"
        assert math.isnan(report.estimate)  # no region holds 164 points; 0 would be the trap of the paper
        assert report.undetermined.all()
        assert report.n_required > 938
        with pytest.raises(UndecidedError, match=f"{report.n_required:,} queries are needed, 938 were given"):
            report.raise_if_undecided()


@pytest.mark.parametrize(("n", "n_cells", "collision"), [(50, 1000, 0.7123), (100, 10**6, 0.00494)])
def test_with_few_queries_honest_and_made_up_look_the_same(n: int, n_cells: int, collision: float) -> None:
    assert 1 - np.prod(1 - np.arange(n) / n_cells) == pytest.approx(collision, rel=2e-3)
    X = np.random.default_rng(3).uniform(size=(n, 1))
    reports = []
    for made_up in (0.0, 0.5):
        world = Cells(made_up, n_cells)
        labels = np.ones(n, int) if made_up == 0 else np.where(np.arange(n) % 2, 1, -1)  # f(x) tells nothing
        model = [
            LocalExplanation(world.explain(x).region, ConstantModel(y))
            for x, y in zip(X, labels, strict=True)
        ]
        reports.append(ExplanationAuditor(**RATES, random_state=0).audit(X, labels, model))
    assert np.array_equal(reports[0].n_in_region, reports[1].n_in_region)
    assert reports[0].n_in_region.sum() <= 8  # the few collisions
    for report in reports:
        assert report.interval.high - report.interval.low > 0.9
        assert (report.status, report.relation) == ("needs_more_queries", "at least")
        assert report.locality_estimate == pytest.approx(1 - 0.05 ** (1 / report.n_reference))
        assert report.n_required == audit_plan(report.locality_estimate, **RATES).n_total > 50 * n
        assert report.self_agreement == 1


def test_advice_grows_with_the_number_of_cells() -> None:
    advised = []
    for n_cells, n2 in ((10, 2033), (20, 4088), (40, 8197)):
        plan = audit_plan(1 / n_cells, **RATES)
        assert plan.n_reference == n2
        world = Cells(0.3, n_cells)  # on the threshold: no interval decides
        report = ExplanationAuditor(**RATES, n_audit=738, random_state=1).audit(
            *world.queries(738 + 100 * n_cells, n_cells)
        )
        assert (report.status, report.relation) == ("needs_more_queries", "about")
        assert 0.9 <= report.n_required / plan.n_total <= 1.5
        assert 0.9 <= report.plan.n_reference / n2 <= 1.5
        advised.append(report.plan.n_reference)
    assert 1.5 < advised[1] / advised[0] < 2.7
    assert 1.5 < advised[2] / advised[1] < 2.7


def test_with_the_plan_honest_and_made_up_are_told_apart() -> None:
    plan = audit_plan(0.1, **RATES)
    for share, estimate in ((0.0, 0), (0.5, 1)):
        for seed in range(4):
            auditor = ExplanationAuditor(**RATES, n_audit=738, random_state=seed)
            report = auditor.audit(
                *Cells(share, 10).queries(int(1.1 * plan.n_total), seed)
            ).raise_if_undecided()
            assert (report.decided_by, report.estimate) == ("counts", estimate)


def test_the_certificate_decides_with_fewer_than_k_min() -> None:
    """100 points a region, none wrong: not determined, but surely below 0.3."""
    report = ExplanationAuditor(**RATES, n_audit=738, random_state=0).audit(*Cells(0.0, 10).queries(1738, 0))
    assert report.undetermined.all()
    assert report.decided_by == "certificate"
    assert report.interval.low == 0
    assert report.interval.high == pytest.approx(math.sqrt(math.log(40) / (2 * 738)))
    assert report.estimate == report.interval.high / 2  # within eps2 of all that the interval holds
    assert report.raise_if_undecided() is report


def test_worked_example() -> None:
    """Two audited points: 4 of 10 wrong, and an empty region."""
    inside, losses = np.array([10, 0]), np.array([0.4, np.nan])
    shares = naive_shares(losses, inside >= 5, 0.3)
    assert shares == (0.5, 1.0)
    low, high = clopper_pearson([4, 0], inside, 0.05)
    assert (low[0], high[0]) == pytest.approx((0.1216, 0.7376), abs=5e-5)
    assert (low[1], high[1]) == (0, 1)
    wide = certified_interval(np.tile(low, 10**6), np.tile(high, 10**6), 0.3, 0.1)
    assert wide == (0, 1)  # before the sampling slack already


def test_worked_example_with_a_plan() -> None:
    """The same with 12 of 30 at rates whose k_min is 29: status, naive range and estimate."""
    rates = {"eps1": 0.9, "eps2": 0.5, "gamma": 0.3, "delta": 0.5}
    X = np.r_[0.5, 5.0, np.linspace(0, 1, 30)][:, None]
    f = np.r_[1, 1, np.where(np.arange(30) < 12, -1, 1)]
    pool = QueryPool(np.random.default_rng(0), 1)
    near = LocalExplanation(CallableRegion(lambda Z: Z[:, 0] <= 1), ConstantModel(1))
    far = LocalExplanation(CallableRegion(lambda Z: Z[:, 0] > 4), ConstantModel(1))
    pool.add([near, far], X, f, np.array([0, 1]), np.arange(2, 32))
    report = judge(pool, **rates, constants="tight", quarter=False)
    assert report.k_min == 29
    assert report.n_in_region.tolist() == [30, 0]
    assert (report.status, report.estimate, report.naive_range) == ("needs_more_queries", 0.5, (0.5, 1.0))
    assert report.mean_local_loss == 0.4
    assert report.undetermined.tolist() == [False, True]
    worst = report.counterexamples
    assert len(worst) == 1
    assert (worst[0].audited, worst[0].reference, worst[0].classifier, worst[0].model) == (0, 2, -1, 1)
    assert "no verdict" in report.summary()


@pytest.mark.parametrize("small", [0.0, 0.04])
def test_who_follows_the_advice_gets_a_verdict(small: float) -> None:
    """Also where 4 % of the data, more than the slack allows to ignore, live in regions of mass 0.004."""
    rates = {**RATES, "gamma": 0.5}
    edges = (
        np.r_[np.linspace(0, small, 11), np.linspace(small, 1, 11)[1:]] if small else np.linspace(0, 1, 11)
    )
    explanations = [
        LocalExplanation(CallableRegion(lambda Z, a=a, b=b: (Z[:, 0] >= a) & (Z[:, 0] < b)), ConstantModel(1))
        for a, b in itertools.pairwise(edges)
    ]

    def report(n: int) -> object:
        X = np.random.default_rng(n).uniform(size=(n, 1))
        f = np.where(
            (X[:, 0] * 1e5).astype(int) % 2, 1, -1
        )  # wrong on half of every region: on the threshold
        own = np.searchsorted(edges, X[:, 0], side="right") - 1
        return ExplanationAuditor(**rates, random_state=0).audit(X, f, [explanations[i] for i in own])

    first = report(6000 if small else 1200)
    assert first.status == "needs_more_queries"
    n = int(1.1 * first.n_required)
    if first.relation == "at least":
        n = int(1.1 * report(4 * first.n_required).n_required)
    assert report(n).decided_by == "counts"


def test_undetermined_beyond_the_slack_are_never_decided_by_counts() -> None:
    """A share of 4 % in empty regions, eps2 = 0.1: more than eps2 / 4, although less than eps2 / 2."""
    X = np.random.default_rng(0).uniform(size=(4000, 1))
    everything = LocalExplanation(CallableRegion(lambda Z: Z[:, 0] >= 0), ConstantModel(1))
    labels = np.where(np.arange(4000) % 10 < 3, -1, 1)

    def explain(x: np.ndarray) -> LocalExplanation:
        alone = LocalExplanation(CallableRegion(lambda Z: Z[:, 0] == x[0]), ConstantModel(1))
        return alone if x[0] < 0.04 else everything

    report = ExplanationAuditor(**RATES, random_state=0).audit(X, labels, explain)
    assert 0.025 < report.undetermined.mean() < 0.05
    assert report.decided_by != "counts"
    assert (
        ExplanationAuditor(**{**RATES, "eps2": 0.25}, random_state=0).audit(X, labels, explain).decided_by
        == "counts"
    )
