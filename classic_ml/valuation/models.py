"""The utility of training rows: the test score of a scikit-learn estimator that was fitted on them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from classic_ml.valuation.few_classes import OverAllClasses, fit_classifier
from classic_ml.valuation.groups import by_owner
from classic_ml.valuation.utility import MEMO, IntArray, Utility
from interp.core.identity import Identity


@dataclass
class ModelScore:
    """Fit a clone of `estimator` on some rows, score it on the test rows.

    `metric`: None for the estimator's own score (accuracy, R^2), a scikit-learn scorer's name, or a function of
    (y_test, predictions) that is higher for better.

    A small sample may lack classes.  Rows of one class only give the model that predicts it, with probability 1.
    Scorers see every class of `y` and `y_test`: those that the rows lack have probability 0, from where the metric
    goes on as ever: "neg_log_loss" clips it at the smallest relative step of the probabilities (2.2e-16 in float64),
    so that a test row of such a class costs 36.04; "roc_auc" of a constant prediction is 0.5, and
    "roc_auc_ovr" averages over all classes, 0.5 for one that isn't predicted.
    """

    estimator: Any
    X: Any
    y: Any
    X_test: Any
    y_test: Any
    metric: str | Callable[[Any, Any], float] | None = None

    def __call__(self, indices: IntArray) -> float:
        from sklearn.base import clone, is_classifier
        from sklearn.metrics import get_scorer
        from sklearn.utils import _safe_indexing

        if len(indices) == 0:
            raise ValueError("a model can't be fitted on no rows; give empty_value, the utility of no data")
        X, y = _safe_indexing(self.X, indices), _safe_indexing(self.y, indices)
        classifier = is_classifier(self.estimator)
        model = fit_classifier(self.estimator, X, y) if classifier else clone(self.estimator).fit(X, y)
        if isinstance(self.metric, str):
            if classifier and len(np.unique(y)) < len(self._classes):
                model = OverAllClasses(model, self._classes)
            return float(get_scorer(self.metric)(model, self.X_test, self.y_test))
        if self.metric is None:
            return float(model.score(self.X_test, self.y_test))
        return float(self.metric(self.y_test, model.predict(self.X_test)))

    @cached_property
    def _classes(self) -> np.ndarray:
        return np.unique(np.concatenate([np.asarray(self.y), np.asarray(self.y_test)]))

    def identity(self) -> Identity:
        """All that the score of some rows depends on."""
        parts = {name: getattr(self, name) for name in ("X", "y", "X_test", "y_test")}
        return Identity.of(MEMO, estimator=self.estimator, metric=self.metric, **parts)


def model_utility(
    estimator: Any,
    X: Any,
    y: Any,
    X_test: Any,
    y_test: Any,
    metric: str | Callable[[Any, Any], float] | None = None,
    groups: Any = None,
    *,
    empty_value: float,
    n_jobs: int | None = None,
    memo_file: str | os.PathLike[str] | None = None,
    progress: bool | Literal["auto"] = False,
) -> Utility:
    """The test score of an estimator as a utility of its training rows, or of their owners.

    Args:
        estimator: a scikit-learn estimator.  A stochastic one must have a fixed `random_state`: a utility is a
            function of the set.
        X, y: training rows, arrays or data frames.
        metric: see `ModelScore`, also for samples that lack a class.  Errors (MSE, log-loss) must be negated;
            scikit-learn's `neg_*` scorers are.
        groups: an owner for every row, for a game of owners (`exact_shapley`, `monte_carlo_shapley`); None: a
            utility of rows (`du_shapley_data`, `leave_one_out`).  The rows' is `.rows` of the owners'.
        empty_value: the utility of no data: chance for accuracy, minus the mean square for negative MSE.
        n_jobs, memo_file, progress: as for `Utility`.  A memo file belongs to the estimator with all its parameters,
            the data and the metric, a function by its code.

    Raises:
        ValueError: lengths that don't fit, no test rows, a metric of unknown name, an estimator that draws from a
            generator, a memo file of another utility.
    """
    from sklearn.metrics import get_scorer
    from sklearn.utils.validation import check_consistent_length

    check_consistent_length(X, y)
    check_consistent_length(X_test, y_test)
    if isinstance(metric, str):
        get_scorer(metric)
    for name, value in estimator.get_params(deep=True).items():
        if isinstance(value, (np.random.RandomState, np.random.Generator)):
            raise ValueError(
                f"estimator: {name} is a generator, so a set has no one utility; give an integer"
            )
    score = ModelScore(estimator, X, y, X_test, y_test, metric)
    rows = Utility(
        score,
        n_points=len(y),
        empty_value=empty_value,
        n_jobs=n_jobs,
        memo_file=memo_file,
        identity=None if memo_file is None else score.identity(),
        progress=progress,
    )
    return rows if groups is None else by_owner(rows, groups)
