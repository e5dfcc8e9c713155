"""Dictionaries learnt by Hugging Face's `tokenizers`: BPE, WordPiece and Unigram over symbols as characters."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
from jaxtyping import Int

from interp.core.messages import one_of
from interp.markov.bpe import apply_merges
from interp.markov.encoders import Token, greedy_encode, likeliest_encode
from interp.markov.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
KINDS = ("bpe", "wordpiece", "unigram")
CHUNK = 512  # characters: training on one long string takes a hundred times as long and learns the same
SLOW_UNIGRAM = 50_000  # symbols
FIRST = ord("0")


class HFTokenizer(Tokenizer):
    """A dictionary learnt by the `tokenizers` library, encoded here by the rule of its kind.

    BPE applies its merges, WordPiece takes the longest token, Unigram (a likelihood encoder) the likeliest way under
    the probabilities it learnt. The library's own encoder cuts a text into the same tokens but is made for words: a
    text would have to be cut up. WordPiece differs at the beginning of a text: the library spells a word's first token
    with pieces of their own (at first just the symbols) and all behind it with those marked "##". A text is one long
    word, so the "##" pieces are the dictionary here, from the first symbol on. Behind a symbol put in front of a text,
    and taken as a token by itself, the library gives the same tokens.

    `vocab_size` counts tokens that are used: neither the library's unknown token nor a word's first pieces. `hf_` is
    the library's tokenizer; it reads `as_characters(x)`.

    Args:
        kind: bpe, wordpiece or unigram. Unigram training is slow: give it at most some 50 thousand symbols.
        max_piece_length: longest token of a Unigram dictionary.
    """

    encoders = ("native",)
    short_because = "the library's trainer found no more"

    def __init__(self, kind: str, vocab_size: int, *, max_piece_length: int = 16) -> None:
        one_of("kind", kind, KINDS)
        super().__init__(vocab_size, "native")
        self.hf_kind, self.max_piece_length = kind, max_piece_length
        self.merges_: list[tuple[int, int]] = []  # of BPE
        self.kind = {"bpe": "HF BPE", "wordpiece": "HF WordPiece", "unigram": "HF Unigram"}[kind]

    def _learn(self, x: Int[np.ndarray, " n"], alphabet_size: int) -> list[Token]:
        assert self.vocab_size is not None
        if self.hf_kind == "unigram" and len(x) > SLOW_UNIGRAM:
            logger.warning(
                "Unigram training on %d symbols takes minutes; %d are enough", len(x), SLOW_UNIGRAM
            )
        text = as_characters(x)
        chunks = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
        symbols: list[Token] = [(symbol,) for symbol in range(alphabet_size)]
        # The library's Unigram trainer counts its unknown token, and never ends where no place is left for it.
        asked = self.vocab_size + (self.hf_kind == "unigram")
        while True:
            self.hf_, trainer = self._untrained(
                asked, [chr(FIRST + symbol) for symbol in range(alphabet_size)]
            )
            self.hf_.train_from_iterator(chunks, trainer)
            model = json.loads(self.hf_.to_str())["model"]
            scores = self._pieces(model)
            tokens = list(dict.fromkeys(symbols + [token for token in scores if len(token) > 1]))
            missing = self.vocab_size - len(tokens)
            if missing <= 0 or len(model["vocab"]) < asked:
                break
            asked += missing  # as many places went to pieces that are no tokens of ours
        ids = {token: i for i, token in enumerate(tokens)}
        if self.hf_kind == "bpe":
            self.merges_ = [(ids[_token(left)], ids[_token(right)]) for left, right in model["merges"]]
        lowest = (
            min(scores.values(), default=0.0) - 10.0
        )  # the library's own penalty for what it doesn't know
        self.log_probabilities_ = np.array([scores.get(token, lowest) for token in tokens])
        return tokens

    def _pieces(self, model: dict[str, Any]) -> dict[Token, float]:
        """The library's tokens, in the order of their ids, with their log-probabilities (0 where there are none)."""
        if self.hf_kind == "unigram":
            return {_token(piece): score for piece, score in model["vocab"] if piece != "<unk>"}
        pieces = sorted(model["vocab"], key=model["vocab"].get)
        if self.hf_kind == "wordpiece":
            pieces = [piece[2:] for piece in pieces if piece.startswith("##")]
        return dict.fromkeys(map(_token, pieces), 0.0)

    def _untrained(self, size: int, alphabet: list[str]) -> tuple[Any, Any]:
        from tokenizers import Tokenizer as HuggingFace
        from tokenizers import models, trainers

        common: dict[str, Any] = {
            "vocab_size": size,
            "initial_alphabet": alphabet,
            "show_progress": False,
        }
        if self.hf_kind == "bpe":
            return HuggingFace(models.BPE()), trainers.BpeTrainer(**common, special_tokens=[])
        if self.hf_kind == "unigram":
            trainer = trainers.UnigramTrainer(
                **common, unk_token="<unk>", max_piece_length=self.max_piece_length, special_tokens=[]
            )
            return HuggingFace(models.Unigram()), trainer
        model = models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=10**9)
        return HuggingFace(model), trainers.WordPieceTrainer(**common, special_tokens=["[UNK]"])

    def _encode(self, x: Int[np.ndarray, " n"]) -> Int[np.ndarray, " tokens"]:
        if self.hf_kind == "bpe":
            return apply_merges(x.astype(np.int64), self.merges_, self.alphabet_size_)
        if self.hf_kind == "wordpiece":
            return greedy_encode(x, self._trie)
        return likeliest_encode(x, self._trie, self.log_probabilities_)


def as_characters(x: Int[np.ndarray, " n"]) -> str:
    """Symbol s as the character `"0" + s`."""
    return "".join(map(chr, (np.asarray(x, np.int64) + FIRST).tolist()))


def _token(piece: str) -> Token:
    return tuple(ord(character) - FIRST for character in piece)
