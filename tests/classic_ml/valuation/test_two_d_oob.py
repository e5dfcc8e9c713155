"""2D-OOB against the worked example, its exact relations, an independent loop, and what it must find."""

from __future__ import annotations

import logging

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import check_estimator

from classic_ml.valuation.backdoor import plant_trigger, trigger_auc
from classic_ml.valuation.cells import class_z_scores, gain_auc, make_cell_outliers
from classic_ml.valuation.two_d_oob import TwoDOOB, data_oob_values, two_d_oob_values

IN_BAG = np.array([[0, 1, 2], [1, 0, 2], [0, 2, 1], [0, 0, 3]])
SUBSETS = np.array([[1, 0], [1, 1], [0, 1], [1, 1]])
SCORES = np.array([[1, 9, 9], [9, 0, 9], [0, 9, 9], [1, 1, 9.0]])  # 9: in the bag, not to be looked at


@pytest.fixture(scope="module")
def cancer() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 6))
    return X, np.array(["no", "perhaps", "yes"])[np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])]


def test_scikit_learn_conventions():
    check_estimator(TwoDOOB(n_estimators=5), on_skip=None)


def test_worked_example():
    values, counts = two_d_oob_values(SCORES, IN_BAG, SUBSETS)
    np.testing.assert_array_equal(values, [[1, 0.5], [0.5, 0.5], [np.nan, np.nan]])
    np.testing.assert_array_equal(counts, [[2, 2], [2, 2], [0, 0]])
    np.testing.assert_array_equal(data_oob_values(SCORES, IN_BAG), [2 / 3, 0.5, np.nan])
    with pytest.raises(ValueError, match="scores and in_bag"):
        data_oob_values(SCORES, IN_BAG[:2])
    with pytest.raises(ValueError, match="feature_mask"):
        two_d_oob_values(SCORES, IN_BAG, SUBSETS[:2])


def cell_by_cell(valued: TwoDOOB, X: np.ndarray, y: np.ndarray, distance_weight: float = 0.0) -> np.ndarray:
    """The definition as a loop over learners, rows and features."""
    n, d = X.shape
    total, count = np.zeros((n, d)), np.zeros((n, d))
    (bag,) = valued.ensembles_
    for model, samples, features in zip(
        bag.estimators_, bag.estimators_samples_, bag.estimators_features_, strict=True
    ):
        x = X[:, features]
        centres = {c: x[[r for r in samples if y[r] == c]].mean(0) for c in set(y[samples])}
        inside = [np.linalg.norm(x[r] - centres[y[r]]) for r in samples]
        for i in set(range(n)) - set(samples.tolist()):
            score = float(bag.classes_[int(model.predict(x[[i]])[0])] == y[i])
            if distance_weight and y[i] in centres:
                distance = np.linalg.norm(x[i] - centres[y[i]])
                score -= distance_weight * (distance - min(inside)) / (max(inside) - min(inside))
            for j in features:
                total[i, j] += score
                count[i, j] += 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


@pytest.mark.parametrize("weight", [0.0, 1.5])
def test_against_the_definition_with_string_labels(table, weight):
    X, y = table
    valued = TwoDOOB(n_estimators=25, max_features=3, distance_weight=weight, random_state=0).fit(X, y)
    np.testing.assert_allclose(valued.cell_values_, cell_by_cell(valued, X, y, weight), atol=1e-12)


def test_the_references_slip_shifts_each_learner(table):
    X, y = table
    clean, slipped = (
        TwoDOOB(
            n_estimators=20, max_features=3, distance_weight=1.0, distance_normalization=kind, random_state=0
        ).fit(X, y)
        for kind in ("minmax", "reference")
    )
    known = clean.cell_counts_ > 0
    assert (slipped.cell_values_[known] < clean.cell_values_[known]).all()


def test_subsets_of_all_features_give_data_oob(table):
    valued = TwoDOOB(n_estimators=40, max_features=1.0, random_state=0).fit(*table)
    np.testing.assert_allclose(valued.cell_values_, np.tile(valued.data_oob_[:, None], 6), rtol=1e-14)


def test_counted_row_means_are_data_oob(table):
    valued = TwoDOOB(n_estimators=40, max_features=2, random_state=0).fit(*table)
    sums = np.nansum(valued.cell_counts_ * valued.cell_values_, 1)
    np.testing.assert_allclose(sums / valued.cell_counts_.sum(1), valued.data_oob_, rtol=1e-12)
    assert np.nanmin(valued.cell_values_) >= 0
    assert np.nanmax(valued.cell_values_) <= 1
    np.testing.assert_allclose(valued.data_values_, np.nanmean(valued.cell_values_, 1))
    np.testing.assert_allclose(valued.feature_values_, np.nanmean(valued.cell_values_, 0))


def test_a_share_is_rounded_and_counts_are_as_expected(cancer):
    X, y = cancer
    valued = TwoDOOB(DecisionTreeClassifier(max_depth=2), n_estimators=200, random_state=0).fit(X, y)
    (bag,) = valued.ensembles_
    assert {len(f) for f in bag.estimators_features_} == {8}  # 7.5, halves to even; scikit-learn would take 7
    expected = 200 * (1 - 1 / 569) ** 569 * 8 / 30
    assert valued.cell_counts_.mean() == pytest.approx(expected, rel=0.02)


def test_data_oob_is_the_out_of_bag_accuracy_of_the_same_ensemble(table):
    X, y = table
    valued = TwoDOOB(n_estimators=30, max_features=6, random_state=4).fit(X, y)
    bag = BaggingClassifier(DecisionTreeClassifier(max_features="sqrt"), n_estimators=30, random_state=4).fit(
        X, y
    )
    hits = np.array([bag.classes_[m.predict(X).astype(int)] == y for m in bag.estimators_])
    in_bag = np.array([np.bincount(s, minlength=60) for s in bag.estimators_samples_])
    np.testing.assert_allclose(valued.data_oob_, data_oob_values(hits, in_bag), rtol=1e-12)
    assert valued.oob_score_ == pytest.approx(valued.data_oob_.mean())


def test_bits_do_not_depend_on_jobs(table):
    for max_features in (3, "varying"):
        with joblib.parallel_config("threading"):  # processes start slowly, and the seeds are the same
            one, two, other = (
                TwoDOOB(
                    n_estimators=30, max_features=max_features, distance_weight=1.0, random_state=s, n_jobs=j
                ).fit(*table)
                for s, j in ((0, None), (0, 2), (1, None))
            )
        assert np.array_equal(one.cell_values_, two.cell_values_, equal_nan=True)
        assert not np.array_equal(one.cell_values_, other.cell_values_, equal_nan=True)


def test_varying_draws_a_share_for_each_learner(table):
    valued = TwoDOOB(n_estimators=90, max_features="varying", random_state=0).fit(*table)
    assert sum(len(bag.estimators_) for bag in valued.ensembles_) == 90
    assert {len(f) for bag in valued.ensembles_ for f in bag.estimators_features_} == {1, 2, 3, 4, 5}


def test_regression_scores_by_squared_error():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 4))
    y = X[:, 0] + 0.1 * rng.standard_normal(50)
    y[7] += 20
    valued = TwoDOOB(DecisionTreeRegressor(), n_estimators=60, max_features=2, random_state=0).fit(X, y)
    assert np.argmin(valued.data_values_) == 7
    (bag,) = valued.ensembles_
    out = [
        -((y[7] - m.predict(X[[7]][:, f])[0]) ** 2)
        for m, s, f in zip(bag.estimators_, bag.estimators_samples_, bag.estimators_features_, strict=True)
        if 7 not in s
    ]
    assert valued.data_oob_[7] == pytest.approx(np.mean(out))
    absolute = TwoDOOB(
        DecisionTreeRegressor(), n_estimators=10, scoring=lambda t, p: -np.abs(t - p), random_state=0
    ).fit(X, y)
    assert absolute.data_values_[7] > valued.data_values_[7]


def test_any_weak_learner_and_score(table):
    X, y = table
    seen = []

    def score(true, predicted):
        seen.append({*true, *predicted})
        return (true == predicted) * 2.0

    doubled = TwoDOOB(LogisticRegression(), n_estimators=20, scoring=score, random_state=0).fit(X, y)
    plain = TwoDOOB(LogisticRegression(), n_estimators=20, random_state=0).fit(X, y)
    np.testing.assert_allclose(doubled.cell_values_, 2 * plain.cell_values_)
    assert set.union(*seen) == {"no", "perhaps", "yes"}
    with pytest.raises(ValueError, match="scoring must give a finite score"):
        TwoDOOB(n_estimators=2, scoring=lambda t, p: 1.0).fit(X, y)


class Counting(BaseEstimator, ClassifierMixin):
    """Predicts the most frequent class of its bag by weights, and refuses a bag of one class as many do."""

    def fit(self, X, y, sample_weight=None):
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        self.classes_, totals = np.unique(y), np.bincount(y, weight)
        if (totals > 0).sum() < 2:
            raise ValueError("one class")
        self.most_ = totals.argmax()
        return self

    def predict(self, X):
        return np.full(len(X), self.most_)


@pytest.mark.parametrize(
    "learner",
    [SVC(), LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression()), Counting()],
)
def test_a_bag_of_one_class_predicts_it(learner):
    """A bag has the one row of class b with probability 1 - (11/12)^12 = 0.65."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 2)), np.array(["a"] * 11 + ["b"])
    valued = TwoDOOB(learner, n_estimators=60, max_features=1.0, random_state=0).fit(X, y)
    (bag,) = valued.ensembles_
    without = [11 not in samples for samples in bag.estimators_samples_]
    assert 5 < sum(without) < 40
    constant = [isinstance(model, DummyClassifier) for model in bag.estimators_]
    assert constant == without
    assert valued.data_oob_[11] == 0  # whoever judges it hasn't seen its class
    assert set(bag.predict(X)) <= {"a", "b"}
    if isinstance(learner, Counting):
        assert valued.data_oob_[:11].tolist() == [1] * 11
    np.testing.assert_array_equal(valued.cell_values_, cell_by_cell(valued, X, y))


def test_wrapping_a_learner_changes_no_bit(table):
    X, y = table
    for learner in (DecisionTreeClassifier(max_features="sqrt"), make_pipeline(LogisticRegression())):
        valued = TwoDOOB(learner, n_estimators=15, max_features=4, random_state=0).fit(X, y)
        plain = BaggingClassifier(learner, n_estimators=15, max_features=4, random_state=0).fit(X, y)
        for ours, its, f in zip(
            valued.ensembles_[0].estimators_, plain.estimators_, plain.estimators_features_, strict=True
        ):
            np.testing.assert_array_equal(ours.predict_proba(X[:, f]), its.predict_proba(X[:, f]))


def test_frames_keep_their_names(table):
    X, y = table
    frame = pd.DataFrame(X, columns=list("uvwxyz"), index=[f"r{i}" for i in range(60)])
    valued = TwoDOOB(n_estimators=40, max_features=2, random_state=0).fit(frame, pd.Series(y, frame.index))
    values = valued.to_frame()
    assert list(values.columns) == list("uvwxyz")
    assert list(values.index) == list(frame.index)
    assert values.loc["r3", "w"] == valued.cell_values_[3, 2]
    ax = valued.plot(rows=[3, 5]).axes[0]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["r3", "r5"]
    assert [t.get_text() for t in ax.get_xticklabels()] == list("uvwxyz")


def test_unseen_cells_are_nan_and_said(table, caplog):
    with caplog.at_level(logging.WARNING):
        valued = TwoDOOB(n_estimators=2, max_features=1, random_state=0).fit(*table)
    assert np.isnan(valued.cell_values_).any()
    assert (np.isnan(valued.cell_values_) == (valued.cell_counts_ == 0)).all()
    assert "cells were never judged" in caplog.text
    assert np.isnan(valued.data_values_).sum() == (valued.cell_counts_.sum(1) == 0).sum()


def test_images_and_the_trigger_of_a_backdoor():
    digits = load_digits()
    chosen = np.isin(digits.target, (6, 7))
    images, y = digits.images[chosen] / 16, digits.target[chosen]
    trigger = np.zeros((8, 8), bool)
    trigger[6:, :2] = True
    X, labels, poisoned = plant_trigger(
        images.reshape(len(images), -1), y, trigger, source=6, target=7, random_state=0
    )
    assert poisoned.sum() == round(0.15 * len(y))
    assert set(labels[poisoned]) == {7}
    assert (X.reshape(-1, 8, 8)[poisoned][:, trigger] == 1).all()
    np.testing.assert_array_equal(
        X[:, ~trigger.ravel()], images.reshape(len(images), -1)[:, ~trigger.ravel()]
    )
    valued = TwoDOOB(n_estimators=300, random_state=0).fit(X.reshape(-1, 8, 8), labels)
    assert trigger_auc(valued.cell_values_, poisoned, trigger) >= 0.93
    assert valued.cell_map(4).shape == (8, 8)
    assert len(valued.plot(np.flatnonzero(poisoned)[:5]).axes) == 8 + 1


def test_outlier_cells_are_found(cancer):
    X, y = cancer
    changed, mask = make_cell_outliers(X, y, random_state=0)
    valued = TwoDOOB(n_estimators=300, distance_weight=1.0, random_state=0).fit(changed, y)
    assert gain_auc(valued.cell_values_, mask) >= 0.75
    # By construction the outliers are extremes of their class, so a plain z-score finds them better.
    assert gain_auc(class_z_scores(changed, y), mask) > gain_auc(valued.cell_values_, mask)


def test_wrong_labels_are_found(cancer):
    X, y = cancer
    flipped = np.random.default_rng(0).permutation(len(y))[:57]
    labels = y.copy()
    labels[flipped] ^= 1
    valued = TwoDOOB(n_estimators=200, max_features=0.5, random_state=0).fit(X, labels)
    assert roc_auc_score(labels != y, -valued.data_values_) >= 0.96


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_estimators": 0}, "n_estimators = 0"),
        ({"n_estimators": 1.5}, "n_estimators = 1.5"),
        ({"max_features": 0.0}, "max_features = 0.0"),
        ({"max_features": 7}, r"max_features = 7 must be a share in \(0, 1\], a number in 1..6"),
        ({"max_features": True}, "max_features = True"),
        ({"max_features": "sqrt"}, "max_features = 'sqrt'"),
        ({"distance_weight": -1.0}, "distance_weight = -1.0"),
        ({"distance_normalization": "minmaks"}, "did you mean 'minmax'"),
        ({"estimator": DecisionTreeRegressor(), "distance_weight": 1.0}, "is a regressor"),
        ({"estimator": "tree"}, "estimator = 'tree' must be a scikit-learn estimator"),
        ({"estimator": DecisionTreeRegressor}, "must be a scikit-learn estimator"),
        ({"scoring": "accuracy"}, "scoring = 'accuracy' must be a function"),
    ],
)
def test_bad_parameters(table, parameters, match):
    X, y = table
    with pytest.raises(ValueError, match=match):
        TwoDOOB(**parameters).fit(X, np.arange(60.0) if "estimator" in parameters else y)


def test_rows_that_are_not_there(table):
    valued = TwoDOOB(n_estimators=5, random_state=0).fit(*table)
    for rows in (60, -61, 1.5):
        with pytest.raises(ValueError, match="expected positions from 0 to 59"):
            valued.cell_map(rows)
    for rows in ([0, 60], []):
        with pytest.raises(ValueError, match="expected positions from 0 to 59"):
            valued.plot(rows=rows)
    np.testing.assert_array_equal(valued.cell_map(-1), valued.cell_values_[59])


def test_bad_data(table):
    X, y = table
    with pytest.raises(ValueError, match="one class only"):
        TwoDOOB().fit(X, np.zeros(60))
    with pytest.raises(ValueError, match="give a regressor"):
        TwoDOOB().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="NaN"):
        TwoDOOB().fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="inconsistent"):
        TwoDOOB().fit(X, y[:-1])
    with pytest.raises(ValueError, match="1 sample"):
        TwoDOOB().fit(X[:1], y[:1])
    for estimator in (None, DecisionTreeRegressor()):
        with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
            TwoDOOB(estimator).fit(X, None)


def test_bad_triggers():
    X, y = np.zeros((10, 4)), np.repeat([0, 1], 5)
    with pytest.raises(ValueError, match="5 rows are of class 0"):
        plant_trigger(X, y, [1], source=0, target=1, fraction=0.9)
    with pytest.raises(ValueError, match=r"columns in 0..3"):
        plant_trigger(X, y, [4], source=0, target=1)
