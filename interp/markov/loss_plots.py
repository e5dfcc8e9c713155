"""The figures of the paper: losses against training steps, dictionary size, order and depth; token frequencies."""

from __future__ import annotations

import itertools
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

    from interp.markov.unigram_study import UnigramRow


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
    ax.legend(frameon=False)
    return figure


def plot_dictionary_sizes(frame: pd.DataFrame, source: MarkovSource) -> Figure:
    """Best unigram loss against the dictionary's size, one line a method; and what is left above the entropy rate,
    beside its bounds (dashed: any encoder, dotted: the paper's for greedy encoding)."""
    figure, (left, right) = new_figure(1, 2, size=(10.4, 4))
    rate = source.entropy_rate()
    for colour, (method, rows) in zip(
        itertools.cycle(COLOURS), frame.groupby("method", sort=False), strict=False
    ):
        rows = rows.sort_values("vocab_size")
        left.plot(rows["vocab_size"], rows["loss"], "o-", markersize=4, color=colour, label=method)
        right.plot(rows["vocab_size"], rows["loss"] - rate, "o-", markersize=4, color=colour)
        for column, style in (("upper", "--"), ("greedy_upper", ":")):
            known = rows[np.isfinite(rows[column])]
            right.plot(known["vocab_size"], known[column] - rate, style, color=colour, linewidth=1.2)
    draw_lines(left, source)
    left.set(title="Best unigram model over tokens", ylabel="nats per source symbol")
    left.legend(fontsize=8, frameon=False)
    for style, label in (("o-", "measured"), ("--", "bound, any encoder"), (":", "bound, greedy encoder")):
        right.plot([], [], style, color="#444444", markersize=4, linewidth=1.2, label=label)
    right.set(title="Above the entropy rate", ylabel="nats per source symbol", yscale="log")
    right.legend(fontsize=8, frameon=False)
    for ax in (left, right):
        ax.set(xscale="log", xlabel="tokens in the dictionary")
    return figure


def plot_token_frequencies(rows: Sequence[UnigramRow]) -> Figure:
    """Relative frequency of the tokens by rank: a panel a method, a line a dictionary."""
    methods = list(dict.fromkeys(row.method for row in rows))
    figure, axes = new_figure(1, len(methods), size=(1 + 3.2 * len(methods), 3.4))
    for method, ax in zip(methods, np.atleast_1d(axes), strict=True):
        for row in (row for row in rows if row.method == method):
            ordered = np.sort(row.frequencies[row.frequencies > 0])[::-1]
            ax.plot(np.arange(1, len(ordered) + 1), ordered, label=f"{row.vocab_size} tokens")
        ax.set(xscale="log", yscale="log", xlabel="rank", title=method)
        ax.legend(fontsize=8, frameon=False, loc="lower left")
    np.atleast_1d(axes)[0].set_ylabel("relative frequency")
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
    figure.legend(fontsize=8, frameon=False, loc="outside right upper")
    return figure


def plot_attention(patterns: Any, *, title: str = "Attention") -> Figure:
    """One panel per head of `[heads s s]`: queries down, keys across."""
    figure, axes = new_figure(1, len(patterns), size=(3.4 * len(patterns), 3.6))
    for head, (ax, pattern) in enumerate(zip(np.atleast_1d(axes), patterns, strict=True)):
        ax.imshow(np.asarray(pattern), cmap="Blues", vmin=0, vmax=1)
        ax.set(title=f"{title}, head {head}", xlabel="key (earlier token)", ylabel="query")
        ax.grid(visible=False)
    return figure
