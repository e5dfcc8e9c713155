"""The dictionaries of Lempel, Ziv and Welch, used greedily."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from interp.markov.encoders import Token
from interp.markov.tokenizer import Tokenizer


class LZWTokenizer(Tokenizer):
    """The dictionary of LZW (Welch 1984), frozen when it has `vocab_size` tokens; then greedy.

    Learning takes the longest known string at its place, adds it with the symbol that follows, and goes on at that
    symbol.
    """

    kind = "LZW"
    goes_on_after = False  # the symbol that broke the match

    def __init__(self, vocab_size: int, encoder: str = "greedy") -> None:
        super().__init__(vocab_size, encoder)

    def _learn(self, x: Int[np.ndarray, " n"], alphabet_size: int) -> list[Token]:
        assert self.vocab_size is not None
        tokens: list[Token] = [(symbol,) for symbol in range(alphabet_size)]
        node_after = {
            (-1, symbol): symbol for symbol in range(alphabet_size)
        }  # nodes are token ids; -1 the root
        node = -1
        for symbol in x.tolist():
            if len(tokens) == self.vocab_size:
                return tokens
            longer = node_after.get((node, symbol))
            if longer is not None:
                node = longer
                continue
            node_after[node, symbol] = len(tokens)
            tokens.append((*tokens[node], symbol))
            node = -1 if self.goes_on_after else symbol
        return tokens


class LZ78Tokenizer(LZWTokenizer):
    """As LZW, but learning goes on after the symbol that broke the match (Ziv and Lempel 1978)."""

    kind = "LZ78"
    goes_on_after = True
