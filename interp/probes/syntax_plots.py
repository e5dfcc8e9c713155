"""Figures of probes: layer and rank curves, edges in polar coordinates, cosines between types, trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from interp.core.plotting import COLOURS, new_figure
from interp.probes.decoded_trees import ReadOut
from interp.probes.treebank import DependencyTree, Edge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIGHT, WRONG_LABEL, WRONG = COLOURS[2], COLOURS[4], COLOURS[1]
VERDICTS = {"right": RIGHT, "wrong label or direction": WRONG_LABEL, "no such edge": WRONG}


def plot_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    xlabel: str,
    ylabel: str = "score",
    log_x: bool = False,
) -> Figure:
    """Named curves of (x, y) in one panel."""
    figure, ax = new_figure(size=(6.0, 3.8))
    for name, points in curves.items():
        x, y = zip(*sorted(points), strict=True)
        ax.plot(x, y, marker="o", markersize=3.5, label=name)
    if log_x:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:.0f}")
    else:
        ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, 1.02))
    ax.legend(fontsize=8)
    return figure


def plot_layers(curves: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Scores against the layer; 0 is the embedding."""
    return plot_curves(curves, xlabel="layer (0: embedding)")


def plot_polar(
    reading: ReadOut, relations: Sequence[str] | None = None, *, max_edges: int = 400, title: str = ""
) -> Figure:
    """The treebank's edges in polar coordinates, one panel a relation.

    The radius is the length of the edge in the probe's space, the angle is that between the edge and the
    relation's prototype: 0 degrees is aligned, 90 unrelated, 180 reversed. Edges of the relation are in colour,
    all others grey.

    Args:
        relations: which; None takes the eight most frequent.
        max_edges: the first so many of the relation, and of the others.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    counts = _counts(reading)
    names = [reading.relations[i] for i in _frequent(counts, 8)] if relations is None else list(relations)
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(3.0 * columns, 2.3 * rows), layout="constrained")
        axes = np.atleast_1d(figure.subplots(rows, columns, subplot_kw={"projection": "polar"})).ravel()
    lengths = np.linalg.norm(reading.edge_vectors, axis=1)
    farthest = float(np.quantile(lengths, 0.995))
    for number, (ax, name) in enumerate(zip(axes, names, strict=False)):
        kind = reading.relations.index(name)
        angles = np.arccos(reading.edge_cosines[:, kind].clip(-1, 1))
        mine = np.flatnonzero(reading.edge_types == kind)[:max_edges]
        others = np.flatnonzero(reading.edge_types != kind)[:max_edges]
        ax.scatter(angles[others], lengths[others], s=3, color="#9aa3ad", alpha=0.4, linewidths=0)
        ax.scatter(angles[mine], lengths[mine], s=5, color=COLOURS[number % len(COLOURS)], linewidths=0)
        ax.set(thetamin=0, thetamax=180, ylim=(0, farthest))
        ax.set_xticks(np.radians([0, 45, 90, 135, 180]))
        ax.set_yticks([1.0] if farthest > 1 else [])
        ax.set_title(f"{name}  ({counts[kind]})", fontsize=10, pad=-6)
        ax.tick_params(labelsize=7, pad=0)
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    figure.suptitle(title, fontsize=11)
    return figure


def plot_cosines(readings: Mapping[str, ReadOut], *, max_edges: int = 60) -> Figure:
    """Cosines of the treebank's edges with each other, sorted by relation, one panel a probe: types show as blocks.

    The twelve most frequent relations, at most `max_edges` edges of each.
    """
    figure, axes = new_figure(1, len(readings), size=(4.2 * len(readings) + 0.8, 4.2))
    image = None
    for ax, (title, reading) in zip(np.atleast_1d(axes), readings.items(), strict=True):
        kinds = sorted(_frequent(_counts(reading), 12))
        chosen = [np.flatnonzero(reading.edge_types == kind)[:max_edges] for kind in kinds]
        vectors = reading.edge_vectors[np.concatenate(chosen)]
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        image = ax.imshow(unit @ unit.T, vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest")
        sizes = np.array([len(part) for part in chosen])
        ax.set_yticks(np.cumsum(sizes) - sizes / 2, [reading.relations[k] for k in kinds], fontsize=8)
        ax.set_xticks([])
        ax.set_title(title)
        ax.grid(visible=False)
    if image is not None:
        figure.colorbar(image, ax=axes, label="cosine", shrink=0.8)
    return figure


def _counts(reading: ReadOut) -> Int[np.ndarray, " R"]:
    """Edges of each relation type."""
    return np.bincount(reading.edge_types[reading.edge_types >= 0], minlength=len(reading.relations))


def _frequent(counts: Int[np.ndarray, " R"], n: int) -> list[int]:
    return [int(i) for i in np.argsort(-counts, kind="stable")[:n] if counts[i]]


def plot_tree(tree: DependencyTree, predicted: Sequence[Edge] = (), *, title: str = "") -> Figure:
    """The treebank's tree above the words, with an arrow down to its root, and the predicted edges below, coloured by
    how they compare. Arrows point from the head to the dependent."""
    figure, ax = new_figure(size=(max(5.0, 0.95 * len(tree)), 3.9))
    for place, form in enumerate(tree.words):
        ax.text(place, 0, form, ha="center", va="center", fontsize=10)
    gold = {(head, word): relation for head, word, relation in tree.edges()}
    for (head, word), relation in gold.items():
        _arc(ax, head, word, relation, COLOURS[5], above=True)
    for head, word, relation in predicted:
        if gold.get((head, word)) == relation:
            colour = RIGHT
        else:
            colour = WRONG_LABEL if (head, word) in gold or (word, head) in gold else WRONG
        _arc(ax, head, word, relation, colour, above=False)
    arcs = [abs(a - b) for a, b in gold] + [abs(a - b) for a, b, _ in predicted]
    tallest = _height(max(arcs, default=1)) + 0.55
    ax.set(xlim=(-0.9, len(tree) - 0.3), ylim=(-tallest if predicted else -0.4, tallest))
    ax.set_title(title, fontsize=10)
    ax.axis("off")
    ax.text(-0.85, tallest - 0.1, "treebank", fontsize=8, color=COLOURS[5], va="top")
    down = {"arrowstyle": "-|>", "color": COLOURS[5], "linewidth": 1.4}
    top = (tree.root, tallest - 0.1)
    ax.annotate(
        "root", (tree.root, 0.2), top, arrowprops=down, fontsize=7.5, color=COLOURS[5], ha="center", va="top"
    )
    if predicted:
        ax.text(-0.85, 0.1 - tallest, "probe", fontsize=8, color="black", va="bottom")
        for name, colour in VERDICTS.items():
            ax.plot([], [], color=colour, label=name)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=len(VERDICTS), fontsize=8, frameon=False)
    return figure


def _height(span: int) -> float:
    return 0.45 + 0.55 * float(np.sqrt(span))


def _arc(ax: Axes, head: int, word: int, relation: str, colour: str, *, above: bool) -> None:
    side = 1 if above else -1
    span, middle = abs(head - word), (head + word) / 2
    t = np.linspace(0, np.pi, 60)
    # The ends stand a little apart, so that edges of one word do not cover each other.
    shrink = 1 - 0.16 / span
    x = middle + np.cos(t) * (word - head) / 2 * shrink
    y = side * (0.28 + np.sin(t) * (_height(span) - 0.28))
    ax.plot(x, y, color=colour, linewidth=1.4)
    ax.annotate("", xy=(x[0], y[0]), xytext=(x[2], y[2]), arrowprops={"arrowstyle": "-|>", "color": colour})
    ax.text(
        middle,
        side * _height(span),
        relation,
        ha="center",
        va="center",
        fontsize=7.5,
        color=colour,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )
