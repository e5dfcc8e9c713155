"""An estimated potential is unbiased, its standard errors hold, and it is exact where nothing is left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from classic_ml.selection import (
    PoolKernel,
    RDSSSelector,
    alpha_mmd2,
    estimate_potential,
    gaussian_kernel,
    median_bandwidth,
)


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    """900 rows around ten centres in 16 dimensions, one of them far away."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((900, 16)) + 1.5 * rng.standard_normal((10, 16))[rng.integers(10, size=900)]
    rows[17] += 500
    return rows


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_errors_are_as_large_as_they_say_and_without_bias(X: np.ndarray, share: float) -> None:
    sigma = share * median_bandwidth(X)
    kernel = PoolKernel.from_rows(X, sigma=sigma, device="cpu")
    mu = kernel.potential().numpy()
    draws = [estimate_potential(kernel, 90, random_state=s) for s in range(40)]
    errors = np.stack([draw.values - mu for draw in draws])
    claimed = np.sqrt(np.mean([draw.standard_errors**2 for draw in draws], axis=0))
    rms = np.sqrt(np.mean(errors**2, axis=0))
    live = claimed > 1e-9  # the far row's value is its diagonal
    assert live.sum() >= 899
    assert np.median(rms[live] / claimed[live]) == pytest.approx(1, abs=0.15)
    assert np.abs(errors.mean(0)[live] / (claimed[live] / 40**0.5)).max() < 5
    worst = [draw.largest_error(0.95) for draw in draws]
    assert np.mean(np.abs(errors).max(1) <= worst) >= 0.9


def test_the_polynomial_takes_most_of_the_variance(X: np.ndarray) -> None:
    kernel = PoolKernel.from_rows(X, sigma=median_bandwidth(X), device="cpu")
    plain = PoolKernel(kernel.n, kernel.tile)  # the same values without the rows behind them
    ours, other = (estimate_potential(k, 90, random_state=0).standard_errors.mean() for k in (kernel, plain))
    assert ours < other / 10


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "precomputed", "function"])
def test_with_all_columns_nothing_is_estimated(X: np.ndarray, kernel: str) -> None:
    K = gaussian_kernel(X, sigma=5.0) if kernel != "laplacian" else np.exp(-cdist(X, X) / 5)
    pool = (
        PoolKernel.from_matrix(K)
        if kernel == "precomputed"
        else PoolKernel.from_rows(
            X,
            sigma=5.0,
            kernel=kernel if kernel != "function" else lambda A, B: gaussian_kernel(A, B, sigma=5.0),
            device="cpu",
        )
    )
    found = estimate_potential(pool, 5000, random_state=0)
    np.testing.assert_allclose(found.values, K.mean(1), rtol=1e-10)
    assert found.standard_errors.max() == 0
    assert found.n_columns == 900


def test_the_selector_picks_as_well_with_it(X: np.ndarray) -> None:
    exact = RDSSSelector(30, device="cpu").fit(X)
    estimated = RDSSSelector(30, potential_columns=300, device="cpu", random_state=0).fit(X)
    again = RDSSSelector(30, potential_columns=300, device="cpu", random_state=0).fit(X)
    assert exact.mu_errors_ is None
    assert estimated.indices_.tolist() == again.indices_.tolist()
    off = np.abs(estimated.mu_ - exact.mu_).max()
    assert 0 < off < 8 * estimated.mu_errors_.max()
    kernel = PoolKernel.from_rows(X, sigma=exact.sigma_, device="cpu")
    alpha = exact.alpha_
    right = alpha_mmd2(kernel, estimated.indices_, alpha=alpha, potential=exact.mu_)
    assert abs(estimated.alpha_mmd2_ - right) <= alpha * (2 + alpha) * off
    assert right == pytest.approx(exact.alpha_mmd2_, rel=0.1)
    for parameters, message in (
        ({"potential_columns": 1}, "potential_columns = 1 must be at least 2"),
        ({"potential_columns": 30, "potential_file": "mu"}, "give one of them"),
    ):
        with pytest.raises(ValueError, match=message):
            RDSSSelector(5, **parameters).fit(X)
    with pytest.raises(ValueError, match="probability = 1"):
        estimate_potential(PoolKernel.from_matrix(np.eye(3)), 2, random_state=0).largest_error(1)
