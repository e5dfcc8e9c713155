"""Tokenizers by name, as the command line and sweeps ask for them."""

from __future__ import annotations

import math
from typing import Any

from interp.core.messages import one_of
from interp.markov.bpe import BPETokenizer, SequentialBPETokenizer
from interp.markov.hf_tokenizers import HFTokenizer
from interp.markov.lzw import LZ78Tokenizer, LZWTokenizer
from interp.markov.tokenizer import CharTokenizer, FixedLengthTokenizer, Tokenizer

_LEARNT: dict[str, Any] = {
    "bpe": BPETokenizer,
    "sequential-bpe": SequentialBPETokenizer,
    "lzw": LZWTokenizer,
    "lz78": LZ78Tokenizer,
}
_HUGGING_FACE = {f"hf-{kind}": kind for kind in ("bpe", "wordpiece", "unigram")}
TOKENIZERS = ("characters", "blocks", *_LEARNT, *_HUGGING_FACE)


def make_tokenizer(
    name: str, vocab_size: int = 10, *, encoder: str | None = None, alphabet_size: int = 2
) -> Tokenizer:
    """An unfitted tokenizer.

    Args:
        name: one of `TOKENIZERS`. `characters` has no use for a size; `blocks` takes the longest length whose
            dictionary is not larger than `vocab_size`.
        encoder: None is the usual one; greedy, likelihood or (BPE) merges where the kind has a choice.

    Raises ValueError for an unknown name, or an encoder that the kind doesn't have.
    """
    one_of("tokenizer", name, TOKENIZERS)
    if name in _LEARNT:
        kind = _LEARNT[name]
        return kind(vocab_size) if encoder is None else kind(vocab_size, encoder)
    if encoder is not None:
        raise ValueError(f"encoder = {encoder!r}: {name} has one encoder only; leave it out")
    if name == "characters":
        return CharTokenizer()
    if name == "blocks":
        if vocab_size < alphabet_size:
            raise ValueError(
                f"vocab_size = {vocab_size} is below the {alphabet_size} symbols of the alphabet"
            )
        return FixedLengthTokenizer(int(math.log(vocab_size, alphabet_size) + 1e-9))
    return HFTokenizer(_HUGGING_FACE[name], vocab_size)
