"""One whole experiment: sentences, activations of all layers, probes, scores, controls, figures."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.device import derive_seed
from interp.core.files import write_json
from interp.core.history import without_nan
from interp.core.messages import one_of
from interp.core.plotting import save_figure
from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.conllu_files import read_conllu
from interp.probes.controls import linear_order_scores, random_weights
from interp.probes.evaluate import ProbeReport, evaluate_probes
from interp.probes.grammar import ControlledGrammar
from interp.probes.plots import plot_layers, plot_polar, plot_tree
from interp.probes.polar import DEFAULT_RANK
from interp.probes.reading import read_out
from interp.probes.saving import save_probes
from interp.probes.scores import AttachmentScores
from interp.probes.structural import TARGETS
from interp.probes.training import ProbeTraining, fit_probes
from interp.probes.treebank import DependencyTree
from interp.probes.words import WordActivations, word_activations

if TYPE_CHECKING:
    import pandas as pd

    from interp.models.language_model import LanguageModel

TEST_SHARE = VALIDATION_SHARE = 0.2
DRAWN_TREES = 3


@dataclass(frozen=True)
class ProbeExperiment:
    """What to probe and how.

    Attributes:
        treebank: "grammar" (gold), "silver", or a CoNLL-U file (gold).
        test_treebank: a CoNLL-U file to score on; None takes a fifth of the treebank.
        layers: None is all of the model's.
        rank: None is 128, or the width where that is smaller.
        angular_weights: one probe a layer for each; 0 is the Structural Probe.
        target: of the Structural Probe, "distance" or "depth".
        n_sentences: how many to take.
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
    control: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("target", self.target, TARGETS)
        if self.n_sentences < 10:
            raise ValueError(f"n_sentences={self.n_sentences}: at least 10, to train and to test")


@dataclass(frozen=True)
class Treebanks:
    """Sentences to train on, to choose epochs by, and to score on; `name` says gold or silver."""

    name: str
    train: Sequence[DependencyTree]
    validation: Sequence[DependencyTree]
    test: Sequence[DependencyTree]


@dataclass(frozen=True)
class ExperimentResult:
    """Reports on held-out sentences; prints as tables."""

    report: ProbeReport
    linear_order: AttachmentScores
    control: ProbeReport | None = None
    by_relation: pd.DataFrame | None = field(default=None, repr=False)
    by_depth: pd.DataFrame | None = field(default=None, repr=False)

    def __str__(self) -> str:
        parts = [str(self.report), f"linear order (neighbours linked): {self.linear_order}"]
        if self.control is not None:
            parts += [str(self.control)]
        for name, frame in (("relation", self.by_relation), ("depth", self.by_depth)):
            if frame is not None:
                table = frame.to_string(index=False, float_format=lambda x: f"{x:.3f}")
                parts.append(f"best probe, by {name}:\n{table}")
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        reports = {"probes": self.report, "random weights": self.control}
        return {
            name: {"treebank": report.treebank, "rows": [without_nan(asdict(row)) for row in report.rows]}
            for name, report in reports.items()
            if report is not None
        } | {"linear order": asdict(self.linear_order)}


def load_treebanks(experiment: ProbeExperiment) -> Treebanks:
    """Read, parse or generate the sentences, in three parts that share none.

    Raises:
        ValueError: no such file, or too few sentences.
        ImportError: "silver" without a parser installed.
    """
    n, name = experiment.n_sentences, experiment.treebank
    if name == "grammar":
        trees, label = ControlledGrammar().sample(n, seed=experiment.seed), "controlled grammar (gold)"
    elif name == "silver":
        from interp.activations.python_docs import python_docs
        from interp.probes.silver import load_parser, prose_sentences, silver_name, silver_trees

        parser = load_parser()
        trees = silver_trees(prose_sentences(python_docs(), n), parser)
        label = f"python-docs ({silver_name(parser)})"
    else:
        trees, label = read_conllu(name), f"{Path(name).name} (gold)"
    trees = list({(tree.words, tree.heads): tree for tree in trees if len(tree) > 1}.values())
    order = np.random.default_rng(derive_seed(experiment.seed, "split")).permutation(len(trees))[:n]
    trees = [trees[i] for i in order]
    test: Sequence[DependencyTree] = []
    if experiment.test_treebank is not None:
        test = [tree for tree in read_conllu(experiment.test_treebank) if len(tree) > 1]
    else:
        cut = round(len(trees) * TEST_SHARE)
        test, trees = trees[:cut], trees[cut:]
    held = round(len(trees) * VALIDATION_SHARE)
    if min(held, len(test), len(trees) - held) < 1:
        raise ValueError(f"treebank={name!r}: {len(order)} sentences are too few to train, choose and test")
    return Treebanks(label, trees[held:], trees[:held], test)


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
    """
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
        linear_order_scores(banks.train, probed.trees),
        control,
        reading.by_relation(),
        reading.by_depth(),
    )
    if out is not None:
        folder = Path(out)
        about = {"model": model.name, "treebank": banks.name, **asdict(experiment)}
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
        save_figure(plot_polar(reading), folder / "polar.png")
        for number, (tree, edges) in enumerate(
            zip(probed.trees[:DRAWN_TREES], reading.sentences(), strict=False)
        ):
            save_figure(plot_tree(tree, edges, title=banks.name), folder / f"tree_{number}.png")
        for checkpoints in ("training", "training-control"):
            shutil.rmtree(folder / checkpoints, ignore_errors=True)
    return result


def _kind(weight: float, target: str) -> str:
    return f"polar ({weight:g})" if weight else f"structural ({target})"


@dataclass(frozen=True)
class _Probed:
    """A bank, its report, the test sentences that could be aligned, and the best probe by the validation ones."""

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
    rank = min(DEFAULT_RANK, train.d) if experiment.rank is None else experiment.rank
    is_depth = experiment.target == "depth"
    specs = [
        ProbeSpec(
            layer,
            rank,
            distance=0.0 if is_depth and not weight else 1.0,
            angular=weight,
            depth=1.0 if is_depth and not weight else 0.0,
            seed=experiment.seed,
        )
        for weight in experiment.angular_weights
        for layer in train.layers
    ]
    config = ProbeTraining(
        lr=experiment.lr,
        batch_size=experiment.batch_size,
        max_epochs=experiment.max_epochs,
        seed=experiment.seed,
        device=device,
        out_dir=None if training is None else str(training),
        progress=progress,
    )
    fitted = fit_probes(train, train_trees, specs, config, validation=validation)
    report = evaluate_probes(
        fitted.bank, test, test_trees, treebank=banks.name, exclude_punct=experiment.exclude_punct
    )
    assert fitted.validation_scores is not None
    best = int(fitted.validation_scores.max(0).argmax())
    return _Probed(report, fitted.bank, test, test_trees, best)
