"""Figures of motif influence; nothing here computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from classic_ml.influence.estimate import BOUNDS
from interp.core.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from classic_ml.influence.comparison import SeedComparison
    from classic_ml.influence.maximizer import MotifSeeds

MARKERS = "osD^vPX*<>"


def plot_seeds(answer: MotifSeeds) -> Figure:
    """Left the objective after every seed, on the samples of the choice; right the influence between its bounds."""
    figure, (left, right) = new_figure(1, 2, size=(10.5, 3.8))
    steps = np.arange(1, len(answer.gains) + 1)
    left.plot(steps, np.cumsum(answer.gains), "o-", markersize=4)
    left.set(xlabel="seeds", ylabel=f"objective of the choice ({answer.chosen_by})", ylim=(0, None))
    if len(steps) <= 20:
        left.set_xticks(steps, [str(seed) for seed in answer.seeds], rotation=60, ha="right", fontsize=8)
    table = answer.bounds.to_frame()
    colours = [COLOURS[0] if name == "influence" else COLOURS[5] for name in BOUNDS]
    right.bar(range(len(BOUNDS)), table["mean"], yerr=1.96 * table["stderr"], color=colours, capsize=3)
    right.set_xticks(range(len(BOUNDS)), [name.replace("_", "\n") for name in BOUNDS])
    right.set(ylabel="expected value of active motifs", title=f"tau {answer.tau:.2f}")
    return figure


def plot_comparison(comparison: SeedComparison) -> Figure:
    """Influence against the number of seeds; bars where there is one number only."""
    frame = comparison.to_frame()
    figure, axes = new_figure(size=(6.4, 4))
    if frame.n_seeds.nunique() == 1:
        axes.barh(frame.chooser, frame.influence, xerr=1.96 * frame.stderr, color=COLOURS[0], capsize=3)
        axes.invert_yaxis()
        axes.set(xlabel=f"expected value of active motifs, {frame.n_seeds.iloc[0]} seeds")
        return figure
    for i, (name, part) in enumerate(frame.groupby("chooser", sort=False)):
        style: dict[str, Any] = {"marker": MARKERS[i % len(MARKERS)], "color": COLOURS[i % len(COLOURS)]}
        style |= {"linestyle": "-" if i < len(COLOURS) else "--", "label": name}
        part = part.sort_values("n_seeds")
        axes.errorbar(part.n_seeds, part.influence, 1.96 * part.stderr, **style)
    axes.set(xlabel="seeds", ylabel="expected value of active motifs")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
