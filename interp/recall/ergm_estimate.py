"""What every estimator of an exponential random graph model returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray


@dataclass(frozen=True)
class Diagnostics:
    """How the Markov chain went.

    Attributes:
        t_ratios: |mean(z) - z_obs| / sd(z) of the last sample; below 0.1 is converged.
        effective_sizes: draws that independent ones would have to be, by initial positive autocorrelations.
        mc_errors: the part of the standard errors that is due to the sample's size.
        acceptance: share of proposed toggles that were taken.
        bimodality: Sarle's coefficient of the edges' (or first statistic's) distribution: 0.33 for a normal one,
            0.56 for a uniform one, towards 1 where the mass sits in two clumps (a degenerate model).
        iterations: samples that were drawn.
    """

    t_ratios: Float[ndarray, " p"]
    effective_sizes: Float[ndarray, " p"]
    mc_errors: Float[ndarray, " p"]
    acceptance: float
    bimodality: float
    iterations: int


@dataclass(frozen=True)
class Estimate:
    """Coefficients [p] with their covariance [p p]; NaN where an estimate is at infinity (`estimable` False).

    `influence` [g p], for clustered errors: what the estimate owes to each graph.
    """

    coef: Float[ndarray, " p"]
    cov: Float[ndarray, "p p"]
    estimable: Bool[ndarray, " p"]
    converged: bool
    errors: str
    diagnostics: Diagnostics | None = None
    influence: Float[ndarray, "g p"] | None = None

    @classmethod
    def of(
        cls,
        theta: ndarray,
        cov: ndarray,
        estimable: ndarray,
        *,
        converged: bool,
        errors: str,
        diagnostics: Diagnostics | None = None,
        influence: ndarray | None = None,
    ) -> Estimate:
        both = estimable[:, None] & estimable[None, :]
        coef = np.where(estimable, theta, np.nan)
        return cls(coef, np.where(both, cov, np.nan), estimable, converged, errors, diagnostics, influence)
