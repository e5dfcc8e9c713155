"""How do few-output classifiers grow with the number of classes, beside scikit-learn's output codes and one-vs-one?

Each line is the CPU time of the best of a few rounds on one thread over growing sizes, with the exponent of the growth
(the slope in log-log coordinates). Classifiers of all kinds regress by ridge on the same rows (Gaussian classes in 64
dimensions) and are timed to fit and to decide; their accuracy stands beside them. Then decoding over the number of
dimensions, and the region tests over the number of classes: closed form, distances to hulls, linear programs.

    OMP_NUM_THREADS=1 python benchmarks/surrogates.py [--rounds 3] [--out FILE.json]

The peers are scikit-learn's own, nothing else needs to be installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.multiclass import OneVsOneClassifier, OutputCodeClassifier

from classic_ml.surrogates import CrossPolytopeEnsemble, PolytopeClassifier, PolytopeEmbedding
from classic_ml.surrogates.thresholds import alpha_map
from interp.core.device import environment
from interp.core.files import write_json

CLASSES = (8, 16, 32, 64)
ROWS, FEATURES = 2000, 64
DIMENSIONS = (5, 10, 20)
E = PolytopeEmbedding


@dataclass
class Line:
    """One way over growing sizes."""

    way: str
    size: str
    sizes: Sequence[int]
    seconds: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)

    @property
    def exponent(self) -> float:
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])

    def __str__(self) -> str:
        times = "  ".join(f"{n}: {s:.3g}" for n, s in zip(self.sizes, self.seconds, strict=True))
        right = f"   accuracy {', '.join(f'{a:.3f}' for a in self.accuracy)}" if self.accuracy else ""
        return f"{self.way:<52}{self.size:<12}exponent {self.exponent:5.2f}   {times}{right}"


def best_of(rounds: int, act: Callable[[], Any]) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(rounds):
        start = time.process_time()
        result = act()
        best = min(best, time.process_time() - start)
    return best, result


def line(way: str, size: str, sizes: Sequence[int], rounds: int, act: Callable[[int], Any]) -> Line:
    result = Line(way, size, sizes, [best_of(rounds, lambda n=n: act(n))[0] for n in sizes])
    print(result, flush=True)
    return result


def classes(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    means = rng.standard_normal((n, FEATURES))
    y = rng.integers(n, size=2 * ROWS)
    X = means[y] + 1.5 * rng.standard_normal((2 * ROWS, FEATURES))
    return X[:ROWS], y[:ROWS], X[ROWS:], y[ROWS:]


def classifiers(rounds: int) -> list[Line]:
    ways: dict[str, Callable[[int], Any]] = {
        "one-hot": lambda n: PolytopeClassifier("simplex", Ridge()),
        "cross-polytope, n / 2 outputs": lambda n: PolytopeClassifier("cross-polytope", Ridge()),
        "cube, log2 n outputs": lambda n: PolytopeClassifier("cube", Ridge()),
        "CrossPolytopeEnsemble, n - 1 times n / 2": lambda n: CrossPolytopeEnsemble(Ridge()),
        "scikit-learn OutputCodeClassifier, 1.5 n": lambda n: OutputCodeClassifier(
            RidgeClassifier(), code_size=1.5, random_state=0
        ),
        "scikit-learn OutputCodeClassifier, log2 n": lambda n: OutputCodeClassifier(
            RidgeClassifier(), code_size=(np.log2(n) + 0.5) / n, random_state=0
        ),
        "scikit-learn OneVsOneClassifier": lambda n: OneVsOneClassifier(RidgeClassifier()),
    }
    data = {n: classes(n) for n in CLASSES}
    lines = []
    for way, make in ways.items():
        fit, decide = Line(f"{way}: fit", "classes", CLASSES), Line(f"{way}: predict", "classes", CLASSES)
        for n in CLASSES:
            X, y, X_test, y_test = data[n]
            seconds, fitted = best_of(rounds, lambda make=make, n=n, X=X, y=y: make(n).fit(X, y))
            fit.seconds.append(seconds)
            seconds, predicted = best_of(rounds, lambda fitted=fitted, X_test=X_test: fitted.predict(X_test))
            decide.seconds.append(seconds)
            decide.accuracy.append(float((predicted == y_test).mean()))
        print(fit, decide, sep="\n", flush=True)
        lines += [fit, decide]
    return lines


def geometry(rounds: int) -> list[Line]:
    rng = np.random.default_rng(0)
    lines = []
    for make in (E.cube, E.permutahedron, E.cross_polytope):
        embeddings = {d: make(d) for d in DIMENSIONS}
        points = {d: rng.random((10_000, d)) for d in DIMENSIONS}
        name = embeddings[5].name
        lines.append(
            line(
                f"link of 10,000 points, {name}",
                "dimensions",
                DIMENSIONS,
                rounds,
                lambda d, e=embeddings, p=points: e[d].link(p[d]),
            )
        )
    listed = {n: PolytopeEmbedding(E.cube(n.bit_length() - 1).vertices) for n in CLASSES}
    inside = {n: listed[n].vertices[:1] * 0 + rng.random((20, listed[n].dimension)) for n in CLASSES}
    few = CLASSES[:3]
    ways: list[tuple[str, Sequence[int], Callable[[int], Any]]] = [
        (
            "strict region, 20 points, cube in closed form",
            CLASSES,
            lambda n: E.cube(n.bit_length() - 1).in_strict_region(inside[n]),
        ),
        (
            "strict region, 20 points, same cube by hulls",
            few,
            lambda n: listed[n].in_strict_region(inside[n]),
        ),
        (
            "margin of 1 point, same cube by linear programs",
            few,
            lambda n: listed[n].fibre_margin(inside[n][0]),
        ),
        ("projection of 20 points, listed cube", CLASSES, lambda n: listed[n].project(inside[n] * 2)),
        ("alpha_map from all vertices", CLASSES, lambda n: alpha_map(listed[n].vertices)),
    ]
    return lines + [line(way, "classes", sizes, rounds, act) for way, sizes, act in ways]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a JSON file with all times")
    options = parser.parse_args()
    lines = classifiers(options.rounds) + geometry(options.rounds)
    if options.out:
        rows = [asdict(x) | {"exponent": x.exponent} for x in lines]
        versions = {name: importlib.metadata.version(name) for name in ("scikit-learn", "scipy")}
        write_json(options.out, {"environment": environment() | {"peers": versions}, "lines": rows})


if __name__ == "__main__":
    main()
