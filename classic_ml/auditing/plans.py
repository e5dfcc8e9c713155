"""How many queries an audit takes: enough (the simple auditor's plan), and too few for any auditor.

Bhattacharjee, von Luxburg 2024, "Auditing Local Explanations is Hard", NeurIPS, arXiv 2407.13281.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal

from scipy.special import betaincc

from classic_ml.auditing.explanations import in_unit_interval
from interp.core.messages import one_of

Constants = Literal["tight", "paper"]
BLUR_LIMIT, GAMMA_LIMIT = 1 / 48, 1 / 3  # of the lower bound


@dataclass(frozen=True)
class AuditPlan:
    """Queries with which the simple auditor keeps its promise for explanations of at least this locality.

    Attributes:
        n_audit: points whose explanations are judged (m).
        n_reference: points that judge them (n2).
        k_min: reference points a region must hold to count as determined (k).
        n_lower_bound: below this many queries no auditor can keep the promise; NaN outside the theorem's range.
    """

    locality: float
    n_audit: int
    n_reference: int
    k_min: int
    n_lower_bound: float

    @property
    def n_total(self) -> int:
        return self.n_audit + self.n_reference

    def __str__(self) -> str:
        low = "not known" if math.isnan(self.n_lower_bound) else f"{self.n_lower_bound:,.0f}"
        return (
            f"locality {self.locality:.3g}: {self.n_total:,} queries ({self.n_audit:,} audited, {self.n_reference:,} "
            f"for reference, {self.k_min:,} in each region); lower bound {low}"
        )


def audit_plan(
    locality: float, eps1: float, eps2: float, gamma: float, delta: float, constants: Constants = "tight"
) -> AuditPlan:
    """The simple auditor's sample sizes.  With regions of mass at least `locality` it gives, with probability at
    least 1 - delta, a number A with

        L_{gamma (1 + eps1)} - eps2 <= A <= L_{gamma (1 - eps1)} + eps2.

    "paper" uses the constants of Theorem 4.2, "tight" those that the same proof needs: with k = k_min, Hoeffding
    judges a point of the audit wrongly, or its region holds fewer than k points, with probability at most
    eps2 delta / 4; by Markov such points are more than eps2 / 2 of the audit with probability at most delta / 2; the
    audited points stray by more than eps2 / 2 with probability at most delta / 2.

    The infimum of the regions' masses is fragile, one tiny region makes the plan infinite: plan with a quantile, the
    proof tolerates a share of tiny regions within eps2.

    Args:
        locality: mass of the smallest region, in (0, 1].
        eps1: blur of the threshold, relative.  eps2: accuracy of the share.
        gamma: local loss from which an explanation is called wrong.  delta: probability of failure.

    Raises:
        ValueError: an argument outside its range, named.
    """
    if not 0 < locality <= 1:
        raise ValueError(
            f"locality = {locality} must lie in (0, 1]: the share of the data in the smallest region"
        )
    check_rates(eps1, eps2, gamma, delta, constants)
    if constants == "paper":
        k = math.log(176 / (eps2 * delta)) / (2 * gamma**2 * eps1**2)
        m = math.ceil(61 / eps2**2 * math.log(12 / delta))
        n2 = math.ceil(k / locality * math.log(88 * k / (eps2 * delta)))
        k_min = math.ceil(k)
    else:
        k_min = math.ceil(math.log(16 / (eps2 * delta)) / (2 * gamma**2 * eps1**2))
        m = math.ceil(2 / eps2**2 * math.log(4 / delta))
        n2 = _draws_for(k_min, locality, eps2 * delta / 8)
    covered = max(eps1, eps2) <= BLUR_LIMIT and gamma < GAMMA_LIMIT
    bound = query_lower_bound(locality, eps1, eps2, gamma) if covered else math.nan
    return AuditPlan(locality, m, n2, k_min, bound)


def query_lower_bound(locality: float, eps1: float, eps2: float, gamma: float) -> float:
    """1 / (2592 eps locality^(1 - 8 eps)), eps = max(eps1, eps2): with no more queries than this there are data, a
    classifier and explanations of this locality on which any auditor fails with probability at least 1/3.

    Theorem 4.1; it holds for eps1, eps2 <= 1/48 and gamma < 1/3. Outside, NaN and a UserWarning.
    """
    if not 0 < locality <= 1:
        raise ValueError(
            f"locality = {locality} must lie in (0, 1]: the share of the data in the smallest region"
        )
    for name, value in (("eps1", eps1), ("eps2", eps2), ("gamma", gamma)):
        in_unit_interval(name, value)
    eps = max(eps1, eps2)
    if eps > BLUR_LIMIT or gamma >= GAMMA_LIMIT:
        warnings.warn(
            f"the lower bound is proven for eps1, eps2 <= 1/48 and gamma < 1/3, not for eps1 = {eps1:g}, "
            f"eps2 = {eps2:g}, gamma = {gamma:g}",
            UserWarning,
            stacklevel=2,
        )
        return math.nan
    return 1 / (2592 * eps * locality ** (1 - 8 * eps))


def check_rates(eps1: float, eps2: float, gamma: float, delta: float, constants: str) -> None:
    """Raise ValueError unless every rate lies in (0, 1) and the constants are known."""
    for name, value in (("eps1", eps1), ("eps2", eps2), ("gamma", gamma), ("delta", delta)):
        in_unit_interval(name, value)
    one_of("constants", constants, ("tight", "paper"))


def _draws_for(k: int, p: float, failure: float) -> int:
    """The smallest n with Pr[Binomial(n, p) < k] <= failure."""

    def too_few(n: int) -> bool:
        return p < 1 and betaincc(k, n - k + 1, p) > failure  # the binomial's distribution function at k - 1

    if not too_few(k):
        return k
    low, high = k, 2 * k
    while too_few(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if too_few(middle) else (low, middle)
    return high
