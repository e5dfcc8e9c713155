"""What an audit of local explanations costs, and how it grows.

  columns, queries, audited   balls with linear models in d columns: membership is m n2 d, the rest follows the hits
  two columns                 the same through the tree, where small balls cost what they hold
  boxes                       an anchor each
  explainers                  a plain LIME of ours, the gradient, and (if installed) `lime` and `shap`, for one row,
                              beside the audit of that row

There is no public auditor to compare with; what is timed against is the audit written down plainly: a loop over audited
points, all distances, all predictions (its counts must be the same).

Times are CPU seconds of one thread, the best of the rounds; exponents are the slopes of log time against log size.
lime and shap are left out where they are not installed:

  python3 -m venv peers && peers/bin/pip install -e '.[auditing]'
  OMP_NUM_THREADS=1 peers/bin/python benchmarks/auditing.py --out benchmarks/results/auditing
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from classic_ml.auditing import (
    BallRegion,
    BoxRegion,
    ConstantModel,
    LinearModel,
    LocalExplanation,
    gradient_explainer,
    local_ridge_explainer,
)
from classic_ml.auditing.tally import tally
from interp.core.device import environment
from interp.core.files import atomic_write, write_json

AUDITED = 738


def cpu(run: Callable[[], object], rounds: int) -> float:
    """The best of the rounds' CPU times."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def world(m: int, n: int, d: int, share: float) -> tuple[list[LocalExplanation], np.ndarray, np.ndarray]:
    """m balls that hold `share` of the rows each, with linear models through their centres."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(m, d)), rng.normal(size=(n, d))
    some = Z[:1000]
    k = max(1, int(share * len(some)))
    explanations = []
    for x in X:
        slope = rng.normal(size=d)
        radius = np.sort(np.linalg.norm(some - x, axis=1))[k - 1 : k + 1].mean()  # no row on the rim
        explanations.append(LocalExplanation(BallRegion(x, radius), LinearModel(slope, -slope @ x)))
    return explanations, Z, np.where(Z[:, 0] > 0, 1, -1)


def boxes(m: int, n: int, d: int) -> tuple[list[LocalExplanation], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(m, d)), rng.normal(size=(n, d))
    return (
        [LocalExplanation(BoxRegion(x - 2, x + 2), ConstantModel(1)) for x in X],
        Z,
        np.where(Z[:, 0] > 0, 1, -1),
    )


def ours(explanations: list[LocalExplanation], Z: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts = tally(explanations, Z, f, np.arange(len(Z)), {-1, 1})
    return counts.n_in_region, counts.n_wrong


def plain(
    explanations: list[LocalExplanation], Z: np.ndarray, f: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    inside, wrong = [], []
    for e in explanations:
        near = np.linalg.norm(Z - e.region.center, axis=1) <= e.region.radius  # type: ignore[attr-defined]
        differs = np.where(Z @ e.model.coef + e.model.intercept >= 0, 1, -1) != f  # type: ignore[attr-defined]
        inside.append(near.sum())
        wrong.append((near & differs).sum())
    return np.array(inside), np.array(wrong)


def sweep(
    name: str,
    size: str,
    sizes: list[int],
    make: Callable[[int], tuple[list[LocalExplanation], np.ndarray, np.ndarray]],
    rounds: int,
    way: Callable[..., Any] = ours,
) -> dict[str, Any]:
    times = []
    for value in sizes:
        made = make(value)
        times.append(cpu(lambda made=made: way(*made), rounds))
    exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    print(
        f"{name:<58} {size:<8} {sizes[0]} to {sizes[-1]}: {times[0]:.4f} to {times[-1]:.4f} s, exponent {exponent:.2f}",
        flush=True,
    )
    return {"way": name, "size": size, "sizes": sizes, "cpu_seconds": times, "exponent": exponent}


def explainer_times(rounds: int, n: int = 3762, d: int = 20) -> dict[str, float]:
    """CPU seconds for one row: to explain it, and to audit its explanation on n reference points."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = (X @ rng.normal(size=d) > 0).astype(int)
    f = LogisticRegression().fit(X, y)
    x = X[0]

    def sampler(x: np.ndarray, k: int) -> np.ndarray:
        return x + rng.normal(size=(k, d))

    gradient = gradient_explainer(f.decision_function, lambda x: f.coef_[0], 3.0, labels=(0, 1))
    found = {
        "gradient": cpu(lambda: gradient(x), rounds),
        "ridge on 5000 neighbours": cpu(
            lambda: local_ridge_explainer(f, sampler, 3.0, 5000, labels=(0, 1))(x), rounds
        ),
        "audit of one linear explanation": cpu(lambda: [ours([gradient(x)], X, y) for _ in range(20)], rounds)
        / 20,
    }
    if importlib.util.find_spec("lime"):
        from lime.lime_tabular import LimeTabularExplainer

        from classic_ml.auditing import from_lime

        lime = LimeTabularExplainer(X, discretize_continuous=False, random_state=0)
        found["lime, 5000 neighbours"] = cpu(lambda: lime.explain_instance(x, f.predict_proba), rounds)
        explanation = from_lime(lime.explain_instance(x, f.predict_proba), lime, x, cutoff=0.5, labels=(0, 1))
        found["audit of one lime explanation"] = cpu(lambda: ours([explanation], X, y), rounds)
    if importlib.util.find_spec("shap"):
        import shap

        linear = shap.LinearExplainer(f, X[:100])
        linear(X[:1])
        found["shap, LinearExplainer"] = cpu(lambda: linear(X[:1]), rounds)
        permutation = shap.Explainer(f.predict_proba, X[:100])
        permutation(X[:1])
        found["shap, permutation, 100 background rows"] = cpu(lambda: permutation(X[:1]), rounds)
    for name, seconds in found.items():
        print(f"{name:<58} one row: {seconds:.5f} s", flush=True)
    return found


def table(rows: list[dict[str, Any]], one_row: dict[str, float], agreement: int, command: str) -> str:
    machine = f"{os.cpu_count()} cores, one thread; load average at the start {os.getloadavg()[0]:.1f}"
    lines = [
        "# Auditing local explanations on a CPU",
        "",
        f"CPU seconds, the best of the rounds; {machine}. Command: `{command}`",
        "",
        "| way | grows | from | CPU s | to | CPU s | exponent |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        sizes, times = row["sizes"], row["cpu_seconds"]
        lines.append(
            f"| {row['way']} | {row['size']} | {sizes[0]:,} | {times[0]:.4f} | {sizes[-1]:,} | {times[-1]:.4f} "
            f"| {row['exponent']:.2f} |"
        )
    lines += ["", f"Counts that differ between the plain loop and ours, of {2 * AUDITED}: {agreement}.", ""]
    lines += ["| one row, 20 columns, 3,762 reference points | CPU s |", "|---|---|"]
    lines += [f"| {name} | {seconds:.5f} |" for name, seconds in one_row.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="where to write OUT.json and OUT.md")
    options = parser.parse_args()
    r = options.rounds
    d, n = 576, 4000
    rows = [
        sweep(
            "738 balls of mass 0.05, 576 columns",
            "queries",
            [1000, 2000, 4000, 8000],
            lambda v: world(AUDITED, v, d, 0.05),
            r,
        ),
        sweep(
            "738 balls of mass 0.05, 4000 queries",
            "columns",
            [72, 144, 288, 576],
            lambda v: world(AUDITED, n, v, 0.05),
            r,
        ),
        sweep(
            "balls of mass 0.05, 4000 queries, 576 columns",
            "audited",
            [100, 200, 400, 800],
            lambda v: world(v, n, d, 0.05),
            r,
        ),
        sweep(
            "the plain loop, 738 balls, 576 columns",
            "queries",
            [1000, 2000, 4000],
            lambda v: world(AUDITED, v, d, 0.05),
            1,
            plain,
        ),
        sweep(
            "738 balls of mass 0.005, 2 columns (tree)",
            "queries",
            [4000, 16000, 64000],
            lambda v: world(AUDITED, v, 2, 0.005),
            r,
        ),
        sweep(
            "the plain loop, 738 balls, 2 columns",
            "queries",
            [4000, 16000, 64000],
            lambda v: world(AUDITED, v, 2, 0.005),
            1,
            plain,
        ),
        sweep("738 boxes, 20 columns", "queries", [4000, 16000, 64000], lambda v: boxes(AUDITED, v, 20), r),
    ]
    made = world(AUDITED, n, d, 0.05)
    agreement = int(sum((a != b).sum() for a, b in zip(ours(*made), plain(*made), strict=True)))
    one_row = explainer_times(max(r, 3))
    if options.out:
        command = " ".join(["python", *sys.argv])
        text = table(rows, one_row, agreement, command)
        content = {
            "environment": environment(),
            "rows": rows,
            "one_row": one_row,
            "counts_that_differ": agreement,
        }
        write_json(options.out.with_suffix(".json"), content)
        with atomic_write(options.out.with_suffix(".md")) as path:
            Path(path).write_text(text)


if __name__ == "__main__":
    main()
