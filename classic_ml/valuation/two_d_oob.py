"""2D-OOB: one value for every cell of a training table, from one bagged ensemble on random feature subsets.

Sun, Shen & Kwon 2024, "2D-OOB: attributing data contribution through a joint valuation framework", NeurIPS, arXiv
2408.03572; code YifanSun99/2D-OOB-Joint-Valuation.  The value of cell (i, j) is how well the weak learners that didn't
see row i and could use feature j predict row i:

    psi_ij = sum_b 1{i out of bag b} 1{j in S_b} T_b(i) / sum_b 1{i out of bag b} 1{j in S_b}.

Without the feature indicator it is Data-OOB (Kwon & Zou 2023, arXiv 2304.07718).  With O, T [B n] and F [B d] the table
is (O * T)' F over O' F: the fit of the ensemble and one pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, is_regressor
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from classic_ml.random_state import RandomState, as_seed
from classic_ml.valuation.cells import checked_rows
from classic_ml.valuation.few_classes import bag_learner
from classic_ml.valuation.utility import BoolArray, FloatArray, IntArray
from interp.core.messages import one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)
Scoring: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
VARYING = tuple(tenth / 10 for tenth in range(1, 10))
LEARNERS_AT_A_TIME = 64


class TwoDOOB(BaseEstimator):
    """Values of the cells, rows and columns of a training table.

    A cell is evaluated by about 0.37 n_estimators max_features learners (92 by default); the standard error of a value
    in [0, 1] is at most 0.5 / sqrt(count).  Scale the columns and drop constant ones first; a seed gives the same bits
    whatever `n_jobs`.

    Parameters:
        estimator: the weak learner; None for a fully grown CART with sqrt(features) tried at each split.  A regressor
            makes the score -(y - prediction)^2 instead of 1{prediction = y}.  Of a bag of one class the learner is the
            classifier that predicts it.
        n_estimators: B.
        max_features: features a learner may use: a share in (0, 1], a number, or "varying" for a share drawn from
            0.1, ..., 0.9 for each learner.  Small subsets tell features apart; at 1.0 all cells of a row are equal.
        distance_weight: lambda >= 0.  Adds lambda times the negative distance of the row to its own class's
            centre in the learner's subspace, 0 at the nearest and -1 at the farthest row of the bag (not clipped
            beyond).  For outlier cells use 1; for wrong labels and backdoors 0.  Classifiers only.
        distance_normalization: "minmax", or "reference" for the authors' code, whose sign slip shifts each learner by a
            constant.
        scoring: scores of the rows [n] from (y_true [n], y_pred [n]) instead of the above.
        random_state: None, a seed or a generator of NumPy's.
        n_jobs: as in scikit-learn.

    Attributes:
        cell_values_: [n d], NaN where no learner could judge.
        cell_counts_: [n d], how many learners judged.
        data_values_: [n], means over the cells of a row ("2D-OOB-data").
        feature_values_: [d], means over the rows.
        data_oob_: [n], Data-OOB of the same ensemble.
        oob_score_: mean of `data_oob_`.
        ensembles_: the fitted bagging ensembles: one, or one a share of features for "varying".
        feature_shape_: the shape of a row as given: (d,), or (h, w) for images.
    """

    def __init__(
        self,
        estimator: Any = None,
        n_estimators: int = 1000,
        max_features: float | int | Literal["varying"] = 0.25,
        distance_weight: float = 0.0,
        distance_normalization: Literal["minmax", "reference"] = "minmax",
        scoring: Scoring | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.distance_weight = distance_weight
        self.distance_normalization = distance_normalization
        self.scoring = scoring
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> TwoDOOB:
        """Fit the ensemble on X [n d] (or images [n h w ...]), y [n] and value every cell.

        Raises:
            ValueError: no y, fewer than two rows, one class only, values that aren't finite, lengths that differ, or a
                parameter out of range.
        """
        self._check_learner()
        regression = self.estimator is not None and is_regressor(self.estimator)
        self._check_parameters(regression)
        index = getattr(X, "index", None)
        X, y = validate_data(
            self,
            X,
            y,
            allow_nd=True,
            ensure_min_samples=2,
            y_numeric=regression,
            dtype=[np.float64, np.float32],
        )
        self.feature_shape_ = X.shape[1:]
        X = X.reshape(len(X), -1)
        self.index_ = np.arange(len(X)) if index is None or callable(index) else index
        targets = _Targets(y, np.zeros(0)) if regression else self._classes(y)
        bags = self._fit_bags(X, y, regression)
        n, d = X.shape
        sums, counts = np.zeros((n, d)), np.zeros((n, d))
        row_sums, row_counts = np.zeros(n), np.zeros(n)
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads")
        for learners in _blocks(bags):
            judged = parallel(delayed(self._scores)(learner, X, targets) for learner in learners)
            scores = np.stack([score for score, _ in judged])
            oob = np.stack([out for _, out in judged]).astype(np.float64)
            may_use = np.stack([learner.feature_mask(d) for learner in learners]).astype(np.float64)
            sums += scores.T @ may_use
            counts += oob.T @ may_use
            row_sums += scores.sum(0)
            row_counts += oob.sum(0)
        self.cell_values_ = _ratio(sums, counts)
        self.cell_counts_ = counts.astype(np.int64)
        self.data_oob_ = _ratio(row_sums, row_counts)
        self.data_values_ = _mean_of_known(self.cell_values_, 1)
        self.feature_values_ = _mean_of_known(self.cell_values_, 0)
        self.oob_score_ = float(_mean_of_known(self.data_oob_, 0))
        if unseen := int((self.cell_counts_ == 0).sum()):
            logger.warning(
                "%d of %d cells were never judged and are NaN; raise n_estimators = %d or max_features = %s",
                unseen,
                n * d,
                self.n_estimators,
                self.max_features,
            )
        return self

    def cell_map(self, row: int) -> FloatArray:
        """The cell values of one row in the shape it was given in, e.g. [h w] for an image.

        Raises ValueError for a row that isn't there.
        """
        check_is_fitted(self)
        return self.cell_values_[checked_rows(row, len(self.cell_values_))[0]].reshape(self.feature_shape_)

    def to_frame(self) -> pd.DataFrame:
        """Cell values with the row labels and column names of the data."""
        import pandas as pd

        check_is_fitted(self)
        columns = getattr(self, "feature_names_in_", np.arange(self.cell_values_.shape[1]))
        return pd.DataFrame(self.cell_values_, index=self.index_, columns=columns)

    def plot(self, rows: npt.ArrayLike | None = None) -> Figure:
        """A heat map of the cells of some rows (the 40 of lowest value by default), or of images a panel each."""
        from classic_ml.valuation.cell_plots import plot_cells

        check_is_fitted(self)
        return plot_cells(self, rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _check_learner(self) -> None:
        if isinstance(self.estimator, type) or (
            self.estimator is not None
            and not (hasattr(self.estimator, "fit") and hasattr(self.estimator, "predict"))
        ):
            raise ValueError(
                f"estimator = {self.estimator!r} must be a scikit-learn estimator such as DecisionTreeClassifier(), or "
                "None for a tree"
            )
        if self.scoring is not None and not callable(self.scoring):
            raise ValueError(
                f"scoring = {self.scoring!r} must be a function of (y_true [n], y_pred [n]) that returns a score a row"
            )

    def _check_parameters(self, regression: bool) -> None:
        if not isinstance(self.n_estimators, Integral) or self.n_estimators < 1:
            raise ValueError(f"n_estimators = {self.n_estimators!r} must be a whole number >= 1")
        one_of("distance_normalization", self.distance_normalization, ("minmax", "reference"))
        if not isinstance(self.distance_weight, Real) or not 0 <= self.distance_weight < np.inf:
            raise ValueError(f"distance_weight = {self.distance_weight!r} must be a number >= 0")
        if regression and self.distance_weight > 0:
            raise ValueError(
                f"distance_weight = {self.distance_weight} needs classes, but {self.estimator!r} is a regressor; use 0"
            )

    def _classes(self, y: np.ndarray) -> _Targets:
        try:
            check_classification_targets(y)
        except ValueError as error:
            raise ValueError(f"{error} For a continuous y give a regressor as estimator.") from error
        classes, encoded = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y holds one class only ({classes[0]!r}); values need at least two classes")
        return _Targets(encoded, classes)

    def _subset_sizes(self, d: int) -> list[tuple[int, int, int]]:
        """(features, learners, seed) of each ensemble."""
        value, seed = self.max_features, as_seed(self.random_state)
        if value == "varying":
            rng = np.random.RandomState(seed)
            drawn = np.bincount(rng.randint(len(VARYING), size=self.n_estimators), minlength=len(VARYING))
            seeds = rng.randint(np.iinfo(np.int32).max, size=len(VARYING))
            sizes = [max(1, round(share * d)) for share in VARYING]
            return [(m, int(b), int(s)) for m, b, s in zip(sizes, drawn, seeds, strict=True) if b]
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if whole and 1 <= value <= d:
            return [(int(value), self.n_estimators, seed)]
        if isinstance(value, Real) and not whole and not isinstance(value, bool) and 0 < value <= 1:
            return [(max(1, round(float(value) * d)), self.n_estimators, seed)]
        raise ValueError(
            f"max_features = {value!r} must be a share in (0, 1], a number in 1..{d} or 'varying'"
        )

    def _fit_bags(self, X: np.ndarray, y: np.ndarray, regression: bool) -> list[_Learner]:
        learners: list[_Learner] = []
        self.ensembles_ = []
        kind = BaggingRegressor if regression else BaggingClassifier
        weak = DecisionTreeClassifier(max_features="sqrt") if self.estimator is None else self.estimator
        wrapped = self.estimator is not None and not regression
        for m, b, seed in self._subset_sizes(X.shape[1]):
            bag = kind(
                bag_learner(weak) if wrapped else weak,
                n_estimators=b,
                max_features=m,
                random_state=seed,
                n_jobs=self.n_jobs,
            ).fit(X, y)
            if wrapped:
                bag.estimators_ = [learner.model_ for learner in bag.estimators_]
            self.ensembles_.append(bag)
            learners += map(_Learner, bag.estimators_, bag.estimators_samples_, bag.estimators_features_)
        return learners

    def _scores(self, learner: _Learner, X: np.ndarray, targets: _Targets) -> tuple[FloatArray, BoolArray]:
        """Scores of a learner, 0 in the bag, and who is out of it [n]."""
        counts = np.bincount(learner.in_bag, minlength=len(X))
        oob = counts == 0
        scores = np.zeros(len(X))
        if oob.any():
            predicted = learner.model.predict(X[np.ix_(oob, learner.features)])
            scores[oob] = self._judge(targets, oob, predicted)
            if self.distance_weight > 0:
                closeness = self._closeness(X[:, learner.features], targets.y, counts)
                scores[oob] += self.distance_weight * closeness[oob]
        return scores, oob

    def _judge(self, targets: _Targets, rows: BoolArray, predicted: np.ndarray) -> FloatArray:
        true = targets.y[rows]
        if self.scoring is not None:
            if len(targets.classes):
                true, predicted = targets.classes[true], targets.classes[predicted.astype(np.int64)]
            scores = np.asarray(self.scoring(true, predicted), np.float64)
            if scores.shape != true.shape or not np.isfinite(scores).all():
                raise ValueError(
                    f"scoring must give a finite score a row {true.shape}, got shape {scores.shape}"
                )
            return scores
        if len(targets.classes):
            return (predicted == true).astype(np.float64)
        return -((true - predicted) ** 2)

    def _closeness(self, x: np.ndarray, y: IntArray, counts: IntArray) -> FloatArray:
        """Normalised negative distance [n] of each row to the centre of its class within the bag."""
        weights = np.eye(y.max() + 1)[y] * counts[:, None]
        mass = weights.sum(0)
        centres = weights.T @ x / np.maximum(mass, 1)[:, None]
        distance = np.linalg.norm(x - centres[y], axis=1)
        nearest, farthest = distance[counts > 0].min(), distance[counts > 0].max()
        if farthest == nearest:
            return np.zeros(len(x))
        offset = nearest if self.distance_normalization == "minmax" else -nearest
        return np.where(mass[y] > 0, -(distance - offset) / (farthest - nearest), 0.0)


@dataclass(frozen=True)
class _Targets:
    """Class numbers and classes, or numbers and no classes for regression."""

    y: np.ndarray
    classes: np.ndarray


@dataclass(frozen=True)
class _Learner:
    model: Any
    in_bag: IntArray
    features: IntArray

    def feature_mask(self, d: int) -> BoolArray:
        mask = np.zeros(d, np.bool_)
        mask[self.features] = True
        return mask


def _blocks(learners: list[_Learner]) -> Iterator[list[_Learner]]:
    for start in range(0, len(learners), LEARNERS_AT_A_TIME):
        yield learners[start : start + LEARNERS_AT_A_TIME]


def two_d_oob_values(
    scores: npt.ArrayLike, in_bag: npt.ArrayLike, feature_mask: npt.ArrayLike
) -> tuple[FloatArray, IntArray]:
    """Cell values and counts [n d] from scores [B n], bag counts [B n] and feature subsets [B d].

    Scores of rows in the bag are not looked at.  A cell that nobody judged is NaN with count 0.
    """
    t, oob = _out_of_bag(scores, in_bag)
    f = np.asarray(feature_mask, np.float64)
    if f.ndim != 2 or len(f) != len(t):
        raise ValueError(f"feature_mask: {len(t)} learners need [{len(t)} d], got {f.shape}")
    counts = oob.T @ f
    return _ratio(t.T @ f, counts), counts.astype(np.int64)


def data_oob_values(scores: npt.ArrayLike, in_bag: npt.ArrayLike) -> FloatArray:
    """Data-OOB values [n] from scores and bag counts [B n]; NaN for a row in every bag."""
    t, oob = _out_of_bag(scores, in_bag)
    return _ratio(t.sum(0), oob.sum(0))


def _out_of_bag(scores: npt.ArrayLike, in_bag: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    t, counts = np.asarray(scores, np.float64), np.asarray(in_bag)
    if t.ndim != 2 or t.shape != counts.shape:
        raise ValueError(f"scores and in_bag must be [B n] both, got {t.shape} and {counts.shape}")
    oob = counts == 0
    return np.where(oob, t, 0.0), oob.astype(np.float64)


def _ratio(sums: FloatArray, counts: FloatArray) -> FloatArray:
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def _mean_of_known(values: FloatArray, axis: int) -> FloatArray:
    known = ~np.isnan(values)
    return _ratio(np.where(known, values, 0.0).sum(axis), known.sum(axis).astype(np.float64))
