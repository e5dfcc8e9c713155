"""How does the cost of valuing data grow with players, rows and features, and how does pyDVL compare?

Each line is the CPU time of the best of a few rounds on one thread over growing sizes, with the exponent of the growth
(the slope in log-log coordinates; for enumeration the factor per player).  With --peer-python, pyDVL's permutation
Shapley, Data-OOB and KNN-Shapley on the same data, by benchmarks/valuation_peers.py in an environment of their own,
since pyDVL needs numpy < 2; their values are compared with ours as well.

    python benchmarks/valuation.py [--rounds 3] [--peer-python peers/bin/python] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeClassifier

from classic_ml.valuation.closed_forms import size_utility
from classic_ml.valuation.du_shapley import du_shapley, du_shapley_data
from classic_ml.valuation.groups import by_owner
from classic_ml.valuation.knn import knn_shapley, two_d_knn
from classic_ml.valuation.models import model_utility
from classic_ml.valuation.monte_carlo import monte_carlo_shapley
from classic_ml.valuation.shapley import exact_shapley, exact_shapley_by_size
from classic_ml.valuation.two_d_oob import TwoDOOB
from classic_ml.valuation.utility import Utility
from interp.core.device import environment
from interp.core.files import write_json

PLAYERS = (4, 8, 16, 32)
ROWS = (500, 1000, 2000, 4000, 8000)
FEATURES = (5, 10, 20, 40)
LEARNERS = (50, 100, 200, 400)


@dataclass
class Line:
    """One way over growing sizes."""

    way: str
    size: str
    sizes: Sequence[int]
    seconds: list[float] = field(default_factory=list)
    enumerates: bool = False

    @property
    def growth(self) -> float:
        """The exponent, or the factor per player of an enumeration."""
        x = np.asarray(self.sizes) if self.enumerates else np.log(self.sizes)
        slope = float(np.polyfit(x, np.log(self.seconds), 1)[0])
        return float(np.exp(slope)) if self.enumerates else slope

    def __str__(self) -> str:
        times = "  ".join(f"{n}: {s:.4g} s" for n, s in zip(self.sizes, self.seconds, strict=True))
        kind = "factor  " if self.enumerates else "exponent"
        return f"{self.way:<48}{self.size:<10}{kind} {self.growth:5.2f}   {times}"


def best_of(rounds: int, act: Callable[[], Any]) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(rounds):
        start = time.process_time()
        result = act()
        best = min(best, time.process_time() - start)
    return best, result


def line(
    way: str,
    size: str,
    sizes: Sequence[int],
    rounds: int,
    act: Callable[[int], Any],
    enumerates: bool = False,
) -> tuple[Line, list[Any]]:
    measured = [best_of(rounds, partial(act, n)) for n in sizes]
    result = Line(way, size, sizes, [seconds for seconds, _ in measured], enumerates)
    print(result, flush=True)
    return result, [value for _, value in measured]


def saturating(q: np.ndarray) -> np.ndarray:
    return q / (q + 100)


def closed_forms(rounds: int) -> list[Line]:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 101, 4000)
    many = (250, 500, 1000, 2000)
    return [
        line(
            "du_shapley, u of the size", "players", many, rounds, lambda i: du_shapley(sizes[:i], saturating)
        )[0],
        line(
            "exact_shapley_by_size (rows grow along)",
            "players",
            (20, 40, 80, 160),
            rounds,
            lambda i: exact_shapley_by_size(sizes[:i], saturating),
        )[0],
        line(
            "exact_shapley, u of the size (2^I)",
            "players",
            (10, 12, 14, 16, 18),
            rounds,
            lambda i: exact_shapley(size_utility(sizes[:i], saturating)),
            enumerates=True,
        )[0],
    ]


def regression() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((900, 10))
    y = X @ rng.standard_normal(10) + rng.standard_normal(900)
    y = (y - y.mean()) / y.std()
    return {"X": X[:640], "y": y[:640], "X_test": X[640:], "y_test": y[640:]}


def classes() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((8100, 40))
    y = (X[:, :5].sum(1) + rng.standard_normal(8100) > 0).astype(int)
    return {"X": X[:8000], "y": y[:8000], "X_test": X[8000:], "y_test": y[8000:]}


def ridge_utility(data: dict[str, np.ndarray]) -> Utility:
    return model_utility(
        Ridge(),
        data["X"],
        data["y"],
        data["X_test"],
        data["y_test"],
        "neg_mean_squared_error",
        empty_value=-float((data["y_test"] ** 2).mean()),
    )


def datasets(
    data: dict[str, np.ndarray], groups: dict[int, np.ndarray], rounds: int
) -> tuple[list[Line], list[Any]]:
    def sampled(n_players: int) -> Any:
        return monte_carlo_shapley(
            by_owner(ridge_utility(data), groups[n_players]), n_samples=n_players, random_state=0
        )

    du, _ = line(
        "du_shapley_data, ridge on 640 rows",
        "players",
        PLAYERS,
        rounds,
        lambda i: du_shapley_data(groups[i], ridge_utility(data), random_state=0),
    )
    mc, values = line("monte_carlo_shapley, T = I, same model", "players", PLAYERS, rounds, sampled)
    return [du, mc], values


def cells(data: dict[str, np.ndarray], rounds: int) -> tuple[list[Line], dict[str, list[Any]]]:
    X, y = data["X"], data["y"]
    n, d, b = 500, 10, 100

    def trees(b: int) -> dict[str, Any]:
        return {
            "estimator": DecisionTreeClassifier(max_features="sqrt"),
            "n_estimators": b,
            "random_state": 0,
        }

    def bag(n: int) -> Any:
        return BaggingClassifier(**trees(b), max_features=10).fit(X[:n], y[:n])

    rows, _ = line(
        "TwoDOOB (100 trees, 40 columns)",
        "rows",
        ROWS,
        rounds,
        lambda n: TwoDOOB(**trees(b)).fit(X[:n], y[:n]),
    )
    fit, _ = line("  of which the ensemble's fit alone", "rows", ROWS, rounds, bag)
    columns, _ = line(
        "TwoDOOB (100 trees, 500 rows)",
        "columns",
        FEATURES,
        rounds,
        lambda d: TwoDOOB(**trees(b)).fit(X[:n, :d], y[:n]),
    )
    learners, _ = line(
        "TwoDOOB (500 rows, 10 columns)",
        "learners",
        LEARNERS,
        rounds,
        lambda b: TwoDOOB(**trees(b)).fit(X[:n, :d], y[:n]),
    )
    knn2d, _ = line(
        "two_d_knn (2 orders, 500 rows, 50 to validate)",
        "columns",
        FEATURES,
        rounds,
        lambda d: two_d_knn(X[:n, :d], y[:n], X[n : n + 50, :d], y[n : n + 50], 10, 2, 0),
    )
    knn, knn_values = line(
        "knn_shapley (100 rows to validate)",
        "rows",
        ROWS,
        rounds,
        lambda n: knn_shapley(X[:n], y[:n], data["X_test"], data["y_test"], 10),
    )
    whole, whole_values = line(
        "TwoDOOB with all columns: Data-OOB",
        "rows",
        ROWS,
        rounds,
        lambda n: TwoDOOB(**trees(b), max_features=1.0).fit(X[:n], y[:n]).data_oob_,
    )
    return [rows, fit, columns, learners, knn2d, knn, whole], {"knn": knn_values, "data_oob": whole_values}


def peers(
    python: str, rounds: int, problems: dict[str, Any], settings: dict[str, Any]
) -> dict[str, dict[str, dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        given, wanted = Path(folder) / "problems.npz", Path(folder) / "answers.json"
        np.savez(given, settings=json.dumps(settings), **problems)
        script = Path(__file__).with_name("valuation_peers.py")
        subprocess.run([python, script, given, wanted], check=True)
        return json.loads(wanted.read_text())


def compare(
    answers: dict[str, Any],
    ours: dict[str, list[Any]],
    data: dict[str, np.ndarray],
    groups: dict[int, np.ndarray],
) -> tuple[list[Line], dict[str, float]]:
    names = {
        "shapley": ("pyDVL permutation Shapley, T = I, same model", "players", PLAYERS),
        "data_oob": ("pyDVL Data-OOB (100 trees, 40 columns)", "rows", ROWS),
        "knn": ("pyDVL KNN-Shapley (100 rows to validate)", "rows", ROWS),
    }
    lines = []
    for kind, (way, size, sizes) in names.items():
        lines.append(Line(way, size, sizes, [answers[kind][str(n)]["seconds"] for n in sizes]))
        print(lines[-1])
    agreement = {
        f"{kind}, largest difference": float(
            max(
                np.abs(np.asarray(a["values"]) - mine).max()
                for a, mine in zip(answers[kind].values(), ours[kind], strict=True)
            )
        )
        for kind in ("data_oob", "knn")
    }
    rows = ridge_utility(data)
    exact = exact_shapley(by_owner(rows, groups[8])).values
    estimates = {
        "pyDVL permutation": answers["shapley"]["8"]["values"],
        "ours permutation": ours["shapley"][PLAYERS.index(8)].values,
        "DU-Shapley": du_shapley_data(groups[8], rows, random_state=0).values,
    }
    for name, values in estimates.items():
        agreement[f"MSE to the exact values, 8 players, {name}"] = float(
            ((np.asarray(values) - exact) ** 2).mean()
        )
    for name, value in agreement.items():
        print(f"{name}: {value:.2e}")
    return lines, agreement


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", help="an interpreter with pyDVL 0.10")
    parser.add_argument("--out", type=Path, help="a JSON file with all times")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # a few learners leave cells unjudged; here only time counts
    rounds = options.rounds
    linear, separable = regression(), classes()
    owner = np.random.default_rng(3)
    groups = {i: owner.permutation(np.repeat(np.arange(i), 640 // i)) for i in PLAYERS}
    lines = closed_forms(rounds)
    more, sampled = datasets(linear, groups, rounds)
    lines += more
    more, ours = cells(separable, rounds)
    lines += more
    agreement: dict[str, float] = {}
    if options.peer_python:
        settings = {
            "rounds": rounds,
            "players": PLAYERS,
            "rows": ROWS,
            "learners": 100,
            "empty_value": -float((linear["y_test"] ** 2).mean()),
        }
        problems = {f"regression_{k}": v for k, v in linear.items()} | {
            f"classes_{k}": v for k, v in separable.items()
        }
        problems |= {f"groups_{i}": g for i, g in groups.items()}
        answers = peers(options.peer_python, rounds, problems, settings)
        more, agreement = compare(answers, ours | {"shapley": sampled}, linear, groups)
        lines += more
    if options.out:
        rows = [
            {
                "way": x.way.strip(),
                "size": x.size,
                "sizes": list(x.sizes),
                "cpu_seconds": x.seconds,
                "growth": x.growth,
            }
            for x in lines
        ]
        write_json(options.out, {"environment": environment(), "lines": rows, "agreement": agreement})


if __name__ == "__main__":
    main()
