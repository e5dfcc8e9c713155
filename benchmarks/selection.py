"""What sample and series selection cost, how it grows, and what public libraries take for the same job.

RDSS
  potential    mu for n rows of width 512, float32: n^2 d multiply-adds, the whole cost of a fit
  picks        400 picks once mu is known: m n d
  peers        scikit-activeml's CoreSet and TypiClust, scikit-learn's k-means, the same budget and rows
ChronoEpilogi
  FBE, FE      over the number of series D (5 lags, 2500 steps), and over the number of steps
  naive        the same decisions with a least-squares fit on the rows for every model
  group-lasso  one penalty of 1e-3; choosing it takes a dozen

Times are CPU seconds of one thread; exponents are the slopes of log time against log size over the listed sizes.
Peers that are not installed are left out, and the table says so:

  python3 -m venv peers && peers/bin/pip install -e . group-lasso scikit-activeml psutil
  OMP_NUM_THREADS=1 peers/bin/python benchmarks/selection.py --out benchmarks/results/selection
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch

from classic_ml.selection import (
    ChronoEpilogi,
    PoolKernel,
    kernel_herding,
    lagged_matrix,
    make_noisy_var,
    median_bandwidth,
    select_kcenter,
    select_kmeans,
)
from interp.core.files import atomic_write, write_json

WIDTH, PICKS = 512, 400
GROUP_LASSO_UP_TO = 200  # series
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "scikit-activeml", "group-lasso")


@dataclass(frozen=True)
class Cell:
    """One timing."""

    table: str
    what: str
    size: int
    cpu_seconds: float


def cpu(run: Callable[[], object], repeats: int = 1) -> float:
    """The best of `repeats` CPU times."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def rdss_cells(n: int, *, peers: bool) -> list[Cell]:
    X = _embeddings(n)
    kernel = PoolKernel.from_rows(X, sigma=median_bandwidth(X, max_points=1000, random_state=0))
    mu: list[torch.Tensor] = []
    contestants: dict[str, Callable[[], object]] = {
        "potential": lambda: mu.append(kernel.potential()),
        f"{PICKS} picks": lambda: kernel_herding(kernel, PICKS, alpha=0.95, potential=mu[0]),
    }
    if peers:
        contestants["k-center greedy (ours)"] = lambda: select_kcenter(X, PICKS)
        contestants["k-means (scikit-learn)"] = lambda: select_kmeans(X, PICKS, random_state=0)
        contestants |= _activeml(X)
    cells = [Cell("RDSS", name, n, cpu(run)) for name, run in contestants.items()]
    print(*cells, sep="\n", flush=True)
    return cells


def _embeddings(n: int) -> np.ndarray:
    """Rows around 50 centres, as a network's features are."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((50, WIDTH), dtype=np.float32)
    X = rng.standard_normal((n, WIDTH), dtype=np.float32)
    for part in np.array_split(X, max(1, n // 10_000)):
        part += centres[rng.integers(50, size=len(part))]
    return X


def _activeml(X: np.ndarray) -> dict[str, Callable[[], object]]:
    if importlib.util.find_spec("skactiveml") is None:
        return {}
    from skactiveml.pool import CoreSet, TypiClust

    nothing = np.full(len(X), np.nan)
    return {
        "CoreSet (scikit-activeml)": lambda: CoreSet(random_state=0).query(X, nothing, batch_size=PICKS),
        "TypiClust (scikit-activeml)": lambda: TypiClust(random_state=0).query(X, nothing, batch_size=PICKS),
    }


def series_cells(numbers: list[int], steps: list[int], naive_up_to: int) -> list[Cell]:
    cells = []
    for d in numbers:
        X, classes = make_noisy_var(2500, d, n_parents=9, n_lags=5, n_replaceable=12, random_state=0)
        cells += _series(X, classes[0][0], "series", d, naive_up_to)
    for n in steps:
        X, classes = make_noisy_var(n, 100, n_parents=9, n_lags=5, n_replaceable=12, random_state=0)
        cells += _series(X, classes[0][0], "steps", n, 0)
    return cells


def _series(X: np.ndarray, target: int, what: str, size: int, naive_up_to: int) -> list[Cell]:
    table = f"ChronoEpilogi, {what}"
    cells = [
        Cell(table, variant, size, cpu(lambda v=variant: ChronoEpilogi(5, v).fit(X, target=target), 2))
        for variant in ("FBE", "FE")
    ]
    if size <= naive_up_to:
        cells.append(
            Cell(table, "FBE, a fit on the rows per model", size, cpu(lambda: naive_fbe(X, target, 5)))
        )
    if importlib.util.find_spec("group_lasso") is not None and size <= GROUP_LASSO_UP_TO and what == "series":
        cells.append(Cell(table, "group-lasso, one penalty", size, cpu(lambda: _group_lasso(X, target, 5))))
    print(*cells, sep="\n", flush=True)
    return cells


def _group_lasso(X: np.ndarray, target: int, n_lags: int) -> None:
    from group_lasso import GroupLasso

    Z = (X - X.mean(0)) / X.std(0)
    windows = lagged_matrix(Z, n_lags).reshape(len(Z) - n_lags, -1)
    groups = np.repeat(np.arange(X.shape[1]), n_lags)
    model = GroupLasso(groups, group_reg=1e-3, l1_reg=1e-20, n_iter=500, tol=1e-4, supress_warning=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(windows, Z[n_lags:, target, None])


def naive_fbe(X: np.ndarray, target: int, n_lags: int) -> list[list[int]]:
    """Forward, backward and equivalence with `lstsq` on the rows for every model."""
    from scipy.special import chdtrc

    windows, y = lagged_matrix(X, n_lags), X[n_lags:, target]
    n = len(y)

    def fit(series: list[int]) -> tuple[int, float, np.ndarray]:
        design = np.c_[np.ones(n), windows[:, series].reshape(n, -1)]
        coefficients, _, rank, _ = np.linalg.lstsq(design, y, rcond=1e-9)
        residuals = y - design @ coefficients
        return int(rank), float(residuals @ residuals), residuals

    def p_value(large: list[int], small: list[int]) -> float:
        (rank_l, ssr_l, _), (rank_s, ssr_s, _) = fit(large), fit(small)
        return float(chdtrc(rank_l - rank_s, n * np.log(ssr_s / ssr_l))) if rank_l > rank_s else 1.0

    centred = windows - windows.mean(0)
    columns = centred / np.linalg.norm(centred, axis=0)
    selected, candidates = [target], [j for j in range(X.shape[1]) if j != target]
    while candidates:
        strengths = np.abs(np.einsum("n,njl->jl", fit(selected)[2], columns[:, candidates])).max(1)
        j = candidates[int(strengths.argmax())]
        if p_value([*selected, j], selected) >= 1e-3:
            break
        candidates.remove(j)
        selected.append(j)
    while len(selected) > 1:
        p = [p_value(selected, [i for i in selected if i != j]) for j in selected[1:]]
        if max(p) < 1e-3:
            break
        selected.pop(1 + int(np.argmax(p)))
    rest, classes = [k for k in range(X.shape[1]) if k not in selected], [[target]]
    for j in selected[1:]:
        others = [i for i in selected if i != j]
        found = [
            k
            for k in rest
            if p_value([*others, k, j], [*others, k]) > 1e-4 and p_value([*others, k], others) < 1e-3
        ]
        rest = [k for k in rest if k not in found]
        classes.append([j, *found])
    return classes


def peak_rss_of_fit(n: int) -> dict[str, float]:
    """GiB resident before the kernel exists, and the most while its potential and picks are computed."""
    import threading

    process, X = psutil.Process(), _embeddings(n)
    before, peak, done = process.memory_info().rss, [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    kernel = PoolKernel.from_rows(X, sigma=median_bandwidth(X, max_points=1000, random_state=0))
    kernel.row(0)
    kernel.tile(slice(0, 4096), slice(4096, 8192)).sum(1)
    kernel_herding(kernel, 3, alpha=0.95, potential=np.ones(n))
    done.set()
    watcher.join()
    return {"rows": n, "pool_gib": X.nbytes / 2**30, "extra_gib": (peak[0] - before) / 2**30}


def report(cells: list[Cell], memory: list[dict[str, float]], machine: str, command: str) -> str:
    lines = [
        "# Sample and series selection on a CPU",
        "",
        machine,
        f"CPU seconds of one thread. Command: `{command}`",
    ]
    for table in dict.fromkeys(cell.table for cell in cells):
        part = [cell for cell in cells if cell.table == table]
        sizes = sorted({cell.size for cell in part})
        unit = {"RDSS": "rows", "ChronoEpilogi, series": "series", "ChronoEpilogi, steps": "steps"}[table]
        lines += ["", f"## {table}", "", f"| | {' | '.join(f'{s:,} {unit}' for s in sizes)} | exponent |"]
        lines.append("|---" * (len(sizes) + 2) + "|")
        for what in dict.fromkeys(cell.what for cell in part):
            seconds = {cell.size: cell.cpu_seconds for cell in part if cell.what == what}
            shown = [f"{seconds[s]:.3g}" if s in seconds else "" for s in sizes]
            lines.append(f"| {what} | {' | '.join(shown)} | {_exponent(seconds)} |")
    largest = max((c for c in cells if c.what == "potential"), key=lambda c: c.size)
    hours = largest.cpu_seconds * (1e6 / largest.size) ** 2 / 3600
    lines += [
        "",
        f"Extrapolated, not run: at n^2 from {largest.size:,} rows, the potential of 1,000,000 rows would take "
        f"{hours:.1f} CPU hours.",
    ]
    lines += [
        "",
        "## Memory of RDSS",
        "",
        "| rows x 512, float32 | the pool, GiB | on top of it, GiB |",
        "|---|---|---|",
    ]
    lines += [f"| {m['rows']:,} | {m['pool_gib']:.2f} | {m['extra_gib']:.2f} |" for m in memory]
    missing = [p for p in PACKAGES[-2:] if _version(p) is None]
    if missing:
        lines += ["", f"Not installed and left out: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def _exponent(seconds: dict[int, float]) -> str:
    if len(seconds) < 2:
        return ""
    sizes = sorted(seconds)
    return f"{np.polyfit(np.log(sizes), np.log([seconds[s] for s in sizes]), 1)[0]:.2f}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[2000, 4000, 8000, 16_000], help="pools of RDSS"
    )
    parser.add_argument("--peer-rows", type=int, nargs="+", default=[2000, 4000], help="pools of the peers")
    parser.add_argument(
        "--series", type=int, nargs="+", default=[50, 100, 200, 400], help="numbers of series"
    )
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[1000, 2000, 4000, 8000], help="lengths of series"
    )
    parser.add_argument("--naive", type=int, default=50, help="most series for the naive implementation")
    parser.add_argument("--memory", type=int, nargs="+", default=[250_000, 1_000_000], help="pools to weigh")
    parser.add_argument("--out", type=Path, default=Path("results/selection"), help="path without ending")
    args = parser.parse_args()
    torch.set_num_threads(1)
    versions = ", ".join(f"{p} {v}" for p in PACKAGES if (v := _version(p)))
    machine = (
        f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, 1 thread; Python "
        f"{sys.version.split()[0]}; {versions}. Load average at the start {os.getloadavg()[0]:.1f}."
    )
    memory = [peak_rss_of_fit(n) for n in args.memory]
    print(*memory, sep="\n", flush=True)
    cells = series_cells(args.series, args.steps, args.naive)
    for n in args.rows:
        cells += rdss_cells(n, peers=n in args.peer_rows)
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    text = report(cells, memory, machine, command)
    print(text)
    path = args.out.with_suffix(".json")
    write_json(
        path, {"machine": machine, "command": command, "cells": [vars(c) for c in cells], "memory": memory}
    )
    with atomic_write(args.out.with_suffix(".md")) as temporary:
        temporary.write_text(text)


if __name__ == "__main__":
    main()
