"""Shuffled batches straight from a model: for one pass over much text, when a store would not pay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.activations.batching import ContextRunner
from interp.activations.mixing import Blocks, MixedStream, Pool
from interp.activations.packing import TokenContexts
from interp.activations.source import RowCounts
from interp.activations.store_stream import RowFilter
from interp.core.device import make_generator
from interp.models.sites import Site

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

_COUNTED_CONTEXTS = 4096  # contexts whose rows are counted at once


class LiveStream(MixedStream):
    """Rows of one site, computed when they are needed and mixed in a buffer that is refilled by half.

    The buffer lies on the model's device, in the model's type. The state is as small as that of any other
    stream: to resume, the contexts in the buffer are run again.

    Args:
        model: the model; its weights must not change.
        contexts: what `pack` returns.
        site: the site.
        seed: determines, with the epoch, the order.
        buffer_tokens: most rows in memory.
        batch_size: contexts in a forward pass, or "auto".
        skip_positions, skip_special: rows that are left out, as in `StoreStream`.
        dtype: type of the batches; None: the model's.
    """

    def __init__(
        self,
        model: LanguageModel,
        contexts: TokenContexts,
        site: str | Site,
        *,
        seed: int = 0,
        buffer_tokens: int = 65_536,
        batch_size: int | str = "auto",
        skip_positions: Sequence[int] = (0,),
        skip_special: bool = True,
        dtype: torch.dtype | None = torch.float32,
    ) -> None:
        rows = RowFilter(skip_positions, contexts.special_token_ids if skip_special else ())
        blocks = _LiveBlocks(model, contexts, model.check_site(site), rows, batch_size)
        super().__init__(
            blocks,
            seed=seed,
            buffer_rows=buffer_tokens,
            dtype=dtype,
            prefetch=False,
            provenance=rows.provenance(model.fingerprint(), contexts.identity()),
        )


class _LiveBlocks(Blocks):
    """Each context is a block."""

    def __init__(
        self,
        model: LanguageModel,
        contexts: TokenContexts,
        site: Site,
        rows: RowFilter,
        batch_size: int | str,
    ) -> None:
        self.sites, self.block_rows = {str(site): model.width(site)}, contexts.context_size
        self._site, self._contexts, self._filter = site, contexts, rows
        self._runner = ContextRunner(model, contexts, [site], batch_size)
        self.kept = np.zeros(len(contexts), dtype=np.int64)
        dropped_position = dropped_special = 0
        for first in range(0, len(contexts), _COUNTED_CONTEXTS):
            last = min(first + _COUNTED_CONTEXTS, len(contexts))
            columns = contexts.rows(first, last)
            keep, at_position, special = rows.split(columns["token_ids"], columns["positions"])
            self.kept[first:last] = np.bincount(columns["context_ids"][keep] - first, minlength=last - first)
            dropped_position += int(at_position.sum())
            dropped_special += int(special.sum())
        self.counts = RowCounts(int(self.kept.sum()), dropped_position, dropped_special)

    def pool(self, rows: int) -> Pool:
        model = self._runner.model
        return Pool.empty(rows, self.sites.values(), model.dtype, model.device)

    def load(self, blocks: np.ndarray, pool: Pool, first: int) -> Int[Tensor, " n"]:
        # Rows go where the order of `blocks` puts them, whatever the order in which they are computed.
        kept = self.kept[blocks]
        starts = dict(zip(blocks.tolist(), (first + np.cumsum(kept) - kept).tolist(), strict=True))
        for batch, activations in self._runner.run(blocks):
            tokens, positions = batch.input_ids.numpy(), batch.position_ids.numpy()
            keep = torch.from_numpy(self._filter.split(tokens, positions)[0]) & batch.attention_mask.bool()
            rows = torch.cat(
                [
                    torch.arange(starts[context], starts[context] + int(self.kept[context]))
                    for context in batch.context_ids.tolist()
                ]
            ).to(pool.device)
            values = activations[self._site]
            pool.values[0].index_copy_(0, rows, values[keep.to(values.device)].to(pool.values[0]))
            for column, source in (
                (pool.tokens, batch.input_ids),
                (pool.positions, batch.position_ids),
                (pool.doc_ids, batch.doc_ids),
            ):
                column.index_copy_(0, rows, source[keep].to(column))
        return torch.arange(first, first + int(kept.sum()))

    def sample(self, n: int, seed: int) -> Float[Tensor, "n d"]:
        """From as few contexts as give n rows: every one of them costs a forward pass."""
        generator = make_generator(seed, "sample")
        order = torch.randperm(len(self.kept), generator=generator).numpy()
        count = int(np.searchsorted(np.cumsum(self.kept[order]), n)) + 1
        blocks = order[:count]
        pool = self.pool(int(self.kept[blocks].sum()))
        rows = self.load(blocks, pool, 0)
        chosen = rows[torch.randperm(len(rows), generator=generator)[:n]]
        return pool.values[0][chosen.to(pool.device)]
