"""Kernels and herding: closed forms, an independent implementation, the identities and bounds of the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist, squareform

from classic_ml.selection import (
    PoolKernel,
    alpha_mmd2,
    gaussian_kernel,
    kernel_herding,
    median_bandwidth,
    mmd2,
)
from classic_ml.selection.herding import default_alpha


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((150, 4))


def naive_herding(K: np.ndarray, m: int, alpha: float, *, multiplier: int = 0) -> list[int]:
    """The sum form: argmin_i sum_{j picked} K_ij - alpha p mu_i over what is left, p points being picked already."""
    mu, picks = K.mean(1), [int(K.mean(1).argmax())]
    while len(picks) < m:
        p = len(picks) + multiplier
        scores = [math.inf if i in picks else K[i, picks].sum() - alpha * p * mu[i] for i in range(len(K))]
        picks.append(int(np.argmin(scores)))
    return picks


def test_gaussian_has_sigma_squared_without_a_two(X: np.ndarray) -> None:
    K = gaussian_kernel(X, sigma=1.7)
    np.testing.assert_allclose(K, np.exp(-squareform(pdist(X, "sqeuclidean")) / 1.7**2), atol=1e-14)
    assert gaussian_kernel(X, X[:3], sigma=1.7).shape == (150, 3)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
@pytest.mark.parametrize("block_size", [7, 64, 4096])
def test_tiles_of_any_size_give_the_dense_potential(X: np.ndarray, kernel: str, block_size: int) -> None:
    distances = squareform(pdist(X))
    dense = np.exp(-((distances / 1.3) ** 2)) if kernel == "gaussian" else np.exp(-distances / 1.3)
    pool = PoolKernel.from_rows(X, sigma=1.3, kernel=kernel, block_size=block_size, device="cpu")
    np.testing.assert_allclose(pool.potential().numpy(), dense.mean(1), rtol=1e-12)
    np.testing.assert_allclose(pool.row(11).numpy(), dense[11], rtol=1e-10)
    rows = np.array([3, 90, 4])
    np.testing.assert_allclose(pool.block(rows).numpy(), dense[np.ix_(rows, rows)], rtol=1e-10)


def test_float32_far_from_the_origin_keeps_its_digits(X: np.ndarray) -> None:
    far = (X + 1000).astype(np.float32)
    exact = gaussian_kernel(far.astype(np.float64), sigma=1.3).mean(1)
    mu = PoolKernel.from_rows(far, sigma=1.3, device="cpu").potential().numpy()
    np.testing.assert_allclose(mu, exact, rtol=2e-6)


def test_median_bandwidth_is_over_different_rows(X: np.ndarray) -> None:
    assert median_bandwidth(X) == pytest.approx(np.median(pdist(X)), rel=1e-12)
    sampled = median_bandwidth(X, max_points=60, random_state=3)
    assert sampled == median_bandwidth(X, max_points=60, random_state=3)
    assert sampled == pytest.approx(np.median(pdist(X)), rel=0.1)
    assert sampled != median_bandwidth(X, max_points=60, random_state=4)


def test_median_of_duplicates_teaches() -> None:
    X = np.full((20, 3), 0.1)
    X[0] = 5
    with pytest.raises(ValueError, match="pass sigma or deduplicate"):
        median_bandwidth(X)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9, 1.0])
def test_picks_are_those_of_the_sum_form(X: np.ndarray, alpha: float) -> None:
    K = gaussian_kernel(X, sigma=2.0)
    assert kernel_herding(K, 30, alpha=alpha).indices.tolist() == naive_herding(K, 30, alpha)


def test_the_multiplier_is_the_number_picked_so_far_not_greedy(X: np.ndarray) -> None:
    K = gaussian_kernel(X, sigma=2.0)
    assert kernel_herding(K, 30, alpha=0.9).indices.tolist() != naive_herding(K, 30, 0.9, multiplier=1)


def test_first_pick_is_the_densest_row_at_every_alpha(X: np.ndarray) -> None:
    K = gaussian_kernel(X, sigma=2.0)
    assert {int(kernel_herding(K, 1, alpha=a).indices[0]) for a in (0.0, 0.5, 1.0)} == {
        int(K.mean(1).argmax())
    }


def test_ties_go_to_the_smallest_index() -> None:
    assert kernel_herding(np.eye(6), 4, alpha=1.0).indices.tolist() == [0, 1, 2, 3]


def test_picks_are_nested_at_a_fixed_alpha(X: np.ndarray) -> None:
    K = gaussian_kernel(X, sigma=2.0)
    long = kernel_herding(K, 40, alpha=0.8).indices
    assert kernel_herding(K, 15, alpha=0.8).indices.tolist() == long[:15].tolist()


def test_leaving_the_diagonal_out_of_the_potential_changes_no_pick(X: np.ndarray) -> None:
    K = gaussian_kernel(X, sigma=2.0)
    herd = kernel_herding(K, 25, alpha=0.8)
    without = kernel_herding(K, 25, alpha=0.8, potential=(K.sum(1) - 1) / len(K))
    assert without.indices.tolist() == herd.indices.tolist()


def test_replacement_allows_a_row_twice(X: np.ndarray) -> None:
    K = gaussian_kernel(X[:12, :1], sigma=2.0)
    twice = kernel_herding(K, 12, alpha=1.0, replacement=True).indices
    assert len(set(twice.tolist())) < 12
    assert len(set(kernel_herding(K, 11, alpha=1.0).indices.tolist())) == 11


def test_path_and_summaries_are_the_definitions(X: np.ndarray) -> None:
    K = gaussian_kernel(X, sigma=2.0)
    herd = kernel_herding(K, 20, alpha=0.7)
    for p in (1, 2, 11, 20):
        chosen = herd.indices[:p]
        by_hand = 0.49 * K.mean() + K[np.ix_(chosen, chosen)].mean() - 1.4 * K.mean(1)[chosen].mean()
        assert herd.path[p - 1] == pytest.approx(by_hand, abs=1e-14)
        assert alpha_mmd2(K, chosen, alpha=0.7) == pytest.approx(by_hand, abs=1e-14)
    assert herd.mmd2 == pytest.approx(mmd2(K, herd.indices), abs=1e-14)
    assert herd.mean_similarity == pytest.approx(K[np.ix_(herd.indices, herd.indices)].mean())


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_identities_and_bounds_of_the_criterion(X: np.ndarray, alpha: float) -> None:
    K = gaussian_kernel(X, sigma=2.0)
    mean = K.mean()
    everything = alpha_mmd2(K, np.arange(150), alpha=alpha)
    assert everything == pytest.approx((1 - alpha) ** 2 * mean, abs=1e-14)
    for seed in range(5):
        chosen = np.random.default_rng(seed).choice(150, 9, replace=False)
        value, plain = alpha_mmd2(K, chosen, alpha=alpha), mmd2(K, chosen)
        similarity = K[np.ix_(chosen, chosen)].mean()
        penalised = alpha * plain + (1 - alpha) * similarity + alpha * (alpha - 1) * mean
        assert value == pytest.approx(penalised, abs=1e-14)
        assert 0 <= value <= 1 + alpha**2
        assert abs(math.sqrt(value) - math.sqrt(plain)) <= 1 - alpha + 1e-12
    for m in (1, 5, 30):
        bound = (1 - alpha) ** 2 * mean + 2 * (2 + math.log(m)) / (m + 1)
        assert kernel_herding(K, m, alpha=alpha).alpha_mmd2 <= bound


def test_default_alpha() -> None:
    assert [default_alpha(m) for m in (1, 4, 100)] == [0.0, 0.5, 0.9]


def test_a_function_and_a_matrix_are_kernels_too(X: np.ndarray) -> None:
    by_rows = PoolKernel.from_rows(X, sigma=2.0, device="cpu")
    by_function = PoolKernel.from_rows(X, kernel=lambda A, B: gaussian_kernel(A, B, sigma=2.0), block_size=40)
    picks = kernel_herding(by_rows, 25, alpha=0.8).indices.tolist()
    assert kernel_herding(by_function, 25, alpha=0.8).indices.tolist() == picks
    assert kernel_herding(gaussian_kernel(X, sigma=2.0), 25, alpha=0.8).indices.tolist() == picks
    with pytest.raises(ValueError, match="must return shape"):
        PoolKernel.from_rows(X, kernel=lambda A, B: np.ones(3)).potential()


@pytest.mark.parametrize(
    ("K", "message"),
    [
        (np.ones((3, 4)), "square"),
        (np.array([[1.0, 0.5], [0.4, 1.0]]), "symmetric"),
        (np.array([[1.0, 0.5], [0.5, -1.0]]), "negative diagonal"),
    ],
)
def test_what_is_no_kernel_matrix_is_refused(K: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel_herding(K, 1, alpha=0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_samples": 0}, "n_samples = 0"),
        ({"n_samples": 5}, "n_samples = 5"),
        ({"n_samples": 6, "replacement": True}, "n_samples = 6"),
        ({"alpha": 1.1}, "alpha = 1.1"),
        ({"alpha": math.nan}, "alpha = nan"),
        ({"potential": np.ones(4)}, "potential must have shape"),
    ],
)
def test_bad_arguments_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel_herding(np.eye(5), **({"n_samples": 2, "alpha": 0.5} | arguments))


def test_indices_outside_the_pool_are_refused() -> None:
    for indices in ([5], [-1], [], [0.5], [[1]]):
        with pytest.raises(ValueError, match="between 0 and 4"):
            mmd2(np.eye(5), indices)


@pytest.mark.parametrize("sigma", [0, -1.0, math.inf, None, "wide"])
def test_bandwidths_that_are_none_are_refused(X: np.ndarray, sigma: object) -> None:
    with pytest.raises(ValueError, match="must be a positive number"):
        PoolKernel.from_rows(X, sigma=sigma)


def test_precision_follows_the_rows_and_sums_are_double(X: np.ndarray) -> None:
    single = PoolKernel.from_rows(X.astype(np.float32), sigma=2.0, device="cpu")
    assert single.tile(slice(0, 2), slice(0, 2)).dtype == torch.float32
    assert single.potential().dtype == single.row(0).dtype == torch.float64
