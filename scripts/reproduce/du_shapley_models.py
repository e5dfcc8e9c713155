"""Parts B and E of du_shapley.py: utilities that are trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from checks import Findings, mse

from classic_ml.valuation.downstream import detection_f1
from classic_ml.valuation.du_shapley import du_shapley_data
from classic_ml.valuation.groups import by_owner
from classic_ml.valuation.knn import knn_utility
from classic_ml.valuation.models import model_utility
from classic_ml.valuation.monte_carlo import METHODS, leave_one_out, monte_carlo_shapley
from classic_ml.valuation.shapley import exact_shapley
from classic_ml.valuation.utility import Utility
from interp.core.device import derive_seed
from interp.core.plotting import COLOURS, new_figure

RUNS = 25


# -- B: real models ----------------------------------------------------------------------------------------------


def split_by_share(n_rows: int, shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An owner for every row, at random, with sizes proportional to the shares."""
    ends = np.round(np.cumsum(shares) / shares.sum() * n_rows).astype(int)
    return rng.permutation(np.searchsorted(ends, np.arange(n_rows), side="right"))


def real_tasks(seed: int, quick: bool, memory: Path) -> dict[str, tuple[Utility, int]]:
    """Utilities of training rows and the number of rows; `quick`: the one that is fast to fit.

    `memory` is a folder for the utilities, so that a run that was interrupted goes on where it was.
    """
    from sklearn.datasets import load_breast_cancer, make_classification, make_regression
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.preprocessing import StandardScaler

    def utility(
        name: str, model: Any, X: Any, y: Any, n_train: int, metric: str | None, empty: float | None
    ) -> Utility:
        order = np.random.default_rng(derive_seed(seed, "split")).permutation(len(y))
        train, test = order[:n_train], order[n_train:]
        worthless = -float((y[test] ** 2).mean()) if empty is None else empty
        return model_utility(
            model,
            X[train],
            y[train],
            X[test],
            y[test],
            metric,
            empty_value=worthless,
            memo_file=memory / f"{name} {seed}.safetensors",
        )

    X, y = make_regression(2000, 10, noise=20, random_state=seed)
    y = (y - y.mean()) / y.std()
    tasks = {
        "make_regression": (
            utility("make_regression", Ridge(), X, y, 1500, "neg_mean_squared_error", None),
            1500,
        )
    }
    if quick:
        return tasks
    logistic = LogisticRegression(max_iter=20)
    X, y = load_breast_cancer(return_X_y=True)
    tasks["breast cancer"] = (
        utility("breast_cancer", logistic, StandardScaler().fit_transform(X), y, 400, None, 0.5),
        400,
    )
    X, y = make_classification(2000, 20, n_informative=8, flip_y=0.1, random_state=seed)
    tasks["make_classification"] = (utility("make_classification", logistic, X, y, 1500, None, 0.5), 1500)
    return tasks


def part_b(found: Findings) -> None:
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    warnings.filterwarnings("ignore", category=ConvergenceWarning)  # 20 iterations are the experiment
    reference = {
        "breast cancer": (9e-6, 2.7e-3, 2.3e-3),
        "make_classification": (8e-6, 1e-3, 8e-4),
        "make_regression": (2e-8, 1.4e-2, 1.2e-2),
    }
    names = ("DU-Shapley", *METHODS)
    errors: dict[str, dict[str, list[float]]] = {}
    for seed in range(1 if found.quick else 4):
        for task, (rows, n_rows) in real_tasks(seed, found.quick, found.out / "utilities").items():
            groups = split_by_share(
                n_rows, np.arange(1, 9), np.random.default_rng(derive_seed(seed, "owners"))
            )
            game = by_owner(rows, groups)
            exact = exact_shapley(game).values
            mine = errors.setdefault(task, {name: [] for name in names})
            mine["DU-Shapley"].append(mse(du_shapley_data(groups, rows, random_state=seed).values, exact))
            for method in METHODS:
                runs = [
                    monte_carlo_shapley(game, n_samples=8, method=method, random_state=r) for r in range(RUNS)
                ]
                mine[method].append(float(np.mean([mse(run.values, exact) for run in runs])))
    figure, ax = new_figure(size=(7.0, 3.8))
    for task, by_method in errors.items():
        mean = {name: float(np.mean(by_method[name])) for name in names}
        found.numbers[f"B {task}"] = mean
        du, rest = by_method["DU-Shapley"], (by_method["permutation"], by_method["antithetic"])
        factor = min(min(r) for r in np.divide(rest, du))
        known = reference[task]
        found.check(
            "B",
            f"{task}: DU 10 x below MC and antithetic in every seed (T = I = 8)",
            f">= 10 x (reference MSE {known[0]:.0e}, {known[1]:.1e}, {known[2]:.1e})",
            f"{factor:.0f} x (MSE {mean['DU-Shapley']:.0e}, {mean['permutation']:.1e}, {mean['antithetic']:.1e})",
            factor >= 10,
        )
        better = [name for name in METHODS if mean[name] < mean["DU-Shapley"]]
        found.remarks.append(
            f"B {task}: stratified MC, which takes the first arrival exactly, as DU does: {mean['stratified']:.1e}"
            + (f"; below DU: {', '.join(better)}" if better else "; no baseline is below DU")
        )
    for j, (task, by_method) in enumerate(errors.items()):
        x = np.arange(len(names)) + (j - (len(errors) - 1) / 2) * 0.27
        ax.bar(x, [np.mean(by_method[n]) for n in names], 0.27, label=task, color=COLOURS[j])
    ax.set_xticks(range(len(names)), names)
    ax.set(yscale="log", ylabel="MSE to the Shapley value", title="8 owners, equal budgets T = 8")
    ax.legend()
    found.figures["real_models"] = figure


# -- E: noisy owners ---------------------------------------------------------------------------------------------


def part_e(found: Findings) -> None:
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import RidgeClassifier
    from sklearn.preprocessing import StandardScaler

    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    n_owners, n_bad, n_train = 20, 3, 400
    hits: dict[str, list[float]] = {}
    calls: dict[str, int] = {}
    n_seeds = 1 if found.quick else 6
    for seed in range(n_seeds):
        rng = np.random.default_rng(derive_seed(seed, "E"))
        order = rng.permutation(len(y))
        train, test = order[:n_train], order[n_train:]
        groups = split_by_share(n_train, rng.integers(1, 4, n_owners).astype(float), rng)
        bad = rng.permutation(n_owners)[:n_bad]
        labels = y[train].copy()
        wrong = np.isin(groups, bad) & (rng.random(n_train) < 0.5)
        labels[wrong] ^= 1

        def fresh(train=train, test=test, labels=labels) -> Utility:
            return model_utility(RidgeClassifier(), X[train], labels, X[test], y[test], empty_value=0.5)

        knn = knn_utility(X[train], labels, X[test], y[test], groups)
        results = {
            "DU-Shapley": du_shapley_data(groups, fresh(), random_state=seed),
            "Shapley MC (T = I)": monte_carlo_shapley(
                by_owner(fresh(), groups), n_samples=n_owners, random_state=seed
            ),
            "KNN-Shapley MC (T = 100)": monte_carlo_shapley(knn, n_samples=100, random_state=seed),
            "leave-one-out": leave_one_out(groups, fresh()),
            "leave-one-out (random)": leave_one_out(groups, fresh(), subset="random", random_state=seed),
        }
        values = {name: result.values for name, result in results.items()} | {"random": rng.random(n_owners)}
        for name, value in values.items():
            hits.setdefault(name, []).append(detection_f1(value, np.isin(np.arange(n_owners), bad)))
        calls |= {name: result.n_evaluations for name, result in results.items()}
    f1 = {name: float(np.mean(values)) for name, values in hits.items()}
    found.numbers["E"] = {"f1": f1, "utilities": calls}
    best = max(f1.values())
    for name, value in f1.items():
        cost = f"{calls[name]:,} utilities" if name in calls else "none"
        winner = "  <- best" if value == best else ""
        found.remarks.append(
            f"E: F1 of {n_bad} noisy owners of {n_owners}, {name:<25} {value:.2f}  ({cost}){winner}"
        )
