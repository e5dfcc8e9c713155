"""Walking a store context by context: blocks of whole contexts, and windows around rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.activations.store import ActivationStore


@dataclass(frozen=True)
class Block:
    """Some whole contexts: the store's row numbers and what is known of each row."""

    rows: Int[np.ndarray, " m"]
    token_ids: Int[np.ndarray, " m"]
    positions: Int[np.ndarray, " m"]
    context_ids: Int[np.ndarray, " m"]

    def read(
        self, store: ActivationStore, site: str, which: Bool[np.ndarray, " m"] | None = None
    ) -> Float[Tensor, "q d"]:
        """Activations of the block's rows, or of those where `which` is true, in float32."""
        rows = self.rows if which is None else self.rows[which]
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            return store.read(site, slice(int(rows[0]), int(rows[-1]) + 1), torch.float32)
        return store.read(site, torch.from_numpy(rows), torch.float32)


def blocks(store: ActivationStore, *, max_rows: int | None, block_rows: int) -> Iterator[Block]:
    """The store's contexts, in order, in blocks of about `block_rows` rows.

    With `max_rows` below the size of the store, contexts evenly spaced over it are visited.
    """
    share = 1.0 if max_rows is None else min(1.0, max_rows / store.n_tokens)
    for shard in store.manifest.shards:
        columns = store.columns(slice(shard.first_row, shard.first_row + shard.n_rows))
        tokens, positions, _, contexts = (column.numpy() for column in columns)
        starts = np.flatnonzero(np.diff(contexts, prepend=-1))
        numbers = contexts[starts].astype(np.float64)
        chosen = np.floor((numbers + 1) * share) > np.floor(numbers * share)
        lengths = np.diff(starts, append=len(contexts))
        taken = np.flatnonzero(np.repeat(chosen, lengths))
        ends = np.cumsum(lengths[chosen])
        done = 0
        while done < len(taken):
            last = min(int(np.searchsorted(ends, done + block_rows)), len(ends) - 1)
            part = taken[done : ends[last]]
            yield Block(part + shard.first_row, tokens[part], positions[part], contexts[part])
            done = int(ends[last])


def windows(
    store: ActivationStore, rows: Int[np.ndarray, " q"], before: int, after: int
) -> tuple[Int[np.ndarray, "q w"], Bool[np.ndarray, "q w"], Int[np.ndarray, "q w"]]:
    """For each row the rows around it, w = before + 1 + after.

    Returns:
        row numbers; whether each lies in the same context; token ids (anything where it doesn't).
    """
    around = rows[:, None] + np.arange(-before, after + 1)
    inside = (around >= 0) & (around < store.n_tokens)
    around = np.where(inside, around, rows[:, None])
    # Windows overlap a lot: every row is looked up once.
    unique, place = np.unique(around, return_inverse=True)
    columns = store.columns(torch.from_numpy(unique))
    contexts = columns.context_ids.numpy()[place].reshape(around.shape)
    tokens = columns.token_ids.numpy()[place].reshape(around.shape)
    return around, inside & (contexts == contexts[:, [before]]), tokens
