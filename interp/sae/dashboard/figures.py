"""The report's figures as files, for papers and READMEs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from interp.core.plotting import COLOURS, new_figure, pareto
from interp.sae.dashboard.page import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pareto_figure(report: Report) -> Figure | None:
    """Loss recovered and FVU against L0, a line for each architecture; None where nothing was evaluated."""
    evaluations = report.evaluations
    panels = [
        ("loss_recovered", "loss recovered"),
        ("fvu", "fraction of variance unexplained"),
    ]
    panels = [p for p in panels if any(not math.isnan(getattr(e, p[0])) for e in evaluations)]
    if not panels:
        return None
    figure, axes = new_figure(1, len(panels))
    for ax, (attribute, label) in zip([axes] if len(panels) == 1 else axes, panels, strict=True):
        for architecture in dict.fromkeys(e.architecture for e in evaluations):
            mine = [
                e
                for e in evaluations
                if e.architecture == architecture and e.l0 > 0 and not math.isnan(getattr(e, attribute))
            ]
            if mine:
                pareto(ax, [e.l0 for e in mine], [getattr(e, attribute) for e in mine], architecture)
        ax.set(xlabel="L0, latents per token", ylabel=label)
    return figure


def density_figure(report: Report) -> Figure | None:
    """Histograms of log10 firing density."""
    entries = [entry for entry in report.entries if entry.density is not None]
    if not entries:
        return None
    figure, ax = new_figure(size=(6.4, 3.4))
    for colour, entry in zip(_colours(len(entries)), entries, strict=True):
        density = entry.density
        assert density is not None
        label = f"{entry.name} ({density.n_dead:,} dead)"
        ax.stairs(density.counts, density.edges, fill=True, alpha=0.3, color=colour)
        ax.stairs(density.counts, density.edges, color=colour, label=label)
    ax.set(xlabel="log10 of the share of tokens on which a latent fires", ylabel="latents")
    ax.legend()
    return figure


def loss_figure(report: Report) -> Figure | None:
    """Training loss and L0 against the step."""
    entries = [entry for entry in report.entries if entry.history]
    if not entries:
        return None
    figure, axes = new_figure(1, 2)
    for ax, metric, title in zip(axes, ("loss", "l0"), ("training loss", "L0"), strict=True):
        for colour, entry in zip(_colours(len(entries)), entries, strict=True):
            assert entry.history is not None
            steps, values = entry.history.column(metric)
            ax.plot(steps, values, label=entry.name, color=colour, linewidth=1.2)
        ax.set(xlabel="step", title=title, yscale="log")
    axes[0].legend()
    return figure


def _colours(n: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(n)]
