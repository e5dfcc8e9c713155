"""Reproduce what "Microstructures and Accuracy of Graph Recall by Large Language Models" measures, and check the tools.

Wang, Cui and Kleinberg 2024, arXiv 2402.11821. Brashears 2013 (Scientific Reports) for the two 15-person networks.

  loop      A recaller that reads the story gets every graph right, whatever the domain, the word-span exercise or the
            order of the questions; one that only keeps the end of the story, or errs at random, does not.
  bias      A planted preference for closing triangles is found with its sign and size; without one none is found.
  exact     Fits of random graph models against enumeration, closed forms and a reference fit.
  planted   MCMC maximum likelihood gives planted coefficients back within its errors; a 100-node graph.
  links     Link prediction from incomplete stories, by common neighbours and by a recaller.
  model     A real language model (SmolLM2-135M-Instruct; any other with --model): accuracy, F1 and patterns over the
            five domains with and without the word-span exercise, the human experiment's networks, link prediction.
            The paper's large models recall poorly and favour triangles and alternating 2-paths; its figures are not
            repeated here.

Each check prints what is expected beside what was measured, with PASS or FAIL. OUT gets results.json, figures, and the
model's transcripts, from which a repeated run continues. Exit code 1 when a check fails.

    python scripts/reproduce/graph_recall.py                       # all; about ten minutes of one core
    python scripts/reproduce/graph_recall.py --quick               # everything in small, under a minute
    python scripts/reproduce/graph_recall.py --which bias exact
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from checks import Check

from interp.core.files import write_json
from interp.core.plotting import save_figure
from interp.models.loading import load_model
from interp.recall.analysis import analyse
from interp.recall.baselines import verdicts
from interp.recall.bias import MicrostructureBias, microstructure_bias
from interp.recall.design import make_cases
from interp.recall.ergm import ERGM
from interp.recall.ergm_exact import moments, support
from interp.recall.ergm_statistics import STATISTICS, graph_statistics
from interp.recall.graphs import DOMAINS, brashears_graph
from interp.recall.link_prediction import CommonNeighbourRecaller, accuracy_correlation, predict_links
from interp.recall.local import LocalRecaller
from interp.recall.metrics import mean_ci, recall_metrics
from interp.recall.narration import make_vignette
from interp.recall.reports import spell_run
from interp.recall.runner import GraphRecallExperiment, RecallRun, save_settings
from interp.recall.score_plots import plot_bias, plot_motifs, plot_prediction, plot_scores
from interp.recall.scripted import NoisyRecaller, PerfectRecaller, RecencyRecaller


@dataclass
class Settings:
    out: Path
    quick: bool
    model: str
    seeds: list[int]
    graphs: int


Part = tuple[list[Check], dict[str, Any]]
UNBIASED, BIASED = {"miss": 0.15, "base": 0.05, "closed": 0.05}, {"miss": 0.15, "base": 0.02, "closed": 0.12}


def loop(settings: Settings) -> Part:
    n = 4 if settings.quick else 20
    perfect, runs = PerfectRecaller(), []
    for permute in (False, True):
        cases = make_cases(DOMAINS, n_graphs=n, clearances=(0, 2, 7), permute_pairs=permute, random_state=1)
        runs.append(GraphRecallExperiment(perfect, show_progress=False).run(cases))
    checks = []
    for name, run in zip(("as listed", "permuted"), runs, strict=True):
        frame = run.to_frame()
        worst = frame[["accuracy", "f1", "coverage"]].min()
        seen = f"{worst['accuracy']:.3f}, {worst['f1']:.3f}, {worst['coverage']:.3f} over {len(frame)} cases"
        statement = f"perfect recaller, pairs {name}: lowest accuracy, F1, coverage"
        checks.append(Check("loop", statement, "1, 1, 1", seen, bool((worst == 1).all())))
    recency = GraphRecallExperiment(RecencyRecaller(4), show_progress=False).run(runs[0].cases)
    share = np.mean([min(1.0, 4 / len(case.vignette.edges)) for case in recency.cases])
    seen = recency.to_frame()["recall"].mean()
    good = abs(seen - share) < 1e-9
    checks.append(
        Check("loop", "last four clauses only: recall = 4 / edges", f"{share:.3f}", f"{seen:.3f}", bool(good))
    )
    example = recall_metrics(nx.path_graph(5), nx.Graph([(0, 1), (1, 2), (0, 2), (3, 4)]))
    seen_scores = f"{example.accuracy}, {example.precision}, {example.recall}, {example.f1}"
    good = seen_scores == "0.8, 0.75, 0.75, 0.75"
    checks.append(
        Check("loop", "accuracy, P, R, F1 of a worked example", "0.8, 0.75, 0.75, 0.75", seen_scores, good)
    )
    return checks, {}


def noisy_run(rates: dict[str, float], seed: int, n: int) -> RecallRun:
    stories = [make_vignette(nx.gnp_random_graph(14, 0.22, seed=1000 * seed + k), "er", k) for k in range(n)]
    return GraphRecallExperiment(NoisyRecaller(**rates, seed=seed), clearance=0, show_progress=False).run(
        stories
    )


def bias(settings: Settings) -> Part:
    n = 60
    checks, tables = [], {}
    triangle = ("edges", "triangles")
    for seed in settings.seeds[:1] if settings.quick else settings.seeds:
        runs = {name: noisy_run(r, seed, n) for name, r in (("unbiased", UNBIASED), ("biased", BIASED))}
        for name, run in runs.items():
            given = (run.true_graphs(), run.recalled_graphs())
            fixed = microstructure_bias(*given, statistics=triangle)
            contrast = microstructure_bias(*given, "contrast", statistics=triangle)
            theta, z = fixed.coef[1], fixed.z[1]
            seen = f"{theta:+.2f} (z {z:.1f})"
            if name == "biased":
                wanted, good = "0.35 to 0.75, z >= 5", 0.35 <= theta <= 0.75 and z >= 5
            else:
                wanted, good = "|z| <= 2.6", abs(z) <= 2.6
            checks.append(
                Check("bias", f"{name}, seed {seed}: triangle coefficient", wanted, seen, bool(good))
            )
            seen = f"{contrast.coef[1]:+.2f} (z {contrast.z[1]:.1f})"
            wanted, good = (
                ("z >= 3", contrast.z[1] >= 3)
                if name == "biased"
                else ("|z| <= 2.6", abs(contrast.z[1]) <= 2.6)
            )
            checks.append(Check("bias", f"{name}, seed {seed}: contrast", wanted, seen, bool(good)))
            four = microstructure_bias(*given)
            if name == "biased":
                seen, good = f"{four.coef[2]:+.2f} (z {four.z[2]:.1f})", four.z[2] >= 4
                checks.append(
                    Check("bias", f"{name}, seed {seed}: alternating triangles", "z >= 4", seen, bool(good))
                )
            if seed == settings.seeds[0]:
                tables[name] = four
                if name == "biased":
                    motifs = analyse(run, n_permutations=200).motifs
    save_figure(plot_bias(tables), settings.out / "planted_bias.png")
    save_figure(plot_motifs({"biased": motifs}), settings.out / "planted_bias_motifs.png")
    return checks, {name: _rows(table) for name, table in tables.items()}


def exact(settings: Settings) -> Part:
    checks = []
    tail = nx.Graph([(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)])
    z = graph_statistics(tail, STATISTICS)
    good = np.allclose(z, [5, 1, 6, 3, 6, 5.5])
    checks.append(
        Check(
            "exact", "six statistics of a worked graph", "5 1 6 3 6 5.5", " ".join(f"{v:g}" for v in z), good
        )
    )
    fit = ERGM(("edges", "triangles"), method="exact").fit(tail).coef_
    good = np.allclose(fit, [0.315, -0.444], atol=5e-4)
    checks.append(
        Check(
            "exact", "its exact fit (edges, triangles)", "0.315, -0.444", f"{fit[0]:.3f}, {fit[1]:.3f}", good
        )
    )
    graphs = [g for g in nx.graph_atlas_g() if 3 <= len(g) <= (4 if settings.quick else 5)]
    for statistics in (("edges", "triangles"), ("edges", "two_stars"), ("edges", "alt_triangles")):
        gap, off, same = [0.0], [0.0], True
        for graph in graphs:
            best = ERGM(statistics, method="exact").fit(graph)
            drawn = ERGM(statistics, method="mcmcmle").fit(graph)
            same &= bool((best.estimable_ == drawn.estimable_).all())
            if best.estimable_.all():
                mean = moments(*support(best.networks_[0], best.spec), best.coef_)[1]
                gap.append(float(np.abs(mean - graph_statistics(graph, statistics)).max()))
                off.append(float((np.abs(drawn.coef_ - best.coef_) / drawn.summary()["mc_error"]).max()))
        name = f"all {len(graphs)} graphs of 3 to {len(graphs[-1])} nodes, {statistics[1]}"
        checks.append(
            Check(
                "exact", f"{name}: |E z - z_obs| of exact fits", "< 1e-6", f"{max(gap):.1e}", max(gap) < 1e-6
            )
        )
        seen = f"{max(off):.1f} MC errors, flags {'equal' if same else 'differ'}"
        checks.append(
            Check("exact", f"{name}: MCMC against exact", "< 4.5, equal", seen, max(off) < 4.5 and same)
        )
    theta, statistics = np.array([-1.0, 0.5]), ("edges", "triangles")
    drawn = np.array(
        [graph_statistics(g, statistics) for g in ERGM(statistics).simulate(5, 4000, theta)]
    ).mean(0)
    good = np.allclose(drawn, [3.0196, 0.4085], atol=0.08)
    checks.append(
        Check(
            "exact",
            "sampled means at (-1, 0.5), n = 5",
            "3.020, 0.409",
            f"{drawn[0]:.3f}, {drawn[1]:.3f}",
            good,
        )
    )
    sparse = nx.gnp_random_graph(30, 0.2, seed=0)
    p = nx.density(sparse)
    found = ERGM(("edges",), method="mcmcmle").fit(sparse)
    wanted = (np.log(p / (1 - p)), 1 / np.sqrt(435 * p * (1 - p)))
    good = abs(found.coef_[0] - wanted[0]) < 0.05 and abs(found.se_[0] / wanted[1] - 1) < 0.1
    seen = f"{found.coef_[0]:.3f} (se {found.se_[0]:.3f})"
    checks.append(
        Check(
            "exact",
            "Bernoulli graph: logit of the density",
            f"{wanted[0]:.3f} (se {wanted[1]:.3f})",
            seen,
            bool(good),
        )
    )
    for method in ("mcmcmle", "sa"):
        fitted = ERGM(("edges", "alt_triangles"), method=method).fit(brashears_graph("reducible"))
        good = abs(fitted.coef_[0] + 2.91) < 0.25 and abs(fitted.coef_[1] - 0.93) < 0.12 and fitted.converged_
        seen = f"{fitted.coef_[0]:.2f}, {fitted.coef_[1]:.2f} (se {fitted.se_[0]:.2f}, {fitted.se_[1]:.2f})"
        checks.append(
            Check("exact", f"reducible vignette, {method}", "-2.91, 0.93 (se 0.48, 0.26)", seen, bool(good))
        )
    return checks, {}


def planted(settings: Settings) -> Part:
    truth, statistics = np.array([-1.6, -0.1, 0.5]), ("edges", "two_stars", "alt_triangles")
    n = 8 if settings.quick else 40
    graphs = ERGM(statistics, random_state=7).simulate(16, n, truth)
    fits = [ERGM(statistics, method="mcmcmle", random_state=k).fit(g) for k, g in enumerate(graphs)]
    good_fits = [m for m in fits if m.estimable_.all() and m.converged_]
    z = np.array([(m.coef_ - truth) / m.se_ for m in good_fits])
    inside = float((np.abs(z) < 1.96).mean())
    checks = [
        Check(
            "planted",
            f"{len(good_fits)} of {n} graphs of 16 nodes fitted: share of 95 % intervals that hold the truth",
            "0.95 +- 0.07",
            f"{inside:.3f}",
            abs(inside - 0.95) < (0.13 if settings.quick else 0.07),
        )
    ]
    pooled = ERGM(statistics, method="mcmcmle").fit_pooled(graphs)
    worst = float(np.abs((pooled.coef_ - truth) / pooled.se_).max())
    seen = f"{np.round(pooled.coef_, 2).tolist()} +- {np.round(pooled.se_, 2).tolist()}"
    checks.append(
        Check(
            "planted", "pooled fit within 3 se of -1.6, -0.1, 0.5", "< 3", f"{worst:.1f}: {seen}", worst < 3
        )
    )
    if settings.quick:
        return checks, {"z": z.tolist()}
    truth2 = np.array([-4.2, 0.9])
    big = ERGM(("edges", "alt_triangles"), random_state=2).simulate(100, 1, truth2)[0]
    begun = time.process_time()
    found = ERGM(("edges", "alt_triangles"), method="mcmcmle", n_samples=300).fit(big)
    seconds = time.process_time() - begun
    worst = float(np.abs((found.coef_ - truth2) / found.se_).max())
    statement = f"100 nodes, {big.number_of_edges()} edges: within 3 se of -4.2, 0.9"
    seen = f"{worst:.1f} se in {seconds:.1f} s of CPU"
    checks.append(Check("planted", statement, "< 3", seen, bool(worst < 3 and found.converged_)))
    return checks, {"z": z.tolist(), "cpu_seconds_100_nodes": seconds}


def links(settings: Settings) -> Part:
    cases = make_cases(("social", "author", "er"), n_graphs=30, min_nodes=8, max_nodes=16)
    stories = [case.vignette for case in cases]
    table = predict_links(CommonNeighbourRecaller(), stories, show_progress=False)
    means = {
        d: mean_ci(table[table["dataset"] == d]["accuracy"].tolist()) for d in ("social", "author", "er")
    }
    checks = []
    for domain, wanted in (("author", "> 0.5 (cliques)"), ("social", "> 0.5 (small world)")):
        mean, half, _ = means[domain]
        good = mean - half > 0.5
        checks.append(
            Check("links", f"common neighbours, {domain}", wanted, f"{mean:.2f} +- {half:.2f}", good)
        )
    run = GraphRecallExperiment(NoisyRecaller(), show_progress=False).run(cases)
    r = accuracy_correlation(run.to_frame()["accuracy"], table["accuracy"])
    checks.append(
        Check(
            "links",
            "noise that knows nothing of prediction: correlation with recall accuracy",
            "interval holds 0 or |r| < 0.4",
            str(r),
            r.low <= 0 <= r.high or abs(r.r) < 0.4,
        )
    )
    return checks, {"accuracy": {d: m[:2] for d, m in means.items()}}


def model(settings: Settings) -> Part:
    lm = load_model(settings.model)
    recaller = LocalRecaller(lm)
    if settings.quick:
        cases = make_cases(("er", "social"), n_graphs=1, min_nodes=4, max_nodes=5, clearances=(0,))
    else:
        cases = make_cases(DOMAINS, n_graphs=settings.graphs, max_nodes=8, clearances=(0, 7))
        cases += make_cases(("brashears_irreducible", "brashears_reducible"), clearances=(0,))
    folder = settings.out / settings.model.replace("/", "_")
    save_settings(folder, recaller, cases, 1)
    run = GraphRecallExperiment(recaller, transcripts=folder / "transcripts.jsonl").run(cases)
    frame = run.to_frame()
    print(spell_run(run, ("dataset", "clearance")))
    accuracy, f1 = (mean_ci(frame[metric].tolist())[0] for metric in ("accuracy", "f1"))
    auroc, auroc_half, _ = mean_ci(frame["auroc"].tolist())
    judged = [v for v in verdicts(frame) if v.group == "all"]
    checks = [
        Check(
            "model",
            f"{settings.model}: {v.metric} beside the best baseline's",
            "not better",
            str(v),
            not v.better,
        )
        for v in judged
    ]
    checks += [
        Check(
            "model",
            "AUROC of the pair probabilities",
            "0.4 to 0.8",
            f"{auroc:.3f} +- {auroc_half:.3f}",
            0.4 < auroc < 0.8,
        ),
    ]
    found = analyse(run, by=("dataset",), n_permutations=300)
    found.save(folder / "analysis")
    print(found.bias["all"])
    print(found.descriptive.round(2).to_string())
    stories = [case.vignette for case in cases if case.clearance == 0 and len(case.vignette.edges) > 1]
    stories = [s for s in stories if not s.dataset.startswith("brashears")]
    predicted = predict_links(recaller, stories, transcripts=folder / "links.jsonl")
    mean, spread, count = mean_ci(predicted["accuracy"].tolist())
    checks.append(
        Check(
            "model",
            f"link prediction over {count} stories (chance 0.5)",
            "0.3 to 0.7",
            f"{mean:.3f} +- {spread:.3f}",
            0.3 < mean < 0.7,
        )
    )
    results: dict[str, Any] = {
        "bias": _rows(found.bias["all"]),
        "accuracy": accuracy,
        "f1": f1,
        "auroc": auroc,
    }
    results |= {"verdicts": [asdict(v) for v in judged], "link_accuracy": mean}
    if count > 2:
        told = frame[(frame["clearance"] == 0) & ~frame["dataset"].str.startswith("brashears")].reset_index(
            drop=True
        )
        r = accuracy_correlation(told["accuracy"], predicted["accuracy"])
        print(f"recall accuracy and link-prediction accuracy: {r}")
        results["correlation"] = str(r)
        save_figure(
            plot_prediction(told["accuracy"], predicted["accuracy"], told["dataset"], str(r)),
            settings.out / "model_links.png",
        )
    save_figure(plot_scores(frame, series="clearance"), settings.out / "model_scores.png")
    save_figure(plot_bias({settings.model: found.bias["all"]}), settings.out / "model_bias.png")
    return checks, results


PARTS: dict[str, Callable[[Settings], Part]] = {
    "loop": loop,
    "bias": bias,
    "exact": exact,
    "planted": planted,
    "links": links,
    "model": model,
}


def _rows(table: MicrostructureBias) -> list[dict[str, Any]]:
    frame = table.to_frame()[["coef", "se", "z"]].astype(object)
    frame = frame.where(frame.notna(), None)
    return frame.reset_index(names="statistic").to_dict(orient="records")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--which", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts to run")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller graphs")
    parser.add_argument(
        "--model", default="smollm2-135m", help="packaged name, hub name, folder or .gguf file"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the planted-bias runs")
    parser.add_argument(
        "--graphs", type=int, default=4, help="per domain in the model part; more takes longer"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("graph_recall"), help="folder for results and figures"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    arguments.out.mkdir(parents=True, exist_ok=True)
    settings = Settings(arguments.out, arguments.quick, arguments.model, arguments.seeds, arguments.graphs)
    checks, results = [], {}
    for name in arguments.which:
        begun = time.perf_counter()
        some, results[name] = PARTS[name](settings)
        checks += some
        for c in some:
            mark = "PASS" if c.passed else "FAIL"
            print(f"{mark}  {c.part}: {c.statement}\n      expected {c.expected}; measured {c.measured}")
        print(f"      ({name}: {time.perf_counter() - begun:.0f} s)", flush=True)
    write_json(
        arguments.out / "results.json",
        {"checks": [asdict(c) | {"passed": bool(c.passed)} for c in checks], **results},
    )
    failed = sum(not c.passed for c in checks)
    print(
        f"{len(checks) - failed} of {len(checks)} checks passed; results and figures are in {arguments.out}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
