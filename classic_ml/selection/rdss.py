"""RDSS: choose which rows of a pool to label, without labels and without a model.

Shao et al. 2024, "Enhancing Semi-Supervised Learning via Representative and Diverse Sample Selection", NeurIPS.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from classic_ml.random_state import RandomState, as_seed
from classic_ml.selection.distances import (
    STANDARDIZE,
    as_matrix,
    check_sigma,
    median_bandwidth,
    standardized,
)
from classic_ml.selection.herding import check_alpha, check_budget, default_alpha, kernel_herding
from classic_ml.selection.kernels import KERNELS, KernelFunction, PoolKernel
from classic_ml.selection.potential_estimate import estimate_potential
from interp.core.device import derive_seed
from interp.core.messages import at_least, one_of

PAPERS_REGIME = 0.2  # budgets up to this share of the pool


class RDSSSelector(BaseEstimator):
    """Pick the `n_samples` rows of a pool that best trade being representative against being diverse.

    The picks minimise, by generalised kernel herding without replacement, the squared RKHS distance between their
    mean and `alpha` times the pool's mean (alpha-MMD). Rows can be anything: pixels, a network's features, cached
    activations of a language model, one embedding a prompt.

    Args:
        n_samples: the labelling budget m, below the number of rows.
        alpha: 1 is representative only (MMD), 0 diverse only; "auto" is the paper's 1 - 1/sqrt(m).
        kernel: "gaussian" exp(-|x-y|^2 / sigma^2), "laplacian" exp(-|x-y| / sigma), "precomputed" (X is the
            (n, n) kernel matrix) or a function (X, Y) -> matrix.
        sigma: bandwidth; "median" is the median distance between rows. It matters more than alpha: look at
            `kernel_quantiles_` and try a few.
        replacement: allow a row twice (GKH).
        standardize: None, "zscore" (columns) or "l2" (rows).
        block_size: kernel tiles are block_size x block_size numbers, the only memory besides one copy of X.
        median_subsample: rows that judge the median of longer pools.
        device: where kernels are computed, as torch spells it, or "auto".
        potential_columns: estimate the potential, O(n^2 d) and all but the whole cost, from this many random rows
            (`estimate_potential`; 4096 serve), O(n d (4096 + d)): for pools of hundreds of thousands of rows on a
            CPU. None computes it exactly.
        potential_file: where the exact potential is kept while and after it is computed: an interrupted fit goes on
            from there, another budget or alpha costs only its picks.
        random_state: None, an integer, a Generator or a RandomState, for the rows that judge the median and those that
            estimate the potential; nothing else is random.

    Attributes:
        indices_: (m,) rows in the order of picking. They are nested for growing m only at a fixed `alpha`.
        alpha_, sigma_: what "auto" and "median" came to (sigma_ is None for a precomputed kernel or a function).
        mu_: (n,) mean kernel value of every row with the pool.
        mu_errors_: (n,) standard errors of an estimated `mu_`; None for an exact one.
        alpha_mmd2_, mmd2_, mean_similarity_: the criterion, its alpha = 1 form, and S_k of the picks.
        path_: (m,) the criterion after every pick.
        mean_kernel_, kernel_quantiles_: Kbar, and the 5, 50 and 95 % quantiles of kernel values between different
            rows (of a sample of 512). A kernel near the identity (Kbar < 2/n) or near a constant (half of the digits
            or more are the same everywhere) selects by rounding; fit warns.
    """

    def __init__(
        self,
        n_samples: int,
        *,
        alpha: float | Literal["auto"] = "auto",
        kernel: Literal["gaussian", "laplacian", "precomputed"] | KernelFunction = "gaussian",
        sigma: float | Literal["median"] = "median",
        replacement: bool = False,
        standardize: Literal["zscore", "l2"] | None = None,
        block_size: int = 4096,
        median_subsample: int = 5000,
        device: str = "auto",
        potential_columns: int | None = None,
        potential_file: str | os.PathLike[str] | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_samples = n_samples
        self.alpha = alpha
        self.kernel = kernel
        self.sigma = sigma
        self.replacement = replacement
        self.standardize = standardize
        self.block_size = block_size
        self.median_subsample = median_subsample
        self.device = device
        self.potential_columns = potential_columns
        self.potential_file = potential_file
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RDSSSelector:
        """Select from the rows of X (n, d); `y` is ignored.

        Raises ValueError for a budget outside 1..n-1, alpha outside [0, 1], a bandwidth that is not positive, NaN,
        and kernels that are no kernel.
        """
        self._check_parameters()
        X = self._validated(X)
        check_budget(self.n_samples, len(X), allow_all=self.replacement)
        self.alpha_ = default_alpha(self.n_samples) if self.alpha == "auto" else float(self.alpha)
        seed = as_seed(self.random_state)
        kernel = self._kernel(X, derive_seed(seed, "median"))
        self.mu_errors_: Float[np.ndarray, " n"] | None = None
        mu: Any
        if self.potential_columns is None:
            mu = kernel.potential(self.potential_file)
        else:
            columns = derive_seed(seed, "columns")
            estimate = estimate_potential(kernel, self.potential_columns, random_state=columns)
            mu, self.mu_errors_ = estimate.values, estimate.standard_errors
        herd = kernel_herding(
            kernel, self.n_samples, alpha=self.alpha_, replacement=self.replacement, potential=mu
        )
        self.indices_: Int[np.ndarray, " m"] = herd.indices
        self.mu_: Float[np.ndarray, " n"] = herd.potential
        self.path_: Float[np.ndarray, " m"] = herd.path
        self.alpha_mmd2_, self.mmd2_ = herd.alpha_mmd2, herd.mmd2
        self.mean_similarity_, self.mean_kernel_ = herd.mean_similarity, herd.mean_kernel
        self.kernel_quantiles_ = _quantiles(kernel)
        self._warn(X)
        return self

    def fit_select(self, X: Any) -> Int[np.ndarray, " m"]:
        """Fit, and return the picked rows in order."""
        return self.fit(X).indices_

    def select(self, rows: Any) -> Any:
        """The picked entries of `rows`: the pool itself or whatever stands beside it, row for row (texts, labels).

        An array, tensor or frame gives its like of m rows, another sequence a list. (Not called `transform`: in
        scikit-learn that keeps the number of rows.) Raises ValueError when the length is not the pool's.
        """
        check_is_fitted(self)
        if len(rows) != len(self.mu_):
            raise ValueError(f"rows has length {len(rows)}, but the picks index a pool of {len(self.mu_)}")
        if hasattr(rows, "iloc"):
            return rows.iloc[self.indices_]
        if isinstance(rows, np.ndarray | torch.Tensor):
            return rows[self.indices_]
        return [rows[int(i)] for i in self.indices_]

    def _check_parameters(self) -> None:
        if self.alpha != "auto":
            check_alpha(self.alpha)
        if self.sigma != "median":
            check_sigma(self.sigma)
        if not callable(self.kernel):
            one_of("kernel", self.kernel, KERNELS)
        one_of("standardize", self.standardize, STANDARDIZE)
        if self.kernel == "precomputed" and self.standardize is not None:
            raise ValueError(
                "standardize works on embeddings, but kernel='precomputed' passes a kernel matrix"
            )
        if self.potential_columns is not None:
            at_least("potential_columns", self.potential_columns, 2)
            if self.potential_file is not None:
                raise ValueError(
                    f"potential_columns = {self.potential_columns} estimates the potential, and potential_file keeps "
                    "an exact one; give one of them"
                )

    def _validated(self, X: Any) -> np.ndarray:
        if isinstance(X, torch.Tensor):
            X = as_matrix(X)
        return validate_data(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)

    def _kernel(self, X: np.ndarray, seed: int) -> PoolKernel:
        self.sigma_ = None
        if self.kernel == "precomputed":
            return PoolKernel.from_matrix(X, block_size=self.block_size, device=self.device)
        X = standardized(X, self.standardize)
        if not callable(self.kernel):
            self.sigma_ = self.sigma
            if self.sigma == "median":
                self.sigma_ = median_bandwidth(
                    X, max_points=self.median_subsample, random_state=seed, device=self.device
                )
        return PoolKernel.from_rows(
            X, sigma=self.sigma_, kernel=self.kernel, block_size=self.block_size, device=self.device
        )

    def _warn(self, X: np.ndarray) -> None:
        share = self.n_samples / len(X)
        if share > PAPERS_REGIME:
            _tell(f"n_samples is {share:.0%} of the pool; the method is made for at most {PAPERS_REGIME:.0%}")
        low, _, high = self.kernel_quantiles_
        if self.mean_kernel_ < 2 / len(X):
            _tell(
                f"the kernel is close to the identity (mean {self.mean_kernel_:.2g} for {len(X)} rows), so scores "
                "tie and the picks mean little; take a larger sigma"
            )
        elif high - low <= np.sqrt(np.finfo(X.dtype).eps) * abs(high):
            _tell(
                f"the kernel is close to a constant ({low:.6g} to {high:.6g} between rows), so scores tie and the "
                "picks mean little; take a smaller sigma"
            )
        if self.kernel != "precomputed":
            duplicates = len(X) - len({hash(row.tobytes()) for row in X})
            if duplicates:
                _tell(f"{duplicates} of {len(X)} rows are duplicates; the method assumes different rows")


def _quantiles(kernel: PoolKernel, max_rows: int = 512) -> Float[np.ndarray, " 3"]:
    rows = np.unique(np.linspace(0, kernel.n - 1, min(max_rows, kernel.n)).astype(int))
    values = kernel.block(rows).cpu().numpy()
    return np.quantile(values[~np.eye(len(rows), dtype=bool)], (0.05, 0.5, 0.95))


def _tell(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)
