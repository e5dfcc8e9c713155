"""Maximum pseudo-likelihood: a logistic regression of every free dyad on its change statistics.

Strauss and Ikeda 1990. Exact where dyads are independent; its naive standard errors are too small where they are
not. Two honest ones: the sandwich clustered by graph, sum_g u_g u_g' with u_g = (I - I_g)^-1 s_g, what the estimate
moves by when graph g is left out (with I alone in place of I - I_g it is too small where a few dense graphs weigh
most); and for few graphs Godambe's, with the variance of the score taken over networks simulated at the estimate
(Schmid and Hunter 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from interp.recall.ergm_estimate import Estimate
from interp.recall.ergm_newton import TOO_LARGE, newton, recession
from interp.recall.ergm_sampling import Sampler
from interp.recall.ergm_statistics import Network, Specification

MIN_CLUSTERS = 10
N_SIMULATED = 200


def fit(
    networks: Sequence[Network],
    spec: Specification,
    *,
    ridge: float = 0.0,
    errors: str = "auto",
    seed: int = 0,
) -> Estimate:
    """The maximum of the summed pseudo-likelihood; separated coefficients are NaN.

    Args:
        ridge: weight of |theta|^2 / 2 over all statistics but edges.
        errors: clustered, simulated, naive, or auto: clustered from 10 graphs on, else simulated.
    """
    designs = [network.design(spec) for network in networks]
    states = [network.observed for network in networks]
    x, y = np.concatenate(designs), np.concatenate(states)
    unbounded, direction = recession((2 * y - 1)[:, None] * x)
    penalty = ridge * np.array([name != "edges" for name in spec.statistics])
    if ridge:
        unbounded, direction = np.zeros(len(penalty), bool), np.zeros(len(penalty))
    undecided = np.abs(x @ direction) < 1e-9
    rows, which = np.unique(np.column_stack([x, y])[undecided], axis=0, return_counts=True)
    theta = newton(lambda t: _objective(t, rows, which, penalty), np.zeros(x.shape[1]))
    _, gradient, information = _objective(theta, rows, which, penalty)
    estimable = ~unbounded & (np.abs(theta) < TOO_LARGE)
    inverse = np.linalg.pinv(information, hermitian=True)
    if errors == "auto":
        errors = "clustered" if len(networks) >= MIN_CLUSTERS else "simulated"
    if not estimable.any() or (errors == "simulated" and not estimable.all()):
        errors = "naive"
    influence = None
    if errors == "clustered":
        cuts = np.cumsum([len(d) for d in designs])[:-1]
        p = _sigmoid(x @ theta)
        residuals, weights = np.where(undecided, y - p, 0.0), np.where(undecided, p * (1 - p), 0.0)
        parts = zip(designs, np.split(residuals, cuts), np.split(weights, cuts), strict=True)
        influence = np.stack(
            [
                np.linalg.pinv(information - d.T @ (w[:, None] * d), hermitian=True) @ (d.T @ r)
                for d, r, w in parts
            ]
        )
        cov = influence.T @ influence
    elif errors == "simulated":
        cov = inverse @ _score_variance(networks, spec, theta, seed) @ inverse
    else:
        cov = inverse
    converged = bool(np.abs(gradient).max() < 1e-6)
    return Estimate.of(theta, cov, estimable, converged=converged, errors=errors, influence=influence)


def _sigmoid(x: ndarray) -> ndarray:
    return 0.5 * (1 + np.tanh(x / 2))


def _objective(
    theta: ndarray, rows: ndarray, counts: ndarray, penalty: ndarray
) -> tuple[float, ndarray, ndarray]:
    x, y = rows[:, :-1], rows[:, -1]
    eta = x @ theta
    p = _sigmoid(eta)
    value = counts @ (y * eta - np.logaddexp(0, eta)) - 0.5 * penalty @ theta**2
    gradient = x.T @ (counts * (y - p)) - penalty * theta
    information = x.T @ ((counts * p * (1 - p))[:, None] * x) + np.diag(penalty)
    return float(value), gradient, information


def _score_variance(
    networks: Sequence[Network], spec: Specification, theta: ndarray, seed: int
) -> Float[ndarray, "p p"]:
    """Covariance of the pseudo-score over networks drawn at theta."""
    scores = np.zeros((N_SIMULATED, len(theta)))
    for index, network in enumerate(networks):
        sampler = Sampler([network], spec, seed=seed + index)
        for draw, states in enumerate(sampler.graphs(theta, N_SIMULATED)[0]):
            x = network.with_free(states).design(spec)
            scores[draw] += x.T @ (states - _sigmoid(x @ theta))
    return np.atleast_2d(np.cov(scores.T))
