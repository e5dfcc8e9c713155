"""Figures of steering results; each takes what was measured and computes nothing but positions on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from interp.core.intervals import Array
    from interp.steering.decomposition import Factors, VarianceDecomposition
    from interp.steering.layers import LayerSweep
    from interp.steering.propensity import PropensityResult
    from interp.steering.reliability import ReliabilityReport
    from interp.steering.steerability import Steerability
    from interp.steering.transfer import Generalisation, Transfer

GREY = "#8a8f98"
DIVERGING = "RdBu_r"
FACTOR_NAMES = {"A": "answer letter (A)", "Y": "Yes or No (Y)"}


def plot_curves(curves: Mapping[str, PropensityResult]) -> Figure:
    """A panel per vector: every sample's curve, thin, and their mean."""
    figure, axes = new_figure(1, len(curves))
    panels = list(np.atleast_1d(axes))
    for ax in panels[1:]:
        ax.sharey(panels[0])
    for ax, (name, curve) in zip(panels, curves.items(), strict=True):
        draw_curves(ax, curve)
        ax.set_title(name)
    return figure


def draw_curves(ax: Axes, curve: PropensityResult) -> None:
    """Samples that go up in blue, the others in orange, the mean in black."""
    order = np.argsort(curve.multipliers)
    x, y = curve.multipliers[order], curve.values[:, order]
    rising = (x - x.mean()) @ y.T > 0
    width = max(0.3, min(1.0, 20 / len(y)))
    for wanted, colour, label in (
        (True, COLOURS[0], "moves as meant"),
        (False, COLOURS[1], "anti-steerable"),
    ):
        chosen = y[rising == wanted]
        for i, row in enumerate(chosen):
            ax.plot(x, row, color=colour, alpha=0.35, linewidth=width, label=label if i == 0 else None)
    ax.plot(x, y.mean(0), color="black", linewidth=2, marker="o", markersize=4, label="mean")
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set(xlabel="multiplier", ylabel="propensity (logit difference)")
    ax.legend(fontsize=8)


def plot_violins(results: Mapping[str, Steerability]) -> Figure:
    """The distribution of per-sample slopes of each, with the mean and the anti-steerable share."""
    figure, ax = new_figure(1, 1, size=(max(4.8, 1.1 * len(results) + 1.5), 3.8))
    draw_violins(ax, results)
    return figure


def draw_violins(ax: Axes, results: Mapping[str, Steerability]) -> None:
    for at, result in enumerate(results.values()):
        colour = COLOURS[at % len(COLOURS)]
        if result.n > 1 and np.ptp(result.slopes) > 0:
            body: Any = ax.violinplot(result.slopes, [at], widths=0.8, showextrema=False)["bodies"]
            body[0].set(facecolor=colour, alpha=0.3)
        spread = np.random.default_rng(0).uniform(-0.12, 0.12, result.n)
        ax.scatter(at + spread, result.slopes, s=7, color=colour, alpha=0.6, linewidths=0)
        ax.hlines(result.mean, at - 0.25, at + 0.25, color="black", linewidth=1.8)
    ax.axhline(0, color=GREY, linewidth=0.8)
    labels = [f"{name}\n{r.anti_fraction:.0%} anti" for name, r in results.items()]
    ax.set_xticks(range(len(results)), labels, fontsize=8)
    ax.set(ylabel="slope per sample (logits)", title="steerability; line: mean")


def plot_variance(decompositions: Mapping[str, VarianceDecomposition]) -> Figure:
    """One stacked bar per vector or data set: shares of the variance of slopes."""
    figure, ax = new_figure(1, 1, size=(max(4.8, 0.9 * len(decompositions) + 2.5), 3.8))
    draw_variance(ax, decompositions)
    return figure


def draw_variance(ax: Axes, decompositions: Mapping[str, VarianceDecomposition]) -> None:
    factors = list(dict.fromkeys(factor for d in decompositions.values() for factor in d.explained))
    at, bottom = np.arange(len(decompositions)), np.zeros(len(decompositions))
    for factor, colour in zip([*factors, "unexplained"], [*COLOURS[: len(factors)], "#d5d8dc"], strict=False):
        if factor == "unexplained":
            height = np.array(
                [1 - sum(d.shares.values()) if d.total else 0.0 for d in decompositions.values()]
            )
        else:
            height = np.array([d.shares.get(factor, 0.0) for d in decompositions.values()])
        ax.bar(at, height, 0.6, bottom=bottom, label=FACTOR_NAMES.get(factor, factor), color=colour)
        bottom += height
    ax.set_xticks(at, list(decompositions), fontsize=8)
    ax.set(ylabel="share of the variance", ylim=(0, 1.02), title="what explains the spread of steerability")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)


def plot_cells(slopes: Sequence[float] | Array, factors: Factors) -> Figure:
    """A box of per-sample slopes for every combination of factor values, with its count."""
    figure, ax = new_figure(1, 1, size=(6.0, 3.8))
    draw_cells(ax, slopes, factors)
    return figure


def draw_cells(ax: Axes, slopes: Sequence[float] | Array, factors: Factors) -> None:
    rows = list(zip(*(list(factors[key]) for key in factors), strict=True))
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row, slope in sorted(zip(rows, slopes, strict=True), key=lambda pair: str(pair[0])):
        groups.setdefault(row, []).append(float(slope))
    ax.boxplot(list(groups.values()), widths=0.6, medianprops={"color": COLOURS[1]})
    names = [", ".join(f"{key}={value}" for key, value in zip(factors, row, strict=True)) for row in groups]
    labels = [f"{name}\nn={len(values)}" for name, values in zip(names, groups.values(), strict=True)]
    ax.set_xticks(range(1, len(groups) + 1), labels, fontsize=7)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set(ylabel="slope per sample (logits)", title="steerability by nuisance factor")


def plot_layers(sweep: LayerSweep) -> Figure:
    """Mean slope with its interval and the anti-steerable share by layer; the mean curve of each as a heat map."""
    figure, (left, right) = new_figure(1, 2, size=(10.4, 3.8))
    layers, results = list(sweep.layers), list(sweep.steerability.values())
    mean = np.array([s.mean for s in results])
    low, high = np.array([s.mean_interval for s in results]).T
    left.plot(layers, mean, marker="o", markersize=3, label="mean slope")
    left.fill_between(layers, low, high, alpha=0.2)
    left.axhline(0, color=GREY, linewidth=0.8)
    left.set(xlabel="layer", ylabel="mean slope (logits)", title=f"steerability by layer; best: {sweep.best}")
    other = left.twinx()
    other.plot(layers, [s.anti_fraction for s in results], color=COLOURS[1], linestyle="--")
    other.set(ylim=(0, 1), ylabel="anti-steerable share (dashed)")
    other.grid(False)
    multipliers = sweep.curves[layers[0]].multipliers
    order = np.argsort(multipliers)
    change = np.array([sweep.curves[layer].values.mean(0)[order] for layer in layers])
    change = change - change.mean(1, keepdims=True)
    draw_matrix(
        right,
        change.T,
        [f"{m:g}" for m in multipliers[order]],
        [str(layer) for layer in layers],
        numbers=False,
    )
    right.set(xlabel="layer", ylabel="multiplier", title="mean propensity, less its mean over multipliers")
    return figure


def plot_sweeps(sweeps: Mapping[str, LayerSweep]) -> Figure:
    """Mean slope by data set and layer."""
    layers = next(iter(sweeps.values())).layers
    figure, ax = new_figure(1, 1, size=(max(6.0, 0.32 * len(layers) + 2.5), 1.6 + 0.45 * len(sweeps)))
    values = np.array([[s.mean for s in sweep.steerability.values()] for sweep in sweeps.values()])
    draw_matrix(ax, values, list(sweeps), [str(layer) for layer in layers], numbers=False)
    ax.set(xlabel="layer", title="mean steerability")
    return figure


def draw_matrix(
    ax: Axes, values: Array, rows: Sequence[str], columns: Sequence[str], *, numbers: bool = True
) -> None:
    """A heat map with 0 in the middle of its colours."""
    limit = float(np.nanmax(np.abs(values))) or 1.0
    image = ax.imshow(values, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto")
    ax.figure.colorbar(image, ax=ax, shrink=0.85)
    every = -(-len(columns) // 12)
    ax.set_xticks(range(0, len(columns), every), list(columns)[::every], fontsize=8)
    ax.set_yticks(range(len(rows)), list(rows), fontsize=8)
    ax.grid(False)
    if numbers:
        decimals = 2 if limit >= 0.1 else 3
        for (i, j), value in np.ndenumerate(values):
            colour = "white" if abs(value) > 0.6 * limit else "black"
            ax.text(j, i, f"{value:.{decimals}f}", ha="center", va="center", fontsize=8, color=colour)


def plot_transfer(transfer: Transfer) -> Figure:
    """The matrix of steerability; relative steerability against the shift of unsteered behaviour."""
    figure, (left, right) = new_figure(1, 2, size=(11.5, 4.2))
    draw_matrix(left, transfer.matrix, transfer.trained, transfer.tested)
    left.set(xlabel="prompt of the test", ylabel="prompt of the vector", title="mean steerability")
    relative, shift = transfer.relative(), transfer.shift()
    for j, test in enumerate(transfer.tested):
        known = [
            (shift[k, j], relative[transfer.trained.index(train), j])
            for k, train in enumerate(transfer.tested)
            if k != j
        ]
        right.scatter(*zip(*known, strict=True), label=f"under {test}", s=24)
    right.axhline(1, color=GREY, linewidth=0.8)
    if np.isnan(relative).all():
        title = "undefined: no prompt's own vector steers it"
    else:
        title = f"Spearman {transfer.correlations()['relative_vs_shift']:+.2f}"
    right.set(
        xlabel="shift of the unsteered propensity (logits)", ylabel="relative steerability", title=title
    )
    right.legend(fontsize=8)
    return figure


def plot_generalisation(result: Generalisation) -> Figure:
    """Out-of-distribution against in-distribution steerability, a point per data set and cell."""
    figure, ax = new_figure(1, 1, size=(5.6, 4.4))
    correlations = result.correlations()
    for cell, values in result.out_of_distribution.items():
        rho = correlations[cell]
        label = cell if np.isnan(rho) else f"{cell} (Spearman {rho:+.2f})"
        ax.scatter(result.in_distribution, values, label=label, s=28, alpha=0.8)
    everything = np.concatenate([result.in_distribution, *result.out_of_distribution.values()])
    span = [min(0.0, everything.min()), max(0.0, everything.max())]
    ax.plot(span, span, color=GREY, linewidth=0.8, linestyle="--")
    ax.set(xlabel="steerability in distribution", ylabel="steerability out of distribution")
    ax.set_title("each point a data set; dashed: equal")
    ax.legend(fontsize=8)
    return figure


def plot_report(report: ReliabilityReport) -> Figure:
    """The propensity curves; the slopes beside the baselines'; shares of variance and slopes by factor."""
    has_factors = report.decomposition is not None
    figure, axes = new_figure(2 if has_factors else 1, 2, size=(11.0, 7.6 if has_factors else 3.9))
    panels = np.atleast_1d(axes).ravel()
    draw_curves(panels[0], report.curve)
    panels[0].set_title(f"{report.name}, layer {report.layer}")
    others = {} if report.baselines is None else report.baselines.others
    draw_violins(panels[1], {"vector": report.steerability, **others})
    panels[1].tick_params(axis="x", labelsize=7)
    if report.decomposition is not None:
        draw_cells(panels[2], report.steerability.slopes, report.factors)
        draw_variance(panels[3], {report.name or "vector": report.decomposition})
    verdict = "reliable by the criteria measured" if report.reliable else "do not trust"
    figure.suptitle(f"verdict: {verdict}", fontsize=12)
    return figure
