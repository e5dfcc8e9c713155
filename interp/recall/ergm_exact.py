"""Exact maximum likelihood by enumerating every graph: small graphs only, and the yardstick of the other estimators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from interp.recall.ergm_estimate import Estimate
from interp.recall.ergm_newton import newton, recession
from interp.recall.ergm_statistics import Network, Specification, State

MAX_FREE_DYADS = 15


def support(network: Network, spec: Specification) -> tuple[Float[ndarray, "k p"], Float[ndarray, " k"]]:
    """The distinct values of the statistics over all states of the free dyads, and the log of how many have each.

    Raises:
        ValueError: more than 15 free dyads (2**15 graphs).
    """
    from interp.recall import ergm_loops

    m = len(network.free)
    if m > MAX_FREE_DYADS:
        raise ValueError(
            f"method = 'exact' enumerates every graph: at most {MAX_FREE_DYADS} free dyads (6 nodes), got {m}; "
            "use method='mcmcmle' or 'mple'"
        )
    state = State(network, spec)
    out = np.empty((2**m, len(spec.statistics)))
    ergm_loops.enumerate_all(*state.arrays, state.free, state.z, out)
    values, counts = np.unique(out.round(9), axis=0, return_counts=True)
    return values, np.log(counts)


def moments(
    values: Float[ndarray, "k p"], log_counts: Float[ndarray, " k"], theta: Float[ndarray, " p"]
) -> tuple[float, Float[ndarray, " p"], Float[ndarray, "p p"]]:
    """log kappa(theta), mean and covariance of the statistics."""
    logits = values @ theta + log_counts
    top = logits.max()
    weights = np.exp(logits - top)
    total = weights.sum()
    weights /= total
    mean = weights @ values
    centred = values - mean
    return float(top + np.log(total)), mean, centred.T @ (weights[:, None] * centred)


def log_likelihood(networks: Sequence[Network], spec: Specification, theta: ndarray) -> float:
    """log P(Y = y) summed over the networks, conditional on their fixed dyads."""
    total = 0.0
    for network in networks:
        z = State(network, spec).z
        total += float(z @ theta) - moments(*support(network, spec), theta)[0]
    return total


def fit(networks: Sequence[Network], spec: Specification) -> Estimate:
    """The maximum of the summed likelihood; coefficients at infinity are NaN.

    Where some are, the others are those of the limiting model, which lives on the graphs that the infinite ones
    leave possible.
    """
    observed = [State(network, spec).z for network in networks]
    supports = [support(network, spec) for network in networks]
    unbounded, direction = recession(
        np.concatenate([z - s for z, (s, _) in zip(observed, supports, strict=True)])
    )
    kept = []
    for z, (values, log_counts) in zip(observed, supports, strict=True):
        possible = (z - values) @ direction < 1e-9
        kept.append((values[possible], log_counts[possible]))
    z_obs = np.sum(observed, axis=0)

    def objective(theta: ndarray) -> tuple[float, ndarray, ndarray]:
        parts = [moments(*s, theta) for s in kept]
        gradient = z_obs - np.sum([mean for _, mean, _ in parts], axis=0)
        return z_obs @ theta - sum(p[0] for p in parts), gradient, np.sum([p[2] for p in parts], axis=0)

    theta = newton(objective, np.zeros(len(z_obs)))
    _, gradient, information = objective(theta)
    cov = np.linalg.pinv(information, hermitian=True)
    return Estimate.of(theta, cov, ~unbounded, converged=bool(np.abs(gradient).max() < 1e-6), errors="Fisher")
