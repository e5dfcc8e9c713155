"""Full consistency from small problems: cross-polytope instances that compare every pair of classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from classic_ml.surrogates.classifier import SPARSE, as_columns, checked_classes, fit_regressor
from classic_ml.surrogates.tournament import (
    beats_all,
    comparison_matrix,
    copeland_scores,
    instance_vertices,
    margin_scores,
    round_robin_schedule,
)
from interp.core.messages import one_of

AGGREGATES = ("margin", "copeland")


class CrossPolytopeEnsemble(ClassifierMixin, BaseEstimator):
    """n - 1 independent regressions of n / 2 outputs that together know the whole label distribution.

    Each instance is a round of a round-robin tournament (`round_robin_schedule`): pair (a, b) has one output, which
    estimates p_a(x) - p_b(x). With a regressor that is linear in the labels (ridge, OLS) "margin" decides exactly as
    one-hot regression does; no instance needs more than `dimension` outputs, and all can be trained in parallel.

    Args:
        regressor: as in `PolytopeClassifier`; None is `Ridge()`.
        dimension: outputs per instance, "half" for n // 2, or an integer from 1 (one-against-one on all rows).
        aggregate: "margin" takes the largest (1 + sum_b D_ab) / n, "copeland" the class that beats most others (ties
            go to the lowest class; estimates can beat each other in a circle).
        n_jobs: instances trained at a time, as joblib counts; results don't depend on it.

    Attributes:
        classes_, schedule_: the classes, and the pairs of every instance.
        regressors_: one per instance.
    """

    def __init__(
        self,
        regressor: Any = None,
        dimension: int | Literal["half"] = "half",
        *,
        aggregate: Literal["margin", "copeland"] = "margin",
        n_jobs: int | None = None,
    ) -> None:
        self.regressor = regressor
        self.dimension = dimension
        self.aggregate = aggregate
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CrossPolytopeEnsemble:
        """Fit all instances on X (N, features) and labels y (N,); weights go to the regressors.

        Raises ValueError for a single class, or a dimension above n // 2.
        """
        one_of("aggregate", self.aggregate, AGGREGATES)
        X, codes = checked_classes(self, X, y)
        n = len(self.classes_)
        if isinstance(self.dimension, str):
            one_of("dimension", self.dimension, ("half",))
            self.schedule_ = round_robin_schedule(n)
        else:
            self.schedule_ = round_robin_schedule(n, self.dimension)
        self.regressors_ = Parallel(n_jobs=self.n_jobs)(
            delayed(fit_regressor)(self.regressor, X, instance_vertices(pairs, n)[codes], sample_weight)
            for pairs in self.schedule_
        )
        return self

    def predict_embedding(self, X: Any) -> list[Float[np.ndarray, "N d"]]:
        """The reports of every instance."""
        return list(self._reports(X))

    def _reports(self, X: Any) -> Iterator[Float[np.ndarray, "N d"]]:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=SPARSE, reset=False)
        return (as_columns(regressor.predict(X)) for regressor in self.regressors_)

    def comparison_matrix(self, X: Any) -> Float[np.ndarray, "N n n"]:
        """D_ab, the estimates of p_a(x) - p_b(x)."""
        return comparison_matrix(self._reports(X), self.schedule_, len(self.classes_))

    def _scores(self, X: Any) -> Float[np.ndarray, "N n"]:
        score = margin_scores if self.aggregate == "margin" else copeland_scores
        return score(self._reports(X), self.schedule_, len(self.classes_))

    def predict(self, X: Any) -> Any:
        """The classes of the largest scores (N,); ties go to the lowest class."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(1)]

    def decision_function(self, X: Any) -> Float[np.ndarray, "N ..."]:
        """The scores (N, n); for two classes the difference of the second's and the first's (N,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Float[np.ndarray, "N n"]:
        """The label distribution, (1 + sum_b D_ab) / n clipped at 0 and made to sum to 1, whatever `aggregate` is."""
        scores = margin_scores(self._reports(X), self.schedule_, len(self.classes_)).clip(0)
        return scores / scores.sum(1, keepdims=True)

    def condorcet(self, X: Any) -> Bool[np.ndarray, " N"]:
        """Whether some class beats all others: always so for exact reports of a single mode."""
        return beats_all(copeland_scores(self._reports(X), self.schedule_, len(self.classes_)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
