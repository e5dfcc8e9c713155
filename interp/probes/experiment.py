"""One whole experiment: sentences, activations of all layers, probes, scores, controls, figures."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.files import check_folder, write_json
from interp.core.history import without_nan
from interp.core.messages import at_least, each_once, one_of
from interp.core.plotting import save_figure
from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.conllu_files import BrokenSentences
from interp.probes.controls import linear_order_scores, random_weights
from interp.probes.decoded_trees import read_out
from interp.probes.evaluate import ProbeReport, evaluate_probes
from interp.probes.polar import DEFAULT_RANK
from interp.probes.saving import save_probes
from interp.probes.scores import AttachmentScores
from interp.probes.splits import Treebanks, load_treebanks
from interp.probes.structural import TARGETS
from interp.probes.syntax_plots import plot_layers, plot_polar, plot_tree
from interp.probes.training import ProbeTraining, fit_probes
from interp.probes.treebank import DependencyTree
from interp.probes.words import POOLINGS, WordActivations, word_activations

if TYPE_CHECKING:
    import pandas as pd

    from interp.models.language_model import LanguageModel

MOST_SENTENCES = 1_000_000  # far beyond what fits in memory
DRAWN_TREES = 3


@dataclass(frozen=True)
class ProbeExperiment:
    """What to probe and how.

    Attributes:
        treebank: "grammar" (gold), "silver", or a CoNLL-U file (gold).
        test_treebank: a CoNLL-U file to score on, whose sentences are never trained on; None takes a fifth of the
            treebank.
        layers: 0 is the embedding, l the output of the l-th block (`layer_sites`); None is all of the model's.
        rank: None is 128, or the width where that is smaller.
        angular_weights: one probe a layer for each; 0 is the Structural Probe.
        target: of the Structural Probe, "distance" or "depth".
        n_sentences: how many to take.
        exclude_punct: leave punctuation out of the choice of the epoch, of trees, scores and the linear order.
        strict: refuse a CoNLL-U file with a broken sentence; otherwise it is left out and reported.
        control: probe the architecture with random weights as well.
    """

    treebank: str = "grammar"
    test_treebank: str | None = None
    layers: tuple[int, ...] | None = None
    rank: int | None = None
    angular_weights: tuple[float, ...] = (0.0, 1.0)
    target: str = "distance"
    n_sentences: int = 800
    max_epochs: int = 60
    lr: float = 3e-3
    batch_size: int = 50
    pooling: str = "mean"
    exclude_punct: bool = False
    strict: bool = False
    control: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("target", self.target, TARGETS)
        one_of("pooling", self.pooling, POOLINGS)
        at_least("seed", self.seed, 0)
        each_once("angular_weights", self.angular_weights)
        if not 10 <= self.n_sentences <= MOST_SENTENCES:
            raise ValueError(
                f"n_sentences={self.n_sentences}: at least 10, to train and to test, and at most {MOST_SENTENCES:,}"
            )
        # What these refuse is refused before any sentence is read.
        self.specs([0], DEFAULT_RANK)
        self.training()

    def specs(self, layers: Sequence[int], width: int) -> list[ProbeSpec]:
        """The probes: one for each weight and layer of activations that are `width` wide."""
        rank = min(DEFAULT_RANK, width) if self.rank is None else self.rank
        is_depth = self.target == "depth"
        return [
            ProbeSpec(
                layer,
                rank,
                distance=0.0 if is_depth and not weight else 1.0,
                angular=weight,
                depth=1.0 if is_depth and not weight else 0.0,
                seed=self.seed,
            )
            for weight in self.angular_weights
            for layer in layers
        ]

    def training(self, **how: Any) -> ProbeTraining:
        """How they are trained; `how` has the fields that are no part of an experiment."""
        return ProbeTraining(
            lr=self.lr,
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            exclude_punct=self.exclude_punct,
            seed=self.seed,
            **how,
        )


@dataclass(frozen=True)
class ExperimentResult:
    """Reports on held-out sentences; prints as tables.

    Attributes:
        report: of all probes.
        best: the probe of the tables by relation and depth and of the figures: the best on the validation sentences,
            among the polar ones where there are any.
        by_relation, by_depth: its scores, as shares of edges.
        broken: sentences of the CoNLL-U files that could not be read.
    """

    report: ProbeReport
    linear_order: AttachmentScores
    best: ProbeSpec
    control: ProbeReport | None = None
    by_relation: pd.DataFrame | None = field(default=None, repr=False)
    by_depth: pd.DataFrame | None = field(default=None, repr=False)
    broken: tuple[BrokenSentences, ...] = ()

    def __str__(self) -> str:
        parts = [str(self.report), f"linear order (neighbours linked): {self.linear_order}"]
        if self.control is not None:
            parts += [str(self.control)]
        for name, frame in (("relation", self.by_relation), ("depth", self.by_depth)):
            if frame is not None:
                table = frame.to_string(index=False, float_format=lambda x: f"{x:.3f}")
                parts.append(f"by {name}, of all edges: {self.best} (best on validation)\n{table}")
        return "\n\n".join([*parts, *map(str, self.broken)])

    def to_dict(self) -> dict[str, Any]:
        reports = {"probes": self.report, "random weights": self.control}
        return {
            name: {"treebank": report.treebank, "rows": [without_nan(asdict(row)) for row in report.rows]}
            for name, report in reports.items()
            if report is not None
        } | {
            "linear order": asdict(self.linear_order),
            "best": asdict(self.best),
            "left out": [asdict(broken) for broken in self.broken],
        }


def run_experiment(
    model: LanguageModel,
    experiment: ProbeExperiment,
    *,
    out: str | Path | None = None,
    store: str | Path | None = None,
    device: str = "auto",
    progress: bool = True,
) -> ExperimentResult:
    """Probe a model's layers for trees and score the probes on held-out sentences.

    Args:
        out: a folder for results.json, the probes, the curve over layers, edges in polar coordinates and a few
            trees, gold against decoded; interrupted training goes on from there.
        store: a folder that keeps the token activations.

    Raises:
        ValueError: a folder that is a file, a rank above the model's width, and what `load_treebanks` and
            `word_activations` refuse.
    """
    for name, folder in (("out", out), ("store", store)):
        if folder is not None:
            check_folder(name, folder)
    if experiment.rank is not None and experiment.rank > (model.d_model or experiment.rank):
        raise ValueError(
            f"rank={experiment.rank} is more than the {model.d_model} dimensions of {model.name}"
        )
    banks = load_treebanks(experiment)
    training = None if out is None else Path(out) / "training"
    probed = _probe(model, experiment, banks, training, store, device, progress)
    control = None
    if experiment.control:
        fresh = random_weights(model, seed=experiment.seed)
        again = None if training is None else training.with_name("training-control")
        control = _probe(fresh, experiment, banks, again, None, device, progress).report
        control = replace(control, treebank=f"{control.treebank}, random weights")
    reading = read_out(probed.bank, probed.words, probed.trees, exclude_punct=experiment.exclude_punct)[
        probed.best
    ]
    result = ExperimentResult(
        probed.report,
        linear_order_scores(banks.train, probed.trees, exclude_punct=experiment.exclude_punct),
        reading.spec,
        control,
        reading.by_relation(),
        reading.by_depth(),
        banks.broken,
    )
    if out is not None:
        folder = Path(out)
        about = {"model": model.name, **asdict(experiment)}
        save_probes(probed.bank, folder, **about)
        write_json(folder / "results.json", {"experiment": about, **result.to_dict()})
        curves = {
            f"{metric.upper()}, {_kind(weight, experiment.target)}": [
                (row.layer, getattr(row, metric)) for row in probed.report.rows if row.angular == weight
            ]
            for metric in ("uuas", "las")
            for weight in experiment.angular_weights
        }
        save_figure(plot_layers(curves), folder / "layers.png")
        title = f"{banks.name}\n{reading.spec}"
        save_figure(plot_polar(reading, title=title), folder / "polar.png")
        for number, (tree, edges) in enumerate(
            zip(probed.trees[:DRAWN_TREES], reading.sentences(), strict=False)
        ):
            save_figure(plot_tree(tree, edges, title=title), folder / f"tree_{number}.png")
        for checkpoints in ("training", "training-control"):
            shutil.rmtree(folder / checkpoints, ignore_errors=True)
    return result


def _kind(weight: float, target: str) -> str:
    return f"polar ({weight:g})" if weight else f"structural ({target})"


@dataclass(frozen=True)
class _Probed:
    """A bank, its report, the test sentences that could be aligned, and the best probe (`ExperimentResult.best`)."""

    report: ProbeReport
    bank: ProbeBank
    words: WordActivations
    trees: Sequence[DependencyTree]
    best: int


def _probe(
    model: LanguageModel,
    experiment: ProbeExperiment,
    banks: Treebanks,
    training: Path | None,
    store: str | Path | None,
    device: str,
    progress: bool,
) -> _Probed:
    def read(trees: Sequence[DependencyTree], part: str) -> tuple[WordActivations, list[DependencyTree]]:
        words = word_activations(
            model,
            trees,
            experiment.layers,
            pooling=experiment.pooling,
            on_mismatch="skip",
            store=None if store is None else Path(store) / part,
            progress=progress,
        )
        return words, [trees[i] for i in words.kept]

    train, train_trees = read(banks.train, "train")
    validation = read(banks.validation, "validation")
    test, test_trees = read(banks.test, "test")
    specs = experiment.specs(train.layers, train.d)
    config = experiment.training(
        device=device, out_dir=None if training is None else str(training), progress=progress
    )
    fitted = fit_probes(train, train_trees, specs, config, validation=validation)
    report = evaluate_probes(
        fitted.bank, test, test_trees, treebank=banks.name, exclude_punct=experiment.exclude_punct
    )
    assert fitted.validation_scores is not None
    polar = np.array([spec.kind == "polar" for spec in specs])
    candidates = polar if polar.any() else ~polar
    best = int(np.where(candidates, fitted.validation_scores.max(0), -np.inf).argmax())
    return _Probed(report, fitted.bank, test, test_trees, best)
