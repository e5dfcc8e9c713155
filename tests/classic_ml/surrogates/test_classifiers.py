"""The estimators: scikit-learn's contract, digits, and the identity of tournaments with one-hot regression."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from joblib import parallel_config
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import LinearSVR
from sklearn.utils.estimator_checks import check_estimator

from classic_ml.surrogates import CrossPolytopeEnsemble, PolytopeClassifier, PolytopeEmbedding


@pytest.mark.parametrize("estimator", [PolytopeClassifier(), CrossPolytopeEnsemble()])
def test_scikit_learns_contract(estimator: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(estimator)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    train, test, y_train, y_test = train_test_split(X / 16, y, test_size=0.5, stratify=y, random_state=0)
    features = RBFSampler(gamma=0.08, n_components=800, random_state=0).fit(train)
    return features.transform(train), y_train, features.transform(test), y_test


RIDGE = Ridge(alpha=1e-2)


def test_digits(digits) -> None:
    X, y, X_test, y_test = digits
    one_hot = PolytopeClassifier("simplex", RIDGE).fit(X, y)
    assert one_hot.score(X_test, y_test) == pytest.approx(0.984, abs=0.005)
    ensemble = CrossPolytopeEnsemble(RIDGE).fit(X, y)
    assert [len(pairs) for pairs in ensemble.schedule_] == [5] * 9
    np.testing.assert_array_equal(ensemble.predict(X_test), one_hot.predict(X_test))
    np.testing.assert_array_equal(
        one_hot.predict(X_test), Ridge(alpha=1e-2).fit(X, np.eye(10)[y]).predict(X_test).argmax(1)
    )
    cross = PolytopeClassifier("cross-polytope", RIDGE).fit(X, y)
    assert cross.embedding_.dimension == 5
    assert cross.score(X_test, y_test) == pytest.approx(0.972, abs=0.008)
    cube = PolytopeClassifier("cube", RIDGE).fit(X, y)
    clipped = cube.embedding_.nearest(cube.predict_embedding(X_test).clip(0, 1))
    assert (clipped == y_test).mean() == pytest.approx(0.957, abs=0.008)
    assert cube.score(X_test, y_test) == pytest.approx(0.957, abs=0.015)  # projected on the ten corners' hull
    # Certified predictions, few as they are among the ten corners, are better than the others.
    certified = cross.certified(X_test)
    right = cross.predict(X_test) == y_test
    assert certified.mean() > 0.5
    assert right[certified].mean() > right[~certified].mean()
    assert not (certified & cross.may_hallucinate(X_test)).any()


@pytest.mark.parametrize("regressor", [Ridge(0.3), LinearRegression(), KNeighborsRegressor(7)])
@pytest.mark.parametrize("dimension", ["half", 1, 2])
def test_tournaments_decide_as_one_hot_regression_of_linear_learners(regressor, dimension) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    y = rng.permuted(np.arange(300) % 5)  # an odd number of classes, labels that are pure noise
    one_hot = PolytopeClassifier("simplex", regressor).fit(X, y)
    ensemble = CrossPolytopeEnsemble(regressor, dimension).fit(X, y)
    F = one_hot.predict_embedding(X)
    scores = ensemble.decision_function(X)
    np.testing.assert_allclose(scores, F + (1 - F.sum(1, keepdims=True)) / 5, atol=1e-9)
    clear = np.diff(np.sort(F, 1)[:, -2:]).ravel() > 1e-9
    np.testing.assert_array_equal(ensemble.predict(X)[clear], one_hot.predict(X)[clear])
    np.testing.assert_allclose(ensemble.comparison_matrix(X), F[:, :, None] - F[:, None], atol=1e-9)
    assert ensemble.condorcet(X)[clear].all()
    proba = ensemble.predict_proba(X)
    np.testing.assert_allclose(proba.sum(1), 1)
    assert proba.min() >= 0


def test_copeland_jobs_and_probabilities(digits) -> None:
    X, y, X_test, _ = digits
    few = y < 5
    with parallel_config("threading"):
        margin = CrossPolytopeEnsemble(RIDGE, n_jobs=2).fit(X[few], y[few])
    single = CrossPolytopeEnsemble(RIDGE).fit(X[few], y[few])
    np.testing.assert_array_equal(margin.predict_proba(X_test), single.predict_proba(X_test))
    copeland = CrossPolytopeEnsemble(RIDGE, aggregate="copeland").fit(X[few], y[few])
    wins = copeland.decision_function(X_test)
    np.testing.assert_array_equal(wins, (copeland.comparison_matrix(X_test) > 0).sum(2))
    np.testing.assert_array_equal(copeland.predict(X_test), margin.predict(X_test))  # linear: no circles
    np.testing.assert_array_equal(copeland.predict_proba(X_test), margin.predict_proba(X_test))
    assert margin.classes_[margin.predict_proba(X_test).argmax(1)].tolist() == margin.predict(X_test).tolist()


def test_labels_of_any_kind_weights_and_sparse_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5)) + 3 * np.eye(5)[np.arange(200) % 5]
    names = np.array(["ash", "birch", "cedar", "elm", "fir"])[np.arange(200) % 5]
    weights = rng.integers(0, 3, 200)
    for make in (PolytopeClassifier, CrossPolytopeEnsemble):
        fitted = make(regressor=Ridge()).fit(X, names)
        assert set(fitted.predict(X)) <= set(names)
        assert fitted.score(X, names) > 0.7
        np.testing.assert_array_equal(
            make(regressor=Ridge()).fit(csr_matrix(X), names).predict(X), fitted.predict(X)
        )
        repeated = make(regressor=Ridge()).fit(np.repeat(X, weights, 0), np.repeat(names, weights))
        weighted = make(regressor=Ridge()).fit(X, names, sample_weight=weights)
        np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-8)


def test_an_embedding_given_and_regressors_of_one_output() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 3)) + 4 * np.eye(3)[np.arange(90) % 3]
    y = np.arange(90) % 3
    triangle = PolytopeEmbedding([[0.0, 0.0], [4.0, 0.0], [0.0, 1.0]])
    assert PolytopeClassifier(triangle).fit(X, y).embedding_ is triangle
    assert PolytopeClassifier(PolytopeEmbedding.cube(5)).fit(X, y).embedding_.dimension == 5
    two = y < 2
    svr = MultiOutputRegressor(LinearSVR(C=0.1, max_iter=20_000, random_state=0))
    for regressor in (svr, KNeighborsRegressor(3)):
        fitted = PolytopeClassifier("cube", regressor).fit(X[two], y[two])
        assert fitted.predict_embedding(X).shape == (90, 1)
        scores = fitted.decision_function(X[two])
        assert scores.shape == (two.sum(),)
        np.testing.assert_array_equal(scores > 0, fitted.predict(X[two]) == 1)
    with pytest.raises(ValueError, match=r"n_classes = 3, but <cube embedding: 2 classes"):
        PolytopeClassifier(PolytopeEmbedding.cube(1)).fit(X, y)


def test_without_projection_reports_outside_are_told_of() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    X = np.eye(3)[y] + 0.2 * rng.standard_normal((300, 3))
    thin = PolytopeEmbedding([[0.0, 0.0], [4.0, 0.0], [0.0, 1.0]])
    plain, projected = PolytopeClassifier(thin, project=False).fit(X, y), PolytopeClassifier(thin).fit(X, y)
    with pytest.warns(UserWarning, match=r"\d+ of 300 reports lie outside the polytope"):
        without = plain.predict(X)
    U = plain.predict_embedding(X)
    np.testing.assert_array_equal(without, ((U[:, None] - thin.vertices) ** 2).sum(2).argmin(1))
    inside = thin.contains(U)
    np.testing.assert_array_equal(without[inside], projected.predict(X)[inside])
    np.testing.assert_array_equal(projected.decision_function(X).argmax(1), projected.predict(X))
    with pytest.warns(UserWarning, match="outside"):
        np.testing.assert_array_equal(plain.decision_function(X).argmax(1), without)


def test_refusals() -> None:
    X, y = np.eye(4), [0, 1, 2, 3]
    with pytest.raises(ValueError, match="y has one class only"):
        PolytopeClassifier().fit(X, [1, 1, 1, 1])
    with pytest.raises(ValueError, match="did you mean 'simplex'"):
        PolytopeClassifier("simplx").fit(X, y)
    with pytest.raises(ValueError, match="aggregate = 'borda'"):
        CrossPolytopeEnsemble(aggregate="borda").fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dimension = 'third'"):
        CrossPolytopeEnsemble(dimension="third").fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="4 classes make at most 2 disjoint pairs"):
        CrossPolytopeEnsemble(dimension=3).fit(X, y)
