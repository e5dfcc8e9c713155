"""Documents -> tokens -> contexts, read and tokenised only as far as they are wanted."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from interp.activations.document_stream import DocumentStream
from interp.activations.documents import Documents, text_hash
from interp.models.tokenization import encode

# What is handed to the tokenizer at once, and so what may be tokenised in vain.
_BATCH_DOCUMENTS = 256
_BATCH_CHARACTERS = 1 << 20
_CHARACTERS_PER_TOKEN = 4  # roughly: text of more characters a token takes another batch


class TokenizedDocument(NamedTuple):
    id: int
    token_ids: np.ndarray
    text_hash: bytes
    n_characters: int


def tokenized(
    documents: Documents | DocumentStream,
    tokenizer: Any,
    bos: Sequence[int],
    wanted: Callable[[], int | None],
) -> Iterator[list[TokenizedDocument]]:
    """Documents in batches that hold about as many tokens as are `wanted` when a batch is begun (None: all).

    `bos` is what will be put before each: see `interp.models.tokenization.encode`.
    """
    items = documents.items()
    while True:
        tokens = wanted()
        room = _BATCH_CHARACTERS
        if tokens is not None:
            room = min(room, _CHARACTERS_PER_TOKEN * tokens)
        batch = []
        for item in islice(items, _BATCH_DOCUMENTS):
            batch.append(item)
            room -= len(item[1])
            if room <= 0:
                break
        if not batch:
            return
        encoded = encode(tokenizer, [text for _, text in batch], bos)
        yield [
            TokenizedDocument(id_, np.asarray(ids, dtype=np.int32), text_hash(text), len(text))
            for (id_, text), ids in zip(batch, encoded, strict=True)
        ]


class Layout:
    """Contexts under construction: 4 bytes a token, and 24 a piece.

    Args:
        fill: whether a context goes on with the next document where one ends.
    """

    def __init__(self, context_size: int, bos: list[int], *, fill: bool) -> None:
        self.context_size, self.fill = context_size, fill
        self._bos = np.asarray(bos, dtype=np.int32)
        self.tokens = array("i")
        self.piece_starts = array("q", [0])
        self.piece_docs = array("q")
        self.context_pieces = array("q")
        self._room = 0

    @property
    def n_tokens(self) -> int:
        return len(self.tokens)

    def add(self, doc_id: int, token_ids: np.ndarray) -> None:
        done = 0
        while done < len(token_ids):
            if not self.fill or self._room <= len(self._bos):
                self.context_pieces.append(len(self.piece_docs))
                self._room = self.context_size
            piece = token_ids[done : done + self._room - len(self._bos)]
            done += len(piece)
            self._room -= len(self._bos) + len(piece)
            self.tokens.frombytes(self._bos.tobytes())
            self.tokens.frombytes(piece.tobytes())
            self.piece_starts.append(self.n_tokens)
            self.piece_docs.append(doc_id)

    def cut(self, n_tokens: int) -> None:
        """Drop what is beyond so many tokens."""
        while self.piece_starts[-2] >= n_tokens:
            self.piece_starts.pop()
            self.piece_docs.pop()
        while self.context_pieces[-1] >= len(self.piece_docs):
            self.context_pieces.pop()
        del self.tokens[n_tokens:]
        self.piece_starts[-1] = n_tokens

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(tokens, piece_starts, piece_docs, context_pieces) of `TokenContexts`."""
        return (
            np.frombuffer(self.tokens, dtype=np.int32),
            np.frombuffer(self.piece_starts, dtype=np.int64),
            np.frombuffer(self.piece_docs, dtype=np.int64),
            np.append(np.frombuffer(self.context_pieces, dtype=np.int64), len(self.piece_docs)),
        )
