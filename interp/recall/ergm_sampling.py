"""Drawing graphs from an exponential random graph model by toggling single dyads (Metropolis)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from interp.core.device import derive_seed
from interp.recall.ergm_estimate import Diagnostics
from interp.recall.ergm_statistics import Network, Specification, State

BURN_IN_SWEEPS, THINNING_SWEEPS = 200, 2  # a sweep is as many toggles as there are free dyads


class Sampler:
    """One chain a network, starting from the observed graphs and continuing where the last call ended.

    The networks are independent given the coefficients, so the sums of their statistics follow a model of the
    same form: a sample of sums fits one coefficient vector to all of them.

    Args:
        burn_in_sweeps: before the first draw of every call.

    Attributes:
        thinning_sweeps: between two draws; may be changed from call to call.
        z_obs: summed statistics of the observed graphs.
        acceptance: share of toggles accepted in the last call.
        calls: samples drawn so far.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        spec: Specification,
        *,
        seed: int,
        thinning_sweeps: int = THINNING_SWEEPS,
        burn_in_sweeps: int = BURN_IN_SWEEPS,
    ) -> None:
        self._networks, self._spec = networks, spec
        self._seed, self.calls, self._burn_in = seed, 0, burn_in_sweeps
        self.thinning_sweeps = thinning_sweeps
        self.restart()
        self.z_obs: Float[ndarray, " p"] = np.sum([state.z for state in self._states], axis=0)
        self.acceptance = float("nan")

    def restart(self) -> None:
        """Put every chain back to its observed graph."""
        self._states = [State(network, self._spec) for network in self._networks]

    def statistics(self, theta: Float[ndarray, " p"], n_samples: int) -> Float[ndarray, "M p"]:
        """Draws of the summed statistics."""
        return self._run(theta, n_samples, keep=False)[0]

    def graphs(self, theta: Float[ndarray, " p"], n_samples: int) -> list[ndarray]:
        """Draws of the free dyads, [M m] for each network."""
        return self._run(theta, n_samples, keep=True)[1]

    def _run(self, theta: ndarray, n_samples: int, *, keep: bool) -> tuple[ndarray, list[ndarray]]:
        from interp.recall import ergm_loops

        total = np.zeros((n_samples, len(theta)))
        kept, accepted, proposed = [], 0, 0
        for index, state in enumerate(self._states):
            m = len(state.free)
            out = np.empty((n_samples, len(theta)))
            edges = np.empty((n_samples if keep else 0, m), np.int64)
            seed = derive_seed(self._seed, self.calls, index) % 2**32
            lengths = (self._burn_in * m, self.thinning_sweeps * m)
            accepted += ergm_loops.sample(
                *state.arrays, state.free, np.asarray(theta, float), state.z, seed, *lengths, out, edges
            )
            proposed += lengths[0] + n_samples * lengths[1]
            total += out
            kept.append(edges)
        self.calls += 1
        self.acceptance = accepted / proposed
        return total, kept


def effective_size(series: Float[ndarray, " M"]) -> float:
    """How many independent draws have the same variance of the mean: Geyer's initial positive sequence."""
    centred = series - series.mean()
    n = len(series)
    spectrum = np.fft.rfft(centred, 2 * n)
    autocovariance = np.fft.irfft(spectrum * spectrum.conj())[:n]
    if autocovariance[0] <= 1e-12 * n:
        return float(n)
    rho = autocovariance / autocovariance[0]
    pairs = rho[: n // 2 * 2].reshape(-1, 2).sum(1)
    stop = np.argmax(pairs <= 0) if (pairs <= 0).any() else len(pairs)
    return float(n / max(2 * pairs[:stop].sum() - 1, 1e-3))


def bimodality(series: Float[ndarray, " M"]) -> float:
    """Sarle's coefficient (skewness^2 + 1) / kurtosis."""
    sd = series.std()
    if sd < 1e-12:
        return 1.0
    x = (series - series.mean()) / sd
    return float((np.mean(x**3) ** 2 + 1) / np.mean(x**4))


def diagnose(
    z: Float[ndarray, "M p"], z_obs: ndarray, cov: ndarray, acceptance: float, iterations: int, first: int
) -> Diagnostics:
    """See `Diagnostics`; `cov` is that of the estimate and `first` the statistic whose shape is looked at."""
    sizes = np.array([effective_size(column) for column in z.T])
    spread = np.cov(z.T).reshape(len(z_obs), -1)
    mean_error = spread / np.sqrt(np.outer(sizes, sizes))
    mc = np.sqrt(np.maximum(np.diag(cov @ mean_error @ cov), 0))
    sd = np.maximum(z.std(0), 1e-12)
    t = np.abs(z.mean(0) - z_obs) / sd
    return Diagnostics(t, sizes, mc, acceptance, bimodality(z[:, first]), iterations)
