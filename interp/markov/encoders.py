"""Cutting a text into tokens of a given dictionary: the longest token first, or the likeliest way over all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

Token = tuple[int, ...]


class Trie:
    """A dictionary as a tree of symbols, in arrays that compiled loops can walk.

    Attributes:
        child: [nodes, A], the node a symbol leads to, or -1; node 0 is the root.
        token_at: [nodes], the id of the token that ends at a node, or -1.
    """

    def __init__(self, tokens: Sequence[Token], alphabet_size: int) -> None:
        self.alphabet_size = alphabet_size
        paths: dict[tuple[int, int], int] = {}
        ends: dict[int, int] = {}
        for i, token in enumerate(tokens):
            node = 0
            for symbol in token:
                node = paths.setdefault((node, symbol), len(paths) + 1)
            ends.setdefault(node, i)
        self.child = np.full((len(paths) + 1, alphabet_size), -1, np.int32)
        for (node, symbol), target in paths.items():
            self.child[node, symbol] = target
        self.token_at = np.full(len(paths) + 1, -1, np.int32)
        self.token_at[list(ends)] = list(ends.values())


def greedy_encode(x: Int[np.ndarray, " n"], trie: Trie) -> Int[np.ndarray, " tokens"]:
    """At every position the longest token that fits.

    Raises ValueError where none does; a dictionary with all symbols always has one.
    """
    from interp.markov import loops

    out = np.empty(len(x), np.int64)
    count = loops.longest_matches(x, trie.child, trie.token_at, out)
    if count < 0:
        raise ValueError(
            f"no token fits at position {-count - 1}; the dictionary needs every symbol as a token"
        )
    return out[:count].copy()


def likeliest_encode(
    x: Int[np.ndarray, " n"], trie: Trie, log_probabilities: Float[np.ndarray, " V"]
) -> Int[np.ndarray, " tokens"]:
    """The tokens whose log-probabilities have the largest sum among all ways to write the text.

    Raises ValueError where there is no way with a probability above 0.
    """
    from interp.markov import loops

    out = np.empty(len(x), np.int64)
    count = loops.likeliest_path(x, trie.child, trie.token_at, np.asarray(log_probabilities, np.float64), out)
    if count < 0:
        raise ValueError(
            "no way to write the text has a probability above 0; the dictionary needs every symbol"
        )
    return out[:count].copy()


def fit_log_probabilities(
    x: Int[np.ndarray, " n"], trie: Trie, vocab_size: int, *, rounds: int = 10
) -> Float[np.ndarray, " V"]:
    """Token probabilities for `likeliest_encode`, learnt from a text by alternation.

    Starting from the greedy encoding: probabilities are the token counts plus one, and the text is encoded anew with
    them, until it doesn't change or `rounds` are over. No round lowers `sum ln Q(token) + sum over the dictionary ln
    Q`, the text's likelihood with a flat prior ("Viterbi training").
    """
    ids = greedy_encode(x, trie)
    for _ in range(rounds):
        counts = np.bincount(ids, minlength=vocab_size) + 1.0
        log_probabilities = np.log(counts / counts.sum())
        again = likeliest_encode(x, trie, log_probabilities)
        if np.array_equal(again, ids):
            break
        ids = again
    return log_probabilities
