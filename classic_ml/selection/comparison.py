"""Selectors side by side: a learner's accuracy on the rows left unlabelled, and how well the picks cover the pool."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from classic_ml.random_state import RandomState, as_seed
from classic_ml.selection.activeft import select_activeft
from classic_ml.selection.baselines import (
    select_herding,
    select_kcenter,
    select_kmeans,
    select_random,
    select_stratified,
    select_usl,
)
from classic_ml.selection.distances import PoolRows, as_matrix, check_sigma, median_bandwidth
from classic_ml.selection.herding import check_budget, default_alpha, kernel_herding, mmd2
from classic_ml.selection.kernels import PoolKernel
from interp.core.device import derive_seed
from interp.core.messages import at_least, each_once, one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Pool:
    """What a selector is shown: the rows, their kernel and its potential; the labels are for the oracle only."""

    X: np.ndarray
    y: np.ndarray
    kernel: PoolKernel
    potential: Any


Selector = Callable[[Pool, int, int], Any]
"""(pool, n_samples, random_state) -> row indices."""


def rdss(alpha: float | None = None) -> Selector:
    """RDSS on the pool's kernel at a fixed alpha, or (None) the paper's."""

    def select(pool: Pool, m: int, random_state: int) -> Any:
        trade_off = default_alpha(m) if alpha is None else alpha
        return kernel_herding(pool.kernel, m, alpha=trade_off, potential=pool.potential).indices

    return select


def _on_rows(select: Callable[..., Any]) -> Selector:
    return lambda pool, m, random_state: select(
        pool.X, m, random_state=random_state, device=pool.kernel.device
    )


SELECTORS: dict[str, Selector] = {
    "rdss": rdss(),
    "alpha=0": rdss(0.0),
    "alpha=1": rdss(1.0),
    "random": lambda pool, m, random_state: select_random(pool.X, m, random_state=random_state),
    "stratified": lambda pool, m, random_state: select_stratified(pool.y, m, random_state=random_state),
    "k-means": _on_rows(select_kmeans),
    "k-center": _on_rows(select_kcenter),
    "herding": _on_rows(select_herding),
    "usl": _on_rows(select_usl),
    "activeft": _on_rows(select_activeft),
}
DETERMINISTIC = ("rdss", "alpha=0", "alpha=1", "herding")
LEARNERS = ("label_spreading", "self_training", "logistic")


def learner_accuracy(X: Any, y: Any, labelled: Any, *, learner: str = "label_spreading") -> float:
    """Share right among the rows that are not `labelled`, after learning from those that are.

    label_spreading (10 nearest neighbours, alpha 0.2) and self_training see the other rows without their labels;
    logistic (C = 10) does not.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

    one_of("learner", learner, LEARNERS)
    X, y = _centred(as_matrix(X)), np.asarray(y)
    shown = np.zeros(len(X), dtype=bool)
    shown[np.asarray(labelled)] = True
    _, codes = np.unique(y, return_inverse=True)
    known = np.unique(codes[shown])
    if len(known) == 1:
        return float((codes[~shown] == known[0]).mean())
    hidden = np.where(shown, codes, -1)
    if learner == "label_spreading":
        with warnings.catch_warnings():
            # Rows that no label reaches within its iterations divide 0 by 0 and keep the first class.
            warnings.simplefilter("ignore", RuntimeWarning)
            model = LabelSpreading(kernel="knn", n_neighbors=10, alpha=0.2).fit(X, hidden)
        guesses = model.transduction_[~shown]
    elif learner == "self_training":
        model = SelfTrainingClassifier(LogisticRegression(C=10, max_iter=1000)).fit(X, hidden)
        guesses = model.predict(X[~shown])
    else:
        model = LogisticRegression(C=10, max_iter=1000).fit(X[shown], codes[shown])
        guesses = model.predict(X[~shown])
    return float((guesses == codes[~shown]).mean())


def _seed_of(seed: int, repeat: int, draw: int) -> int:
    """Below 2^31, which every generator takes."""
    return derive_seed(seed, "pool", repeat, "draw", draw) % 2**31


def _centred(X: np.ndarray) -> np.ndarray:
    """The same pool around the origin, in float64: neighbours and slopes without the rounding that an offset costs."""
    pool = PoolRows(X, torch.device("cpu"))
    return pool.exact(slice(None)).numpy() * pool.unit


@dataclass
class SelectorComparison:
    """One row per pool, budget, selector and draw; `summary` averages the draws, then the pools."""

    learner: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def to_frame(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(self.rows)

    def summary(self) -> pd.DataFrame:
        """Means per selector and budget, and the standard deviation of accuracy over pools."""
        per_pool = self.to_frame().groupby(["selector", "budget", "pool"], sort=False).mean(numeric_only=True)
        grouped = per_pool.drop(columns="draw").groupby(level=["selector", "budget"], sort=False)
        return grouped.mean().assign(accuracy_std=grouped.accuracy.std(ddof=0))

    def __str__(self) -> str:
        return f"learner: {self.learner}\n{self.summary().to_string(float_format='{:.4f}'.format)}"

    def plot(self) -> Figure:
        """Accuracy and MMD^2 against the budget, one line per selector."""
        from classic_ml.selection.selection_plots import plot_comparison

        return plot_comparison(self)


def compare_selectors(
    X: Any,
    y: Any,
    budgets: Sequence[int],
    selectors: Mapping[str, Selector] | Sequence[str] = ("rdss", "random", "k-means", "k-center"),
    *,
    learner: str = "label_spreading",
    n_repeats: int = 10,
    pool_size: int | None = None,
    n_draws: int = 1,
    sigma: float | None = None,
    device: str | torch.device = "auto",
    random_state: RandomState = 0,
) -> SelectorComparison:
    """Run every selector at every budget on `n_repeats` random pools of `pool_size` rows (default: three quarters).

    Pool r is `default_rng(seed + r).permutation(n)[:pool_size]`, the seed being `random_state`'s. Selectors are names
    from `SELECTORS` or a mapping of your own. The criterion is measured with the Gaussian kernel at `sigma` (default:
    the pool's median distance). `n_draws` repeats the selectors that draw at random. Raises ValueError where there is
    nothing to compare: no budget, no selector, no repeat or draw, a budget outside 1..pool_size-1.
    """
    X, y = as_matrix(X), np.asarray(y)
    if len(X) != len(y):
        raise ValueError(f"X has {len(X)} rows and y {len(y)} labels")
    one_of("learner", learner, LEARNERS)
    if not isinstance(selectors, Mapping):
        for name in selectors:
            one_of("selectors", name, tuple(SELECTORS))
        each_once("selectors", selectors)
        selectors = {name: SELECTORS[name] for name in selectors}
    at_least("n_repeats", n_repeats, 1)
    at_least("n_draws", n_draws, 1)
    for name, given in (("budgets", budgets), ("selectors", selectors)):
        if len(given) == 0:
            raise ValueError(f"{name} is empty, so there is nothing to compare; give at least one")
    each_once("budgets", budgets)
    size = 3 * len(X) // 4 if pool_size is None else pool_size
    if not 2 <= size <= len(X):
        raise ValueError(f"pool_size = {pool_size} must lie in 2..{len(X)}")
    for budget in budgets:
        check_budget(budget, size)
    if sigma is not None:
        check_sigma(sigma)
    seed, result = as_seed(random_state), SelectorComparison(learner)
    for repeat in range(n_repeats):
        rows = np.random.default_rng(seed + repeat).permutation(len(X))[:size]
        bandwidth = sigma or median_bandwidth(X[rows], random_state=seed, device=device)
        kernel = PoolKernel.from_rows(X[rows], sigma=bandwidth, device=device)
        pool = Pool(X[rows], y[rows], kernel, kernel.potential())
        for budget in budgets:
            for name, select in selectors.items():
                for draw in range(n_draws if name not in DETERMINISTIC else 1):
                    picks = np.asarray(select(pool, budget, _seed_of(seed, repeat, draw)))
                    result.rows.append(
                        {
                            "selector": name,
                            "budget": budget,
                            "pool": repeat,
                            "draw": draw,
                            "accuracy": learner_accuracy(pool.X, pool.y, picks, learner=learner),
                            "mmd2": mmd2(kernel, picks, potential=pool.potential),
                            "classes": len(np.unique(pool.y[picks])),
                        }
                    )
    return result
