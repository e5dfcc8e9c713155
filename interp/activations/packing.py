"""Documents -> contexts of tokens: what a model is shown in one row of a batch.

Two modes. "pad": a context holds (a window of) one document and is padded on the right. "pack": contexts are
filled to the brim with consecutive documents, cut where they end; unless told otherwise no document attends
to another (`isolate_documents`). In both every token of the text appears exactly once.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.activations.document_stream import DocumentStream
from interp.activations.documents import Documents, TakenText
from interp.activations.layout import Layout, tokenized
from interp.core.distributed import from_main
from interp.core.messages import one_of
from interp.models.language_model import LanguageModel
from interp.models.tokenization import bos_prefix, special_token_ids, tokenizer_hash

logger = logging.getLogger(__name__)
MODES = ("pad", "pack")


@dataclass
class ContextBatch:
    """Contexts padded on the right to the longest of them; all tensors but `context_ids` are [b s].

    Padding has token 0, position 0, attention 0, segment -1 and document -1: tell it by `attention_mask`,
    never by the token. `position_ids` restart wherever attention does, that is at every new `segment_ids`.
    """

    input_ids: Int[Tensor, "b s"]
    attention_mask: Int[Tensor, "b s"]
    position_ids: Int[Tensor, "b s"]
    segment_ids: Int[Tensor, "b s"]
    doc_ids: Int[Tensor, "b s"]
    special: Bool[Tensor, "b s"]
    context_ids: Int[Tensor, " b"]

    def __len__(self) -> int:
        return len(self.context_ids)

    @property
    def n_tokens(self) -> int:
        return int(self.attention_mask.sum())

    def to(self, device: torch.device | str) -> ContextBatch:
        return ContextBatch(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})


class TokenContexts:
    """All contexts of a text, in memory as token ids; any of them is reached by its index at once.

    Tokens lie one after the other in `tokens`. A *piece* is a run of tokens of one document within one
    context; piece p covers tokens `piece_starts[p] : piece_starts[p + 1]` of document `piece_docs[p]`, and
    context c is made of pieces `context_pieces[c] : context_pieces[c + 1]`.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        piece_starts: np.ndarray,
        piece_docs: np.ndarray,
        context_pieces: np.ndarray,
        *,
        context_size: int,
        isolate_documents: bool = True,
        special_token_ids: Sequence[int] = (),
        origin: dict[str, Any] | None = None,
    ) -> None:
        self.tokens = np.asarray(tokens, dtype=np.int32)
        self.piece_starts = np.asarray(piece_starts, dtype=np.int64)
        self.piece_docs = np.asarray(piece_docs, dtype=np.int64)
        self.context_pieces = np.asarray(context_pieces, dtype=np.int64)
        self.context_size = context_size
        self.isolate_documents = isolate_documents
        self.special_token_ids = tuple(sorted(special_token_ids))
        self.origin = dict(origin or {})
        self._starts = self.piece_starts[self.context_pieces]
        self.lengths: np.ndarray = np.diff(self._starts)
        if len(self.lengths) == 0 or self.lengths.min() < 1 or self.lengths.max() > context_size:
            raise ValueError(
                f"contexts must hold 1 to context_size={context_size} tokens; got {len(self.lengths)} "
                f"contexts, the longest of {self.lengths.max(initial=0)}"
            )

    @classmethod
    def from_ids(
        cls, rows: Tensor | Sequence[Sequence[int]], *, special_token_ids: Sequence[int] = ()
    ) -> TokenContexts:
        """Texts that are token ids already, of any lengths; each is a document and a context of its own.

        Raises:
            ValueError: no rows, an empty one, or ids that are not integers.
        """
        arrays = [np.asarray(row) for row in rows]
        if not arrays or any(a.ndim != 1 or a.size == 0 or a.dtype.kind not in "iu" for a in arrays):
            raise ValueError(
                "token ids: give one or more non-empty rows of integers, e.g. a LongTensor [n s]"
            )
        starts = np.cumsum([0, *map(len, arrays)])
        return cls(
            np.concatenate(arrays),
            starts,
            np.arange(len(arrays)),
            np.arange(len(arrays) + 1),
            context_size=max(map(len, arrays)),
            special_token_ids=special_token_ids,
            origin={"text": {"name": "token ids"}},
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def n_tokens(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int | slice | Sequence[int]) -> ContextBatch:
        """One context (b = 1), a slice of them, or those of the indices given."""
        if isinstance(index, slice):
            return self.batch(range(*index.indices(len(self))))
        return self.batch([index] if isinstance(index, int) else index)

    def batch(self, indices: Sequence[int] | np.ndarray) -> ContextBatch:
        """The contexts of these indices, in this order, padded on the right to the longest."""
        chosen = np.asarray(indices, dtype=np.int64)
        if len(chosen) == 0 or chosen.min() < -len(self) or chosen.max() >= len(self):
            raise IndexError(f"context indices {indices} must be a few of 0..{len(self) - 1}")
        chosen = chosen % len(self)
        starts, lengths = self._starts[chosen, None], self.lengths[chosen, None]
        column = np.arange(lengths.max())[None, :]
        real = column < lengths
        where = np.where(real, starts + column, starts)
        tokens, positions, segments, docs = self._describe(where, self.context_pieces[chosen, None], starts)
        return ContextBatch(
            input_ids=torch.from_numpy(np.where(real, tokens, 0).astype(np.int64)),
            attention_mask=torch.from_numpy(real.astype(np.int64)),
            position_ids=torch.from_numpy(np.where(real, positions, 0)),
            segment_ids=torch.from_numpy(np.where(real, segments, -1)),
            doc_ids=torch.from_numpy(np.where(real, docs, -1)),
            special=torch.from_numpy(np.isin(tokens, self.special_token_ids) & real),
            context_ids=torch.from_numpy(chosen),
        )

    def rows(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Token ids, positions, document and context ids of contexts first..last-1, one row a token."""
        starts = np.repeat(self._starts[first:last], self.lengths[first:last])
        pieces = np.repeat(self.context_pieces[first:last], self.lengths[first:last])
        where = np.arange(self._starts[first], self._starts[last])
        tokens, positions, _, docs = self._describe(where, pieces, starts)
        contexts = np.repeat(np.arange(first, last), self.lengths[first:last])
        return {
            "token_ids": tokens,
            "positions": positions.astype(np.int32),
            "doc_ids": docs,
            "context_ids": contexts,
        }

    def _describe(
        self, where: np.ndarray, first_piece: np.ndarray, context_start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(token, position, segment, document) of each place in `tokens`."""
        piece = np.searchsorted(self.piece_starts, where, side="right") - 1
        if self.isolate_documents:
            positions, segments = where - self.piece_starts[piece], piece - first_piece
        else:
            positions, segments = where - context_start, np.zeros_like(where)
        return self.tokens[where], positions, segments, self.piece_docs[piece]

    def identity(self) -> dict[str, Any]:
        """What these contexts are: origin (text, tokenizer, packing), sizes and a SHA-256 of the tokens."""
        digest = hashlib.sha256()
        for array in (self.tokens, self.piece_starts, self.piece_docs, self.context_pieces):
            digest.update(np.ascontiguousarray(array).data)
        return {
            **self.origin,
            "context_size": self.context_size,
            "isolate_documents": self.isolate_documents,
            "special_token_ids": list(self.special_token_ids),
            "n_contexts": len(self),
            "n_tokens": self.n_tokens,
            "sha256": digest.hexdigest(),
        }


def pack(
    documents: Documents | DocumentStream | Sequence[str],
    model_or_tokenizer: LanguageModel | Any,
    *,
    context_size: int = 128,
    add_bos: bool | None = None,
    mode: str = "pad",
    isolate_documents: bool = True,
    max_tokens: int | None = None,
    seed: int | None = None,
    shared: bool = False,
) -> TokenContexts:
    """Tokenise documents and lay them out in contexts.

    Documents are read and tokenised only until `max_tokens` is met. The tokens are then in memory, 4 bytes each
    and 24 a piece of a document: bounded by what is asked for, not by the text. What identifies the text
    (`identity`) is the documents taken.

    Args:
        documents: what `load_text` returns, or strings.
        model_or_tokenizer: a `LanguageModel` or a Hugging Face tokenizer.
        context_size: most tokens in a context, BOS included. A shorter text makes one shorter context.
        add_bos: put the BOS token before every piece; None: only where the tokenizer does so by itself. A text
            that begins with it already gets no second one.
        mode: "pad" (one document a context) or "pack" (contexts filled with consecutive documents).
        isolate_documents: in "pack" mode, no attention from one document to another.
        max_tokens: stop after this many tokens (BOS included); the last context is cut to fit. None: all of a
            text that has an end.
        seed: take the documents in a random order (of a stream: mixed in a window); None: in the order given.
        shared: under `torchrun`, where every rank calls this: rank 0 alone reads and tokenises the text, and all
            get the tokens. The result is the same.

    Raises:
        ValueError: no tokenizer, no text, a text without a known end and no `max_tokens`, a context size that the
            model can't take, or mode "pack" for a model that doesn't keep packed documents apart (an encoder, say).
    """
    one_of("mode", mode, MODES)
    tokenizer: Any = getattr(model_or_tokenizer, "tokenizer", model_or_tokenizer)
    if tokenizer is None:
        raise ValueError("this model has no tokenizer: load it with one (load_model(..., tokenizer=...))")
    if mode == "pack" and isolate_documents and isinstance(model_or_tokenizer, LanguageModel):
        model_or_tokenizer.require("segments")
    longest = getattr(model_or_tokenizer, "n_ctx", None)
    if longest is not None and context_size > longest:
        raise ValueError(f"context_size={context_size} is more than the model's {longest} positions")
    bos = bos_prefix(tokenizer, add_bos)
    if context_size < len(bos) + 1:
        raise ValueError(f"context_size={context_size} leaves no room for text")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens={max_tokens}: ask for at least one token")
    if not isinstance(documents, Documents | DocumentStream):
        documents = Documents.from_texts(documents)
    if max_tokens is None and isinstance(documents, DocumentStream):
        documents.require_end("all tokens")
    if seed is not None:
        documents = documents.shuffled(seed)

    layout = Layout(context_size, bos, fill=mode == "pack")
    taken = TakenText(documents.name)
    batches = tokenized(
        documents, tokenizer, bos, lambda: None if max_tokens is None else max_tokens - layout.n_tokens
    )
    for document in chain.from_iterable(from_main(batches) if shared else batches):
        layout.add(document.id, document.token_ids)
        taken.add(document.id, document.text_hash, document.n_characters)
        if max_tokens is not None and layout.n_tokens >= max_tokens:
            layout.cut(max_tokens)
            break
    if layout.n_tokens == 0:
        raise ValueError(f"the text {documents.name!r} has no tokens")
    if max_tokens is not None and layout.n_tokens < max_tokens:
        logger.warning(
            "%s has only %d tokens, %d were asked for", documents.name, layout.n_tokens, max_tokens
        )
    return TokenContexts(
        *layout.arrays(),
        context_size=context_size,
        isolate_documents=isolate_documents or mode == "pad",
        special_token_ids=sorted(special_token_ids(tokenizer)),
        origin={
            "text": taken.fingerprint(),
            "tokenizer": tokenizer_hash(tokenizer),
            "mode": mode,
            "add_bos": bool(bos),
            "seed": seed,
        },
    )
