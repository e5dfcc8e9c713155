"""Running contexts through a model: batches by length, and half as large when memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from interp.activations.packing import ContextBatch, TokenContexts
from interp.models.language_model import LanguageModel
from interp.models.sites import Site

logger = logging.getLogger(__name__)
_AUTO_TOKENS = {"cpu": 2048, "mps": 8192}  # padded tokens in a batch; any other device:
_AUTO_TOKENS_ACCELERATOR = 32_768


def resolve_batch_size(batch_size: int | str, context_size: int, device: torch.device) -> int:
    """Full contexts in a batch; "auto" depends on nothing but the device's type and `context_size`."""
    if batch_size == "auto":
        return max(1, _AUTO_TOKENS.get(device.type, _AUTO_TOKENS_ACCELERATOR) // context_size)
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f'batch_size={batch_size!r}: give a number of contexts or "auto"')
    return batch_size


class ContextRunner:
    """Activations of contexts at some sites; remembers the batch size that fits into memory."""

    def __init__(
        self,
        model: LanguageModel,
        contexts: TokenContexts,
        sites: Sequence[Site],
        batch_size: int | str = "auto",
    ) -> None:
        packed = contexts.isolate_documents and len(contexts.piece_docs) > len(contexts)
        if packed and isinstance(model, LanguageModel):
            model.require("segments")
        self.model, self.contexts, self.sites = model, contexts, list(sites)
        size = resolve_batch_size(batch_size, contexts.context_size, model.device)
        self.padded_tokens = size * contexts.context_size

    def run(self, indices: np.ndarray) -> Iterator[tuple[ContextBatch, dict[Site, Tensor]]]:
        """Batches of these contexts, each with its activations [b s width].

        Contexts of similar length go together, at most `padded_tokens` with padding; the longest come first,
        so that running out of memory shows at the start. Then the batch is halved and tried again.
        """
        order = indices[np.argsort(-self.contexts.lengths[indices], kind="stable")]
        start = 0
        while start < len(order):
            longest = int(self.contexts.lengths[order[start]])
            batch = self.contexts.batch(order[start : start + max(1, self.padded_tokens // longest)])
            try:
                activations = self._forward(batch)
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error) or len(batch) == 1:
                    raise
                self.padded_tokens = len(batch) // 2 * longest
                logger.warning("out of memory with %d contexts of %d tokens: halved", len(batch), longest)
            else:
                yield batch, activations
                start += len(batch)

    @torch.inference_mode()
    def _forward(self, batch: ContextBatch) -> dict[Site, Tensor]:
        packed = bool((batch.segment_ids > 0).any())
        return self.model.activations(
            batch.input_ids,
            self.sites,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            segment_ids=batch.segment_ids if packed else None,
        )


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
