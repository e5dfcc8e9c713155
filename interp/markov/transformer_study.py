"""Transformers over several settings and seeds: dictionary sizes, orders, depths."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.messages import check_name, each_once
from interp.core.progress import progress as progress_bar
from interp.markov.ngram import COUNTED
from interp.markov.sources import MarkovSource
from interp.markov.tokenizer import Tokenizer
from interp.markov.training import TrainingConfig, TransformerRun, train_transformer
from interp.markov.transformer import TransformerConfig

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Variant:
    """One setting of a study: what is trained on what."""

    source: MarkovSource
    tokenizer: Tokenizer
    model: TransformerConfig = field(default_factory=TransformerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)


@dataclass(frozen=True)
class TransformerStudy:
    """Runs by the name of their variant, one per seed. Prints as a table of means over the seeds."""

    runs: dict[str, list[TransformerRun]]

    def to_frame(self) -> pd.DataFrame:
        """One row a run."""
        import pandas as pd

        return pd.DataFrame(
            [{"variant": name, **run.summary()} for name, runs in self.runs.items() for run in runs]
        )

    def plot(self, x: str | None = None) -> Figure:
        """Loss after the last step against a column of the frame; without one, test loss against the step."""
        from interp.markov.loss_plots import plot_runs, plot_sweep

        if x is not None:
            return plot_sweep(self.to_frame(), x)
        return plot_runs([run for runs in self.runs.values() for run in runs])

    def __str__(self) -> str:
        frame = self.to_frame()
        by = frame.groupby("variant", sort=False)
        table = by[["vocab_size", "order", "n_layers", "symbols_per_token"]].first()
        losses = by["loss"]
        table["loss"], table["lowest"], table["highest"] = losses.mean(), losses.min(), losses.max()
        table["seeds"] = by["seed"].count()
        table["unigram"], table["bigram"] = by["unigram"].mean(), by["bigram"].mean()
        table["gap"] = by["relative_gap"].mean()
        table["entropy_rate"] = by["entropy_rate"].first()
        return f"{table.to_string(float_format='{:.4f}'.format)}\n{COUNTED.format(unigram='unigram')}"


def transformer_study(
    variants: Mapping[str, Variant],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: Any,
) -> TransformerStudy:
    """Train every variant with every seed.

    Args:
        out: a folder with one folder per run, `<variant>/seed<seed>`; an interrupted study goes on where it stopped.
        options: of `train_transformer`.

    Raises ValueError for a name that can't be a folder's, a seed given twice, and as `train_transformer` does.
    """
    each_once("seeds", seeds)
    for name in variants:
        check_name("variants: a name", name)
    runs: dict[str, list[TransformerRun]] = {name: [] for name in variants}
    todo = [(name, seed) for name in variants for seed in seeds]
    for name, seed in progress_bar(todo, desc="runs", enabled="auto" if progress else False):
        variant = variants[name]
        runs[name].append(
            train_transformer(
                variant.source,
                copy.deepcopy(variant.tokenizer),
                model=variant.model,
                training=variant.training,
                seed=seed,
                out=None if out is None else Path(out) / name / f"seed{seed}",
                progress=False,
                **options,
            )
        )
    return TransformerStudy(runs)
