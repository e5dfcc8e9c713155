"""The few figure helpers that everybody uses; figures are objects, never global state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interp.core.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2563a8", "#d1662a", "#3a8f5c", "#8a56a3", "#a8892c", "#5b6b7a")
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "legend.frameon": False,
    "font.size": 10,
}


def new_figure(rows: int = 1, cols: int = 1, size: tuple[float, float] | None = None) -> tuple[Figure, Any]:
    """A figure in the house style and its axes: one Axes for 1 x 1, else an array of them."""
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.figure import Figure

    with mpl.rc_context({**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        figure = Figure(figsize=size or (4.8 * cols, 3.4 * rows), layout="constrained")
        axes = figure.subplots(rows, cols)
    return figure, axes


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 150) -> None:
    """Write a figure atomically; the ending of `path` says the format."""
    suffix = os.fspath(path).rsplit(".", 1)[-1]
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format=suffix)


def pareto(
    ax: Axes,
    x: Sequence[float],
    y: Sequence[float],
    label: str,
    *,
    log_x: bool = True,
    colour: str | None = None,
) -> None:
    """One frontier: points joined in order of `x` (usually L0 on a log axis)."""
    points = sorted(zip(x, y, strict=True))
    ax.plot([p[0] for p in points], [p[1] for p in points], marker="o", label=label, color=colour)
    if log_x:
        ax.set_xscale("log")
    ax.legend()
