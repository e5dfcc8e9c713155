"""Figures of games, tables of errors and trainings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from classic_ml.invariance.game import GameRecord
    from classic_ml.invariance.network import BooleanRun


def plot_game(game: GameRecord, names: Sequence[str] | None = None) -> Figure:
    """The mixture's worst and played cost by round, and the adversary's weights (the ten heaviest)."""
    figure, (left, right) = new_figure(1, 2)
    table = game.to_frame()
    left.plot(table.index, table.worst, label="worst of the mixture so far")
    left.plot(table.index, table.played, label="played (at most v* if the oracle is exact)")
    left.set(xlabel="round", ylabel="error", title=f"gap {game.gap:.4f}, at most {game.slack:.4f}")
    left.legend(fontsize=8)
    for k in np.argsort(-game.weights.mean(0), kind="stable")[:10]:
        right.plot(table.index, game.weights[:, k], label=names[k] if names is not None else f"T_{k}")
    right.set(xlabel="round", ylabel="weight", ylim=(0, 1), title="the adversary")
    right.legend(fontsize=8)
    return figure


def plot_errors(
    errors: Any,
    predictors: Sequence[str] | None = None,
    transforms: Sequence[str] | None = None,
    *,
    chosen: int | None = None,
    title: str = "error",
) -> Figure:
    """Errors (H, K) as a heat map; the chosen row's name in bold."""
    errors = np.asarray(errors)
    h, k = errors.shape
    figure, axes = new_figure(size=(2.5 + 0.8 * k, 1.2 + 0.4 * h))
    axes.grid(False)
    image = axes.imshow(errors, cmap="Oranges", vmin=0, vmax=max(errors.max(), 0.1), aspect="auto")
    names = list(predictors) if predictors is not None else [f"h_{i}" for i in range(h)]
    axes.set_yticks(range(h), names)
    axes.set_xticks(
        range(k), list(transforms) if transforms is not None else [f"T_{j}" for j in range(k)], rotation=30
    )
    if chosen is not None:
        axes.get_yticklabels()[chosen].set_fontweight("bold")
    if h * k <= 200:
        for i in range(h):
            for j in range(k):
                axes.text(j, i, f"{errors[i, j]:.2f}", ha="center", va="center", fontsize=8)
    axes.set_title(title)
    figure.colorbar(image, ax=axes)
    return figure


def plot_runs(runs: Sequence[BooleanRun]) -> Figure:
    """Test accuracy by step, a line a run."""
    figure, axes = new_figure()
    seen = set()
    for run in runs:
        name = "random permutations" if run.augment else "plain"
        steps, accuracy = zip(*run.curve, strict=True)
        axes.plot(
            steps, accuracy, "o-", ms=3, color=COLOURS[not run.augment], label=None if name in seen else name
        )
        seen.add(name)
    axes.set(xlabel="step", ylabel="test accuracy", title=runs[0].problem)
    axes.legend()
    return figure
