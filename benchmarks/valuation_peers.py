"""The same valuations by pyDVL, in an environment of its own (it needs numpy < 2); started by benchmarks/valuation.py.

peers/bin/python benchmarks/valuation_peers.py problems.npz answers.json
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")


def timed(rounds: int, make: Callable[[], Callable[[], Any]]) -> tuple[float, Any]:
    """CPU seconds of the best round, and the result; `make` prepares outside the clock."""
    best, result = float("inf"), None
    for _ in range(rounds):
        act = make()
        start = time.process_time()
        result = act()
        best = min(best, time.process_time() - start)
    return best, result


def main() -> None:
    from joblib import parallel_config
    from pydvl.valuation import (
        DataOOBValuation,
        Dataset,
        GroupedDataset,
        KNNShapleyValuation,
        MinUpdates,
        ModelUtility,
        PermutationSampler,
        ShapleyValuation,
        SupervisedScorer,
    )
    from sklearn.ensemble import BaggingClassifier
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.tree import DecisionTreeClassifier

    problems = np.load(sys.argv[1])
    settings = json.loads(str(problems["settings"]))
    rounds = settings["rounds"]
    answers: dict[str, Any] = {"shapley": {}, "data_oob": {}, "knn": {}}
    X, y, X_test, y_test = (problems[f"regression_{name}"] for name in ("X", "y", "X_test", "y_test"))
    for n_players in settings["players"]:
        train = GroupedDataset(X, y, data_groups=problems[f"groups_{n_players}"])

        def shapley(train: Any = train, n_players: int = n_players) -> Callable[[], Any]:
            scorer = SupervisedScorer(
                "neg_mean_squared_error", Dataset(X_test, y_test), default=settings["empty_value"]
            )
            done, sampler = MinUpdates(n_players), PermutationSampler(seed=0)
            valuation = ShapleyValuation(ModelUtility(Ridge(), scorer), sampler, done)
            return lambda: valuation.fit(train)

        seconds, fitted = timed(rounds, shapley)
        values = fitted.result
        values.sort(key="index")
        answers["shapley"][n_players] = {"seconds": seconds, "values": values.values.tolist()}

    X, y, X_test, y_test = (problems[f"classes_{name}"] for name in ("X", "y", "X_test", "y_test"))
    for n in settings["rows"]:
        data = Dataset(X[:n], y[:n])

        def bagged(data: Any = data, n: int = n) -> Callable[[], Any]:
            def act() -> Any:
                trees = DecisionTreeClassifier(max_features="sqrt")
                bag = BaggingClassifier(trees, settings["learners"], random_state=0).fit(X[:n], y[:n])
                return DataOOBValuation(bag).fit(data)

            return act

        def nearest(data: Any = data) -> Callable[[], Any]:
            valuation = KNNShapleyValuation(KNeighborsClassifier(10), Dataset(X_test, y_test), progress=False)
            return lambda: valuation.fit(data)

        with parallel_config(n_jobs=1):
            for kind, make in (("data_oob", bagged), ("knn", nearest)):
                seconds, fitted = timed(rounds, make)
                values = fitted.result
                values.sort(key="index")
                answers[kind][n] = {"seconds": seconds, "values": values.values.tolist()}
    with open(sys.argv[2], "w") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    main()
