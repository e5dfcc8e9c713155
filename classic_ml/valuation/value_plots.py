"""Figures of dataset values and of how they converge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from classic_ml.valuation.values import DatasetValues
from interp.core.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_values(results: Sequence[DatasetValues]) -> Figure:
    """Bars of the values of each dataset, methods beside one another, with standard errors where there are any."""
    names = results[0].names
    figure, ax = new_figure(size=(max(4.8, 0.35 * len(names) * len(results) ** 0.5 + 2), 3.4))
    width = 0.8 / len(results)
    for j, result in enumerate(results):
        x = np.arange(len(names)) + (j - (len(results) - 1) / 2) * width
        ax.bar(x, result.values, width, yerr=result.standard_error, label=result.method, color=COLOURS[j % 6])
    ax.axhline(0, color="grey", linewidth=0.8)
    ax.set_xticks(np.arange(len(names)), [str(n) for n in names], rotation=90 if len(names) > 20 else 0)
    ax.set(xlabel="dataset", ylabel="value (units of the utility)")
    ax.legend()
    return figure


def plot_convergence(results: Sequence[DatasetValues], reference: npt.ArrayLike | None = None) -> Figure:
    """Estimates against the utilities asked for so far.

    Without `reference` a panel per method with a line per dataset; with it (Shapley values [I]) the mean squared
    error of every method in one panel, on log axes.
    """
    if reference is None:
        figure, axes = new_figure(1, len(results))
        for ax, result in zip(np.atleast_1d(axes), results, strict=True):
            ax.plot(_calls(result), result.running, linewidth=1)
            ax.set(title=result.method, xlabel="utility calls", ylabel="estimated value")
        return figure
    true = np.asarray(reference, np.float64)
    figure, ax = new_figure(size=(6.0, 3.8))
    for j, result in enumerate(results):
        error = ((result.running - true) ** 2).mean(1)
        ax.plot(
            _calls(result),
            error,
            label=result.method,
            color=COLOURS[j % 6],
            marker="o" if len(error) == 1 else None,
        )
    ax.set(xscale="log", yscale="log", xlabel="utility calls", ylabel="mean squared error")
    ax.legend()
    return figure


def _calls(result: DatasetValues) -> npt.NDArray[np.float64]:
    """Utility calls after each row of samples; rows cost the same."""
    n_rows = len(result.running)
    return result.n_utility_calls * np.arange(1, n_rows + 1) / n_rows
