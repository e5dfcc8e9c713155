"""Many classes through few outputs: regress the label embeddings, decode the nearest vertex."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import Ridge
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from classic_ml.surrogates.choose import embedding_for
from classic_ml.surrogates.embedding import PolytopeEmbedding

SPARSE = ("csr", "csc")


class PolytopeClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of n classes that trains d regressions: u(x) on v_y by squared error, decoded by the MAP link.

        probe = PolytopeClassifier("cube").fit(activations, next_tokens)  # log2(n) outputs
        probe.predict(new)[probe.certified(new)]

    Args:
        embedding: "cube", "permutahedron", "cross-polytope", "simplex" (one-hot), "polygon", or a
            `PolytopeEmbedding` with room for the classes.
        regressor: any scikit-learn regressor of several outputs (`MultiOutputRegressor` makes one of others) that
            estimates means; None is `Ridge()`.
        project: decode the projection on the polytope, as the theory does; False decodes reports as they are and warns
            of those outside. It makes no difference on the whole named polytopes, only on parts of them and on custom
            vertices, where it costs one small least squares a row.

    Attributes:
        classes_: (n,) class y of the embedding is `classes_[y]`.
        embedding_: the `PolytopeEmbedding` used.
        regressor_: fitted.
    """

    def __init__(
        self,
        embedding: str | PolytopeEmbedding = "cube",
        regressor: Any = None,
        *,
        project: bool = True,
    ) -> None:
        self.embedding = embedding
        self.regressor = regressor
        self.project = project

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PolytopeClassifier:
        """Fit on X (N, features) and labels y (N,); weights go to the regressor.

        Raises ValueError for a single class, or more classes than the embedding has vertices.
        """
        X, codes = checked_classes(self, X, y)
        self.embedding_ = embedding_for(self.embedding, len(self.classes_))
        self.regressor_ = fit_regressor(self.regressor, X, self.embedding_.transform(codes), sample_weight)
        return self

    def predict_embedding(self, X: Any) -> Float[np.ndarray, "N d"]:
        """The reports u(x), estimates of p(x) V, as they are regressed."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=SPARSE, reset=False)
        return as_columns(self.regressor_.predict(X))

    def predict(self, X: Any) -> Any:
        """The decoded classes (N,)."""
        U = self.predict_embedding(X)
        if self.project:
            return self.classes_[self.embedding_.link(U)]
        return self.classes_[self.embedding_.nearest(self._unprojected(U))]

    def _unprojected(self, U: Float[np.ndarray, "N d"]) -> Float[np.ndarray, "N d"]:
        outside = int((~self.embedding_.contains(U)).sum())
        if outside:
            warnings.warn(
                f"{outside} of {len(U)} reports lie outside the polytope; project=True decodes their projection",
                UserWarning,
                stacklevel=3,
            )
        return U

    def decision_function(self, X: Any) -> Float[np.ndarray, "N ..."]:
        """-|u - v_y|^2 / 2 of every class (N, n); for two classes the difference of the second's and the first's (N,).

        u is the projected report (the report itself with project=False); the largest entry is the prediction. The
        reports themselves: `predict_embedding`.
        """
        U = self.predict_embedding(X)
        U = self.embedding_.project(U) if self.project else self._unprojected(U)
        V = self.embedding_.vertices
        scores = U @ V.T - (np.square(V).sum(1) + np.square(U).sum(1, keepdims=True)) / 2
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def projected(self, X: Any) -> Float[np.ndarray, "N d"]:
        """The reports' projections on the polytope."""
        return self.embedding_.project(self.predict_embedding(X))

    def certified(self, X: Any) -> Bool[np.ndarray, " N"]:
        """Where the prediction is the only mode of every label distribution that has this (projected) report.

        It is about decoding: an error of the regressor is not in it, and a report outside the polytope counts as its
        projection on the boundary, where few distributions share a point (all one-hot reports are certified). Look
        at accuracy where certified and elsewhere, and at `embedding_.contains(predict_embedding(X))`.
        """
        return self.embedding_.in_strict_region(self.projected(X))

    def may_hallucinate(self, X: Any) -> Bool[np.ndarray, " N"]:
        """Where some label distribution with this (projected) report gives the prediction probability zero."""
        return self.embedding_.in_hallucination_region(self.projected(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def checked_classes(estimator: Any, X: Any, y: Any) -> tuple[Any, np.ndarray]:
    """Validated X and codes 0..n-1 of y; sets `classes_`.  Raises ValueError for a single class."""
    X, y = validate_data(estimator, X, y, accept_sparse=SPARSE)
    check_classification_targets(y)
    estimator.classes_, codes = np.unique(y, return_inverse=True)
    if len(estimator.classes_) < 2:
        raise ValueError(f"y has one class only, {estimator.classes_[0]!r}; a classifier needs two or more")
    return X, codes


def fit_regressor(
    regressor: Any, X: Any, targets: Float[np.ndarray, "N d"], sample_weight: Any = None
) -> Any:
    """A fitted copy of `regressor` (None: `Ridge()`)."""
    weights = {} if sample_weight is None else {"sample_weight": sample_weight}
    return clone(Ridge() if regressor is None else regressor).fit(X, targets, **weights)


def as_columns(predicted: Any) -> Float[np.ndarray, "N d"]:
    """Predictions (N, d) in float64, of regressors too that give (N,) for one output."""
    values = np.asarray(predicted, np.float64)
    return values[:, None] if values.ndim == 1 else values
