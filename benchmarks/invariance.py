"""How does the cost of worst-case learning grow with rounds, transformations and rows, and what of it is the oracle?

Each line is the CPU time of the best of a few rounds on one thread over growing sizes, with the exponent of the growth
(the slope of log time against log size).  The floor is what the reduction cannot do without: as many weighted fits of
scikit-learn's LogisticRegression on the inflated rows, in the same process.  We know of no public library with this
reduction, and haven't searched systematically.

    OMP_NUM_THREADS=1 python benchmarks/invariance.py [--rounds 2] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from classic_ml.invariance import (
    AugmentedERM,
    ScaleColumns,
    WorstCaseTransformClassifier,
    full_parity,
    game_value,
    play_game,
    train_boolean,
)
from interp.core.device import environment
from interp.core.files import write_json

ROUNDS, TRANSFORMS, ROWS = (25, 50, 100, 200), (5, 10, 20, 40), (1000, 2000, 4000, 8000)


def problem(m: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.choice([-1, 1], m)
    return np.c_[y + rng.standard_normal(m), 2 * y + 0.5 * rng.standard_normal(m)], y


def family(k: int) -> list[ScaleColumns]:
    return [ScaleColumns(c, [1]) for c in np.linspace(1, -1, k)]


def robust(m: int, k: int, r: int, **options: Any) -> Callable[[], Any]:
    X, y = problem(m)
    return lambda: WorstCaseTransformClassifier(
        LogisticRegression(), family(k), n_rounds=r, random_state=0, **options
    ).fit(X, y)


def floor(m: int, k: int, r: int) -> Callable[[], Any]:
    """r fits on the inflated rows under weights that a game took."""
    X, y = problem(m)
    rows, labels = np.concatenate([T(X) for T in family(k)]), np.tile(y, k)
    weights = robust(m, k, r)().transform_weights_
    return lambda: [LogisticRegression().fit(rows, labels, sample_weight=np.repeat(q, m)) for q in weights]


def augmented(m: int, k: int) -> Callable[[], Any]:
    X, y = problem(m)
    return lambda: AugmentedERM(LogisticRegression(), family(k)).fit(X, y)


def game(k: int) -> Callable[[], Any]:
    costs = np.random.default_rng(0).uniform(size=(1000, k))

    def play() -> None:
        rows = iter(costs)
        play_game(lambda q: next(rows), k, n_rounds=1000)

    return play


def solved(k: int) -> Callable[[], Any]:
    errors = np.random.default_rng(0).uniform(size=(k, k))
    return lambda: game_value(errors)


def network(steps: int) -> Callable[[], Any]:
    return lambda: train_boolean(full_parity(12), 400, augment=True, steps=steps)


LINES: tuple[tuple[str, str, tuple[int, ...], Callable[[int], Callable[[], Any]]], ...] = (
    ("WorstCaseTransformClassifier, K = 5, m = 1000", "rounds", ROUNDS, lambda r: robust(1000, 5, r)),
    ("  floor: the weighted fits alone", "rounds", ROUNDS, lambda r: floor(1000, 5, r)),
    (
        "WorstCaseTransformClassifier, R = 25, m = 1000",
        "transformations",
        TRANSFORMS,
        lambda k: robust(1000, k, 25),
    ),
    ("  floor: the weighted fits alone", "transformations", TRANSFORMS, lambda k: floor(1000, k, 25)),
    ("WorstCaseTransformClassifier, R = 25, K = 5", "rows", ROWS, lambda m: robust(m, 5, 25)),
    ("  floor: the weighted fits alone", "rows", ROWS, lambda m: floor(m, 5, 25)),
    ("  oracle_mode='resample'", "rows", ROWS, lambda m: robust(m, 5, 25, oracle_mode="resample")),
    ("AugmentedERM, K = 5", "rows", ROWS, lambda m: augmented(m, 5)),
    ("play_game, 1000 rounds, costs given", "transformations", (100, 1000, 10000), game),
    ("game_value of K predictors", "transformations", (25, 50, 100, 200), solved),
    ("train_boolean, 12 bits, permuted", "steps", (100, 200, 400), network),
)


def best_of(rounds: int, act: Callable[[], Any]) -> float:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        act()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a JSON file with all times")
    options = parser.parse_args()
    results = []
    for way, size, sizes, make in LINES:
        seconds = [best_of(options.rounds, make(n)) for n in sizes]
        exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
        times = "  ".join(f"{n}: {s:.4g} s" for n, s in zip(sizes, seconds, strict=True))
        print(f"{way:<48}{size:<16}exponent {exponent:5.2f}   {times}", flush=True)
        results.append(
            {"way": way.strip(), "size": size, "sizes": sizes, "cpu_seconds": seconds, "exponent": exponent}
        )
    if options.out:
        write_json(options.out, {"environment": environment(), "lines": results})


if __name__ == "__main__":
    main()
