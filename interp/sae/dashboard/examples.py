"""From rows kept in the pass to examples: windows of tokens with their activations, and companions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp.activations.store import ActivationStore
from interp.activations.store_stream import RowFilter
from interp.sae.dashboard.contexts import windows
from interp.sae.dashboard.features import Companion, Example

if TYPE_CHECKING:
    from interp.sae.dictionary import Dictionary

_ENCODE_ROWS = 4096


class CodeLookup:
    """Activations of the latents at some rows of a store; rows that `trained` leaves out are not encoded."""

    def __init__(
        self,
        sae: Dictionary,
        store: ActivationStore,
        site: str,
        rows: Int[np.ndarray, " q"],
        trained: RowFilter,
    ) -> None:
        columns = store.columns(torch.from_numpy(rows))
        rows = rows[trained.split(columns.token_ids.numpy(), columns.positions.numpy())[0]]
        kept, indptr, indices, values = [], [np.zeros(1, np.int64)], [], []
        device = sae.W_dec.device
        for part in np.array_split(rows, max(1, -(-len(rows) // _ENCODE_ROWS))):
            x = store.read(site, torch.from_numpy(part), torch.float32)
            inside = trained.within_norm(x)
            kept.append(part[inside.numpy()])
            x = x[inside].to(device)
            with torch.no_grad():
                codes = sae.encode_sparse(x.to(sae.W_dec.dtype))
            indptr.append(codes.indptr.cpu().numpy()[1:] + indptr[-1][-1])
            indices.append(codes.indices.cpu().numpy())
            values.append(codes.values.float().cpu().numpy())
        self.rows = np.concatenate(kept)
        self.indptr = np.concatenate(indptr)
        self.indices = np.concatenate(indices)
        # (row, latent) as one sorted number, so that any activation is found by bisection.
        self._width = sae.cfg.d_sae
        keys = np.repeat(np.arange(len(self.rows)), np.diff(self.indptr)) * self._width + self.indices
        order = np.argsort(keys)
        self._keys, self._sorted_values = keys[order], np.concatenate(values)[order]

    def activations(
        self, latents: Int[np.ndarray, " e"], rows: Int[np.ndarray, "e w"], inside: Bool[np.ndarray, "e w"]
    ) -> Float[np.ndarray, "e w"]:
        """The activation of `latents[e]` at each of `rows[e]`; 0 where the row isn't inside."""
        if len(self._keys) == 0:
            return np.zeros(rows.shape, np.float32)
        number = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        wanted = number * self._width + latents[:, None]
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        fires = inside & (self.rows[number] == rows) & (self._keys[place] == wanted)
        return np.where(fires, self._sorted_values[place], 0.0).astype(np.float32)

    def firing_at(self, rows: Int[np.ndarray, " q"]) -> Int[np.ndarray, " m"]:
        """All latents that fire at these rows, one entry a firing."""
        numbers = np.searchsorted(self.rows, rows)
        return np.concatenate(
            [self.indices[self.indptr[n] : self.indptr[n + 1]] for n in numbers] or [np.zeros(0, np.int64)]
        )


def examples_at(
    lookup: CodeLookup,
    store: ActivationStore,
    latents: Int[np.ndarray, " e"],
    rows: Int[np.ndarray, " e"],
    before: int,
    after: int,
) -> list[Example]:
    """An example for each (latent, row)."""
    around, inside, tokens = windows(store, rows, before, after)
    values = lookup.activations(latents, around, inside)
    columns = store.columns(torch.from_numpy(rows))
    examples = []
    for e in range(len(rows)):
        shown = inside[e]
        examples.append(
            Example(
                context=int(columns.context_ids[e]),
                document=int(columns.doc_ids[e]),
                position=int(columns.positions[e]),
                peak=int(shown[:before].sum()),
                token_ids=tokens[e][shown].tolist(),
                values=[float(v) for v in values[e][shown]],
            )
        )
    return examples


def companions(
    lookup: CodeLookup,
    latent: int,
    sample_rows: Int[np.ndarray, " q"],
    density: Float[np.ndarray, " F"],
    keep: int,
) -> list[Companion]:
    """The latents that fire in a random sample of another's firings more often than they usually do.

    Ordered by share * log2(lift): how often together, weighed by how surprising that is.
    """
    counts = np.bincount(lookup.firing_at(sample_rows), minlength=len(density))
    counts[latent] = 0
    others = np.flatnonzero((counts >= 2) & (density > 0))
    share = counts[others] / max(len(sample_rows), 1)
    lift = share / density[others]
    weight = share * np.log2(lift)
    order = np.argsort(-weight, kind="stable")[:keep]
    return [Companion(int(others[j]), float(share[j]), float(lift[j])) for j in order if weight[j] > 0]
