"""A two-level shuffle in bounded memory, with nothing to remember but a position.

Rows come in *blocks* (a run of rows on disk, a context of a model) that are cheap to read whole. An epoch
permutes the blocks and reads them in *chunks* of many blocks. The rows of a chunk are permuted; its first
half is served together with the second half of the chunk before it, in random order, and its second half
waits for the next chunk. So neighbours in a batch come from the blocks of two chunks, the pool is refilled by
half, and yet the order is a pure function of (seed, epoch): to resume anywhere, at most two chunks are read
again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from interp.activations.row_format import decode_rows
from interp.activations.source import ActivationBatch, ActivationSource, Provenance, RowCounts
from interp.core.device import make_generator


@dataclass
class Pool:
    """Room for rows as they are stored, at each of some sites, and what is known of them."""

    values: tuple[Shaped[Tensor, "rows _"], ...]
    scales: tuple[Float[Tensor, "rows 1"], ...] | None
    tokens: Int[Tensor, " rows"]
    positions: Int[Tensor, " rows"]
    doc_ids: Int[Tensor, " rows"]

    @classmethod
    def empty(
        cls, rows: int, widths: Iterable[int], dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> Pool:
        def column(dtype: torch.dtype) -> Tensor:
            return torch.empty(rows, dtype=dtype, device=device)

        values = tuple(torch.empty(rows, width, dtype=dtype, device=device) for width in widths)
        scaled = dtype == torch.int8
        return cls(
            values=values,
            scales=tuple(torch.empty(rows, 1, device=device) for _ in values) if scaled else None,
            tokens=column(torch.int32),
            positions=column(torch.int32),
            doc_ids=column(torch.int64),
        )

    @property
    def device(self) -> torch.device:
        return self.tokens.device

    def take(self, rows: Int[Tensor, " n"], dtype: torch.dtype | None) -> ActivationBatch:
        return ActivationBatch(
            self._decoded(rows, dtype),
            self.tokens.index_select(0, rows).long(),
            self.positions.index_select(0, rows).long(),
            self.doc_ids.index_select(0, rows),
        )

    def _decoded(self, rows: Int[Tensor, " n"], dtype: torch.dtype | None) -> Float[Tensor, "n d"]:
        """Some rows of all sites side by side; each number is written once into its place."""

        def stored(i: int) -> tuple[Tensor, Tensor | None]:
            scale = None if self.scales is None else self.scales[i].index_select(0, rows)
            return self.values[i].index_select(0, rows), scale

        if len(self.values) == 1:
            return decode_rows(*stored(0), dtype)
        known = torch.float32 if self.scales is not None else self.values[0].dtype
        widths = [part.shape[1] for part in self.values]
        out = torch.empty(len(rows), sum(widths), dtype=dtype or known, device=self.device)
        for i, columns in enumerate(out.split(widths, dim=1)):
            values, scale = stored(i)
            columns.copy_(values if scale is None else decode_rows(values, scale))
        return out


class Blocks(ABC):
    """Rows in blocks that can be read in any order.

    Attributes:
        sites: the sites whose rows are served side by side, and their widths.
        counts: as in `ActivationSource`.
        kept: rows of each block that are served.
        block_rows: most rows that a block takes in the pool.
    """

    sites: dict[str, int]
    counts: RowCounts
    kept: np.ndarray
    block_rows: int

    @abstractmethod
    def pool(self, rows: int) -> Pool:
        """Room for that many rows."""

    @abstractmethod
    def load(self, blocks: np.ndarray, pool: Pool, first: int) -> Int[Tensor, " n"]:
        """Read blocks into the pool from row `first` on; return the pool rows that are to be served."""

    @abstractmethod
    def sample(self, n: int, seed: int) -> Float[Tensor, "n d"]:
        """At most `n` kept rows, as stored."""


@dataclass(frozen=True)
class _EpochPlan:
    """Which blocks make each chunk, and where in the epoch each stage begins and ends."""

    chunks: list[np.ndarray]
    stage_ends: np.ndarray


@dataclass
class _Chunk:
    part: int
    rows: Future[Tensor]


class MixedStream(ActivationSource):
    """The shuffle over any `Blocks`; `buffer_rows` bounds the rows in memory.

    With `prefetch` a thread reads the next chunk while this one is served; the buffer then has three parts
    (the chunk before, this one, the next) instead of two.
    """

    def __init__(
        self,
        blocks: Blocks,
        *,
        seed: int,
        buffer_rows: int,
        dtype: torch.dtype | None,
        prefetch: bool,
        provenance: Provenance,
    ) -> None:
        super().__init__(sites=blocks.sites, counts=blocks.counts, seed=seed, provenance=provenance)
        self._blocks, self._dtype = blocks, dtype
        n_parts = 3 if prefetch else 2
        self._chunk_blocks = buffer_rows // n_parts // blocks.block_rows
        if self._chunk_blocks < 1:
            raise ValueError(
                f"buffer_tokens={buffer_rows} is too small for blocks of {blocks.block_rows} rows: "
                f"at least {n_parts * blocks.block_rows}"
            )
        largest = min(self._chunk_blocks, len(blocks.kept))
        self._part_rows = largest * blocks.block_rows
        self._pool = blocks.pool(n_parts * self._part_rows)
        self._no_rows = torch.empty(0, dtype=torch.long, device=self._pool.device)
        self._free_parts = set(range(n_parts))
        self._chunks: dict[tuple[int, int], _Chunk] = {}
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="activations") if prefetch else None
        self._plans: dict[int, _EpochPlan] = {}
        self._stage: tuple[int, int, Tensor] | None = None

    def sample(self, n: int, seed: int = 0) -> Float[Tensor, "n d"]:
        if n < 1:
            raise ValueError(f"sample(n={n}): ask for at least one row")
        return decode_rows(self._blocks.sample(min(n, len(self)), seed), None, self._dtype)

    def _order(self) -> dict[str, int]:
        return {
            **super()._order(),
            "block_rows": self._blocks.block_rows,
            "n_blocks": len(self._blocks.kept),
            "blocks_per_chunk": self._chunk_blocks,
        }

    def _rows(self, epoch: int, first: int, last: int, step: int) -> ActivationBatch:
        ends = self._epoch_plan(epoch).stage_ends
        if first >= last:
            return self._pool.take(self._no_rows, self._dtype)
        parts = []
        while first < last:
            stage = int(np.searchsorted(ends, first, side="right"))
            start = int(ends[stage - 1]) if stage else 0
            rows = self._stage_rows(epoch, stage)[first - start : last - start : step]
            parts.append(self._pool.take(rows, self._dtype))
            first += step * len(rows)
        if len(parts) == 1:
            return parts[0]
        return ActivationBatch(
            torch.cat([p.values for p in parts]),
            torch.cat([p.tokens for p in parts]),
            torch.cat([p.positions for p in parts]),
            torch.cat([p.doc_ids for p in parts]),
        )

    def _epoch_plan(self, epoch: int) -> _EpochPlan:
        if epoch not in self._plans:
            n = len(self._blocks.kept)
            order = torch.randperm(n, generator=make_generator(self.seed, "blocks", epoch)).numpy()
            chunks = np.array_split(order, -(-n // self._chunk_blocks))
            sizes = np.array([self._blocks.kept[chunk].sum() for chunk in chunks])
            waiting = sizes // 2
            stages = np.append(sizes - waiting, 0) + np.append(0, waiting)
            self._plans = {e: plan for e, plan in self._plans.items() if abs(e - epoch) == 1}
            self._plans[epoch] = _EpochPlan(chunks, np.cumsum(stages))
        return self._plans[epoch]

    def _stage_rows(self, epoch: int, stage: int) -> Tensor:
        """Pool rows of a stage in the order they are served."""
        if self._stage is None or self._stage[:2] != (epoch, stage):
            n_chunks = len(self._epoch_plan(epoch).chunks)
            wanted = [(epoch, stage - 1), (epoch, stage)]
            if self._reader is not None:
                wanted.append((epoch, stage + 1) if stage + 1 < n_chunks else (epoch + 1, 0))
            self._drop_all_but(wanted)
            rows = []
            if stage > 0:
                before = self._loaded(epoch, stage - 1)
                rows.append(before[len(before) - len(before) // 2 :])
            if stage < n_chunks:
                this = self._loaded(epoch, stage)
                rows.append(this[: len(this) - len(this) // 2])
            both = torch.cat(rows)
            shuffle = make_generator(self.seed, "stage", epoch, stage)
            both = both[torch.randperm(len(both), generator=shuffle)]
            self._stage = (epoch, stage, both.to(self._pool.device))
            if self._reader is not None:
                self._start(*wanted[-1])
        return self._stage[2]

    def _drop_all_but(self, wanted: list[tuple[int, int]]) -> None:
        for key in [key for key in self._chunks if key not in wanted]:
            chunk = self._chunks.pop(key)
            chunk.rows.exception()  # its part of the pool is free once the reader is done with it
            self._free_parts.add(chunk.part)

    def _loaded(self, epoch: int, chunk: int) -> Tensor:
        self._start(epoch, chunk)
        return self._chunks[epoch, chunk].rows.result()

    def _start(self, epoch: int, chunk: int) -> None:
        """Have a chunk read into a free part of the pool, unless it is there."""
        if (epoch, chunk) in self._chunks:
            return
        blocks, part = self._epoch_plan(epoch).chunks[chunk], min(self._free_parts)
        shuffle = make_generator(self.seed, "chunk", epoch, chunk)
        if self._reader is not None:
            rows = self._reader.submit(self._read, blocks, part, shuffle)
        else:
            rows = Future()
            rows.set_result(self._read(blocks, part, shuffle))
        self._chunks[epoch, chunk] = _Chunk(part, rows)
        self._free_parts.remove(part)

    def _read(self, blocks: np.ndarray, part: int, shuffle: torch.Generator) -> Tensor:
        rows = self._blocks.load(blocks, self._pool, part * self._part_rows)
        return rows[torch.randperm(len(rows), generator=shuffle)]
