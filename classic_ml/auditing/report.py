"""An audit's outcome: the verdict, what it rests on, and how many queries would be enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from classic_ml.auditing.certificate import certified_interval
from classic_ml.auditing.membership import IntArray
from classic_ml.auditing.plans import AuditPlan
from classic_ml.auditing.regions import BoolArray, FloatArray
from classic_ml.auditing.tally import Counterexample
from interp.core.intervals import Interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class UndecidedError(RuntimeError):
    """The queries do not decide the audit."""


@dataclass(frozen=True, eq=False)
class AuditReport:
    """Attributes (m audited points in the order of their rows, n2 reference points):

    estimate: of L_gamma. Decided by "counts", the share of audited points that are determined and wrong; by
        "certificate", the interval's middle; undecided, the naive share (`naive_range`[0]), which is no verdict, or NaN
        where no point is determined.
    interval: contains L_gamma with probability 1 - delta, no blur.
    status: "decided" or "needs_more_queries"; decided_by: "counts", "certificate" or None.
    n_required: queries with which the simple audit would decide, "about" or "at least" (`relation`) that many.
    plan: the simple audit's plan at the locality seen.
    local_losses, low, high: [m] estimates, NaN for an empty region, and simultaneous exact bounds.
    n_in_region, undetermined: [m] reference points per region, and whether they are fewer than k_min.
    locality_quantiles: 5, 50, 95 % of the regions' shares of the reference points.
    mean_local_loss: over regions that aren't empty: another number than L_gamma.
    self_agreement: share of audited points with g_x(x) = f(x); no evidence, usually 1 by construction.
    counterexamples: the worst explanations, one contradiction each.
    audited_rows: [m] rows of the data.
    """

    estimate: float
    interval: Interval
    status: Literal["decided", "needs_more_queries"]
    decided_by: Literal["counts", "certificate"] | None
    n_required: int
    relation: Literal["about", "at least"]
    local_losses: FloatArray
    low: FloatArray
    high: FloatArray
    n_in_region: IntArray
    undetermined: BoolArray
    locality_quantiles: tuple[float, float, float]
    mean_local_loss: float
    self_agreement: float
    counterexamples: list[Counterexample]
    audited_rows: IntArray
    n_reference: int
    plan: AuditPlan
    gamma: float
    delta: float

    @property
    def n_audit(self) -> int:
        return len(self.local_losses)

    @property
    def k_min(self) -> int:
        """Reference points from which a region counts as determined."""
        return self.plan.k_min

    @property
    def locality_estimate(self) -> float:
        """Mass of the small regions (their eps2 / 4 quantile, at most the 5 % one), or where those hold fewer than ten
        reference points an upper bound of it ("at least")."""
        return self.plan.locality

    @property
    def n_lower_bound(self) -> float:
        """No auditor can do with fewer queries at this locality; NaN outside the theorem's range of eps and gamma."""
        return self.plan.n_lower_bound

    @property
    def naive_range(self) -> tuple[float, float]:
        """Share of wrong ones among all audited points, undetermined counted as fine, and among the determined."""
        return naive_shares(self.local_losses, ~self.undetermined, self.gamma)

    def at(self, gamma: float) -> Interval:
        """The interval of L_gamma at another threshold; all of them hold together with probability 1 - delta."""
        return certified_interval(self.low, self.high, gamma, self.delta)

    def raise_if_undecided(self) -> AuditReport:
        """Itself. Raises UndecidedError where more queries are needed."""
        if self.status == "decided":
            return self
        raise UndecidedError(
            f"the audit is undecided: L_{self.gamma:g} lies in {self.interval}; {self.relation} {self.n_required:,} "
            f"queries are needed, {self.n_audit + self.n_reference:,} were given"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per audited point."""
        import pandas as pd

        certainty = np.where(
            self.low >= self.gamma, "wrong", np.where(self.high < self.gamma, "fine", "open")
        )
        columns = {
            "n_in_region": self.n_in_region,
            "determined": ~self.undetermined,
            "local_loss": self.local_losses,
            "low": self.low,
            "high": self.high,
            "surely": certainty,
        }
        return pd.DataFrame(columns, index=pd.Index(self.audited_rows, name="row"))

    def plot(self) -> Figure:
        """The certified interval at every threshold, and how many reference points the regions hold."""
        from classic_ml.auditing.audit_plots import plot_report

        return plot_report(self)

    def summary(self) -> str:
        """The report in words."""
        low, median, high = self.locality_quantiles
        n = self.n_audit + self.n_reference
        naive = "" if self.decided_by else ", naive: no verdict"
        bound = "not known here" if math.isnan(self.n_lower_bound) else f"{self.n_lower_bound:,.0f}"
        lines = [
            f"{self.n_audit:,} explanations audited on {self.n_reference:,} reference points",
            f"  regions hold a median share of {median:.3g} of the data (5 %: {low:.3g}, 95 %: {high:.3g})",
            f"  undetermined            {self.undetermined.mean():.1%} (fewer than {self.k_min} points in the region)",
            f"  L_{self.gamma:<8g} estimate     {self.estimate:.4g}{naive}",
            f"             interval     {self.interval} with probability {1 - self.delta:g}",
            f"  mean local loss         {self.mean_local_loss:.4g}",
            f"  agreement on the explained points themselves {self.self_agreement:.1%} (no evidence)",
            f"  status                  {self.status}"
            + (f", by {self.decided_by}" if self.decided_by else ""),
            f"  queries                 {n:,} given; the simple audit needs {self.relation} {self.n_required:,} "
            f"({self.plan.n_audit:,} audited); no auditor can do with fewer than: {bound}",
        ]
        return "\n".join(lines + [f"  {example}" for example in self.counterexamples])

    def __str__(self) -> str:
        return self.summary()


def naive_shares(losses: FloatArray, determined: BoolArray, gamma: float) -> tuple[float, float]:
    """Share of wrong ones among all points [m], and among those that are determined (NaN for none)."""
    wrong = determined & (np.nan_to_num(losses) >= gamma)
    return float(wrong.mean()), float(wrong.sum() / determined.sum()) if determined.any() else math.nan
