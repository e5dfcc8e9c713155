"""Contrastive inputs: the same text ending in a positive, a negative and a neutral word.

Marks et al. 2024 (arXiv 2310.08164) let a large language model replace the words of reviews. `build_lexicon_triples`
fills templates instead, `triples_from_texts` takes texts that somebody else has rewritten.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from interp.core.device import derive_seed
from interp.core.messages import at_least
from interp.models.tokenization import encode

SLOT = "{word}"
# Frames that take a word of any part of speech: VADER's strongest entries are nouns and verbs as well as adjectives.
TEMPLATES = (
    "the first word that came to my mind was {word}",
    "if i had to sum it up in one word, i would say {word}",
    "she looked at the page and read the word {word}",
    "at the head of the review stood just one word: {word}",
    "when they asked him about the film, he said {word}",
    "people talk about this book and the word they use is {word}",
    "on the last page somebody had written {word}",
    "the answer that most visitors gave was {word}",
)
NEUTRAL_WORDS = tuple(
    "usual typical wooden metal square round narrow wide local central digital daily weekly yellow brown orange "
    "northern western vertical double single table window paper letter corner bottle garden river station "
    "engine summer kitchen morning carry measure count arrive include".split()
)

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ContrastiveTriple:
    """Three texts that end in their target word and are alike but for it.

    Attributes:
        positive, negative, neutral: the texts.
        target_positive, target_negative: the words that the first two end in, as they stand in the lexicon.
    """

    positive: str
    negative: str
    neutral: str
    target_positive: str
    target_negative: str

    def __post_init__(self) -> None:
        for text, word in ((self.positive, self.target_positive), (self.negative, self.target_negative)):
            if not word or not text.lower().endswith(word.lower()):
                raise ValueError(f"the text {text!r} doesn't end in its target word {word!r}")
        if not self.neutral:
            raise ValueError(f"the triple of {self.positive!r} has no neutral text")


def build_lexicon_triples(
    templates: Sequence[str] = TEMPLATES,
    lexicon: Mapping[str, float] | None = None,
    n: int = 1000,
    seed: int = 0,
    tokenizer: Any = None,
    *,
    neutral: Sequence[str] = NEUTRAL_WORDS,
    share: float = 0.25,
) -> list[ContrastiveTriple]:
    """n triples from templates whose slot is ``{word}``; what follows the slot is cut off.

    Every positive word comes equally often, give or take one, and so does every negative and every neutral one.

    Args:
        templates: lower case; the slot must not come first, where a model's activations are out of the ordinary.
        lexicon: valence by word; None: VADER.
        tokenizer: keep only words that are one token behind a blank.
        neutral: words that replace the target in the neutral text, best of the same part of speech.
        share: of the lexicon's entries at each end that are strong enough: the quarter of the highest valence, if
            above 0, and the quarter of the lowest. 1 takes every word that has a sign.

    Raises ValueError for a template without a slot or one that starts with it, and where no word is left.
    """
    from interp.probes.lfp.lexicon import vader_lexicon

    at_least("n", n, 1)
    if not templates:
        raise ValueError("templates is empty: give texts with the slot {word}")
    for template in templates:
        if template.count(SLOT) != 1 or not template.partition(SLOT)[0].strip():
            raise ValueError(f"template {template!r} must hold {SLOT} once, and not as its first word")
    lexicon = vader_lexicon() if lexicon is None else lexicon
    strong = strong_words(lexicon, share)
    choices = [_single_tokens(words, tokenizer) for words in (*strong, tuple(neutral))]
    for name, words in zip(("positive", "negative", "neutral"), choices, strict=True):
        if not words:
            raise ValueError(
                f"no {name} word is left: widen the lexicon or share, or give a tokenizer in which they are one token"
            )
    random = np.random.default_rng(derive_seed(seed, "triples"))
    starts = [template.partition(SLOT)[0] for template in templates]
    columns = [_evenly(random, words, n) for words in (starts, *choices)]
    return [
        ContrastiveTriple(start + up, start + down, start + flat, up, down)
        for start, up, down, flat in zip(*columns, strict=True)
    ]


def strong_words(
    lexicon: Mapping[str, float], share: float = 0.25
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The entries at the two ends of the lexicon, `share` of it each: positive and negative words, letters only."""
    if not 0 < share <= 1:
        raise ValueError(f"share = {share} must lie in (0, 1]")
    ranked = sorted(lexicon, key=lambda word: (lexicon[word], word))
    k = max(1, round(share * len(ranked)))
    up = [word for word in ranked[-k:] if lexicon[word] > 0 and word.isalpha()]
    down = [word for word in ranked[:k] if lexicon[word] < 0 and word.isalpha()]
    return tuple(sorted(up)), tuple(sorted(down))


def triples_from_texts(
    texts: Sequence[tuple[str, str, str]],
    lexicon: Mapping[str, float] | None = None,
    tokenizer: Any = None,
    *,
    share: float = 0.25,
) -> list[ContrastiveTriple]:
    """Triples from (positive, negative, neutral) versions of the same sentences, word for word.

    Each is cut right after its first target word, the neutral one after the word at the same place as in the positive
    one. A sentence without a target that is one token is left out, and how many were is logged.

    Raises ValueError where none is left.
    """
    from interp.probes.lfp.lexicon import vader_lexicon

    up, down = (
        frozenset(words) for words in strong_words(vader_lexicon() if lexicon is None else lexicon, share)
    )
    made: list[ContrastiveTriple] = []
    for positive, negative, neutral in texts:
        try:
            first, up_word = trim_to_target(positive, up, tokenizer)
            second, down_word = trim_to_target(negative, down, tokenizer)
        except ValueError as error:
            _log.debug("left out: %s", error)
            continue
        place = len(_WORD.findall(first))
        ends = [match.end() for match in _WORD.finditer(neutral)]
        if place <= len(ends) and place > 1:
            third = neutral[: ends[place - 1]].lower()
            made.append(ContrastiveTriple(first, second, third, up_word, down_word))
    if not made:
        raise ValueError(
            f"none of the {len(texts)} sentences has a target word of each kind that is one token"
        )
    _log.info("%d triples of %d sentences", len(made), len(texts))
    return made


def trim_to_target(text: str, words: Collection[str], tokenizer: Any = None) -> tuple[str, str]:
    """The text in lower case, cut right after the first of some words, and that word.

    Raises ValueError where there is none, or where it is not one token.
    """
    lowered = text.lower()
    for match in _WORD.finditer(lowered):
        if match[0] in words:
            if tokenizer is not None and not is_single_token(match[0], tokenizer):
                raise ValueError(f"the target word {match[0]!r} of {text!r} is not a single token")
            return lowered[: match.end()], match[0]
    raise ValueError(f"the text {text!r} holds no target word")


def is_single_token(word: str, tokenizer: Any) -> bool:
    """Whether a word behind a blank is one token, and one that stands for it (no unknown-word token)."""
    ids = encode(tokenizer, [f" {word}"])[0]
    return len(ids) == 1 and tokenizer.decode(ids).strip().lower() == word.lower()


def _single_tokens(words: Sequence[str], tokenizer: Any) -> list[str]:
    return [word for word in words if tokenizer is None or is_single_token(word, tokenizer)]


def _evenly(random: np.random.Generator, items: Sequence[str], n: int) -> Iterator[str]:
    """n items in random order, all equally often, give or take one."""
    order = np.concatenate([random.permutation(len(items)) for _ in range(-(-n // len(items)))])[:n]
    return (items[i] for i in random.permutation(order))
