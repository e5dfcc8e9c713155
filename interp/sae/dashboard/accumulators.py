"""What one pass over a store keeps per latent, in memory that does not grow with the number of tokens."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


class TopPerLatent:
    """For each of F latents the k entries with the largest keys seen so far, largest first.

    With activations as keys these are the strongest firings; with random keys a uniform sample of all of
    them.  Equal keys keep the order in which they came.
    """

    def __init__(self, d_sae: int, k: int) -> None:
        if k < 1:
            raise ValueError(f"k={k}: keep at least one entry per latent")
        self.keys = np.full((d_sae, k), -np.inf)
        self.rows = np.full((d_sae, k), -1, dtype=np.int64)
        self.values = np.zeros((d_sae, k), dtype=np.float32)

    def update(
        self,
        latents: Int[np.ndarray, " m"],
        keys: Float[np.ndarray, " m"],
        rows: Int[np.ndarray, " m"],
        values: Float[np.ndarray, " m"],
    ) -> None:
        """Offer m entries (latent, key, row of the store, activation)."""
        k = self.keys.shape[1]
        better = np.flatnonzero(keys > self.keys[latents, -1])
        if len(better) == 0:
            return
        order = better[np.lexsort((-keys[better], latents[better]))]
        ranks = rank_within_groups(latents[order])
        order, ranks = order[ranks < k], ranks[ranks < k]
        touched, place = np.unique(latents[order], return_inverse=True)

        def merged(kept: np.ndarray, offered: np.ndarray, empty: float) -> np.ndarray:
            new = np.full((len(touched), k), empty, dtype=kept.dtype)
            new[place, ranks] = offered[order]
            return np.concatenate([kept[touched], new], axis=1)

        all_keys = merged(self.keys, keys, -np.inf)
        best = np.argsort(-all_keys, axis=1, kind="stable")[:, :k]
        self.keys[touched] = np.take_along_axis(all_keys, best, 1)
        self.rows[touched] = np.take_along_axis(merged(self.rows, rows, -1), best, 1)
        self.values[touched] = np.take_along_axis(merged(self.values, values, 0.0), best, 1)

    def of(self, latent: int) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Rows and activations kept for one latent, largest key first."""
        filled = self.rows[latent] >= 0
        return self.rows[latent][filled], self.values[latent][filled]


class Histograms:
    """A histogram of the activations of each of F latents, in equal bins from 0 to a limit of its own.

    The limit doubles, and neighbouring bins merge, whenever a larger value comes: every count stays exact
    without knowing the maximum beforehand.
    """

    def __init__(self, d_sae: int, bins: int = 64) -> None:
        if bins < 2 or bins % 2:
            raise ValueError(f"bins={bins}: give an even number")
        self.counts = np.zeros((d_sae, bins), dtype=np.int64)
        self.limits = np.zeros(d_sae)

    def update(self, latents: Int[np.ndarray, " m"], values: Float[np.ndarray, " m"]) -> None:
        """Add activations; they must be positive."""
        values = np.asarray(values, dtype=np.float64)
        largest = np.zeros_like(self.limits)
        np.maximum.at(largest, latents, values)
        fresh = (self.limits == 0) & (largest > 0)
        self.limits[fresh] = np.exp2(np.ceil(np.log2(largest[fresh])))
        while len(small := np.flatnonzero(largest > self.limits)):
            pairs = self.counts[small].reshape(len(small), -1, 2).sum(2)
            self.counts[small] = np.concatenate([pairs, np.zeros_like(pairs)], axis=1)
            self.limits[small] *= 2
        n_bins = self.counts.shape[1]
        bins = np.minimum(values / self.limits[latents] * n_bins, n_bins - 1).astype(np.int64)
        np.add.at(self.counts, (latents, bins), 1)

    def of(self, latent: int) -> tuple[list[int], float]:
        """Counts up to the last occupied bin, and the width of a bin."""
        counts = np.trim_zeros(self.counts[latent], "b").tolist()
        return counts, float(self.limits[latent] / self.counts.shape[1])


def rank_within_groups(groups: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
    """0, 1, 2 ... within every run of equal entries."""
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    lengths = np.diff(np.concatenate([starts, [len(groups)]]))
    return np.arange(len(groups)) - np.repeat(starts, lengths)


def strongest_per_context(
    latents: Int[np.ndarray, " m"], contexts: Int[np.ndarray, " m"], values: Float[np.ndarray, " m"]
) -> Int[np.ndarray, " q"]:
    """Indices of the largest value of every (latent, context); the first of equals."""
    order = np.lexsort((-values, contexts, latents))
    same = (latents[order][1:] == latents[order][:-1]) & (contexts[order][1:] == contexts[order][:-1])
    return np.sort(order[np.concatenate([[True], ~same])]) if len(order) else order
