"""Stochastic approximation (Robbins and Monro 1951; Snijders 2002), the estimator of the program PNet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from interp.recall.ergm_estimate import Estimate
from interp.recall.ergm_mcmc import CONVERGED, finish, nothing_to_estimate, start
from interp.recall.ergm_sampling import Sampler
from interp.recall.ergm_statistics import Network, Specification

SUBPHASES = 5
FIRST_GAIN = 0.1
SWEEPS_PER_STEP = 20  # the statistics are averaged over these, one draw a sweep
MAX_STEP = 2.0
MAX_ROUNDS = 4


def fit(
    networks: Sequence[Network], spec: Specification, *, n_samples: int = 1000, seed: int = 0
) -> Estimate:
    """Walk `theta -= gain D^-1 (z - z_obs)` in five subphases of halved gain and growing length, each ending in the
    average of its second half; then draw `n_samples` statistics for the t-ratios and standard errors. Where a
    t-ratio is not below 0.1, walk again from there, four rounds at most.

    D is the statistics' covariance, drawn anew for every subphase: far from the solution, where a walk starts,
    it may be quite another, and its diagonal alone would leave the narrow direction of correlated statistics to
    chance.
    """
    theta, free = start(networks, spec)
    if not free.any():
        return nothing_to_estimate(theta)
    walker = Sampler(networks, spec, seed=seed, thinning_sweeps=1, burn_in_sweeps=0)
    sampler = Sampler(networks, spec, seed=seed + 1, thinning_sweeps=8)
    for _ in range(MAX_ROUNDS):
        for subphase in range(SUBPHASES):
            theta[free] = _subphase(theta, free, walker, subphase)
        last = sampler.statistics(theta, n_samples)
        t = np.abs(last.mean(0) - sampler.z_obs) / np.maximum(last.std(0), 1e-12)
        if settled := bool(t[free].max() < CONVERGED):
            break
    return finish(theta, free, last, sampler, settled, spec)


def _subphase(theta: ndarray, free: ndarray, walker: Sampler, subphase: int) -> Float[ndarray, " free"]:
    p = int(free.sum())
    theta, z_obs, gain = theta.copy(), walker.z_obs[free], FIRST_GAIN / 2**subphase
    spread = np.cov(walker.statistics(theta, 500)[:, free].T).reshape(p, p)
    scaling = np.linalg.inv(spread + 1e-3 * np.diag(np.diag(spread)) + 1e-6 * np.eye(p))
    visited = []
    for _ in range(int((7 + p) * 2 ** (4 * subphase / 3)) + 40):
        z = walker.statistics(theta, SWEEPS_PER_STEP)[:, free].mean(0)
        theta[free] -= gain * np.clip(scaling @ (z - z_obs), -MAX_STEP, MAX_STEP)
        visited.append(theta[free].copy())
    return np.mean(visited[len(visited) // 2 :], axis=0)
