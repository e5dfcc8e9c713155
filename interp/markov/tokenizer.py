"""What every tokenizer is: a dictionary learnt from a text, an encoder over it, and the way back."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float, Int

from interp.core.messages import one_of, warn_once
from interp.markov.encoders import Token, Trie, fit_log_probabilities, greedy_encode, likeliest_encode
from interp.markov.sources import LARGEST_TABLE, as_symbols

logger = logging.getLogger(__name__)
ENCODERS = ("greedy", "likelihood")


class Tokenizer(ABC):
    """A dictionary of strings of symbols, with the alphabet in it, and an encoder.

    `decode(encode(x))` is `x`.

    Args:
        vocab_size: tokens in the dictionary, alphabet included.
        encoder: `greedy` takes the longest token at every position; `likelihood` the way to write the text that is
            likeliest under a unigram law fitted with the dictionary; BPE has `merges` besides.

    Attributes:
        tokens_: the dictionary, tuples of symbols; a token's id is its place.
        token_lengths_: int64 [V], symbols per token.
        vocab_size_: tokens there are; fewer than asked for where the text gave no more, which a warning says.
        alphabet_size_: A; ids below A are the symbols.
    """

    encoders: tuple[str, ...] = ENCODERS
    kind: str
    short_because = "the text ended"  # why there may be fewer tokens than asked for

    def __init__(self, vocab_size: int | None, encoder: str) -> None:
        one_of("encoder", encoder, self.encoders)
        if vocab_size is not None and vocab_size < 2:
            raise ValueError(
                f"vocab_size = {vocab_size} must be at least the size of the alphabet, so 2 or more"
            )
        self.vocab_size, self.encoder = vocab_size, encoder
        self.tokens_: tuple[Token, ...] = ()
        self.token_lengths_: Int[np.ndarray, " V"] = np.zeros(0, np.int64)
        self.alphabet_size_ = 0

    @property
    def vocab_size_(self) -> int:
        return len(self.tokens_)

    @property
    def method(self) -> str:
        """The kind, and the encoder where it isn't the usual one."""
        return self.kind if self.encoder == self.encoders[0] else f"{self.kind}, {self.encoder}"

    @property
    def name(self) -> str:
        """For tables and legends: the method and the size asked for, and the true one where it is another."""
        if self.vocab_size is None:
            return self.method
        short = f" ({self.vocab_size_} tokens)" if self.tokens_ and self.vocab_size_ < self.vocab_size else ""
        return f"{self.method} {self.vocab_size}{short}"

    def fit(self, x: Int[np.ndarray, " n"], alphabet_size: int | None = None) -> Tokenizer:
        """Learn the dictionary from a text.

        Args:
            alphabet_size: A; None takes the largest symbol of the text plus one, at least 2.

        Raises:
            ValueError: a symbol outside the alphabet, or a vocab_size below it.
        """
        x = as_symbols(x, alphabet_size)
        size = max(2, int(x.max()) + 1) if alphabet_size is None else alphabet_size
        if self.vocab_size is not None and self.vocab_size < size:
            raise ValueError(f"vocab_size = {self.vocab_size} is below the {size} symbols of the alphabet")
        self.alphabet_size_ = size
        self._set_tokens(self._learn(x, size))
        if self.vocab_size is not None and self.vocab_size_ < self.vocab_size:
            said = (
                f"{self.method}: {self.vocab_size_} tokens instead of {self.vocab_size}: {self.short_because}"
            )
            warn_once(logger, said, said)
        if self.encoder == "likelihood":
            self.log_probabilities_ = self._fit_probabilities(x)
        return self

    def encode(self, x: Int[np.ndarray, " n"]) -> Int[np.ndarray, " tokens"]:
        """The token ids (int64) of one long string.

        Raises ValueError before `fit`, and for a symbol outside the alphabet.
        """
        return self._encode(as_symbols(x, self._fitted().alphabet_size_))

    def decode(self, ids: Int[np.ndarray, " tokens"]) -> Int[np.ndarray, " n"]:
        """The symbols (int64) that the tokens stand for."""
        ids = as_symbols(ids, self._fitted().vocab_size_)
        lengths = self.token_lengths_[ids]
        # Symbol j of the output is symbol j - (where its token begins in the output) of its token.
        ends, starts = np.cumsum(lengths), np.cumsum(self.token_lengths_) - self.token_lengths_
        offset = np.repeat(starts[ids] - (ends - lengths), lengths)
        return self._symbols[offset + np.arange(ends[-1])]

    def __repr__(self) -> str:
        state = f"{self.vocab_size_} tokens" if self.tokens_ else "not fitted"
        return f"{type(self).__name__}({self.name!r}, {state})"

    # What a kind of tokenizer provides.

    @abstractmethod
    def _learn(self, x: Int[np.ndarray, " n"], alphabet_size: int) -> list[Token]:
        """The dictionary; the symbols first."""

    def _fit_probabilities(self, x: Int[np.ndarray, " n"]) -> Float[np.ndarray, " V"]:
        return fit_log_probabilities(x, self._trie, self.vocab_size_)

    def _encode(self, x: Int[np.ndarray, " n"]) -> Int[np.ndarray, " tokens"]:
        if self.encoder == "likelihood":
            return likeliest_encode(x, self._trie, self.log_probabilities_)
        return greedy_encode(x, self._trie)

    # Shared machinery.

    def _set_tokens(self, tokens: list[Token]) -> None:
        self.tokens_ = tuple(tokens)
        self.token_lengths_ = np.array([len(token) for token in tokens], np.int64)
        self._symbols = np.array([symbol for token in tokens for symbol in token], np.int64)
        self._trie = Trie(tokens, self.alphabet_size_)

    def _fitted(self) -> Tokenizer:
        if not self.tokens_:
            raise ValueError(f"{type(self).__name__} is not fitted: call fit(text) first")
        return self


class CharTokenizer(Tokenizer):
    """One token per symbol: no tokenization."""

    kind = "characters"

    def __init__(self) -> None:
        super().__init__(None, "greedy")

    def _learn(self, x: Int[np.ndarray, " n"], alphabet_size: int) -> list[Token]:
        return [(symbol,) for symbol in range(alphabet_size)]

    def _encode(self, x: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        return x.astype(np.int64)


class FixedLengthTokenizer(Tokenizer):
    """The theory's toy: every string of `length` symbols is a token, and a text is cut into blocks.

    Args:
        tail: what becomes of the symbols after the last whole block: `drop`, or `symbols` gives each a token of its
            own (then the dictionary has A more tokens, the last ones).
    """

    kind = "blocks"

    def __init__(self, length: int, *, tail: str = "drop") -> None:
        one_of("tail", tail, ("drop", "symbols"))
        if length < 1:
            raise ValueError(f"length = {length} must be at least 1")
        super().__init__(None, "greedy")
        self.length, self.tail = length, tail

    @property
    def name(self) -> str:
        return f"{self.kind} of {self.length}"

    def _learn(self, x: Int[np.ndarray, " n"], alphabet_size: int) -> list[Token]:
        blocks = alphabet_size**self.length
        if blocks > LARGEST_TABLE:
            raise ValueError(f"length = {self.length} makes {blocks} tokens; at most {LARGEST_TABLE}")
        digits = np.stack(np.unravel_index(np.arange(blocks), (alphabet_size,) * self.length), 1)
        tokens: list[Token] = [tuple(row) for row in digits.tolist()]
        return tokens + ([(symbol,) for symbol in range(alphabet_size)] if self.tail == "symbols" else [])

    def _encode(self, x: Int[np.ndarray, " n"]) -> Int[np.ndarray, " tokens"]:
        whole = len(x) - len(x) % self.length
        ids = np.zeros(whole // self.length, np.int64)
        for j in range(self.length):
            ids = ids * self.alphabet_size_ + x[j : whole : self.length]
        if self.tail == "drop":
            return ids
        return np.concatenate([ids, self.alphabet_size_**self.length + x[whole:].astype(np.int64)])
