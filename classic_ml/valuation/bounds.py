"""How far DU-Shapley can be from the Shapley value: Theorem 2 of Garrido-Lucero et al. 2024, arXiv 2306.02071."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from classic_ml.valuation.closed_forms import checked_sizes
from classic_ml.valuation.du_shapley import checked_probabilities
from classic_ml.valuation.utility import FloatArray
from interp.core.messages import one_of


def du_shapley_bias_bound(
    sizes: npt.ArrayLike, kappa: float, form: Literal["lemma", "theorem"] = "lemma"
) -> FloatArray:
    """Bound [I] on |Shapley value - DU-Shapley| for u(S) = w(size of S), w increasing and twice differentiable.

    With mu, s^2 the mean and the (population) variance of the others' sizes, R their largest distance from mu and
    tau their largest over their smallest:

        lemma:    kappa / ((I-1) mu^2) (9 s^2 (1 + ln(I-1)) + 2 R^2 tau^2 / n_max)
        theorem:  kappa / ((I-1) mu^2) (  s^2 (1 + ln(I-1)) +   R^2 tau^2 / (4 n_max))

    The lemma's constants come from the proof and hold with kappa = sup n^2 |w''(n)|; the theorem's kappa is "some
    constant".  The bound is absolute, and values shrink like 1/I: the relative error need not vanish.  It is
    infinite where another owner has no points.

    Raises:
        ValueError: kappa < 0, bad sizes, an unknown form.
    """
    one_of("form", form, ("lemma", "theorem"))
    constants = (9.0, 2.0) if form == "lemma" else (1.0, 0.25)
    return _bound(checked_sizes(sizes), kappa, *constants)


def du_shapley_binned_bias_bound(
    counts: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    kappa: float,
    form: Literal["lemma", "theorem"] = "lemma",
) -> FloatArray:
    """Bound [I] for `du_shapley_binned`: the bins' bounds, weighted by their probabilities.

    The theorem's form takes its second term twice in each bin, as the paper's corollary for bins does.
    """
    one_of("form", form, ("lemma", "theorem"))
    table = np.asarray(counts, np.float64)
    p = checked_probabilities(table, probabilities)
    constants = (9.0, 2.0) if form == "lemma" else (1.0, 0.5)
    parts = [
        p[b] * _bound(checked_sizes(table[:, b], "counts"), kappa, *constants) for b in np.flatnonzero(p)
    ]
    return np.sum(parts, 0)


def _bound(n: FloatArray, kappa: float, of_variance: float, of_range: float) -> FloatArray:
    if not (kappa >= 0 and math.isfinite(kappa)):
        raise ValueError(f"kappa = {kappa} must be a number >= 0: the supremum of n^2 |w''(n)|")
    return np.array([_bound_one(np.delete(n, i), kappa, of_variance, of_range) for i in range(len(n))])


def _bound_one(others: FloatArray, kappa: float, of_variance: float, of_range: float) -> float:
    if len(others) == 0 or np.ptp(others) == 0:
        return 0.0  # equal others: DU-Shapley is exact
    if others.min() == 0:
        return math.inf
    mu, largest = others.mean(), others.max()
    spread = others.var() * (1 + math.log(len(others)))
    far = np.abs(others - mu).max() ** 2 * (largest / others.min()) ** 2 / largest
    return float(kappa / (len(others) * mu**2) * (of_variance * spread + of_range * far))
