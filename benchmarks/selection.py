"""What sample and series selection cost, how it grows, and what public libraries take for the same job.

RDSS
  potential    mu for n rows of width 512, float32: n^2 d multiply-adds, half of them for symmetry, the cost of a fit
  estimate     the same from 4096 columns, 4096 n d + 2 n d^2 multiply-adds, with its error against the exact one
  picks        400 picks once mu is known: m n d
  width        potential, estimate and picks over the width d
  peers        scikit-activeml's CoreSet and TypiClust, scikit-learn's k-means, the same budget and rows
ChronoEpilogi
  FBE, FE      over the number of series D (5 lags, 2500 steps), the number of steps, and the number of lags
  naive        the same decisions with a least-squares fit on the rows for every model
  group-lasso  one penalty of 1e-3; choosing it takes a dozen

Times are CPU seconds of one thread; exponents are the slopes of log time against log size over the listed sizes.
Peers that are not installed are left out:

  python3 -m venv peers && peers/bin/pip install -e . group-lasso scikit-activeml psutil
  OMP_NUM_THREADS=1 peers/bin/python benchmarks/selection.py --out benchmarks/results/selection
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from sklearn.cluster import KMeans

from classic_ml.selection import (
    ChronoEpilogi,
    PoolKernel,
    PotentialEstimate,
    alpha_mmd2,
    estimate_potential,
    gaussian_kernel,
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
        contestants["k-means (ours)"] = lambda: select_kmeans(X, PICKS, random_state=0)
        contestants["k-means (scikit-learn)"] = lambda: KMeans(PICKS, n_init=1, random_state=0).fit(X)
        contestants |= _activeml(X)
    cells = [Cell("RDSS", name, n, cpu(run)) for name, run in contestants.items()]
    print(*cells, sep="\n", flush=True)
    return cells


def width_cells(widths: list[int], n: int = 8000) -> list[Cell]:
    cells = []
    for d in widths:
        X = _embeddings(n, d)
        kernel = PoolKernel.from_rows(X, sigma=median_bandwidth(X, max_points=1000, random_state=0))
        mu = kernel.potential()
        contestants: dict[str, Callable[[], object]] = {
            "potential": kernel.potential,
            "estimate": lambda k=kernel: estimate_potential(k, random_state=0),
            f"{PICKS} picks": lambda k=kernel, mu=mu: kernel_herding(k, PICKS, alpha=0.95, potential=mu),
        }
        cells += [Cell("RDSS, width", name, d, cpu(run, 2)) for name, run in contestants.items()]
    print(*cells, sep="\n", flush=True)
    return cells


def estimate_figures(n: int, *, exact: bool) -> dict[str, float]:
    """CPU seconds of the estimate and its errors on 500 rows against float64; with `exact`, the whole potential's."""
    X = _embeddings(n)
    sigma = median_bandwidth(X, max_points=1000, random_state=0)
    kernel = PoolKernel.from_rows(X, sigma=sigma)
    found: list[PotentialEstimate] = []
    seconds = cpu(lambda: found.append(estimate_potential(kernel, random_state=0)))
    rows = np.random.default_rng(1).choice(n, 500, replace=False)
    parts = [gaussian_kernel(X[rows], X[a : a + 2000], sigma=sigma).sum(1) for a in range(0, n, 2000)]
    truth = np.sum(parts, axis=0) / n
    errors = found[0].values[rows] - truth
    figures = {
        "rows": n,
        "estimate_seconds": seconds,
        "spread": float(truth.std()),
        "rms_error": float(np.sqrt(np.square(errors).mean())),
        "largest_error": float(np.abs(errors).max()),
        "largest_error_of_any_row_claimed": found[0].largest_error(0.95),
    }
    if exact:
        mu: list[torch.Tensor] = []
        figures["exact_seconds"] = cpu(lambda: mu.append(kernel.potential()))
        figures["float32_largest_error"] = float(np.abs(mu[0].numpy()[rows] - truth).max())
        for name, potential in (("exact", mu[0]), ("estimate", found[0].values)):
            picks = kernel_herding(kernel, PICKS, alpha=0.95, potential=potential).indices
            figures[f"criterion_{name}"] = alpha_mmd2(kernel, picks, alpha=0.95, potential=mu[0])
    print(figures, flush=True)
    return figures


def _embeddings(n: int, width: int = WIDTH) -> np.ndarray:
    """Rows around 50 centres, as a network's features are."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((50, width), dtype=np.float32)
    X = rng.standard_normal((n, width), dtype=np.float32)
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


def lag_cells(lags: list[int]) -> list[Cell]:
    cells = []
    X, classes = make_noisy_var(2500, 100, n_parents=9, n_lags=5, n_replaceable=12, random_state=0)
    for n_lags in lags:
        for variant in ("FBE", "FE"):
            seconds = cpu(lambda L=n_lags, v=variant: ChronoEpilogi(L, v).fit(X, target=classes[0][0]), 2)
            cells.append(Cell("ChronoEpilogi, lags", variant, n_lags, seconds))
    print(*cells, sep="\n", flush=True)
    return cells


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


PARTS = ("memory", "series", "lags", "rows", "width", "estimate")
PART_OF = {
    "RDSS": "rows",
    "RDSS, width": "width",
    "ChronoEpilogi, series": "series",
    "ChronoEpilogi, steps": "series",
    "ChronoEpilogi, lags": "lags",
}
UNITS = {
    "RDSS": "rows",
    "RDSS, width": "wide",
    "ChronoEpilogi, series": "series",
    "ChronoEpilogi, steps": "steps",
    "ChronoEpilogi, lags": "lags",
}


def report(found: dict[str, Any]) -> str:
    cells = [Cell(**cell) for cell in found["cells"]]
    lines = ["# Sample and series selection on a CPU", "", "CPU seconds of one thread."]
    for table in dict.fromkeys(cell.table for cell in cells):
        part = [cell for cell in cells if cell.table == table]
        sizes = sorted({cell.size for cell in part})
        unit = UNITS[table]
        lines += ["", f"## {table}", "", found["runs"][PART_OF[table]], ""]
        lines += [f"| | {' | '.join(f'{s:,} {unit}' for s in sizes)} | exponent |"]
        lines.append("|---" * (len(sizes) + 2) + "|")
        for what in dict.fromkeys(cell.what for cell in part):
            seconds = {cell.size: cell.cpu_seconds for cell in part if cell.what == what}
            shown = [f"{seconds[s]:.3g}" if s in seconds else "" for s in sizes]
            lines.append(f"| {what} | {' | '.join(shown)} | {_exponent(seconds)} |")
    if "estimate" in found["runs"]:
        lines += _estimate_lines(found["estimates"], found["runs"]["estimate"])
    lines += [
        "",
        "## Memory of RDSS",
        "",
        found["runs"]["memory"],
        "",
        "| rows x 512, float32 | the pool, GiB | on top of it, GiB |",
        "|---|---|---|",
    ]
    lines += [f"| {m['rows']:,} | {m['pool_gib']:.2f} | {m['extra_gib']:.2f} |" for m in found["memory"]]
    return "\n".join(lines) + "\n"


def _estimate_lines(estimates: list[dict[str, float]], run: str) -> list[str]:
    """Exact and estimated potential side by side, and what a million rows would take."""
    lines = [
        "",
        "## The potential of long pools",
        "",
        run,
        "",
        "Errors are against float64 on 500 rows. The criterion is alpha-MMD^2 at 0.95 of 400 picks made with either.",
        "",
        "| rows x 512 | exact, CPU s | estimate, CPU s | spread of mu | float32 error, largest | estimate's error: "
        "rms, largest | claimed for all rows, 95 % | criterion, exact | criterion, estimate |",
        "|---" * 9 + "|",
    ]
    for row in estimates:
        exact = "exact_seconds" in row
        shown = [
            f"{row['rows']:,}",
            f"{row['exact_seconds']:.3g}" if exact else "",
            f"{row['estimate_seconds']:.3g}",
            f"{row['spread']:.2g}",
            f"{row['float32_largest_error']:.1g}" if exact else "",
            f"{row['rms_error']:.1g}, {row['largest_error']:.1g}",
            f"{row['largest_error_of_any_row_claimed']:.1g}",
            f"{row['criterion_exact']:.6f}" if exact else "",
            f"{row['criterion_estimate']:.6f}" if exact else "",
        ]
        lines.append(f"| {' | '.join(shown)} |")
    slow = max((row for row in estimates if "exact_seconds" in row), key=lambda row: row["rows"])
    fast, million, d, s = max(estimates, key=lambda row: row["rows"]), 1e6, WIDTH, 4096
    hours = slow["exact_seconds"] * (million / slow["rows"]) ** 2 / 3600
    minutes = fast["estimate_seconds"] * million / fast["rows"] / 60
    return [
        *lines,
        "",
        f"Extrapolated, not run, to 1,000,000 rows: exact {million**2 * d:.1e} FLOP (half the pairs), at n^2 from "
        f"{slow['rows']:,} rows {hours:.1f} CPU hours; the estimate {2 * million * d * (s + 2 * d):.1e} FLOP, at n "
        f"from {fast['rows']:,} rows {minutes:.1f} CPU minutes.",
    ]


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
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[64, 128, 256, 512, 1024], help="widths of a pool of 8000"
    )
    parser.add_argument("--lags", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="lags, of 100 series")
    parser.add_argument(
        "--exact", type=int, nargs="+", default=[12_500, 25_000, 50_000], help="pools for both potentials"
    )
    parser.add_argument(
        "--estimate", type=int, nargs="+", default=[100_000], help="pools for the estimate only"
    )
    parser.add_argument("--naive", type=int, default=50, help="most series for the naive implementation")
    parser.add_argument("--memory", type=int, nargs="+", default=[250_000, 1_000_000], help="pools to weigh")
    parser.add_argument(
        "--parts", choices=PARTS, nargs="+", default=PARTS, help="the others stay as they are"
    )
    parser.add_argument("--out", type=Path, default=Path("results/selection"), help="path without ending")
    args = parser.parse_args()
    torch.set_num_threads(1)
    versions = ", ".join(f"{p} {v}" for p in PACKAGES if (v := _version(p)))
    run = (
        f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, 1 thread; Python "
        f"{sys.version.split()[0]}; {versions}. Load average at the start {os.getloadavg()[0]:.1f}. Command: "
        f"`{' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}`"
    )
    path = args.out.with_suffix(".json")
    found = json.loads(path.read_text()) if path.exists() else {"runs": {}, "cells": []}
    found["runs"] |= dict.fromkeys(args.parts, run)
    cells = [Cell(**cell) for cell in found["cells"] if PART_OF[cell["table"]] not in args.parts]
    if "memory" in args.parts:
        found["memory"] = [peak_rss_of_fit(n) for n in args.memory]
    if "series" in args.parts:
        cells += series_cells(args.series, args.steps, args.naive)
    if "lags" in args.parts:
        cells += lag_cells(args.lags)
    if "rows" in args.parts:
        cells += [cell for n in args.rows for cell in rdss_cells(n, peers=n in args.peer_rows)]
    if "width" in args.parts:
        cells += width_cells(args.widths)
    if "estimate" in args.parts:
        sizes = sorted({*args.exact, *args.estimate})
        found["estimates"] = [estimate_figures(n, exact=n in args.exact) for n in sizes]
    found["cells"] = [vars(cell) for cell in cells]
    text = report(found)
    print(text)
    write_json(path, found)
    with atomic_write(args.out.with_suffix(".md")) as temporary:
        temporary.write_text(text)


if __name__ == "__main__":
    main()
