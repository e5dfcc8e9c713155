"""What choosing seeds for motifs costs, how it grows with the edges, and how simulation compares with cynetdiff.

growth   Power-law graphs (`networkx.powerlaw_cluster_graph(n, 5, 0.5)`) of up to one million undirected edges, n / 2
         triangles, 50 seeds, epsilon 0.3: building the arrays, finding the triangles, and fitting by strategy. The
         largest one is also fitted on two threads, for its wall time and the process's largest memory.
peer     Linear threshold runs from ten seeds on a Barabasi-Albert graph of 20,000 nodes: ours forwards, cynetdiff's,
         and reverse samples of 5,000 edge motifs. Both spreads are given: they must agree.

Times are CPU seconds unless they say wall; exponents are slopes of log time against log edges. Without cynetdiff its
row is left out:

    pip install --target peers --no-deps cynetdiff
    PYTHONPATH=.:peers python benchmarks/influence.py --out benchmarks/results/influence
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from classic_ml.influence import (
    Estimate,
    LinearThresholdGraph,
    Motif,
    MotifInfluenceMaximizer,
    edge_motifs,
    estimate_bounds,
    select_degree,
    simulate_linear_threshold,
    triangle_motifs,
)
from interp.core.device import environment
from interp.core.files import atomic_write, write_json

PARTS = ("growth", "peer")
STRATEGIES = ("lower", "upper", "joint", "sandwich")


def timed(act: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, CPU seconds, wall seconds."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = act()
    return result, time.process_time() - cpu, time.perf_counter() - wall


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def growth(sizes: list[int]) -> dict[str, Any]:
    MotifInfluenceMaximizer(2, epsilon=0.5, random_state=0).fit(
        nx.cycle_graph(5), [Motif((0, 1), 2)]
    )  # compiles
    rows: list[dict[str, Any]] = []
    for n in sizes:
        raw = nx.powerlaw_cluster_graph(n, 5, 0.5, seed=0)
        row: dict[str, Any] = {"edges": raw.number_of_edges()}
        graph, row["arrays"], _ = timed(lambda raw=raw: LinearThresholdGraph.from_networkx(raw))
        del raw
        motifs, row["triangles"], _ = timed(
            lambda graph=graph, n=n: triangle_motifs(graph, n_motifs=n // 2, random_state=0)
        )
        row["motifs"] = len(motifs)
        for strategy in STRATEGIES:
            model = MotifInfluenceMaximizer(50, strategy=strategy, epsilon=0.3, random_state=0)
            _, row[strategy], _ = timed(
                lambda model=model, graph=graph, motifs=motifs: model.fit(graph, motifs)
            )
            row[f"{strategy} samples"] = model.n_samples_
            row[f"{strategy} influence"] = str(model.influence_)
        rows.append(row)
        print(row, flush=True)
    load = os.getloadavg()[0]
    two = MotifInfluenceMaximizer(50, epsilon=0.3, n_jobs=2, random_state=0)
    _, cpu, wall = timed(lambda: two.fit(graph, motifs))
    return {"rows": rows, "two_threads": {"cpu": cpu, "wall": wall, "load": load}, "peak_gib": peak_gib()}


def peer(n: int, runs: int) -> list[dict[str, Any]]:
    raw = nx.barabasi_albert_graph(n, 3, seed=0)
    graph = LinearThresholdGraph.from_networkx(raw)
    motifs, seeds = edge_motifs(graph, n_motifs=5000, random_state=0), select_degree(graph, 10)
    simulate_linear_threshold(graph, seeds, 2, random_state=0)
    estimate_bounds(graph, motifs, seeds, 2, random_state=0)
    spread, cpu, _ = timed(lambda: simulate_linear_threshold(graph, seeds, runs, random_state=0))
    rows = [{"way": "ours, forwards", "runs": runs, "cpu": cpu, "spread": str(spread.estimate)}]
    _, cpu, _ = timed(lambda: estimate_bounds(graph, motifs, seeds, 100 * runs, random_state=0))
    rows.append({"way": "ours, reverse samples of motifs", "runs": 100 * runs, "cpu": cpu, "spread": ""})
    if find_spec("cynetdiff") is None:
        return rows
    from cynetdiff.utils import networkx_to_lt_model

    directed = raw.to_directed()
    for u, v in directed.edges:
        directed[u][v]["influence"] = 1 / raw.degree[v]
    model, place = networkx_to_lt_model(directed, rng=0)

    def simulate() -> np.ndarray:
        sizes = []
        for _ in range(runs):
            model.reset_model()
            model.set_seeds([place[seed] for seed in seeds])
            model.advance_until_completion()
            sizes.append(model.get_num_activated_nodes())
        return np.array(sizes, dtype=np.float64)

    sizes, cpu, _ = timed(simulate)
    rows.append({"way": "cynetdiff, forwards", "runs": runs, "cpu": cpu, "spread": str(Estimate.of(sizes))})
    return rows


def report(found: dict[str, Any]) -> str:
    lines = ["# Motif influence on a CPU", "", "CPU seconds of one thread unless they say otherwise."]
    if "growth" in found:
        rows, two = found["growth"]["rows"], found["growth"]["two_threads"]
        edges = [row["edges"] for row in rows]
        lines += ["", "## Growth", "", found["runs"]["growth"], ""]
        lines += ["| undirected edges | " + " | ".join(f"{e:,}" for e in edges) + " | exponent |"]
        lines += ["|---" * (len(rows) + 2) + "|"]
        lines += ["| triangles | " + " | ".join(f"{row['motifs']:,}" for row in rows) + " | |"]
        for what in ("arrays", "triangles", *STRATEGIES):
            seconds = [row[what] for row in rows]
            slope = np.polyfit(np.log(edges), np.log(seconds), 1)[0] if len(rows) > 1 else np.nan
            name = {"arrays": "from networkx to arrays", "triangles": "all triangles"}.get(
                what, f"fit, {what}"
            )
            lines += [f"| {name} | " + " | ".join(f"{s:.2f}" for s in seconds) + f" | {slope:.2f} |"]
        samples = [f"{row['sandwich samples']:,}" for row in rows]
        lines += ["| samples of the sandwich | " + " | ".join(samples) + " | |"]
        lines += ["| its influence | " + " | ".join(row["sandwich influence"] for row in rows) + " | |", ""]
        lines += [
            f"The largest on two threads (sandwich): {two['wall']:.1f} s wall, {two['cpu']:.1f} CPU s, at a load "
            f"average of {two['load']:.1f}. Largest memory of the process, networkx included: "
            f"{found['growth']['peak_gib']:.2f} GiB."
        ]
    if "peer" in found:
        lines += ["", "## Simulation beside cynetdiff", "", found["runs"]["peer"], ""]
        lines += ["| | runs or samples | CPU s | a second | spread |", "|---|---|---|---|---|"]
        lines += [
            f"| {row['way']} | {row['runs']:,} | {row['cpu']:.2f} | {row['runs'] / row['cpu']:,.0f} | {row['spread']} |"
            for row in found["peer"]
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=[25_000, 50_000, 100_000, 200_000], help="five edges each"
    )
    parser.add_argument("--peer-nodes", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5000, help="of the peer's simulation")
    parser.add_argument(
        "--parts", choices=PARTS, nargs="+", default=PARTS, help="the others stay as they are"
    )
    parser.add_argument("--out", type=Path, default=Path("results/influence"), help="path without ending")
    args = parser.parse_args()
    facts = environment()
    versions = ", ".join(f"{name} {facts['versions'][name]}" for name in ("numpy", "numba"))
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    run = (
        f"{os.cpu_count()} cores, {facts['platform']}, Python {facts['python']}, {versions}, networkx "
        f"{nx.__version__}. Load average at the start {os.getloadavg()[0]:.1f}. Command: `{command}`"
    )
    path = args.out.with_suffix(".json")
    found = json.loads(path.read_text()) if path.exists() else {"runs": {}}
    found["runs"] |= dict.fromkeys(args.parts, run)
    if "growth" in args.parts:
        found["growth"] = growth(args.nodes)
    if "peer" in args.parts:
        found["peer"] = peer(args.peer_nodes, args.runs)
    text = report(found)
    print(text)
    write_json(path, found)
    with atomic_write(args.out.with_suffix(".md")) as temporary:
        temporary.write_text(text)


if __name__ == "__main__":
    main()
