"""Heat maps of cell values, and detection curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from classic_ml.valuation.cells import checked_rows, detection_curve
from interp.core.plotting import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from classic_ml.valuation.two_d_oob import TwoDOOB

MOST_ROWS = 40
MOST_IMAGES = 12
MOST_NAMES = 60


def plot_cells(valued: TwoDOOB, rows: npt.ArrayLike | None = None) -> Figure:
    """Rows against columns, or a panel per image; by default the rows (images) of lowest value, lowest first."""
    images = len(valued.feature_shape_) > 1
    if rows is None:
        chosen = np.argsort(valued.data_values_, kind="stable")[: MOST_IMAGES if images else MOST_ROWS]
    else:
        chosen = checked_rows(rows, len(valued.cell_values_))
    return _images(valued, chosen) if images else _table(valued, chosen)


def _table(valued: TwoDOOB, rows: npt.NDArray[np.int64]) -> Figure:
    frame = valued.to_frame().iloc[rows]
    n, d = frame.shape
    figure, ax = new_figure(size=(min(14, max(4.5, 0.25 * d + 2)), min(12, max(3.0, 0.18 * n + 1.8))))
    image = ax.imshow(frame.to_numpy(), aspect="auto", cmap="RdYlBu", interpolation="nearest")
    ax.grid(False)
    if d <= MOST_NAMES:
        ax.set_xticks(range(d), [str(c) for c in frame.columns], rotation=90, fontsize=8)
    if n <= MOST_NAMES:
        ax.set_yticks(range(n), [str(i) for i in frame.index], fontsize=8)
    ax.set(xlabel="column", ylabel="row")
    figure.colorbar(image, ax=ax, label="cell value")
    return figure


def _images(valued: TwoDOOB, rows: npt.NDArray[np.int64]) -> Figure:
    maps = [valued.cell_map(int(row)) for row in rows]
    flat = [m.mean(axis=tuple(range(2, m.ndim))) if m.ndim > 2 else m for m in maps]  # channels averaged
    cols = min(4, len(rows))
    lines = -(-len(rows) // cols)
    figure, axes = new_figure(lines, cols, size=(2.3 * cols + 1, 2.3 * lines))
    panels = np.atleast_1d(axes).ravel()
    low, high = np.nanmin(flat), np.nanmax(flat)
    for ax, values, row in zip(panels, flat, rows, strict=False):
        image = ax.imshow(values, cmap="RdYlBu", vmin=low, vmax=high, interpolation="nearest")
        ax.set(title=str(valued.index_[row]), xticks=[], yticks=[])
        ax.grid(False)
    for ax in panels[len(rows) :]:
        ax.set_visible(False)
    figure.colorbar(image, ax=axes, label="cell value")
    return figure


def plot_detection(by_method: Mapping[str, npt.ArrayLike], mask: npt.ArrayLike) -> Figure:
    """Share of the true cells found against the share inspected, for the cell values [n d] of each method."""
    figure, ax = new_figure(size=(5.2, 3.8))
    for name, values in by_method.items():
        curve = detection_curve(values, mask)
        ax.plot(np.arange(1, len(curve) + 1) / len(curve), curve, label=f"{name} ({curve.mean():.3f})")
    ax.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle=":")
    ax.set(xlabel="share of cells inspected", ylabel="share of outlier cells found")
    ax.legend(title="gain-AUC")
    return figure
