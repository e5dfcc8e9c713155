"""Figures of recall experiments, from tables and results that other modules computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from interp.core.plotting import COLOURS, new_figure
from interp.recall.baselines import with_baselines
from interp.recall.metrics import proportion_ci

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from interp.recall.bias import MicrostructureBias

WIDTH = 0.8
MARKS = {"all zero": "v", "always one": "^", "random": "o", "matched density": "x", "recency": "s"}


def plot_scores(frame: pd.DataFrame, by: str = "dataset", series: str = "recaller") -> Figure:
    """Accuracy, F1 and AUROC by group with 95 % intervals, and over each bar what the baselines score on its graphs.

    AUROC, which needs no threshold, has chance (0.5) for its only baseline.
    """
    groups, kinds = sorted(frame[by].astype(str).unique()), list(dict.fromkeys(frame[series].astype(str)))
    figure, axes = new_figure(1, 3, (12.5, 4.4))
    step = WIDTH / len(kinds)
    scored = with_baselines(frame)

    def named(kind: str) -> str:
        return kind if series == "recaller" else f"{series} {kind}"

    for ax, metric in zip(axes, ("accuracy", "f1", "auroc"), strict=True):
        for k, kind in enumerate(kinds):
            parts = [
                scored[(scored[series].astype(str) == kind) & (scored[by].astype(str) == g)] for g in groups
            ]
            at = np.arange(len(groups)) - WIDTH / 2 + (k + 0.5) * step
            means, low, high, _ = np.array([proportion_ci(p[metric].tolist()) for p in parts]).T
            colour = COLOURS[k % len(COLOURS)]
            errors = np.stack([means - low, high - means])
            ax.bar(at, means, 0.9 * step, yerr=errors, label=named(kind), color=colour, alpha=0.55, capsize=3)
            if metric == "auroc":
                continue
            for name, mark in MARKS.items():
                expected = [p[f"{metric} of {name}"].mean() for p in parts]
                label = name if k == 0 else None
                ax.plot(
                    at,
                    expected,
                    mark,
                    label=label,
                    color="black",
                    markersize=7,
                    fillstyle="none",
                    linestyle="",
                )
        ax.set(title={"accuracy": "Accuracy", "f1": "F1", "auroc": "AUROC"}[metric], ylim=(0, 1.02))
        ax.set_xticks(range(len(groups)), [g.replace("_", " ") for g in groups])
        if len(groups) > 3:
            ax.tick_params("x", rotation=30)
            for label in ax.get_xticklabels():
                label.set(ha="right", rotation_mode="anchor")
    axes[2].axhline(0.5, color="black", linestyle="--", linewidth=0.8, label="chance")
    handles, labels = axes[0].get_legend_handles_labels()
    chance = axes[2].get_legend_handles_labels()
    handles, labels = handles + chance[0][:1], labels + chance[1][:1]
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure


def plot_bias(tables: Mapping[str, MicrostructureBias]) -> Figure:
    """Coefficients with 95 % intervals, one colour a recaller; edges, which set the density, are left out.

    A recaller whose coefficients are undefined is named as such in the legend.
    """
    names = [s for s in next(iter(tables.values())).statistics if s != "edges"]
    figure, ax = new_figure(1, 1, (6.4, 0.8 + 0.75 * len(names)))
    for k, (label, table) in enumerate(tables.items()):
        if not np.isfinite(table.coef).any():
            ax.plot([], [], "o", fillstyle="none", label=f"{label}: undefined")
            continue
        rows = table.to_frame().reindex(names)
        y = np.arange(len(names)) + (k - (len(tables) - 1) / 2) * min(0.18, 0.7 / len(tables))
        ax.errorbar(rows["coef"], y, xerr=1.96 * rows["se"], fmt="o", capsize=3, label=label)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel("coefficient (positive: too many)")
    figure.legend(loc="outside right upper")
    return figure


def plot_motifs(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """z-scores of motif counts against errors in random places, one colour a recaller."""
    names = list(next(iter(tables.values())).index)
    figure, ax = new_figure(1, 1, (7.6, 3.6))
    step = WIDTH / len(tables)
    for k, (label, table) in enumerate(tables.items()):
        at = np.arange(len(names)) - WIDTH / 2 + (k + 0.5) * step
        ax.bar(at, table["z"].fillna(0), 0.9 * step, label=label)
    for z in (-1.96, 1.96):
        ax.axhline(z, color="black", linestyle="--", linewidth=0.8)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_xticks(range(len(names)), [name.replace("_", " ") for name in names], rotation=30)
    ax.set_ylabel("z against shuffled errors")
    if len(tables) > 1:
        figure.legend(loc="outside right upper")
    return figure


def plot_prediction(recall: pd.Series, prediction: pd.Series, groups: pd.Series, title: str = "") -> Figure:
    """Link-prediction accuracy against recall accuracy, one point a graph."""
    figure, ax = new_figure(1, 1, (5.6, 3.8))
    for group in sorted(groups.unique()):
        here = (groups == group).to_numpy()
        ax.scatter(recall[here], prediction[here], label=group, alpha=0.75)
    ax.axhline(0.5, color="black", linestyle="--", linewidth=0.8)
    ax.set(xlabel="recall accuracy", ylabel="link-prediction accuracy", title=title)
    figure.legend(loc="outside right upper")
    return figure
