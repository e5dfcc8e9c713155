"""Plain augmentation: one classifier fitted to the transformed data. Right where some predictor has no error at all."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from classic_ml.invariance.inflated import MAX_ENTRIES, InflatedRows
from classic_ml.invariance.mixture import check_learner, checked_classes, clone_seeded
from classic_ml.invariance.transforms import resolve_transforms
from classic_ml.random_state import RandomState, as_generator
from interp.core.messages import at_least


def _estimator_has_probabilities(self: Any) -> bool:
    return hasattr(self.estimator, "predict_proba")


class AugmentedERM(ClassifierMixin, BaseEstimator):
    """Fit on {(T(x_i), y_i)}: minimises the MEAN error over transformations, which can be far from the worst case.

    In the realisable case (some h is right under every T) any fit without training error has worst-case training error
    0; otherwise use `WorstCaseTransformClassifier`.

    Parameters:
        estimator: any classifier. One that takes `sample_weight` gets weights of total m, so that its regularisation
            is as strong as on the m rows.
        transforms: functions of rows, arrays aligned with X, or a sampler rng -> function.
        n_augment: "all" takes every row under every transformation; a number takes every row that many times, each
            under a transformation drawn for it alone.
        n_transforms: how many to draw of a sampler.
        include_identity: X as it is, one more transformation.
        max_entries: numbers of the inflated set up to which it is kept; above, only n_augment as a number works.
        random_state: None, a seed or a generator.

    Attributes:
        estimator_: fitted.
        transforms_: the K transformations as a list.
        errors_: (K,) training errors; worst_case_error_: their largest.
    """

    def __init__(
        self,
        estimator: Any = None,
        transforms: Any = None,
        *,
        n_augment: int | Literal["all"] = "all",
        n_transforms: int | None = None,
        include_identity: bool = False,
        max_entries: int = MAX_ENTRIES,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.transforms = transforms
        self.n_augment = n_augment
        self.n_transforms = n_transforms
        self.include_identity = include_identity
        self.max_entries = max_entries
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> AugmentedERM:
        """Fit to the transformed X (m, d), y (m,). Raises as `WorstCaseTransformClassifier.fit` does."""
        check_learner(self.estimator)
        if self.n_augment != "all":
            at_least("n_augment", self.n_augment, 1)
        at_least("max_entries", self.max_entries, 1)
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        self.classes_ = checked_classes(y)
        rng = as_generator(self.random_state)
        self.transforms_ = resolve_transforms(
            self.transforms, n_transforms=self.n_transforms, include_identity=self.include_identity, rng=rng
        )
        data = InflatedRows(X, self.transforms_, self.max_entries)
        m = len(y)
        if self.n_augment == "all":
            copies, rows = len(data), data.stacked()
        else:
            copies = int(self.n_augment)
            rows = data.mixed(rng.integers(len(data), size=copies * m), np.tile(np.arange(m), copies))
        weights = {}
        if has_fit_parameter(self.estimator, "sample_weight"):
            weights["sample_weight"] = np.full(copies * m, 1 / copies)
        self.estimator_ = clone_seeded(self.estimator, rng).fit(rows, np.tile(y, copies), **weights)
        self.errors_ = data.errors(self.estimator_, y)
        self.worst_case_error_ = float(self.errors_.max())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels (n,)."""
        check_is_fitted(self)
        return self.estimator_.predict(validate_data(self, X, reset=False, dtype=(np.float64, np.float32)))

    @available_if(_estimator_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """The estimator's, (n, C)."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(
            validate_data(self, X, reset=False, dtype=(np.float64, np.float32))
        )
