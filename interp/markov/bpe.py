"""Byte-pair encoding over symbols: the usual one, and the sequential one that the theory analyses."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Int

from interp.markov.encoders import Token
from interp.markov.tokenizer import Tokenizer


class BPETokenizer(Tokenizer):
    """Merge the most frequent adjacent pair, again and again.

    Pairs are counted with overlaps; ties go to the smallest left id, then right id; a merge replaces from left to
    right, so `aaa` becomes `(aa) a`.

    Args:
        encoder: `merges` applies the merges in the order in which they were learnt (that is BPE); `greedy` and
            `likelihood` use the dictionary only.

    Attributes:
        merges_: the pairs of ids; merge i makes token A + i.
    """

    kind = "BPE"
    encoders = ("merges", "greedy", "likelihood")
    short_because = "the text has no pair that comes twice"

    def __init__(self, vocab_size: int, encoder: str = "merges") -> None:
        super().__init__(vocab_size, encoder)
        self.merges_: list[tuple[int, int]] = []

    def _learn(self, x: Int[np.ndarray, " n"], alphabet_size: int) -> list[Token]:
        assert self.vocab_size is not None
        tokens: list[Token] = [(symbol,) for symbol in range(alphabet_size)]
        self.merges_, ids = [], x.astype(np.int64)
        while len(tokens) < self.vocab_size:
            pair, count = most_frequent_pair(ids, len(tokens))
            if count < 2:
                break
            ids = self._merge(tokens, ids, pair)
        return tokens

    def _merge(self, tokens: list[Token], ids: Int[np.ndarray, " n"], pair: tuple[int, int]) -> np.ndarray:
        """Learn one merge, and apply it to the text."""
        self.merges_.append(pair)
        tokens.append(tokens[pair[0]] + tokens[pair[1]])
        return apply_merges(ids, [pair], len(tokens) - 1)

    def _encode(self, x: Int[np.ndarray, " n"]) -> Int[np.ndarray, " tokens"]:
        if self.encoder == "merges":
            return apply_merges(x.astype(np.int64), self.merges_, self.alphabet_size_)
        return super()._encode(x)


class SequentialBPETokenizer(BPETokenizer):
    """BPE that learns each merge from text it has not seen (Rajaraman et al. 2024, their analysable variant).

    The text is cut into `vocab_size` chunks; the merges so far encode the next chunk, its most frequent pair becomes
    the next merge, and the first chunk whose best pair comes fewer than `threshold` times ends the learning.

    Args:
        threshold: None is ln(vocab_size).
    """

    kind = "sequential BPE"
    short_because = "no pair came as often as the threshold in the next chunk of the text"

    def __init__(self, vocab_size: int, encoder: str = "merges", *, threshold: float | None = None) -> None:
        super().__init__(vocab_size, encoder)
        self.threshold = math.log(vocab_size) if threshold is None else threshold

    def _learn(self, x: Int[np.ndarray, " n"], alphabet_size: int) -> list[Token]:
        assert self.vocab_size is not None
        tokens: list[Token] = [(symbol,) for symbol in range(alphabet_size)]
        self.merges_ = []
        for chunk in np.array_split(x.astype(np.int64), self.vocab_size)[: self.vocab_size - alphabet_size]:
            ids = apply_merges(chunk, self.merges_, alphabet_size)
            pair, count = most_frequent_pair(ids, len(tokens))
            if count < max(2.0, self.threshold):
                break
            self._merge(tokens, ids, pair)
        return tokens


def most_frequent_pair(ids: Int[np.ndarray, " n"], vocab_size: int) -> tuple[tuple[int, int], int]:
    """The adjacent pair that comes most often (of several the smallest), and how often; overlaps count."""
    if len(ids) < 2:
        return (0, 0), 0
    pairs, counts = np.unique(ids[:-1] * vocab_size + ids[1:], return_counts=True)
    best = int(counts.argmax())
    left, right = divmod(int(pairs[best]), vocab_size)
    return (left, right), int(counts[best])


def apply_merges(
    ids: Int[np.ndarray, " n"], merges: list[tuple[int, int]], first_id: int
) -> Int[np.ndarray, " tokens"]:
    """Apply merges one after the other, each over the whole text; merge i makes id `first_id + i`."""
    from interp.markov import loops

    ids = ids.copy()
    n = len(ids)
    for i, (left, right) in enumerate(merges):
        n = loops.merge_pair(ids, n, left, right, first_id + i)
    return ids[:n].copy()
