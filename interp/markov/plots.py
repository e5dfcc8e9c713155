"""The figures of the paper: losses against training steps, dictionary size, order and depth; token frequencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.plotting import COLOURS, new_figure
from interp.markov.sources import MarkovSource
from interp.markov.training import VALID, TransformerRun

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_lines(ax: Axes, source: MarkovSource) -> None:
    """The losses of the best character models, H(pi) above and the entropy rate below, labelled at the right edge."""
    levels: dict[float, list[int]] = {}
    for context in range(source.order + 1):
        levels.setdefault(round(source.ngram_loss(context), 6), []).append(context)
    for loss, contexts in levels.items():
        names = {0: "unigram: H(π)", source.order: "entropy rate"}
        shown = [names[c] for c in contexts if c in names] or [f"{contexts[0] + 1}-gram"]
        ax.axhline(loss, color="#444444", linewidth=0.9, linestyle="--", zorder=1)
        place: dict[str, Any] = {
            "xy": (1, loss),
            "xycoords": ("axes fraction", "data"),
            "textcoords": "offset points",
        }
        ax.annotate(shown[0], xytext=(-2, 3), ha="right", fontsize=8, color="#444444", **place)


def plot_runs(runs: Sequence[TransformerRun], *, title: str = "Transformers on a Markov source") -> Figure:
    """Test loss against the training step; one colour a tokenizer, one line a seed. The runs share their source."""
    figure, ax = new_figure(size=(6.2, 3.8))
    names = list(dict.fromkeys(run.tokenizer.name for run in runs))
    seen: set[str] = set()
    for run in runs:
        name = run.tokenizer.name
        label = None if name in seen else name
        seen.add(name)
        steps, losses = run.history.column(VALID)
        ax.plot(
            steps, losses, "o-", markersize=3, color=COLOURS[names.index(name) % len(COLOURS)], label=label
        )
    draw_lines(ax, runs[0].source)
    ax.set(xlabel="training step", ylabel="test loss, nats per source symbol", title=title)
    ax.legend(loc="center right")
    return figure


def plot_dictionary_sizes(frame: pd.DataFrame, source: MarkovSource) -> Figure:
    """Best unigram loss against the dictionary's size, one line a tokenizer; and the gap beside its bounds."""
    figure, (left, right) = new_figure(1, 2, size=(10, 3.9))
    for i, (kind, rows) in enumerate(frame.groupby("method", sort=False)):
        rows = rows.sort_values("vocab_size")
        colour = COLOURS[i % len(COLOURS)]
        left.plot(rows["vocab_size"], rows["loss"], "o-", markersize=4, color=colour, label=kind)
        right.plot(rows["vocab_size"], rows["loss"], "o-", markersize=4, color=colour, label=kind)
        bounded = rows[np.isfinite(rows["upper"])]
        right.plot(bounded["vocab_size"], bounded["upper"], ":", color=colour)
        bounded = rows[np.isfinite(rows["greedy_upper"])]
        right.plot(bounded["vocab_size"], bounded["greedy_upper"], "-.", color=colour, linewidth=1)
    for ax in (left, right):
        draw_lines(ax, source)
        ax.set(xscale="log", xlabel="tokens in the dictionary", ylabel="nats per source symbol")
    left.set_title("Best unigram model over tokens")
    left.legend(fontsize=8)
    right.set_title("... and its bounds (dotted: any encoder; dash-dot: greedy)")
    right.set_yscale("log")
    right.yaxis.set_major_formatter("{x:g}")
    right.yaxis.set_minor_formatter("{x:g}")
    return figure


def plot_token_frequencies(frequencies: dict[str, np.ndarray]) -> Figure:
    """Relative frequency of the tokens by rank, one line a tokenizer."""
    figure, ax = new_figure(size=(5.6, 3.8))
    for name, law in frequencies.items():
        ordered = np.sort(law[law > 0])[::-1]
        ax.plot(np.arange(1, len(ordered) + 1), ordered, "o-", markersize=3, label=name)
    ax.set(xscale="log", yscale="log", xlabel="rank", ylabel="relative frequency", title="Token frequencies")
    ax.legend(fontsize=8)
    return figure


def plot_sweep(frame: pd.DataFrame, x: str, *, xlabel: str | None = None) -> Figure:
    """Loss of transformers against one setting, a line a tokenizer kind; bars are the range over seeds."""
    figure, ax = new_figure(size=(5.6, 3.8))
    for kind, rows in frame.groupby("method", sort=False):
        by = rows.groupby(x)["loss"]
        mean, low, high = by.mean(), by.min(), by.max()
        ax.errorbar(mean.index, mean, yerr=[mean - low, high - mean], fmt="o-", capsize=3, label=kind)
    for column, label in (("symbol_entropy", "unigram: H(π)"), ("entropy_rate", "entropy rate")):
        line = frame.groupby(x)[column].first()
        ax.plot(line.index, line, "--", color="#444444", linewidth=0.9)
        ax.annotate(
            label,
            (line.index[-1], line.iloc[-1]),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color="#444444",
        )
    ax.set(xlabel=xlabel or x, ylabel="test loss, nats per source symbol", xticks=sorted(frame[x].unique()))
    ax.legend(fontsize=8)
    return figure


def plot_attention(patterns: Any, *, title: str = "Attention") -> Figure:
    """One panel per head of `[heads s s]`: queries down, keys across."""
    figure, axes = new_figure(1, len(patterns), size=(3.4 * len(patterns), 3.6))
    for head, (ax, pattern) in enumerate(zip(np.atleast_1d(axes), patterns, strict=True)):
        ax.imshow(np.asarray(pattern), cmap="Blues", vmin=0, vmax=1)
        ax.set(title=f"{title}, head {head}", xlabel="key (earlier token)", ylabel="query")
        ax.grid(visible=False)
    return figure
