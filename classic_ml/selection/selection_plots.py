"""Figures of the selection papers; nothing here computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from classic_ml.selection.chrono_epilogi import ChronoEpilogi
    from classic_ml.selection.comparison import SelectorComparison

MARKERS = "osD^vPX*<>"


def plot_comparison(comparison: SelectorComparison) -> Figure:
    """Accuracy and MMD^2 against the labelling budget, one line per selector."""
    figure, (left, right) = new_figure(1, 2, size=(10.5, 4))
    summary = comparison.summary()
    for i, name in enumerate(summary.index.get_level_values("selector").unique()):
        part = summary.loc[name].sort_index()
        style: dict[str, Any] = {"marker": MARKERS[i % len(MARKERS)], "color": COLOURS[i % len(COLOURS)]}
        style |= {"linestyle": "-" if i < len(COLOURS) else "--", "label": name}
        left.plot(part.index, part.accuracy, **style)
        right.plot(part.index, part.mmd2, **style)
    for axes, what in (
        (left, f"accuracy on the rest ({comparison.learner.replace('_', ' ')})"),
        (right, "MMD²"),
    ):
        axes.set(xlabel="labelled rows", ylabel=what)
    right.set_yscale("log")
    right.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def plot_picks(
    X: Float[np.ndarray, "n 2"], indices: Int[np.ndarray, " m"], groups: Any = None, *, title: str = ""
) -> Figure:
    """A pool in two dimensions, coloured by `groups`, with the picks in black."""
    figure, axes = new_figure(size=(5.4, 4.6))
    axes.scatter(X[:, 0], X[:, 1], s=4, alpha=0.35, c=groups, cmap="tab10", linewidths=0)
    axes.scatter(X[indices, 0], X[indices, 1], s=16, color="black", linewidths=0)
    axes.set(title=title, aspect="equal")
    return figure


def plot_classes(fitted: ChronoEpilogi, *, max_names: int = 12) -> Figure:
    """The forward steps of a fit with their p-values, and every equivalence class with its members."""
    figure, (left, right) = new_figure(1, 2, size=(11, 0.34 * max(8, len(fitted.equivalence_classes_)) + 1))
    removed = {row.series for row in fitted.history_ if row.action == "removed"}
    steps = [row for row in fitted.history_ if row.phase == "forward" and row.association is not None]
    for step, row in enumerate(steps):
        kind = "removed later" if row.series in removed else row.action
        colour = {"added": COLOURS[0], "removed later": COLOURS[4], "rejected": COLOURS[1]}[kind]
        left.barh(step, row.association, color=colour)
        note = f"{_p_text(row.p_value)}, {kind}"
        left.text(1.02, step, note, va="center", fontsize=8, transform=left.get_yaxis_transform())
    left.set_yticks(range(len(steps)), [str(row.series) for row in steps])
    left.invert_yaxis()
    left.set(xlabel="|correlation| with the residuals", title="forward steps", xlim=(0, 1))
    classes = fitted.equivalence_classes_
    for y, members in enumerate(classes):
        shown = [str(name) for name in members[:max_names]]
        more = len(members) - len(shown)
        text = "  =  ".join(shown) + (f"  and {more} more" if more else "")
        right.text(0.06, y, text, va="center", fontsize=9, weight="bold" if len(members) == 1 else "normal")
    right.set(ylim=(len(classes) - 0.5, -0.5), xlim=(0, 1), xticks=[], yticks=[])
    right.set_title(f"equivalence classes: {fitted.n_solutions_:,} solutions")
    right.grid(visible=False)
    right.spines[["left", "bottom"]].set_visible(False)
    return figure


def _p_text(p: float) -> str:
    return "p < 1e-300" if p < 1e-300 else f"p = {p:.1g}"
