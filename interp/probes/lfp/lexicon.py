"""The word-level feedback: VADER's valences, and the reward that sums them over a text.

Hutto and Gilbert 2014, "VADER"; the reward is that of Marks et al. 2024 (arXiv 2310.08164), controlled sentiment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType

import numpy as np
from jaxtyping import Float

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


@cache
def vader_lexicon() -> Mapping[str, float]:
    """The 7,506 entries of VADER with their mean valences, from -3.9 to 3.4; words, slang and emoticons.

    Raises ImportError, with the command that helps, where vaderSentiment is not installed.
    """
    try:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
    except ImportError as error:
        raise ImportError(
            "the VADER lexicon is in the package vaderSentiment: pip install 'interp-toolkit[feedback]'"
        ) from error
    return MappingProxyType(dict(SentimentIntensityAnalyzer().lexicon))


def word_valence(word: str) -> float:
    """A word's valence, without regard to case and surrounding blanks; 0 for a word outside the lexicon."""
    return vader_lexicon().get(word.strip().lower(), 0.0)


def words_of(text: str) -> Iterator[str]:
    """The lower-cased words of a text; what stands between blanks and is an entry as a whole (an emoticon, a word
    with a hyphen) is one."""
    lexicon = vader_lexicon()
    for piece in text.lower().split():
        if piece in lexicon:
            yield piece
        else:
            yield from _WORD.findall(piece)


def vader_word_reward(
    texts: Sequence[str], scale: float = 5.0, clip: float = 10.0
) -> Float[np.ndarray, " n"]:
    """The summed valence of each text's words, divided by `scale` and clipped to [-clip, clip].

    Words are looked up one by one: "not good" earns what "good" does, and a longer text can earn more. Score what
    the model wrote, without the prompt.

    Raises ValueError where `scale` or `clip` is not positive, TypeError for a single string.
    """
    if isinstance(texts, str):
        raise TypeError("texts is one string: give a list of texts")
    if not (scale > 0 and clip > 0):
        raise ValueError(f"scale = {scale}, clip = {clip}: both must be positive")
    lexicon = vader_lexicon()
    sums = [sum(lexicon.get(word, 0.0) for word in words_of(text)) for text in texts]
    return np.clip(np.asarray(sums, dtype=np.float64) / scale, -clip, clip)
