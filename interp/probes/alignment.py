"""Which tokens make up which word, by the characters they cover.

The model reads the sentence as it is written, tokenised by its own tokenizer, and a token belongs to every word
that has a character of it. So one rule serves byte-level BPE (whose tokens carry the space before a word),
SentencePiece and WordPiece, and words that are split or glued in unlike ways: in `don't` = `do` + `n't`, cut into
`don` and `'t`, the token `don` belongs to both words.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from interp.core.messages import one_of
from interp.models.tokenization import bos_prefix, own_settings_kept
from interp.probes.treebank import DependencyTree, Span

logger = logging.getLogger(__name__)
ON_MISMATCH = ("raise", "skip")


@dataclass(frozen=True)
class AlignedSentence:
    """A sentence as the model reads it.

    Attributes:
        ids: its token ids, BOS included.
        words: for every word the positions of its tokens in `ids`.
    """

    ids: tuple[int, ...]
    words: tuple[tuple[int, ...], ...]


def align(
    trees: Sequence[DependencyTree],
    tokenizer: Any,
    *,
    add_bos: bool | None = None,
    max_tokens: int | None = None,
    on_mismatch: str = "raise",
) -> list[AlignedSentence | None]:
    """Tokenise sentences and find the tokens of every word.

    Args:
        tokenizer: a fast transformers tokenizer (it must know the characters of its tokens).
        add_bos: begin with the BOS token; None: where the tokenizer has one. Whatever token stands first in a
            causal model has activations unlike all others, and without BOS that is the first word's.
        max_tokens: the longest sentence the model takes; the words behind it have no tokens.
        on_mismatch: what to do with a sentence of which a word has no token: "raise", or "skip" it (None in
            its place, with a warning that counts them).

    Raises:
        ValueError: a tokenizer that does not know its characters, or (on_mismatch="raise") a word without a
            token; the message names the sentence by its index.
    """
    one_of("on_mismatch", on_mismatch, ON_MISMATCH)
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"tokenizer {type(tokenizer).__name__} doesn't say which characters its tokens cover: use a fast one"
        )
    bos = bos_prefix(tokenizer, tokenizer.bos_token_id is not None if add_bos is None else add_bos)
    with own_settings_kept(tokenizer):
        encoded = tokenizer(
            [tree.text for tree in trees],
            add_special_tokens=False,
            return_offsets_mapping=True,
            padding=False,
            truncation=False,
            verbose=False,
        )
    aligned: list[AlignedSentence | None] = []
    for index, tree in enumerate(trees):
        ids = [*bos, *encoded["input_ids"][index]][:max_tokens]
        words = tokens_of_words(encoded["offset_mapping"][index], tree.spans or (), first=len(bos))
        words = [tuple(token for token in tokens if token < len(ids)) for tokens in words]
        lost = [word for word, tokens in zip(tree.words, words, strict=True) if not tokens]
        if lost and on_mismatch == "raise":
            cut = "" if max_tokens is None else f" (max_tokens={max_tokens})"
            raise ValueError(
                f"sentence {index}: no token for {lost[0]!r}{cut} in {tree.text!r}; "
                "on_mismatch='skip' leaves such sentences out"
            )
        aligned.append(None if lost else AlignedSentence(tuple(ids), tuple(words)))
    if skipped := aligned.count(None):
        logger.warning("left out %d of %d sentences with a word that has no token", skipped, len(trees))
    return aligned


def tokens_of_words(
    offsets: Sequence[Span], spans: Sequence[Span], *, first: int = 0
) -> list[tuple[int, ...]]:
    """For every word the tokens that share a character with it; the first token has the number `first`."""
    return [
        tuple(
            token
            for token, (start, end) in enumerate(offsets, start=first)
            if start < word_end and end > word_start
        )
        for word_start, word_end in spans
    ]
