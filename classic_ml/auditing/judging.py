"""From counts to a verdict: the simple audit where its counts suffice, else exact intervals, else what is missing."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from classic_ml.auditing.certificate import certified_interval, clopper_pearson, proportion_upper_bound
from classic_ml.auditing.membership import IntArray
from classic_ml.auditing.plans import Constants, audit_plan
from classic_ml.auditing.pool import QueryPool
from classic_ml.auditing.regions import FloatArray
from classic_ml.auditing.report import AuditReport, naive_shares
from classic_ml.auditing.tally import Counterexample

ENOUGH_TO_MEASURE = 10  # reference points in a small region, from which its mass is estimated
N_WORST = 3


def judge(
    pool: QueryPool,
    *,
    eps1: float,
    eps2: float,
    gamma: float,
    delta: float,
    constants: Constants,
    quarter: bool,
) -> AuditReport:
    """The report on a pool of queries; with `quarter`, a quarter of them was audited (up to the plan's number)."""
    inside, wrong = pool.counts.n_in_region, pool.counts.n_wrong
    m, n2 = len(inside), len(pool.reference)
    losses = np.divide(wrong, inside, out=np.full(m, np.nan), where=inside > 0)
    low, high = clopper_pearson(wrong, inside, delta / (2 * m))
    locality, relation = _locality(inside, n2, min(0.05, eps2 / 4))
    plan = audit_plan(locality, eps1, eps2, gamma, delta, constants)
    determined = inside >= plan.k_min
    interval = certified_interval(low, high, gamma, delta)
    decided_by: Literal["counts", "certificate"] | None = None
    estimate = naive_shares(losses, determined, gamma)[0]
    if m >= plan.n_audit and (~determined).mean() <= eps2 / 4:
        decided_by = "counts"
    elif interval.high - interval.low <= 2 * eps2 and interval != (0, 1):  # which says nothing, whatever eps2
        decided_by, estimate = "certificate", (interval.low + interval.high) / 2
    elif not determined.any():
        estimate = math.nan
    low5, median, high5 = np.quantile(inside, (0.05, 0.5, 0.95)) / n2
    return AuditReport(
        estimate=estimate,
        interval=interval,
        status="decided" if decided_by else "needs_more_queries",
        decided_by=decided_by,
        n_required=max(plan.n_total, 4 * plan.n_audit if quarter else 0),
        relation=relation,
        local_losses=losses,
        low=low,
        high=high,
        n_in_region=inside,
        undetermined=~determined,
        locality_quantiles=(float(low5), float(median), float(high5)),
        mean_local_loss=float(np.nanmean(losses)) if (inside > 0).any() else math.nan,
        self_agreement=float(pool.agreement.mean()),
        counterexamples=_worst(pool, losses, low),
        audited_rows=pool.audited_rows,
        n_reference=n2,
        plan=plan,
        gamma=gamma,
        delta=delta,
    )


def _locality(inside: IntArray, n2: int, share: float) -> tuple[float, Literal["about", "at least"]]:
    """The mass to plan with: that of all but a `share` of the regions, or where those hold too few points to measure,
    a 95 % upper bound on it: half of the regions, or (Bonferroni over all) more than that share, have no more."""
    small = int(np.quantile(inside, share, method="inverted_cdf"))
    if small >= ENOUGH_TO_MEASURE:
        return small / n2, "about"
    typical = proportion_upper_bound(int(np.median(inside)), n2)
    return min(typical, proportion_upper_bound(small, n2, 0.05 / len(inside))), "at least"


def _worst(pool: QueryPool, losses: FloatArray, low: FloatArray) -> list[Counterexample]:
    counts = pool.counts
    order = np.lexsort([pool.audited_rows, -np.nan_to_num(losses), -low])
    found = []
    for i in [int(i) for i in order if counts.first_wrong[i] >= 0][:N_WORST]:
        at = int(np.searchsorted(pool.reference_rows, counts.first_wrong[i]))
        found.append(
            Counterexample(
                audited=int(pool.audited_rows[i]),
                reference=int(counts.first_wrong[i]),
                point=pool.reference[at],
                classifier=pool.reference_labels[at : at + 1].tolist()[0],
                model=counts.first_label[i],
                local_loss=float(losses[i]),
                low=float(low[i]),
                n_in_region=int(counts.n_in_region[i]),
            )
        )
    return found
