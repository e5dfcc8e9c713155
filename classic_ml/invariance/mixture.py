"""Classifiers that are a uniform mixture of members: by majority vote, by a random member, by mean probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from classic_ml.valuation.few_classes import OverAllClasses
from interp.core.messages import one_of

VOTING = ("majority", "random", "soft")


def checked_classes(y: np.ndarray) -> np.ndarray:
    """The sorted classes. Raises ValueError for a target that isn't one of classes, or one class only."""
    check_classification_targets(y)
    classes = np.unique(y)
    if len(classes) < 2:
        raise ValueError(f"y holds one class only ({classes[0]!r}); a classifier needs at least two")
    return classes


def check_learner(estimator: Any) -> None:
    """Raise TypeError unless it is a classifier to be fitted."""
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        raise TypeError(f"estimator = {estimator!r} must be a classifier such as LogisticRegression()")


def clone_seeded(estimator: Any, rng: np.random.Generator) -> Any:
    """An unfitted copy whose open `random_state`s, nested ones too, are drawn from `rng`."""
    copy = clone(estimator)
    open_states = [
        name
        for name, value in sorted(copy.get_params().items())
        if (name == "random_state" or name.endswith("__random_state")) and value is None
    ]
    return (
        copy.set_params(**{name: int(rng.integers(2**31 - 1)) for name in open_states})
        if open_states
        else copy
    )


def vote_shares(members: Sequence[Any], X: np.ndarray, classes: np.ndarray) -> Float[np.ndarray, "n C"]:
    """The share of members that say each class: the law of the label of a member drawn at random."""
    shares = np.zeros((len(X), len(classes)))
    rows = np.arange(len(X))
    for member in members:
        shares[rows, np.searchsorted(classes, member.predict(X))] += 1
    return shares / len(members)


def _members_have_probabilities(self: Any) -> bool:
    return hasattr(self.estimator, "predict_proba")


class MixtureClassifier(ClassifierMixin, BaseEstimator):
    """What the mixtures share: a subclass fits `estimators_`, `classes_` and `seed_`, and has `estimator`, `voting`."""

    estimator: Any
    voting: str
    estimators_: list[Any]
    classes_: np.ndarray
    seed_: int

    def predict(self, X: Any) -> np.ndarray:
        """Labels (n,). A random member a row is drawn anew from the seed of the fit in every call."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=(np.float64, np.float32))
        if self.voting == "random":
            drawn = np.random.default_rng(self.seed_).integers(len(self.estimators_), size=len(X))
            labels = np.empty(len(X), self.classes_.dtype)
            for r in np.unique(drawn):
                labels[drawn == r] = self.estimators_[r].predict(X[drawn == r])
            return labels
        shares = (
            self._probabilities(X)
            if self.voting == "soft"
            else vote_shares(self.estimators_, X, self.classes_)
        )
        return self.classes_[shares.argmax(1)]

    @available_if(_members_have_probabilities)
    def predict_proba(self, X: Any) -> Float[np.ndarray, "n C"]:
        """Mean of the members' probabilities. Its largest is the label of voting='soft', not always of the others."""
        check_is_fitted(self)
        return self._probabilities(validate_data(self, X, reset=False, dtype=(np.float64, np.float32)))

    def predict_votes(self, X: Any) -> Float[np.ndarray, "n C"]:
        """The share of members that say each class, which is the law of the randomised predictor's label."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=(np.float64, np.float32))
        return vote_shares(self.estimators_, X, self.classes_)

    def mixture_error(self, X: Any, y: Any) -> float:
        """Share wrong of the randomised predictor, in expectation over its draws: the mean error of the members."""
        return self.both_errors(X, y)[1]

    def both_errors(self, X: Any, y: Any) -> tuple[float, float]:
        """Share wrong of `predict`, and of the randomised predictor in expectation, asking each member once."""
        shares, y = self.predict_votes(X), np.asarray(y)
        if len(shares) != len(y):
            raise ValueError(f"X has {len(shares)} rows and y {len(y)} labels")
        labels = self.classes_[shares.argmax(1)] if self.voting == "majority" else self.predict(X)
        right = (shares * (y[:, None] == self.classes_)).sum(1)
        return float((labels != y).mean()), float(1 - right.mean())

    def _probabilities(self, X: np.ndarray) -> Float[np.ndarray, "n C"]:
        return np.mean([OverAllClasses(m, self.classes_).predict_proba(X) for m in self.estimators_], axis=0)

    def _check_voting(self) -> None:
        one_of("voting", self.voting, VOTING)
        if self.voting == "soft" and not hasattr(self.estimator, "predict_proba"):
            raise ValueError(
                f"voting = 'soft' needs probabilities, which {self.estimator!r} lacks; use 'majority'"
            )
