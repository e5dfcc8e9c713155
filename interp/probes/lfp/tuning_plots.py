"""Plots of a tuning on feedback and of an ablation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.core.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from interp.probes.lfp.ablation import AblationReport
    from interp.probes.lfp.tuned import TunedModel

LABELS = {
    "reward": "reward",
    "kl": "KL to the base, nats a token",
    "length": "tokens written",
    "accuracy": "accuracy on pairs",
    "margin": "margin of implicit reward",
}


def plot_tuning(tuned: TunedModel) -> Figure:
    """Reward, KL and length (for pairs also accuracy and margin) over the steps."""
    names = [name for name in LABELS if any(name in row for row in tuned.history)]
    figure, axes = new_figure(1, len(names), size=(3.6 * len(names), 3.0))
    for ax, name, colour in zip(np.atleast_1d(axes), names, COLOURS, strict=False):
        points = [(row["step"], row[name]) for row in tuned.history if name in row]
        steps, values = zip(*points, strict=True)
        ax.plot(steps, values, color=colour, marker="o" if len(points) < 20 else None, markersize=4)
        ax.set(xlabel="step", title=LABELS[name])
        ax.xaxis.get_major_locator().set_params(integer=True)
        if name in ("kl", "length"):
            ax.set_ylim(0, 1.1 * max(values) or 1)
    return figure


def plot_ablation(report: AblationReport) -> Figure:
    """Change of reward by each ablation, with two standard errors; the random sets are apart."""
    rows = report.rows[1:]
    figure, ax = new_figure(size=(6.4, 1.2 + 0.34 * len(rows)))
    for k, row in enumerate(rows):
        colour = COLOURS[5] if row.name.startswith("random") else COLOURS[0 if "error" in row.mode else 1]
        ax.errorbar(row.change, k, xerr=2 * row.change_error, fmt="o", color=colour, capsize=3)
    ax.axvline(0, color="black", linewidth=0.8)
    names = [f"{row.name}, {row.mode.replace('_', ' ')}" for row in rows]
    ax.set(yticks=range(len(rows)), yticklabels=names, xlabel="change of reward (± 2 s.e.)")
    ax.xaxis.get_major_locator().set_params(nbins=5)
    ax.invert_yaxis()
    ax.set_title(f"reward as it is: {report.rows[0].reward:.3f}")
    return figure
