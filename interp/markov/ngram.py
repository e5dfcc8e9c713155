"""Unigram and m-gram models over tokens: the best ones for a text, and smoothed ones for another."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from interp.markov.losses import SymbolLoss
from interp.markov.sources import LARGEST_TABLE, as_symbols

COUNTED = (
    "{unigram}, bigram: models of the training text (add-one smoothing) on the test text;\n"
    "a bigram has V^2 counts to learn, so over a large dictionary it can do worse than the unigram, and is no bound"
)


class NGramModel:
    """Predicts a token from the `order - 1` before it by (counts + smoothing) / total.

    Args:
        order: 1 is a unigram model.
        smoothing: added to every count. Above 0, a token that the training text lacks keeps a finite loss; at 0, the
            model of a text is the best of its order for that text.

    Raises ValueError for a table of more than 2^22 cells.
    """

    def __init__(self, order: int, vocab_size: int, *, smoothing: float = 1.0) -> None:
        if order < 1 or vocab_size < 1 or smoothing < 0:
            raise ValueError(
                f"order = {order}, vocab_size = {vocab_size}, smoothing = {smoothing}: needs order and vocab_size "
                "of at least 1, smoothing of at least 0"
            )
        if vocab_size**order > max(LARGEST_TABLE, vocab_size):
            raise ValueError(
                f"order = {order} over {vocab_size} tokens needs {vocab_size**order} cells; at most {LARGEST_TABLE}"
            )
        self.order, self.vocab_size, self.smoothing = order, vocab_size, smoothing
        self.probabilities: Float[np.ndarray, "contexts V"] | None = None

    def fit(self, ids: Int[np.ndarray, " n"]) -> NGramModel:
        """Count a text of at least `order` tokens."""
        shape = (self.vocab_size ** (self.order - 1), self.vocab_size)
        cells = np.bincount(self._cells(ids), minlength=shape[0] * shape[1]).reshape(shape) + self.smoothing
        totals = cells.sum(1, keepdims=True)
        self.probabilities = np.where(totals > 0, cells / np.maximum(totals, 1e-300), 1 / self.vocab_size)
        return self

    def cross_entropy(self, ids: Int[np.ndarray, " n"], token_lengths: Int[np.ndarray, " V"]) -> SymbolLoss:
        """The loss on a text. Its first `order - 1` tokens are context only; infinite for a token of probability 0."""
        if self.probabilities is None:
            raise ValueError("NGramModel is not fitted: call fit(ids) first")
        with np.errstate(divide="ignore"):
            nats = 0.0 - np.log(self.probabilities.ravel()[self._cells(ids)]).sum()
        targets = ids[self.order - 1 :]
        return SymbolLoss(float(nats), int(np.asarray(token_lengths)[targets].sum()), len(targets))

    def _cells(self, ids: Int[np.ndarray, " n"]) -> Int[np.ndarray, " targets"]:
        """The cell (context, target) of every target."""
        ids = as_symbols(ids, self.vocab_size)
        count = len(ids) - self.order + 1
        if count < 1:
            raise ValueError(f"{len(ids)} tokens are too few for order = {self.order}")
        cells = np.zeros(count, np.int64)
        for j in range(self.order):
            cells = cells * self.vocab_size + ids[j : j + count]
        return cells


def token_frequencies(ids: Int[np.ndarray, " n"], vocab_size: int) -> Float[np.ndarray, " V"]:
    """Q_MLE, the empirical law of the tokens: the best unigram model of the text."""
    return np.bincount(as_symbols(ids, vocab_size), minlength=vocab_size) / len(ids)


def optimal_unigram_loss(ids: Int[np.ndarray, " n"], token_lengths: Int[np.ndarray, " V"]) -> float:
    """H(Q_MLE) / E|t|, nats per symbol: no unigram model over these tokens does better on this text.

    (The law of the number of tokens, which the paper allows besides, costs nothing per symbol in the limit.)
    """
    return optimal_ngram_loss(ids, token_lengths, 1)


def optimal_ngram_loss(ids: Int[np.ndarray, " n"], token_lengths: Int[np.ndarray, " V"], order: int) -> float:
    """Empirical conditional entropy of a token given the `order - 1` before it, in nats per symbol."""
    model = NGramModel(order, len(token_lengths), smoothing=0.0).fit(ids)
    return model.cross_entropy(ids, token_lengths).per_symbol
