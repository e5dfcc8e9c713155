"""Shuffled batches from a store on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.activations.manifest import norm_name, scale_name
from interp.activations.mixing import Blocks, MixedStream, Pool
from interp.activations.row_format import STORED_DTYPES
from interp.activations.source import Provenance, RowCounts
from interp.activations.store import ActivationStore
from interp.core.device import make_generator
from interp.core.progress import progress as progress_bar
from interp.models.sites import Site

_MEDIAN_ROWS = 16_384  # rows from which the median norm is estimated
_SHARDS_WITH_A_BAR = 64  # fewer are looked through in no time


class RowFilter:
    """Which rows are served: not those at some positions, not special tokens, none above a norm."""

    def __init__(
        self, skip_positions: Sequence[int], special_token_ids: Sequence[int], max_norm: float | None = None
    ) -> None:
        self.skip_positions = np.asarray(sorted(skip_positions), dtype=np.int64)
        self.special = np.asarray(sorted(special_token_ids), dtype=np.int64)
        self.max_norm = max_norm

    def provenance(self, model: dict[str, Any], contexts: dict[str, Any]) -> Provenance:
        """Of a source of these rows."""
        return Provenance(
            model, contexts, tuple(self.skip_positions.tolist()), len(self.special) > 0, self.max_norm
        )

    def within_norm(self, values: Float[Tensor, "n d"]) -> Bool[Tensor, " n"]:
        """Mask of the rows whose norm is not above `max_norm`."""
        if self.max_norm is None:
            return torch.ones(len(values), dtype=torch.bool, device=values.device)
        return torch.linalg.vector_norm(values.float(), dim=-1) <= self.max_norm

    def split(self, tokens: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Masks (kept, dropped for their position, dropped as special)."""
        at_position = np.isin(positions, self.skip_positions)
        special = np.isin(tokens, self.special) & ~at_position
        return ~(at_position | special), at_position, special


class StoreStream(MixedStream):
    """Rows of one site of a store, every kept row once an epoch, in bounded memory.

    Args:
        store: the store.
        site: one of its sites; may be left out when there is only one.
        seed: determines, with the epoch, the order.
        buffer_tokens: most rows in memory, and so the peak: buffer_tokens * (d * bytes a number + 16) bytes.
        block_tokens: rows that are read in one go. Blocks in the buffer should number 64 or more.
        skip_positions: positions that are left out. Position 0, whatever token stands there, is the
            attention sink: its norm is a hundred times that of the others.
        skip_special: leave special tokens out.
        max_norm_multiple: leave out rows whose norm is above this many times the median (attention sinks
            that stand at another position); the bound is then `max_norm`. The norms are in the store: no
            activations are read for it.
        dtype: type of the batches; None: as stored (int8 as float32).
    """

    def __init__(
        self,
        store: ActivationStore,
        site: str | Site | None = None,
        *,
        seed: int = 0,
        buffer_tokens: int = 262_144,
        block_tokens: int = 1024,
        skip_positions: Sequence[int] = (0,),
        skip_special: bool = True,
        max_norm_multiple: float | None = None,
        dtype: torch.dtype | None = torch.float32,
    ) -> None:
        if block_tokens < 1:
            raise ValueError(f"block_tokens={block_tokens}: a block has at least one row")
        rows = RowFilter(skip_positions, store.special_token_ids if skip_special else ())
        blocks = _StoreBlocks(store, store.site_name(site), rows, block_tokens, max_norm_multiple, seed)
        super().__init__(
            blocks,
            seed=seed,
            buffer_rows=buffer_tokens,
            dtype=dtype,
            prefetch=True,
            provenance=rows.provenance(store.manifest.model, store.manifest.contexts),
        )
        self.store = store
        self.max_norm = rows.max_norm


class _StoreBlocks(Blocks):
    """Runs of `block_rows` rows of each shard."""

    def __init__(
        self,
        store: ActivationStore,
        site: str,
        rows: RowFilter,
        block_rows: int,
        max_norm_multiple: float | None,
        seed: int,
    ) -> None:
        self.store, self.site, self.d, self._filter = store, site, store.width(site), rows
        self.block_rows = block_rows
        places = []
        for index, shard in enumerate(store.manifest.shards):
            starts = np.arange(0, shard.n_rows, block_rows)
            places.append(np.stack([np.full_like(starts, index), starts], axis=1))
        self._places = np.concatenate(places)
        self._count()
        if max_norm_multiple is not None:
            self._bound_norms(max_norm_multiple, seed)

    def _count(self) -> None:
        """How many rows of each block are served, from what describes the rows: no activations are read."""
        shards, kept = self.store.manifest.shards, []
        dropped = np.zeros(3, dtype=np.int64)
        enabled = "auto" if len(shards) >= _SHARDS_WITH_A_BAR else False
        with progress_bar(shards, desc="read positions", unit="shard", enabled=enabled) as bar:  # type: ignore[arg-type]
            for shard in bar:
                keep, *why = self._masks(slice(shard.first_row, shard.first_row + shard.n_rows))
                kept.append(
                    np.add.reduceat(keep, np.arange(0, shard.n_rows, self.block_rows), dtype=np.int64)
                )
                dropped += [int(mask.sum()) for mask in why]
        self.kept = np.concatenate(kept)
        self.counts = RowCounts(int(self.kept.sum()), *dropped.tolist())

    def _masks(self, rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Masks of rows of the store: kept, dropped for their position, as special, for their norm."""
        tokens, positions = self.store.tokens_and_positions(rows)
        keep, at_position, special = self._filter.split(tokens.numpy(), positions.numpy())
        if self._filter.max_norm is None:
            return keep, at_position, special, np.zeros_like(keep)
        large = self.store.row_norms(self.site, rows).numpy() > self._filter.max_norm
        return keep & ~large, at_position, special, keep & large

    def _bound_norms(self, multiple: float, seed: int) -> None:
        if multiple <= 1:
            raise ValueError(f"max_norm_multiple={multiple} would drop half the rows: give more than 1")
        if self.counts.kept == 0:
            return
        rows = self._sample_rows(min(_MEDIAN_ROWS, self.counts.kept), seed)
        self._filter.max_norm = multiple * float(self.store.row_norms(self.site, rows).median())
        self._count()

    def pool(self, rows: int) -> Pool:
        return Pool.empty(rows, self.d, STORED_DTYPES[self.store.manifest.dtype])

    def load(self, blocks: np.ndarray, pool: Pool, first: int) -> Int[Tensor, " n"]:
        served = []
        for block in blocks.tolist():
            shard, start, n_rows = self._place(block)
            here = slice(first, first + n_rows)
            out = {
                self.site: pool.values[here],
                "token_ids": pool.tokens[here],
                "positions": pool.positions[here],
                "doc_ids": pool.doc_ids[here],
            }
            if pool.scale is not None:
                out[scale_name(self.site)] = pool.scale[here]
            if self._filter.max_norm is not None:
                out[norm_name(self.site)] = torch.empty(n_rows)
            self.store.shard(shard).read_rows(start, out)
            keep = self._filter.split(pool.tokens[here].numpy(), pool.positions[here].numpy())[0]
            if self._filter.max_norm is not None:
                keep &= out[norm_name(self.site)].numpy() <= self._filter.max_norm
            served.append(torch.from_numpy(np.flatnonzero(keep)) + first)
            first += n_rows
        return torch.cat(served)

    def sample(self, n: int, seed: int) -> Float[Tensor, "n d"]:
        return self.store.read(self.site, self._sample_rows(n, seed))

    def _sample_rows(self, n: int, seed: int) -> Int[Tensor, " n"]:
        """Some of the rows that are served, in order."""
        generator = make_generator(seed, "sample")
        random = np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))
        chosen = np.sort(random.choice(int(self.kept.sum()), size=n, replace=False, shuffle=False))
        ends = np.cumsum(self.kept)
        blocks = np.searchsorted(ends, chosen, side="right")
        rows = []
        for block in np.unique(blocks).tolist():
            shard, start, n_rows = self._place(block)
            first = self.store.manifest.shards[shard].first_row + start
            nth = chosen[blocks == block] - (ends[block] - self.kept[block])
            rows.append(np.flatnonzero(self._masks(slice(first, first + n_rows))[0])[nth] + first)
        return torch.from_numpy(np.concatenate(rows))

    def _place(self, block: int) -> tuple[int, int, int]:
        shard, start = (int(x) for x in self._places[block])
        return shard, start, min(self.block_rows, self.store.manifest.shards[shard].n_rows - start)
