"""Part D of the Polar Probe's reproduction: the paper's three claims on a pretrained model, and their controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from polar_probe_results import Results, row_of

from interp.core.plotting import save_figure
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.probes.bank import ProbeSpec
from interp.probes.controls import (
    linear_order_scores,
    position_activations,
    random_weights,
    shuffle_relations,
)
from interp.probes.decoded_trees import ReadOut, read_out
from interp.probes.evaluate import ProbeReport, evaluate_probes, score_of
from interp.probes.experiment import ProbeExperiment
from interp.probes.geometry import level_consistency, spectrum
from interp.probes.splits import Treebanks, load_treebanks
from interp.probes.syntax_plots import plot_cosines, plot_curves, plot_layers, plot_polar, plot_tree
from interp.probes.training import FittedProbes, ProbeTraining, fit_probes, without_training
from interp.probes.treebank import DependencyTree
from interp.probes.words import WordActivations, word_activations

D_WEIGHTS = (0.0, 1.0, 3.0)
D_RANK = 32
D_LAYERS = tuple(range(0, 31, 3))
D_CONTROL_LAYERS = tuple(range(0, 31, 6))


def run_d(results: Results, name: str, n_sentences: int, epochs: int, store: Path | None) -> None:
    banks = load_treebanks(ProbeExperiment(treebank=name, n_sentences=n_sentences))
    model = load_model("smollm2-135m")
    config = ProbeTraining(lr=3e-3, max_epochs=epochs, eval_every=3, patience=4)
    report, fitted, parts = probe_layers(model, banks, D_LAYERS, D_WEIGHTS, config, store and store / name)
    label = f"D {name}"
    results.report(label, report)
    assert fitted.validation_scores is not None
    # Layer and weight are chosen on the validation sentences, the figures are of the test sentences.
    best = fitted.validation_scores.max(0)
    polar_rows = [i for i, spec in enumerate(fitted.bank.specs) if spec.angular]
    structural_rows = [i for i, spec in enumerate(fitted.bank.specs) if not spec.angular]
    chosen, plain = max(polar_rows, key=lambda i: best[i]), max(structural_rows, key=lambda i: best[i])
    polar, structural = report.rows[chosen], report.rows[plain]
    readings = read_out(fitted.bank, parts["test"], banks.test)
    treebank = banks.name
    save_smollm2_figures(results.out, name, report, readings, chosen, plain, treebank, banks.test)

    fresh = random_weights(model, seed=0)
    control, control_fit, _ = probe_layers(
        fresh, banks, D_CONTROL_LAYERS, (0.0, polar.angular), config, store and store / f"{name}-random"
    )
    results.report(f"{label} random weights", control)
    assert control_fit.validation_scores is not None
    best_control = control.rows[int(control_fit.validation_scores.max(0).argmax())]
    best_structural_control = max((row for row in control.rows if not row.angular), key=lambda row: row.las)

    claim = f"{label} ({treebank})"
    results.check(
        claim,
        "1. polar LAS above structural LAS at equal rank",
        "nearly two-fold in the paper",
        f"{polar.las:.3f} (layer {polar.layer}, weight {polar.angular:g}) against {structural.las:.3f} "
        f"(layer {structural.layer}), ratio {polar.las / structural.las:.2f}",
        polar.las > structural.las,
    )
    results.check(
        claim,
        "1. both above random weights (LAS)",
        "far above",
        f"polar {polar.las:.3f} against {best_control.las:.3f}; "
        f"structural {structural.las:.3f} against {best_structural_control.las:.3f}",
        polar.las > best_control.las and structural.las > best_structural_control.las,
    )
    last = max(fitted.bank.layers)
    results.check(
        claim,
        "2. a middle layer peaks",
        f"neither 0 nor {last}",
        f"polar: layer {polar.layer} LAS {polar.las:.3f}; layer 0 {row_of(report, 0, polar.angular).las:.3f}, "
        f"layer {last} {row_of(report, last, polar.angular).las:.3f}",
        polar.layer not in (0, last),
    )
    if all(tree.levels is not None for tree in banks.test):
        mine, other = level_consistency(readings[chosen]), level_consistency(readings[plain])
        results.check(
            claim,
            "3. nested levels share the relations' directions",
            "same relation far above different relations, and above the structural probe's",
            f"same {mine.mean:.2f}, different {mine.cross:.2f}; structural same {other.mean:.2f} ({mine})",
            mine.mean > max(other.mean, mine.cross + 0.3),
        )
    run_d_controls(results, label, banks, parts, polar.layer, polar.angular, config)


def probe_layers(
    model: LanguageModel,
    banks: Treebanks,
    layers: Sequence[int],
    weights: Sequence[float],
    config: ProbeTraining,
    store: Path | None,
) -> tuple[ProbeReport, FittedProbes, dict[str, WordActivations]]:
    parts = {
        part: word_activations(model, getattr(banks, part), layers, store=store and store / part)
        for part in ("train", "validation", "test")
    }
    specs = [
        ProbeSpec(layer, D_RANK, angular=weight) for weight in weights for layer in parts["train"].layers
    ]
    fitted = fit_probes(
        parts["train"], banks.train, specs, config, validation=(parts["validation"], banks.validation)
    )
    name = f"{banks.name}, {model.name}"
    return evaluate_probes(fitted.bank, parts["test"], banks.test, treebank=name), fitted, parts


def save_smollm2_figures(
    out: Path,
    name: str,
    report: ProbeReport,
    readings: Sequence[ReadOut],
    chosen: int,
    plain: int,
    treebank: str,
    trees: Sequence[DependencyTree],
) -> None:
    weight = report.rows[chosen].angular
    curves = {
        f"{kind} {metric.upper()}": [(r.layer, getattr(r, metric)) for r in report.rows if r.angular == w]
        for kind, w in (("structural", 0.0), (f"polar ({weight:g})", weight))
        for metric in ("uuas", "las")
    }
    save_figure(plot_layers(curves), out / f"smollm2_{name}_layers.png")
    save_figure(plot_polar(readings[chosen]), out / f"smollm2_{name}_polar.png")
    panels = {"structural": readings[plain], "polar": readings[chosen]}
    save_figure(plot_cosines(panels), out / f"smollm2_{name}_cosines.png")
    decoded = readings[chosen].sentences()
    fitting = [i for i, tree in enumerate(trees) if 8 <= len(tree) <= 14][:2]
    for number, i in enumerate(fitting):
        save_figure(plot_tree(trees[i], decoded[i], title=treebank), out / f"smollm2_{name}_tree{number}.png")
    for frame, what in (
        (readings[chosen].by_relation(), "relation"),
        (readings[chosen].by_tree_depth(), "tree depth"),
    ):
        print(
            f"{treebank}, polar, by {what}:\n{frame.to_string(index=False, float_format=lambda x: f'{x:.3f}')}\n"
        )


def run_d_controls(
    results: Results,
    label: str,
    banks: Treebanks,
    parts: Mapping[str, WordActivations],
    layer: int,
    weight: float,
    config: ProbeTraining,
) -> None:
    """At the chosen layer: no probe, positions only, the control task, neighbours, and the curve over ranks."""
    held_out = parts["test"].at(layer)
    validation = (parts["validation"].at(layer), banks.validation)
    ranks = [2, 4, 8, 16, 32, 64, 128]
    specs = [ProbeSpec(layer, rank, angular=weight) for rank in ranks]
    fitted = fit_probes(parts["train"].at(layer), banks.train, specs, config, validation=validation)
    by_rank = evaluate_probes(fitted.bank, held_out, banks.test, treebank=f"{banks.name}, by rank")
    results.report(f"{label} by rank", by_rank)
    curve = {m.upper(): [(row.rank, getattr(row, m)) for row in by_rank.rows] for m in ("uuas", "las")}
    figure = plot_curves(curve, xlabel="rank of the probe", log_x=True)
    save_figure(figure, results.out / f"smollm2_{label.split()[-1]}_ranks.png")
    shares = spectrum(fitted.bank, len(ranks) - 1)
    dimensions = int(np.searchsorted(shares, 0.9)) + 1
    print(
        f"{label}: 90 % of the rank-{ranks[-1]} map's squared singular values lie in {dimensions} dimensions\n"
    )

    everything = [*banks.train, *banks.validation, *banks.test]
    control = shuffle_relations(everything)
    n_train, n_validation = len(banks.train), len(banks.validation)
    control_fit = fit_probes(
        parts["train"].at(layer),
        control[:n_train],
        [ProbeSpec(layer, D_RANK, angular=weight)],
        config,
        validation=(validation[0], control[n_train : n_train + n_validation]),
    )
    shuffled = score_of(read_out(control_fit.bank, held_out, control[n_train + n_validation :])[0])
    true = by_rank.rows[ranks.index(D_RANK)]
    positions = {part: position_activations(getattr(banks, part)) for part in ("train", "validation", "test")}
    position_fit = fit_probes(
        positions["train"],
        banks.train,
        [ProbeSpec(0, D_RANK, angular=weight)],
        config,
        validation=(positions["validation"], banks.validation),
    )
    by_position = evaluate_probes(position_fit.bank, positions["test"], banks.test).rows[0]
    bare_bank = without_training(parts["train"].at(layer), banks.train, layer)
    bare = evaluate_probes(bare_bank, held_out, banks.test).rows[0]
    neighbours = linear_order_scores(banks.train, banks.test)
    selectivity = true.label_accuracy - shuffled.label_accuracy
    results.check(
        f"{label} controls",
        "probe above no probe, positions and neighbours (LAS)",
        "above all",
        f"{true.las:.3f} against {bare.las:.3f}, {by_position.las:.3f}, {neighbours.las:.3f}",
        true.las > max(bare.las, by_position.las, neighbours.las),
    )
    results.check(
        f"{label} controls",
        "selectivity: label accuracy less that on a control task of random labels for word forms",
        "> 0",
        f"{true.label_accuracy:.3f} - {shuffled.label_accuracy:.3f} = {selectivity:.3f}",
        selectivity > 0,
    )
