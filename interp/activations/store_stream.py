"""Shuffled batches from a store on disk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.activations.manifest import scale_name
from interp.activations.mixing import Blocks, MixedStream, Pool
from interp.activations.row_format import STORED_DTYPES, decode_rows
from interp.activations.source import RowCounts
from interp.activations.store import ActivationStore
from interp.core.device import make_generator
from interp.models.sites import Site

_MEDIAN_ROWS = 16_384  # rows from which the median norm is estimated


class RowFilter:
    """Which rows are served: not those at some positions, not special tokens, none above a norm."""

    def __init__(
        self, skip_positions: Sequence[int], special_token_ids: Sequence[int], max_norm: float | None = None
    ) -> None:
        self.skip_positions = np.asarray(sorted(skip_positions), dtype=np.int64)
        self.special = np.asarray(sorted(special_token_ids), dtype=np.int64)
        self.max_norm = max_norm

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
            that stand at another position); the bound is then `max_norm`. Costs one pass over the store at
            the start.
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
        super().__init__(blocks, seed=seed, buffer_rows=buffer_tokens, dtype=dtype, prefetch=True)
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
        places, kept = [], []
        dropped_position = dropped_special = 0
        for index, shard in enumerate(store.manifest.shards):
            columns = store.columns(slice(shard.first_row, shard.first_row + shard.n_rows))
            keep, at_position, special = rows.split(columns.token_ids.numpy(), columns.positions.numpy())
            starts = np.arange(0, shard.n_rows, block_rows)
            places.append(np.stack([np.full_like(starts, index), starts], axis=1))
            kept.append(np.add.reduceat(keep.astype(np.int64), starts))
            dropped_position += int(at_position.sum())
            dropped_special += int(special.sum())
        self._places = np.concatenate(places)
        self.kept = np.concatenate(kept)
        self.counts = RowCounts(int(self.kept.sum()), dropped_position, dropped_special)
        if max_norm_multiple is not None:
            self._bound_norms(max_norm_multiple, seed)

    def _bound_norms(self, multiple: float, seed: int) -> None:
        if multiple <= 1:
            raise ValueError(f"max_norm_multiple={multiple} would drop half the rows: give more than 1")
        before = self.counts
        if before.kept == 0:
            return
        sample = self.sample(min(_MEDIAN_ROWS, before.kept), seed)
        self._filter.max_norm = multiple * float(torch.linalg.vector_norm(sample.float(), dim=-1).median())
        self.kept = np.array([int(self._kept_mask(block).sum()) for block in range(len(self.kept))])
        kept = int(self.kept.sum())
        self.counts = RowCounts(
            kept, before.dropped_position0, before.dropped_special, dropped_norm=before.kept - kept
        )

    def pool(self, rows: int) -> Pool:
        return Pool.empty(rows, self.d, STORED_DTYPES[self.store.manifest.dtype])

    def load(self, blocks: np.ndarray, pool: Pool, first: int) -> Int[Tensor, " n"]:
        served = []
        for block in blocks.tolist():
            shard, start, n_rows = self._place(block)
            file = self.store.shard(shard)
            here = slice(first, first + n_rows)
            file.read_rows(self.site, start, pool.values[here])
            file.read_rows("token_ids", start, pool.tokens[here])
            file.read_rows("positions", start, pool.positions[here])
            file.read_rows("doc_ids", start, pool.doc_ids[here])
            if pool.scale is not None:
                file.read_rows(scale_name(self.site), start, pool.scale[here])
            scale = None if pool.scale is None else pool.scale[here]
            keep = self._mask(pool.tokens[here], pool.positions[here], pool.values[here], scale)
            served.append(keep.nonzero()[:, 0] + first)
            first += n_rows
        return torch.cat(served)

    def sample(self, n: int, seed: int) -> Float[Tensor, "n d"]:
        generator = make_generator(seed, "sample")
        random = np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))
        chosen = np.sort(random.choice(int(self.kept.sum()), size=n, replace=False, shuffle=False))
        ends = np.cumsum(self.kept)
        blocks = np.searchsorted(ends, chosen, side="right")
        rows = []
        for block in np.unique(blocks).tolist():
            shard, start, _ = self._place(block)
            nth = chosen[blocks == block] - (ends[block] - self.kept[block])
            offset = self.store.manifest.shards[shard].first_row + start
            rows.append(self._kept_mask(block).nonzero()[:, 0][torch.from_numpy(nth)] + offset)
        return self.store.read(self.site, torch.cat(rows))

    def _place(self, block: int) -> tuple[int, int, int]:
        shard, start = (int(x) for x in self._places[block])
        return shard, start, min(self.block_rows, self.store.manifest.shards[shard].n_rows - start)

    def _kept_mask(self, block: int) -> Bool[Tensor, " rows"]:
        shard, start, n_rows = self._place(block)
        first = self.store.manifest.shards[shard].first_row + start
        rows = slice(first, first + n_rows)
        columns = self.store.columns(rows)
        values = self.store.read(self.site, rows) if self._filter.max_norm is not None else None
        return self._mask(columns.token_ids, columns.positions, values, None)

    def _mask(
        self, tokens: Tensor, positions: Tensor, values: Tensor | None, scale: Tensor | None
    ) -> Bool[Tensor, " rows"]:
        keep = torch.from_numpy(self._filter.split(tokens.numpy(), positions.numpy())[0])
        if self._filter.max_norm is not None and values is not None:
            keep &= self._filter.within_norm(decode_rows(values, scale, torch.float32))
        return keep
