"""Distances, bandwidths, kernels and selections are the same wherever a pool lies, in any unit, precision and order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, pdist

from classic_ml.selection import (
    PoolKernel,
    RDSSSelector,
    activeft,
    gaussian_kernel,
    kernel_herding,
    median_bandwidth,
    select_activeft,
    select_herding,
    select_kcenter,
    select_kmeans,
    select_usl,
)
from classic_ml.selection.baselines import nearest_untaken
from classic_ml.selection.comparison import learner_accuracy
from classic_ml.selection.distances import PoolRows, squared_distances, standardized
from classic_ml.selection.kmeans import kmeans

CPU = torch.device("cpu")


def select_rdss(X: np.ndarray, m: int, *, random_state: int = 0) -> np.ndarray:
    return RDSSSelector(m, device="cpu").fit_select(X)


SELECTORS = [select_rdss, select_kmeans, select_kcenter, select_herding, select_usl, select_activeft]


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """ActiveFT's properties hold after any number of steps."""
    monkeypatch.setattr(activeft, "STEPS", 20)


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    """Values that stay what they are in float32 and when 2^20 is added."""
    values = np.random.default_rng(0).standard_normal((240, 5)) * np.array([1, 2, 1, 0.5, 3])
    return np.round(values * 256) / 256 + np.arange(5) / 4


@pytest.mark.parametrize("select", [s for s in SELECTORS if s is not select_activeft])
def test_a_selection_is_the_same_wherever_the_pool_lies(select, X: np.ndarray) -> None:
    expected = select(X, 20, random_state=3).tolist()
    assert select(X + 2.0**40, 20, random_state=3).tolist() == expected
    assert select((X + 2.0**13).astype(np.float32), 20, random_state=3).tolist() == expected


@pytest.mark.parametrize("select", SELECTORS)
@pytest.mark.parametrize("change", [-1e-160, 1e160, "float32"])
def test_a_selection_is_the_same_in_any_unit_and_precision(select, X: np.ndarray, change) -> None:
    changed = X.astype(np.float32) if change == "float32" else X * change
    assert select(changed, 20, random_state=3).tolist() == select(X, 20, random_state=3).tolist()


@pytest.mark.parametrize("select", [select_rdss, select_herding])
def test_what_draws_nothing_follows_the_rows_in_any_order(select, X: np.ndarray) -> None:
    order = np.random.default_rng(1).permutation(len(X))
    assert order[select(X[order], 20)].tolist() == select(X, 20).tolist()


@pytest.mark.parametrize("select", SELECTORS)
@pytest.mark.filterwarnings("ignore:.*duplicates", "ignore:.*of the pool")
def test_duplicates_are_picked_once_each(select, X: np.ndarray) -> None:
    six_of_each = np.repeat(X[:5], 6, axis=0)
    for m in (12,) if select is select_activeft else (4, 5, 12, 29):
        picks = select(six_of_each, m, random_state=0)
        assert len(set(picks.tolist())) == m
    if select in (select_kmeans, select_kcenter, select_usl):
        assert sorted(select(six_of_each, 5, random_state=0) // 6) == list(range(5))


@pytest.mark.parametrize("select", SELECTORS[1:])
def test_one_convention_for_random_states(select, X: np.ndarray) -> None:
    first, again = (select(X, 9, random_state=np.random.default_rng(5)).tolist() for _ in range(2))
    assert first == again == select(X, 9, random_state=5).tolist()
    old, same = (select(X, 9, random_state=np.random.RandomState(5)).tolist() for _ in range(2))
    assert old == same
    with pytest.raises(TypeError, match="random_state = 'x'"):
        select(np.repeat(X, 30, axis=0), 9, random_state="x")


def test_squared_distances_keep_their_digits() -> None:
    rng = np.random.default_rng(0)
    A = np.vstack([rng.standard_normal((40, 7)) + c for c in (0, 1e6, -1e9)])
    A[5] = A[4]
    ours = squared_distances(torch.from_numpy(A), torch.from_numpy(A)).numpy()
    np.testing.assert_allclose(ours, cdist(A, A, "sqeuclidean"), rtol=1e-10)
    assert ours[4, 5] == 0
    assert (ours.diagonal() == 0).all()


def test_the_median_of_an_even_number_of_pairs_is_the_mean_of_the_middle_two() -> None:
    assert median_bandwidth([[0.0], [1.0], [2.0], [10.0]]) == 5.0  # of 1, 1, 2, 8, 9, 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_median_is_right_beside_one_enormous_row_and_in_any_unit(X: np.ndarray, dtype) -> None:
    wild = X.astype(dtype)
    wild[7] = 1e8
    assert median_bandwidth(wild) == pytest.approx(np.median(pdist(wild.astype(float))), rel=1e-12)
    exact = np.median(pdist(X))
    assert median_bandwidth(X * 1e-200) == pytest.approx(exact * 1e-200, rel=1e-12)
    assert median_bandwidth(X * 1e200) == pytest.approx(exact * 1e200, rel=1e-12)
    assert median_bandwidth(X + 2.0**40) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_far_clusters_have_exact_kernels_in_float32(kernel: str) -> None:
    """Two clusters 1000 bandwidths apart and a row at 1e8: products of float32 rows would leave nothing of them."""
    rng = np.random.default_rng(0)
    pool = np.vstack([rng.standard_normal((60, 8)), rng.standard_normal((50, 8)) + 1000, [np.full(8, 1e8)]])
    pool = pool.astype(np.float32)
    apart = cdist(pool.astype(float), pool.astype(float)) / 2.5
    exact = np.exp(-(apart**2) if kernel == "gaussian" else -apart)
    ours = PoolKernel.from_rows(pool, sigma=2.5, kernel=kernel, block_size=32, device="cpu")
    np.testing.assert_allclose(ours.block(np.arange(111)).numpy(), exact, atol=4e-6)
    np.testing.assert_allclose(ours.potential().numpy(), exact.mean(1), rtol=1e-5)


def test_the_kernel_of_two_matrices_is_exact_far_from_the_origin(X: np.ndarray) -> None:
    exact = np.exp(-cdist(X, X[:9], "sqeuclidean") / 4)
    np.testing.assert_allclose(gaussian_kernel(X + 2.0**40, X[:9] + 2.0**40, sigma=2), exact, rtol=1e-10)
    np.testing.assert_allclose(gaussian_kernel(X * 1e-200, X[:9] * 1e-200, sigma=2e-200), exact, rtol=1e-10)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_a_kernel_matrix_may_be_asymmetric_by_rounding_at_any_scale(X: np.ndarray, scale: float) -> None:
    K = gaussian_kernel(X, sigma=2.0)
    rough = scale * K
    rough[0, 1] *= 1 + 1e-15
    assert (
        kernel_herding(rough, 20, alpha=0.7).indices.tolist()
        == kernel_herding(K, 20, alpha=0.7).indices.tolist()
    )
    rough[0, 1] += 1e-6 * scale
    with pytest.raises(ValueError, match="must be symmetric"):
        kernel_herding(rough, 20, alpha=0.7)


def test_kmeans_picks_are_the_nearest_by_brute_force() -> None:
    rows = (np.random.default_rng(1).standard_normal((2000, 16)) + 1000).astype(np.float32)
    pool = PoolRows(rows, CPU)
    centres = kmeans(pool, 20, np.random.default_rng(0)).centres
    picks = select_kmeans(rows, 20, random_state=0)
    at = centres.numpy() * pool.unit + 4 * pool.centre  # in the coordinates of the rows
    assert picks.tolist() == cdist(at, rows.astype(np.float64)).argmin(1).tolist()
    assert nearest_untaken(torch.zeros(3, 2, dtype=torch.float64), torch.ones(3, 2).double()).tolist() == [
        0,
        1,
        2,
    ]


def test_kmeans_is_a_fixed_point_as_good_as_scikit_learns() -> None:
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_digits

    rows = load_digits().data / 16
    ours, theirs = [], []
    for seed in range(4):
        pool = PoolRows(rows, CPU)
        found = kmeans(pool, 20, np.random.default_rng(seed))
        Z, centres = pool.exact(slice(None)).numpy(), found.centres.numpy()
        assert (cdist(Z, centres).argmin(1) == found.labels.numpy()).all()
        means = np.stack([Z[found.labels.numpy() == c].mean(0) for c in range(20)])
        assert np.square(means - centres).sum() <= 1e-4 * Z.var(0).mean()
        ours.append(np.square(Z - centres[found.labels]).sum() * pool.unit**2)
        theirs.append(KMeans(20, n_init=1, random_state=seed).fit(rows).inertia_)
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.04)  # one start varies by 0.01


def test_kmeans_finds_tight_clusters_that_are_far_apart() -> None:
    """Six clusters of width 1e-3, three of them within 0.1 of each other, the rest a million away."""
    rng = np.random.default_rng(2)
    places = np.array([[0, 0], [0.1, 0], [0, 0.1], [1e6, 0], [1e6, 0.1], [0, 1e6]])
    label = np.repeat(np.arange(6), 40)
    rows = places[label] + 1e-3 * rng.standard_normal((240, 2))
    for select in (select_kmeans, select_usl):
        hits = [sorted(label[select(rows, 6, random_state=s)]) for s in range(3)]
        assert list(range(6)) in hits  # a start may miss one
    assert median_bandwidth(rows) == pytest.approx(np.median(pdist(rows)), rel=1e-10)


def test_standardizing_is_exact_for_constants_offsets_and_any_unit(X: np.ndarray) -> None:
    table = np.column_stack(
        [X[:, 0], X[:, 1] + 2.0**40, X[:, 2] * 1e200, X[:, 3] * 1e-200, np.full(240, 0.1)]
    )
    z = (X[:, :4] - X[:, :4].mean(0)) / X[:, :4].std(0)
    ours = standardized(table, "zscore")
    np.testing.assert_allclose(ours[:, :4], z, atol=1e-11)
    assert (ours[:, 4] == 0).all()
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    for scale in (1e-200, 1.0, 1e200):
        np.testing.assert_allclose(standardized(X * scale, "l2"), unit, rtol=1e-12)
    assert (standardized(np.zeros((2, 3)), "l2") == 0).all()


@pytest.mark.parametrize("learner", ["label_spreading", "self_training", "logistic"])
def test_learners_see_the_same_pool_wherever_it_lies(X: np.ndarray, learner: str) -> None:
    y = (X[:, 0] + X[:, 1] > 1).astype(int)
    picks = select_kcenter(X, 30, random_state=0)
    near = learner_accuracy(X, y, picks, learner=learner)
    assert learner_accuracy(X + 2.0**40, y, picks, learner=learner) == near > 0.6
