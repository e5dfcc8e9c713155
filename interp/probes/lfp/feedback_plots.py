"""Figures of the pipeline's results: layers, words, and the probe beside its controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = {
    "sign_accuracy": ("sign accuracy", 0.5),
    "tau": ("Kendall's τ, all words", 0.0),
    "tau_positive": ("τ within positive words", 0.0),
    "tau_negative": ("τ within negative words", 0.0),
}


def plot_divergence(
    absolute: Mapping[int, float], relative: Mapping[int, float], layers: Sequence[int]
) -> Figure:
    """How far the parameters of each layer moved, and relative to their size; chosen layers stand out."""
    figure, axes = new_figure(1, 2, (8.6, 3.0))
    for ax, values, label in zip(axes, (absolute, relative), ("Σ ‖Δp‖", "Σ ‖Δp‖ / Σ ‖p‖"), strict=True):
        colours = [COLOURS[1] if layer in layers else COLOURS[0] for layer in values]
        ax.set_axisbelow(True)
        ax.bar(list(values), list(values.values()), color=colours)
        ax.set(xlabel="layer (orange: chosen)", ylabel=label)
        ax.xaxis.get_major_locator().set_params(integer=True)
    return figure


def plot_words(words: Sequence[Mapping[str, Any]], columns: Sequence[str] = ("tuned", "base")) -> Figure:
    """Read against true feedback, a point a held-out word, for the tuned and for the base model."""
    figure, axes = new_figure(1, len(columns), (4.2 * len(columns), 3.8))
    true = np.array([row["true"] for row in words])
    for ax, name in zip(np.atleast_1d(axes), columns, strict=True):
        ax.scatter(true, [row[name] for row in words], s=12, alpha=0.6, color=COLOURS[0])
        ax.plot([true.min(), true.max()], [true.min(), true.max()], color="black", linewidth=0.8)
        ax.set(xlabel="true feedback", ylabel="read by the probe", title=f"{name} model")
    return figure


def plot_columns(columns: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Agreement with the true feedback of the probe and of its controls, with 95 % intervals; dashes: chance."""
    figure, axes = new_figure(1, len(SHOWN), (3.0 * len(SHOWN) + 1.2, 0.9 + 0.34 * len(columns)))
    names = list(columns)
    for ax, (key, (label, chance)) in zip(axes, SHOWN.items(), strict=True):
        for k, name in enumerate(names):
            value, low, high = columns[name][key]
            if value is None:
                continue
            colour = COLOURS[1] if name == "tuned" else COLOURS[0] if name == "base model" else COLOURS[5]
            ax.barh(k, value, color=colour, height=0.7)
            if low is not None:
                ax.plot([low, high], [k, k], color="black", linewidth=1.2)
        ax.set_axisbelow(True)
        ax.axvline(chance, color="black", linestyle="--", linewidth=0.8)
        ax.set(yticks=range(len(names)), yticklabels=names if ax is axes[0] else [], title=label)
        ax.invert_yaxis()
    return figure
