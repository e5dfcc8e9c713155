"""The utility of training rows: the test score of a scikit-learn estimator that was fitted on them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from classic_ml.valuation.groups import by_owner
from classic_ml.valuation.utility import IntArray, Utility


@dataclass
class ModelScore:
    """Fit a clone of `estimator` on some rows, score it on the test rows.

    `metric`: None for the estimator's own score (accuracy, R^2), a scikit-learn scorer's name, or a function of
    (y_test, predictions) that is higher for better.  Rows of one class only give the model that predicts it.
    """

    estimator: Any
    X: Any
    y: Any
    X_test: Any
    y_test: Any
    metric: str | Callable[[Any, Any], float] | None = None

    def __call__(self, indices: IntArray) -> float:
        from sklearn.base import clone, is_classifier
        from sklearn.dummy import DummyClassifier
        from sklearn.metrics import get_scorer
        from sklearn.utils import _safe_indexing

        if len(indices) == 0:
            raise ValueError("a model can't be fitted on no rows; give empty_value, the utility of no data")
        X, y = _safe_indexing(self.X, indices), _safe_indexing(self.y, indices)
        one_class = is_classifier(self.estimator) and len(np.unique(y)) == 1
        model = DummyClassifier(strategy="most_frequent") if one_class else clone(self.estimator)
        model.fit(X, y)
        if isinstance(self.metric, str):
            return float(get_scorer(self.metric)(model, self.X_test, self.y_test))
        if self.metric is None:
            return float(model.score(self.X_test, self.y_test))
        return float(self.metric(self.y_test, model.predict(self.X_test)))


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
        metric: see `ModelScore`.  Errors (MSE, log-loss) must be negated; scikit-learn's `neg_*` scorers are.
        groups: an owner for every row, for a game of owners (`exact_shapley`, `monte_carlo_shapley`); None: a
            utility of rows (`du_shapley_data`, `leave_one_out`).  The rows' is `.rows` of the owners'.
        empty_value: the utility of no data: chance for accuracy, minus the mean square for negative MSE.
        n_jobs, memo_file, progress: as for `Utility`.

    Raises:
        ValueError: lengths that don't fit, no test rows, a metric of unknown name.
    """
    from sklearn.metrics import get_scorer
    from sklearn.utils.validation import check_consistent_length

    check_consistent_length(X, y)
    check_consistent_length(X_test, y_test)
    if isinstance(metric, str):
        get_scorer(metric)
    if isinstance(getattr(estimator, "random_state", None), np.random.RandomState):
        raise ValueError(
            "estimator: random_state is a generator, so a set has no one utility; give an integer"
        )
    score = ModelScore(estimator, X, y, X_test, y_test, metric)
    fingerprint = ""
    if memo_file is not None:
        import joblib

        fingerprint = joblib.hash((repr(estimator), X, y, X_test, y_test, str(metric)))
    rows = Utility(
        score,
        n_points=len(y),
        empty_value=empty_value,
        n_jobs=n_jobs,
        memo_file=memo_file,
        fingerprint=fingerprint,
        progress=progress,
    )
    return rows if groups is None else by_owner(rows, groups)
