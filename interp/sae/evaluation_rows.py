"""What an evaluation runs over: contexts in batches of similar length, or rows of a stream."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from interp.activations.text import ContextBatch, Documents, TokenContexts, load_text, pack
from interp.core.progress import progress as progress_bar

if TYPE_CHECKING:
    from interp.core.stream import DataStream
    from interp.models.language_model import LanguageModel


def contexts_of(text: Any, model: LanguageModel, context_size: int, limit: int | None) -> TokenContexts:
    """Contexts as they are; documents, and whatever `load_text` takes, packed into about `limit` tokens."""
    if isinstance(text, TokenContexts):
        return text
    documents = text if isinstance(text, Documents) else load_text(text)
    return pack(documents, model, context_size=context_size, max_tokens=limit)


@dataclass(frozen=True)
class Batches:
    """Contexts in batches of similar length."""

    contexts: TokenContexts
    limit: int | None
    padded_tokens: int

    @property
    def n_contexts(self) -> int:
        """The first contexts that hold `limit` tokens, or all."""
        if self.limit is None:
            return len(self.contexts)
        enough = int(np.searchsorted(np.cumsum(self.contexts.lengths), self.limit))
        return min(enough + 1, len(self.contexts))

    @property
    def n_tokens(self) -> int:
        return int(self.contexts.lengths[: self.n_contexts].sum())

    def __iter__(self) -> Iterator[ContextBatch]:
        lengths = self.contexts.lengths[: self.n_contexts]
        longest_first = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(longest_first):
            count = max(1, self.padded_tokens // int(lengths[longest_first[start]]))
            yield self.contexts.batch(longest_first[start : start + count])
            start += count


def stream_rows(stream: DataStream, limit: int | None, size: int, progress: bool) -> Iterator[Tensor]:
    """Batches from where a stream stands to the end of its epoch (or `limit`); it is put back afterwards."""
    before, epoch = stream.state_dict(), stream.epoch
    left = math.inf if limit is None else limit
    try:
        with progress_bar(total=limit, desc="evaluating", unit="token", enabled=progress) as bar:
            while left > 0 and stream.epoch == epoch:
                batch: Any = stream.next_batch(int(min(size, left)))
                x = batch if isinstance(batch, Tensor) else batch.values
                left -= len(x)
                bar.update(len(x))
                yield x
    finally:
        stream.load_state_dict(before)
