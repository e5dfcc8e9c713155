"""Figures of online learning; nothing here computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from interp.core.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from classic_ml.online.running import OnlineResult


def plot_regret(results: Mapping[str, OnlineResult], *, title: str = "", log: bool = False) -> Figure:
    """Cumulative regret against the round, a line a learner; `log` for a logarithmic axis of rounds."""
    figure, axes = new_figure(size=(5.8, 3.8))
    for i, (name, result) in enumerate(results.items()):
        style = "-" if i < len(COLOURS) else "--"
        rounds = np.arange(1, len(result.losses) + 1)
        axes.plot(rounds, result.cumulative_regret, style, color=COLOURS[i % len(COLOURS)], label=name)
    axes.set(xlabel="round", ylabel="regret", title=title, xscale="log" if log else "linear")
    axes.axhline(0, color="black", linewidth=0.6)
    if len(results) > 1:
        axes.legend(fontsize=8)
    return figure


def plot_weights(weights: np.ndarray, labels: list[tuple[str, float | None]], *, title: str = "") -> Figure:
    """Weights (T, N) of the universal learner over the rounds, added up by kind of learner."""
    figure, axes = new_figure(size=(5.8, 3.2))
    kinds = list(dict.fromkeys(kind for kind, _ in labels))
    shares = [weights[:, [k == kind for k, _ in labels]].sum(1) for kind in kinds]
    names = [kind.replace("_", " ") for kind in kinds]
    axes.stackplot(np.arange(1, len(weights) + 1), shares, labels=names, colors=COLOURS[: len(kinds)])
    axes.set(xlabel="round", ylabel="weight", ylim=(0, 1), title=title)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
