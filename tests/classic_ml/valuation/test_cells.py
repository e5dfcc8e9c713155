"""Planting and finding outlier cells; curves against hand counts; KNN values against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import coo_matrix, csr_array
from scipy.stats import norm, truncnorm
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from classic_ml.valuation.cell_plots import plot_detection
from classic_ml.valuation.cells import (
    cell_fixation_curve,
    cell_order,
    cell_removal_curve,
    cell_roc_auc,
    cells_to_inspect,
    class_z_scores,
    detection_curve,
    gain_auc,
    make_cell_outliers,
    row_removal_curve,
)
from classic_ml.valuation.knn import knn_shapley, knn_utility, two_d_knn
from classic_ml.valuation.shapley import exact_shapley


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def test_outliers_lie_in_the_tails_of_their_class(cancer):
    X, y = cancer
    changed, mask = make_cell_outliers(X, y, random_state=0)
    assert set(mask.sum(1)) == {0, 12}
    assert mask.any(1).sum() == round(0.4 * 569)
    np.testing.assert_array_equal(changed[~mask], X[~mask])
    for c in (0, 1):
        mean, sd = X[y == c].mean(0), X[y == c].std(0)
        z = np.abs((changed[y == c] - mean) / sd)
        assert z[mask[y == c]].min() >= norm.isf(0.005) * (1 - 1e-9)


def test_outliers_follow_the_truncated_normal():
    """One class, one column: mean 0.5, sd 1; the draws are N(0, 1) beyond 0.5 -+ 1.2816."""
    X = 0.5 + np.tile([-1.0, 1.0], 4000)[:, None]
    changed, mask = make_cell_outliers(
        X, np.zeros(8000), row_fraction=1.0, column_fraction=1.0, tail_probability=0.2, random_state=0
    )
    assert mask.all()
    low, high = 0.5 - norm.isf(0.1), 0.5 + norm.isf(0.1)
    p_low, p_high = norm.cdf(low), norm.sf(high)
    assert (changed > 0).mean() == pytest.approx(p_high / (p_low + p_high), abs=0.02)
    assert changed[changed > 0].mean() == pytest.approx(truncnorm.mean(high, np.inf), abs=0.02)
    assert changed[changed < 0].mean() == pytest.approx(truncnorm.mean(-np.inf, low), abs=0.02)


def test_far_tails_end_at_once():
    X = np.tile([-1000.0, 1000.0], 20)[:, None] * np.ones((1, 3))
    changed, mask = make_cell_outliers(X, np.zeros(40), random_state=0)
    assert (np.abs(changed[mask]) >= 2575).all()
    assert np.isfinite(changed).all()


def test_detection_by_hand():
    values = np.array([[0.1, 0.5], [0.3, np.nan], [0.2, 0.2]])
    mask = np.array([[True, False], [False, True], [False, True]])
    assert cell_order(values).tolist() == [0, 4, 5, 2, 1, 3]
    assert cell_order(values, ascending=False).tolist() == [1, 2, 4, 5, 0, 3]
    assert detection_curve(values, mask) == pytest.approx(np.array([1, 1, 2, 2, 2, 3]) / 3)
    assert gain_auc(values, mask) == pytest.approx(11 / 18)
    assert cells_to_inspect(values, mask, 0.6) == pytest.approx(3 / 6)
    with pytest.raises(ValueError, match="one shape"):
        detection_curve(values, mask[:2])
    with pytest.raises(ValueError, match="no cell is marked"):
        detection_curve(values, mask & False)


def test_gain_auc_is_the_roc_auc_in_disguise_and_below_one():
    rng = np.random.default_rng(0)
    values, mask = rng.random((30, 10)), rng.random((30, 10)) < 0.16
    pi = mask.mean()
    expected = (1 - pi) * roc_auc_score(mask.ravel(), -values.ravel()) + pi / 2 + 1 / (2 * mask.size)
    assert gain_auc(values, mask) == pytest.approx(expected, rel=1e-12)
    assert cell_roc_auc(values, mask) == pytest.approx(roc_auc_score(mask.ravel(), -values.ravel()))
    best = gain_auc(~mask * 1.0, mask)
    assert best == pytest.approx(1 - (mask.sum() - 1) / (2 * mask.size), rel=1e-12)


def test_fixing_true_outliers_first_beats_random_order(cancer):
    X, y = cancer
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:300], order[300:]
    changed, mask = make_cell_outliers(X[train], y[train], random_state=0)
    arguments = changed, X[train], y[train], X[test], y[test]
    right = cell_fixation_curve(~mask * 1.0, *arguments)
    random = cell_fixation_curve(np.random.default_rng(1).random(mask.shape), *arguments)
    clean = LogisticRegression(max_iter=1000).fit(X[train], y[train]).score(X[test], y[test])
    assert right[-1] == clean  # 16 % of the cells are outliers, 20 % are fixed
    assert right[0] == random[0] < clean
    assert random[-1] < clean
    with pytest.raises(ValueError, match="differ"):
        cell_fixation_curve(mask[:9], *arguments)


def test_removal_imputes_and_drops():
    X = np.array([[1.0, 10.0], [3.0, 20.0], [5.0, 60.0], [7.0, 90.0]])
    y = np.array([0, 0, 1, 1])
    seen = []

    class Recorder(LogisticRegression):
        def fit(self, X, y):
            seen.append((np.array(X), np.array(y)))
            return super().fit(X, y)

    values = np.arange(8.0).reshape(4, 2)
    cell_removal_curve(values, X, y, X, y, fractions=(0.0, 3 / 8), estimator=Recorder())
    np.testing.assert_array_equal(seen[0][0], X)
    np.testing.assert_array_equal(
        seen[1][0], [[6, 20], [5, 60], [7, 90]]
    )  # row 0 gone, (1, 0) by its column's mean
    np.testing.assert_array_equal(seen[1][1], [0, 1, 1])
    row_removal_curve([3, 0, 2, 1], X, y, X, y, fractions=(0.25,), estimator=Recorder())
    np.testing.assert_array_equal(seen[2][0], X[[0, 2, 3]])
    with pytest.raises(ValueError, match="fractions"):
        row_removal_curve([3, 0, 2, 1], X, y, X, y, fractions=(1.0,))
    with pytest.raises(ValueError, match="4 rows need 4 values"):
        row_removal_curve([3, 0], X, y, X, y)
    one_class_left = row_removal_curve(
        [0, 1, 2, 3], X, np.array([1, 1, 0, 0]), X, np.array([0, 0, 0, 1]), fractions=(0.5,)
    )
    np.testing.assert_array_equal(one_class_left, [0.75])


def test_bad_tables():
    X, y = np.zeros((4, 2)), np.zeros(4)
    with pytest.raises(ValueError, match="row_fraction = 0"):
        make_cell_outliers(X, y, row_fraction=0)
    with pytest.raises(ValueError, match="tail_probability = 1"):
        make_cell_outliers(X, y, tail_probability=1)
    with pytest.raises(ValueError, match="don't fit"):
        class_z_scores(X, y[:3])
    with pytest.raises(ValueError, match=r"X\[1, 0\] = nan"):
        class_z_scores(np.where(np.arange(8).reshape(4, 2) == 2, np.nan, X), y)


def knn_worth(X, y, X_val, y_val, k):
    def worth(points):
        total = 0.0
        for v, label in zip(X_val, y_val, strict=True):
            nearest = sorted(points, key=lambda i: (((X[i] - v) ** 2).sum(), i))[:k]
            total += sum(y[i] == label for i in nearest) / k
        return total / len(X_val)

    return worth


@pytest.mark.parametrize("k", [1, 3, 12])
def test_knn_shapley_against_enumeration(k):
    rng = np.random.default_rng(k)
    X, X_val = rng.standard_normal((9, 2)), rng.standard_normal((4, 2))
    y, y_val = rng.integers(0, 2, 9), rng.integers(0, 2, 4)
    exact = exact_shapley(knn_worth(X, y, X_val, y_val, k), 9).values
    np.testing.assert_allclose(knn_shapley(X, y, X_val, y_val, k), exact, atol=1e-14)
    one_each = exact_shapley(knn_utility(X, y, X_val, y_val, np.arange(9), k)).values
    np.testing.assert_allclose(one_each, exact, atol=1e-14)


def test_knn_shapley_of_sparse_far_and_many_rows(monkeypatch):
    """Distances don't depend on the origin, so neither do values; the rows lie on a grid that 1e8 leaves exact."""
    rng = np.random.default_rng(0)
    X, X_val = (rng.integers(-512, 512, (n, 6)) / 64 * (rng.random((n, 6)) < 0.5) for n in (60, 40))
    y, y_val = rng.integers(0, 3, 60), rng.integers(0, 3, 40)
    values = knn_shapley(X, y, X_val, y_val, 5)
    for kind in (csr_array, coo_matrix):
        np.testing.assert_array_equal(knn_shapley(kind(X), y, kind(X_val), y_val, 5), values)
    np.testing.assert_allclose(knn_shapley(X + 1e8, y, X_val + 1e8, y_val, 5), values, rtol=0, atol=1e-12)
    monkeypatch.setattr("classic_ml.valuation.knn.CELLS_AT_A_TIME", 7 * 60)
    np.testing.assert_allclose(knn_shapley(X, y, X_val, y_val, 5), values, rtol=0, atol=1e-12)
    game = knn_utility(csr_array(X + 0.0), y, csr_array(X_val), y_val, np.arange(60), 5)
    assert game(np.arange(60)) == pytest.approx(values.sum())
    with pytest.raises(ValueError, match=r"device = 'gpu'"):
        knn_shapley(X, y, X_val, y_val, device="gpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_knn_values_on_a_gpu():
    rng = np.random.default_rng(0)
    X, X_val = rng.standard_normal((300, 4)), rng.standard_normal((50, 4))
    y, y_val = rng.integers(0, 2, 300), rng.integers(0, 2, 50)
    for value in (knn_shapley, two_d_knn):
        options = {"n_permutations": 3, "random_state": 0} if value is two_d_knn else {}
        here, there = (value(X, y, X_val, y_val, device=device, **options) for device in ("cpu", "cuda"))
        np.testing.assert_allclose(there, here, rtol=0, atol=1e-12)


def test_knn_game_of_owners():
    rng = np.random.default_rng(0)
    X, X_val = rng.standard_normal((12, 2)), rng.standard_normal((3, 2))
    y, y_val, groups = rng.integers(0, 2, 12), rng.integers(0, 2, 3), np.repeat([0, 1, 2], [2, 4, 6])
    game = knn_utility(X, y, X_val, y_val, groups, 3)
    worth = knn_worth(X, y, X_val, y_val, 3)
    for players in ([], [1], [0, 2], [0, 1, 2]):
        assert game(players) == pytest.approx(worth(np.flatnonzero(np.isin(groups, players))))


def test_two_d_knn_against_its_definition():
    rng = np.random.default_rng(0)
    X, X_val = rng.standard_normal((15, 3)), rng.standard_normal((5, 3))
    y, y_val = rng.integers(0, 2, 15), rng.integers(0, 2, 5)
    values = two_d_knn(X, y, X_val, y_val, 2, n_permutations=7, random_state=3)
    total, count = np.zeros((15, 3)), np.zeros(3)
    order = np.random.default_rng(3)
    for _ in range(7):
        pi = order.permutation(3)
        for t in (1, 2):
            with_j, without = (knn_shapley(X[:, s], y, X_val[:, s], y_val, 2) for s in (pi[: t + 1], pi[:t]))
            total[:, pi[t]] += with_j - without
            count[pi[t]] += 1
    np.testing.assert_allclose(values, total / count, atol=1e-12)
    with pytest.raises(ValueError, match="two features"):
        two_d_knn(X[:, :1], y, X_val[:, :1], y_val)
    with pytest.raises(ValueError, match="n_neighbors = 0"):
        knn_shapley(X, y, X_val, y_val, 0)
    with pytest.raises(ValueError, match="X has 3 features, X_val 2"):
        knn_shapley(X, y, X_val[:, :2], y_val)


def test_detection_plot_names_its_figures():
    mask = np.array([[True, False], [False, False]])
    ax = plot_detection({"right": ~mask * 1.0, "wrong": mask * 1.0}, mask).axes[0]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["right (1.000)", "wrong (0.250)"]
