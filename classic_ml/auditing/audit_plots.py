"""Figures of an audit and of its plans; nothing here computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from classic_ml.auditing.plans import AuditPlan
from interp.core.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from classic_ml.auditing.report import AuditReport


def plot_report(report: AuditReport) -> Figure:
    """Left: the certified interval of L_gamma over gamma beside the naive share; right: counts per region."""
    figure, (left, right) = new_figure(1, 2)
    gammas = np.linspace(0.005, 0.995, 199)
    band = [report.at(g) for g in gammas]
    left.fill_between(gammas, [b.low for b in band], [b.high for b in band], alpha=0.25, color=COLOURS[0])
    seen = report.local_losses[report.n_in_region > 0]
    if len(seen):
        left.plot(
            gammas,
            [(seen >= g).mean() for g in gammas],
            color=COLOURS[1],
            label="naive, of regions not empty",
        )
    left.axvline(report.gamma, color="grey", linewidth=0.8)
    left.plot([report.gamma], [report.estimate], "o", color=COLOURS[0], label=f"estimate ({report.status})")
    left.set(xlabel="threshold γ", ylabel="share of wrong explanations L_γ", ylim=(-0.02, 1.02))
    left.legend()
    counts = np.maximum(report.n_in_region, 0.5)  # the empty ones left of 1
    right.hist(counts, bins=np.geomspace(0.4, max(counts.max(), report.k_min) * 1.2, 40), color=COLOURS[0])
    right.axvline(report.k_min, color=COLOURS[1], label=f"k_min = {report.k_min}")
    right.set(xscale="log", xlabel="reference points in the region (empty: 0.5)", ylabel="audited points")
    right.legend()
    return figure


def plot_plans(plans: Sequence[AuditPlan], labels: Sequence[str] | None = None) -> Figure:
    """Queries against locality: the plans joined per label, and the lower bound where it is known."""
    figure, ax = new_figure(size=(5.6, 3.8))
    names = list(labels) if labels is not None else ["simple audit"] * len(plans)
    for colour, name in zip(COLOURS, dict.fromkeys(names), strict=False):
        mine = [plan for plan, label in zip(plans, names, strict=True) if label == name]
        ax.plot([p.locality for p in mine], [p.n_total for p in mine], "o-", color=colour, label=name)
        ax.plot([p.locality for p in mine], [p.n_lower_bound for p in mine], "--", color=colour)
    ax.set(xscale="log", yscale="log", xlabel="locality λ", ylabel="queries (dashed: no auditor with fewer)")
    ax.legend()
    return figure
