"""The selector: what it stores, warns of and refuses, and the paper's effect on two data sets."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import check_estimator

from classic_ml.selection import PoolKernel, RDSSSelector, gaussian_kernel, mmd2, select_random
from classic_ml.selection.rdss import PAPERS_REGIME


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((200, 5))


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    return load_digits().data / 16


def test_digits_bandwidth_and_first_picks(digits: np.ndarray) -> None:
    fitted = RDSSSelector(40, device="cpu").fit(digits)
    K = gaussian_kernel(digits, sigma=3.06823)
    assert fitted.sigma_ == pytest.approx(3.06823, abs=5e-6)
    assert fitted.alpha_ == pytest.approx(1 - 40**-0.5)
    assert fitted.indices_[0] == K.mean(1).argmax()
    greedy_second = (K[fitted.indices_[0]] - fitted.alpha_ * 2 * K.mean(1)).argsort()
    assert fitted.indices_[1] != greedy_second[greedy_second != fitted.indices_[0]][0]
    assert fitted.mmd2_ == pytest.approx(mmd2(K, fitted.indices_), rel=1e-4)


def test_what_fit_stores(X: np.ndarray) -> None:
    fitted = RDSSSelector(10, alpha=0.6, sigma=2.0, device="cpu").fit(X)
    K = gaussian_kernel(X, sigma=2.0)
    np.testing.assert_allclose(fitted.mu_, K.mean(1))
    assert (fitted.alpha_, fitted.sigma_, fitted.n_features_in_) == (0.6, 2.0, 5)
    assert fitted.path_.shape == (10,)
    assert fitted.path_[-1] == fitted.alpha_mmd2_
    assert fitted.mean_kernel_ == pytest.approx(K.mean())
    expected = np.quantile(K[~np.eye(200, dtype=bool)], (0.05, 0.5, 0.95))
    np.testing.assert_allclose(fitted.kernel_quantiles_, expected)


def test_kinds_of_input_give_one_answer(X: np.ndarray) -> None:
    picks = RDSSSelector(10, sigma=2.0).fit_select(X).tolist()
    assert RDSSSelector(10, sigma=2.0).fit_select(torch.from_numpy(X)).tolist() == picks
    assert RDSSSelector(10, sigma=2.0, block_size=17).fit_select(X).tolist() == picks
    K = gaussian_kernel(X, sigma=2.0)
    assert RDSSSelector(10, kernel="precomputed").fit_select(K).tolist() == picks
    assert RDSSSelector(10).fit_select(torch.from_numpy(X).bfloat16()).shape == (10,)


def test_standardize_is_what_it_says(X: np.ndarray) -> None:
    stretched = X * np.array([1, 10, 100, 0.1, 1]) + 3
    z = (stretched - stretched.mean(0)) / stretched.std(0)
    scaled = RDSSSelector(12, standardize="zscore").fit(stretched)
    assert scaled.indices_.tolist() == RDSSSelector(12).fit_select(z).tolist()
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert (
        RDSSSelector(12, standardize="l2").fit_select(X).tolist()
        == RDSSSelector(12).fit_select(rows).tolist()
    )


def test_select_takes_whatever_stands_beside_the_pool(X: np.ndarray) -> None:
    import pandas as pd

    fitted = RDSSSelector(7).fit(X)
    texts = [f"prompt {i}" for i in range(200)]
    assert fitted.select(texts) == [f"prompt {i}" for i in fitted.indices_]
    np.testing.assert_array_equal(fitted.select(X), X[fitted.indices_])
    assert fitted.select(torch.arange(200)).tolist() == fitted.indices_.tolist()
    assert fitted.select(pd.DataFrame(X)).index.tolist() == fitted.indices_.tolist()
    with pytest.raises(ValueError, match="length 3"):
        fitted.select([1, 2, 3])


def test_long_pools_judge_the_median_by_a_seeded_sample(X: np.ndarray) -> None:
    first, again, other = (
        RDSSSelector(5, median_subsample=50, random_state=seed).fit(X).sigma_ for seed in (0, 0, 1)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_samples": 200}, "n_samples = 200 must lie in 1..199"),
        ({"n_samples": 0}, "n_samples = 0"),
        ({"n_samples": 5.0}, "n_samples = 5.0 must be a whole number"),
        ({"alpha": "Auto"}, "alpha = 'Auto'"),
        ({"alpha": -0.1}, "alpha = -0.1"),
        ({"sigma": 0.0}, "sigma = 0.0"),
        ({"sigma": "mean"}, "sigma = 'mean'"),
        ({"sigma": [1.0]}, r"sigma = \[1.0\]"),
        ({"sigma": 1e-160}, "sigma so far below"),
        ({"kernel": lambda X, Y: np.full((len(X), len(Y)), np.nan)}, "not finite"),
        ({"alpha": None}, "alpha = None"),
        ({"potential_file": "."}, "is a folder"),
        ({"kernel": "gausian"}, "did you mean 'gaussian'"),
        ({"standardize": "minmax"}, "standardize = 'minmax'"),
        ({"kernel": "precomputed"}, "square"),
        ({"kernel": "precomputed", "standardize": "l2"}, "kernel matrix"),
        ({"block_size": 0}, "block_size = 0"),
    ],
)
def test_bad_parameters_are_named(X: np.ndarray, parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RDSSSelector(**({"n_samples": 5} | parameters)).fit(X)


def test_bad_rows_are_refused(X: np.ndarray) -> None:
    broken = X.copy()
    broken[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        RDSSSelector(5).fit(broken)
    with pytest.raises(ValueError, match="2D"):
        RDSSSelector(5).fit(X[0])


def test_outside_the_papers_regime_it_says_so(X: np.ndarray) -> None:
    with pytest.warns(UserWarning, match="45% of the pool"):
        RDSSSelector(90).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RDSSSelector(int(PAPERS_REGIME * 200)).fit(X)


def test_a_degenerate_kernel_and_duplicates_are_reported(X: np.ndarray) -> None:
    with pytest.warns(UserWarning, match="close to the identity") as said:
        RDSSSelector(5, sigma=1e-9).fit(X)
    assert len(said) == 1
    for sigma, rows in ((1e9, X), (1e3, X.astype(np.float32))):
        with pytest.warns(UserWarning, match="close to a constant"):
            RDSSSelector(5, sigma=sigma).fit(rows)
    with pytest.warns(UserWarning, match="3 of 203 rows are duplicates"):
        RDSSSelector(5).fit(np.vstack([X, X[:3]]))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learn_accepts_it() -> None:
    check_estimator(RDSSSelector(3))


def test_gaussian_mixture_is_covered_evenly() -> None:
    rng = np.random.default_rng(0)
    means, stds = rng.uniform(-12, 12, (10, 2)), rng.uniform(0.5, 2, 10)
    component = rng.integers(10, size=5000)
    X = means[component] + stds[component, None] * rng.standard_normal((5000, 2))
    fitted = RDSSSelector(100, alpha=0.9, sigma=2**0.5, device="cpu").fit(X)
    counts = np.bincount(component[fitted.indices_], minlength=10)
    assert counts.min() >= 7
    assert counts.max() <= 13
    kernel = PoolKernel.from_rows(X, sigma=2**0.5, device="cpu")
    draws = [mmd2(kernel, select_random(X, 100, random_state=s), potential=fitted.mu_) for s in range(5)]
    assert fitted.mmd2_ < np.mean(draws) / 5
