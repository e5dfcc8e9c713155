"""Classifiers fitted on rows of fewer classes than there are: a small sample or bag may hold one, or two of three."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.utils.validation import has_fit_parameter


def fit_classifier(estimator: Any, X: Any, y: Any) -> Any:
    """A fitted clone of the estimator; on rows of one class, which many refuse, the classifier that predicts it."""
    one_class = len(np.unique(y)) == 1
    model = DummyClassifier(strategy="most_frequent") if one_class else clone(estimator)
    return model.fit(X, y)


class OverAllClasses(ClassifierMixin, BaseEstimator):
    """A fitted classifier as one of more classes, of which those that it hasn't seen have probability 0.

    Args:
        model: fitted.
        classes: all classes, sorted.
    """

    def __init__(self, model: Any, classes: Any) -> None:
        self.model = model
        self.classes = classes

    @property
    def classes_(self) -> np.ndarray:
        return self.classes

    def fit(self, X: Any, y: Any) -> OverAllClasses:
        """Nothing: the model is fitted."""
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.model.predict(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """[n n_classes]."""
        known = self.model.predict_proba(X)
        spread = np.zeros((len(known), len(self.classes)), known.dtype)
        spread[:, np.searchsorted(self.classes, self.model.classes_)] = known
        return spread


class BagLearner(ClassifierMixin, BaseEstimator):
    """A weak learner that can be given a bag of one class; `model_` is what was fitted."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: np.ndarray) -> BagLearner:
        self.model_ = fit_classifier(self.estimator, X, y)
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.model_.predict(X)


class WeightedBagLearner(BagLearner):
    """One whose bags are told by weights: those of 0 are not in it."""

    def fit(self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None = None) -> WeightedBagLearner:
        inside = slice(None) if sample_weight is None else np.flatnonzero(sample_weight)
        if len(np.unique(y[inside])) == 1:
            self.model_ = fit_classifier(self.estimator, X[inside], y[inside])
        else:
            self.model_ = clone(self.estimator).fit(X, y, sample_weight=sample_weight)
        return self


def bag_learner(estimator: Any) -> BagLearner:
    """The wrapper that is told its bags as the estimator itself would be."""
    return (WeightedBagLearner if has_fit_parameter(estimator, "sample_weight") else BagLearner)(estimator)
