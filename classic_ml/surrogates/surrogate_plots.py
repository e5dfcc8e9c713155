"""Figures of embeddings: their regions, and agreement with the mode against the number of outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from classic_ml.surrogates.hulls import affine_coordinates
from interp.core.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from classic_ml.surrogates.decisions import DecisionTable
    from classic_ml.surrogates.regions import RegionFractions


def plot_regions(regions: RegionFractions) -> Figure:
    """Points of a polytope in its two widest directions: always the mode, neither, may have probability zero."""
    figure, axes = new_figure(size=(5.2, 4.8))
    flat = regions.points
    if flat.shape[1] != 2:
        coordinates, _ = affine_coordinates(flat)
        flat = np.c_[coordinates, np.zeros((len(coordinates), 2))][:, :2]
    kinds = {
        f"always the mode ({regions.strict:.1%})": (regions.is_strict, COLOURS[2]),
        "neither": (~regions.is_strict & ~regions.may_hallucinate, COLOURS[4]),
        f"may have probability zero ({regions.hallucination:.1%})": (regions.may_hallucinate, COLOURS[1]),
    }
    for label, (which, colour) in kinds.items():
        axes.scatter(*flat[which].T, s=3, color=colour, label=label, linewidths=0)
    axes.set(title=f"{regions.name}: what is decoded", aspect="equal", xticks=[], yticks=[])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), markerscale=4)
    return figure


def plot_decisions(table: DecisionTable) -> Figure:
    """Agreement with the mode, and regret, against outputs regressed at a time."""
    figure, (left, right) = new_figure(1, 2, size=(10, 3.8))
    for i, row in enumerate(table.rows):
        style = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": "osD^vP"[i // len(COLOURS) % 6],
            "label": row.name,
        }
        left.plot(row.n_outputs, row.mode_agreement, linestyle="", **style)
        right.plot(row.n_outputs, row.regret, linestyle="", **style)
    left.set(xlabel="outputs", ylabel="share decided for the mode")
    right.set(xlabel="outputs", ylabel="regret, max p − p[decided]")
    right.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    return figure
