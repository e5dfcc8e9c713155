"""Linear models that grow by a block of columns, from inner products alone, and the tests between nested ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from classic_ml.selection.lagged import LaggedGram
from interp.core.messages import one_of

TESTS = ("lr", "f")
RANK_TOLERANCE = 1e-9  # of a unit column's squared length left over: below it the column adds nothing
PERFECT = 1e-12  # residual sums of squares below this share of the total are taken as this share


@dataclass(frozen=True)
class NestedTest:
    statistic: float
    df: int
    p_value: float


def nested_test(
    ssr_small: float, rank_small: int, ssr_large: float, rank_large: int, n: int, *, kind: str = "lr"
) -> NestedTest:
    """Does the larger of two nested least-squares models on the same n rows fit better than chance?

    "lr": n ln(SSR_small / SSR_large), chi-squared with rank_large - rank_small degrees of freedom. "f": the usual
    ratio. Ranks count the intercept. Where the larger model adds no rank, or both fit perfectly, p = 1; where only the
    larger one does, p = 0. Raises ValueError for a sum of squares below 0, and for an F test without rows to spare.
    """
    from scipy.special import chdtrc, fdtrc

    one_of("test", kind, TESTS)
    df, left = rank_large - rank_small, n - rank_large
    if not (ssr_small >= 0 and ssr_large >= 0):
        raise ValueError(
            f"ssr_small = {ssr_small} and ssr_large = {ssr_large} are sums of squares, so at least 0"
        )
    if df <= 0:
        return NestedTest(0.0, 0, 1.0)
    if kind == "f" and left <= 0:
        raise ValueError(f"the F test needs more rows than parameters, got n = {n}, rank {rank_large}")
    if ssr_large == 0:
        return NestedTest(math.inf, df, 0.0) if ssr_small > 0 else NestedTest(0.0, df, 1.0)
    if kind == "lr":
        statistic = n * math.log(max(ssr_small, ssr_large) / ssr_large)
        return NestedTest(statistic, df, float(chdtrc(df, statistic)))
    statistic = max(ssr_small - ssr_large, 0.0) / df / (ssr_large / left)
    return NestedTest(float(statistic), df, float(fdtrc(df, left, statistic)))


class Model:
    """Least squares of the target on the windows of some series, as a Cholesky factor that can be extended.

    With G the inner products of the kept columns, G = R'R; `append` adds a series' columns to R without touching
    what is there. Columns that depend on earlier ones are left out, so copies and constants do no harm.
    """

    def __init__(self, gram: LaggedGram) -> None:
        """The model of the trend alone."""
        self.gram = gram
        self.series: list[int] = []
        self.kept = np.empty(0, dtype=int)  # positions among the columns of `series`
        self.R = np.empty((0, 0))
        self.v = np.empty(0)  # R'^-1 times the products with the target

    @classmethod
    def of(cls, gram: LaggedGram, series: list[int]) -> Model:
        return cls(gram).append(series) if series else cls(gram)

    @property
    def rank(self) -> int:
        """Trend included."""
        return len(self.v) + self.gram.trend.shape[1]

    @property
    def ssr(self) -> float:
        total = self.gram.total
        return max(total - float(self.v @ self.v), PERFECT * total)

    def append(self, series: list[int]) -> Model:
        """This model with further series, a new object."""
        gram = self.gram
        new = Model(gram)
        new.series = self.series + series
        old = gram.between(self.series, series)[self.kept]
        V = _solved(self.R, old, transposed=True)
        C = gram.between(series, series) - V.T @ V
        factor, pivots = pivoted_cholesky(C)
        c = gram.target_products(series) - V.T @ self.v
        w = _solved(factor, c[pivots], transposed=True)
        new.kept = np.r_[self.kept, len(self.series) * gram.n_lags + pivots]
        new.R = np.block([[self.R, V[:, pivots]], [np.zeros((len(pivots), len(self.R))), factor]])
        new.v = np.r_[self.v, w]
        return new

    def project(self, others: Float[np.ndarray, "k c"]) -> np.ndarray:
        """R'^-1 applied to products of this model's columns with `others`; rows are all columns of `series`."""
        return _solved(self.R, others[self.kept], transposed=True)

    def residual_products(self) -> Float[np.ndarray, "D L"]:
        """Products of every unit column with this model's residuals."""
        gram = self.gram
        products = gram.with_target.copy()
        if len(self.kept):
            full = np.zeros(len(self.series) * gram.n_lags)
            full[self.kept] = _solved(self.R, self.v)
            for j, weights in zip(self.series, full.reshape(-1, gram.n_lags), strict=True):
                products -= gram.cross(j) @ weights
        return products

    def residuals(self) -> Float[np.ndarray, " n"]:
        columns = np.concatenate([self.gram.windows(j) for j in self.series], axis=1)[:, self.kept]
        return self.gram.y - columns @ _solved(self.R, self.v)

    def fit(self) -> Fit:
        return Fit(self.ssr, self.rank)


def pivoted_cholesky(C: Float[np.ndarray, "c c"]) -> tuple[np.ndarray, np.ndarray]:
    """Upper R and the columns kept, so that R'R = C there and what is left out is below RANK_TOLERANCE."""
    from scipy.linalg.lapack import dpstrf

    if C.diagonal().max() <= RANK_TOLERANCE:  # dpstrf never holds the first pivot against its tolerance
        return np.empty((0, 0)), np.empty(0, dtype=int)
    R, pivots, rank, _ = dpstrf(C, tol=RANK_TOLERANCE)
    return np.triu(R[:rank, :rank]), pivots[:rank] - 1


def _solved(R: Float[np.ndarray, "c c"], b: np.ndarray, *, transposed: bool = False) -> np.ndarray:
    """R^-1 b or R'^-1 b. LAPACK without scipy's checks: the blocks are small and many."""
    from scipy.linalg.lapack import dtrtrs

    return dtrtrs(R, b, trans=int(transposed))[0].reshape(b.shape) if b.size else b


@dataclass(frozen=True)
class Fit:
    """What a test needs of a model."""

    ssr: float
    rank: int


@dataclass
class Blocks:
    """Inner products left over once a base model is projected out: of a series j, of many k, and between them."""

    base: Fit
    floor: float
    """No residual sum of squares is taken as smaller."""
    jj: Float[np.ndarray, "L L"]
    kk: Float[np.ndarray, "K L L"]
    kj: Float[np.ndarray, "K L L"]
    j_target: Float[np.ndarray, " L"]
    k_target: Float[np.ndarray, "K L"]

    @classmethod
    def given(cls, model: Model, j: int, others: list[int]) -> Blocks:
        """What remains of j and `others` after regression on `model` (Frisch-Waugh), all in one solve."""
        gram, L = model.gram, model.gram.n_lags
        columns = [j, *others]
        of_model = [gram.cross(z)[columns].transpose(2, 0, 1).reshape(L, -1) for z in model.series]
        V = model.project(np.concatenate(of_model)).reshape(-1, len(columns), L)
        left = gram.with_target[columns] - np.einsum("rkl,r->kl", V, model.v)
        Vk = V[:, 1:].transpose(1, 0, 2)
        return cls(
            Fit(model.ssr, model.rank),
            PERFECT * gram.total,
            gram.diagonal[j] - V[:, 0].T @ V[:, 0],
            gram.diagonal[others] - Vk.transpose(0, 2, 1) @ Vk,
            gram.cross(j)[others] - Vk.transpose(0, 2, 1) @ V[:, 0],
            left[0],
            left[1:],
        )

    @classmethod
    def on_residuals(cls, model: Model, j: int, others: list[int]) -> Blocks:
        """For regressions of `model`'s residuals on whole windows, which are not cleared of the model."""
        gram, products = model.gram, model.residual_products()
        return cls(
            Fit(model.ssr, gram.trend.shape[1]),
            PERFECT * gram.total,
            gram.diagonal[j],
            gram.diagonal[others],
            gram.cross(j)[others],
            products[j],
            products[others],
        )

    def with_j(self) -> Fit:
        return self._grown(self.base, self.jj, self.j_target)[0]

    def pair(self, k: int) -> tuple[Fit, Fit]:
        """The models with the k-th other series and with j on top of it."""
        first, R, pivots, w = self._grown(self.base, self.kk[k], self.k_target[k])
        U = _solved(R, self.kj[k][pivots], transposed=True)
        both = self._grown(first, self.jj - U.T @ U, self.j_target - U.T @ w)[0]
        return first, both

    def _grown(
        self, fit: Fit, C: np.ndarray, c: np.ndarray
    ) -> tuple[Fit, np.ndarray, np.ndarray, np.ndarray]:
        R, pivots = pivoted_cholesky(C)
        w = _solved(R, c[pivots], transposed=True)
        return Fit(max(fit.ssr - float(w @ w), self.floor), fit.rank + len(pivots)), R, pivots, w
