"""Maximum likelihood from simulated graphs.

Geyer and Thompson 1992: the ratio of two likelihoods is an average over graphs drawn at one of them. Hummel, Hunter
and Handcock 2012: while the observed statistics lie outside the sample's hull, aim at the furthest point on the way
to them that lies inside.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from interp.recall import ergm_pseudo
from interp.recall.ergm_estimate import Estimate
from interp.recall.ergm_newton import TOO_LARGE, newton, recession
from interp.recall.ergm_sampling import Sampler, diagnose, effective_size
from interp.recall.ergm_statistics import Network, Specification, State

INFINITE = 30.0  # stands in for a coefficient at infinity while the others are estimated
CONVERGED = 0.1
BIMODAL = 0.75
MAX_THINNING_SWEEPS = 16

logger = logging.getLogger(__name__)


def fit(
    networks: Sequence[Network],
    spec: Specification,
    *,
    n_samples: int = 1000,
    max_iterations: int = 30,
    seed: int = 0,
) -> Estimate:
    """Iterated importance sampling until every t-ratio is below 0.1: from the pseudo-likelihood estimate, and where
    that leads nowhere once more from independent edges.

    Where the observed statistics are on the rim of what is attainable (no triangle, a complete graph) coefficients are
    at infinity: NaN. Those of statistics at the end of their range are held there, and the others estimated on the
    graphs that this leaves possible.
    """
    theta, free = start(networks, spec)
    if not free.any():
        return nothing_to_estimate(theta)
    independent = np.where(free, 0.0, theta)
    if "edges" in spec.statistics and free[spec.statistics.index("edges")]:
        density = np.concatenate([network.observed for network in networks]).mean()
        independent[spec.statistics.index("edges")] = np.log(density / (1 - density))
    sampler = Sampler(networks, spec, seed=seed)
    for begin in (theta, independent):
        theta, z, settled = _iterate(begin, independent, free, sampler, n_samples, max_iterations)
        if settled:
            break
        sampler.restart()
    return finish(theta, free, z, sampler, settled, spec)


def _iterate(
    theta: ndarray, retreat: ndarray, free: ndarray, sampler: Sampler, n_samples: int, max_iterations: int
) -> tuple[ndarray, ndarray, bool]:
    """The last coefficients, the sample that led to them, and whether it was at the solution already."""
    z = np.empty((0, len(theta)))
    for _ in range(max_iterations):
        z = sampler.statistics(theta, n_samples)
        if (z[:, free].std(0) < 1e-9).any():  # frozen in one graph: nothing to learn from it
            theta = (theta + retreat) / 2
            sampler.restart()
            continue
        t = np.abs(z.mean(0) - sampler.z_obs) / np.maximum(z.std(0), 1e-12)
        if min(effective_size(column) for column in z[:, free].T) < n_samples / 4:
            sampler.thinning_sweeps = min(2 * sampler.thinning_sweeps, MAX_THINNING_SWEEPS)
        theta = theta.copy()
        theta[free] = _step(theta[free], z[:, free], sampler.z_obs[free])
        if t[free].max() < CONVERGED:
            return theta, z, True
        if np.abs(theta[free]).max() > TOO_LARGE:
            break
    return theta, z, False


def start(
    networks: Sequence[Network], spec: Specification
) -> tuple[Float[ndarray, " p"], Bool[ndarray, " p"]]:
    """Where to begin, and which coefficients are to be estimated: those whose statistic can still go both ways.

    All six statistics grow with every edge, so the empty and the full state of the free dyads bound them.
    """
    low, high, seen = (
        np.sum([State(network, spec).z for network in which], axis=0)
        for which in ([n.with_free(0) for n in networks], [n.with_free(1) for n in networks], networks)
    )
    at_low, at_high = seen < low + 1e-9, seen > high - 1e-9
    free = ~(at_low | at_high)
    theta = ergm_pseudo.fit(networks, spec, ridge=1e-2, errors="naive").coef
    theta = np.clip(np.nan_to_num(theta), -5, 5)
    return np.where(free, theta, np.where(at_high, INFINITE, -INFINITE)), free


def nothing_to_estimate(theta: ndarray) -> Estimate:
    """An empty or a complete graph."""
    p = len(theta)
    return Estimate.of(theta, np.eye(p), np.zeros(p, bool), converged=False, errors="none")


def finish(
    theta: ndarray,
    free: ndarray,
    z: ndarray,
    sampler: Sampler,
    settled: bool,
    spec: Specification,
) -> Estimate:
    """Standard errors and diagnostics from the last sample."""
    cov = np.zeros((len(theta), len(theta)))
    spread = np.cov(z[:, free].T).reshape(int(free.sum()), -1)
    cov[np.ix_(free, free)] = np.linalg.pinv(spread, hermitian=True)
    edges = spec.statistics.index("edges") if "edges" in spec.statistics else 0
    found = diagnose(z, sampler.z_obs, cov, sampler.acceptance, sampler.calls, edges)
    cov = cov + np.diag(found.mc_errors**2)
    estimable = free & (np.abs(theta) < TOO_LARGE)
    # Where no draw lies beyond the observed statistics in some direction, the likelihood grows without end in it.
    estimable[free] &= ~recession(sampler.z_obs[free] - z[:, free])[0]
    if not settled:
        logger.warning(
            "the fit has not converged: t-ratios %s after %d samples; a model without triangles or two_stars "
            "(use alt_triangles), more samples, or method='exact' for few dyads may help",
            np.round(found.t_ratios[free], 2).tolist(),
            sampler.calls,
        )
    elif settled and found.bimodality > BIMODAL:
        logger.warning(
            "the fitted model is close to degenerate: its graphs fall into two clumps (bimodality %.2f)",
            found.bimodality,
        )
    return Estimate.of(theta, cov, estimable, converged=settled, errors="Fisher + MC", diagnostics=found)


def _step(theta: Float[ndarray, " p"], z: Float[ndarray, "M p"], z_obs: Float[ndarray, " p"]) -> ndarray:
    """The coefficients whose expected statistics, by reweighting the sample, are as near to z_obs as it carries."""
    centre, scale = z.mean(0), np.maximum(z.std(0), 1e-9)
    x = (z - centre) / scale
    target = (z_obs - centre) / scale
    gamma = 1.0
    while gamma > 1e-3 and not _inside(1.05 * gamma * target, x):
        gamma /= 2
    m = len(z)
    while True:
        aim = gamma * target

        def objective(u: ndarray, aim: ndarray = aim) -> tuple[float, ndarray, ndarray]:
            logits = x @ u
            top = logits.max()
            weights = np.exp(logits - top)
            log_mean = top + np.log(weights.mean())
            weights /= weights.sum()
            mean = weights @ x
            centred = x - mean
            return aim @ u - log_mean, aim - mean, centred.T @ (weights[:, None] * centred)

        u = newton(objective, np.zeros(len(theta)), tolerance=1e-8)
        logits = x @ u
        weights = np.exp(logits - logits.max())
        if weights.sum() ** 2 / (weights**2).sum() > m / 10 or gamma < 1e-3:
            return theta + u / scale
        gamma /= 2


def _inside(point: Float[ndarray, " p"], cloud: Float[ndarray, "M p"]) -> bool:
    """Whether a point is in the convex hull of the cloud: a linear program for its weights."""
    from scipy.optimize import linprog

    corners = np.unique(cloud, axis=0)
    equations = np.vstack([corners.T, np.ones(len(corners))])
    found = linprog(
        np.zeros(len(corners)), A_eq=equations, b_eq=np.append(point, 1.0), bounds=(0, None), method="highs"
    )
    return bool(found.status == 0)
