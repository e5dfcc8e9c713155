"""Tokens as people read them: strings with visible white space, words that differ in case or blanks counted
together, and coloured strips for notebooks."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

_MARKS = str.maketrans({" ": "·", "\n": "⏎", "\r": "␍", "\t": "⇥"})
WARM, COLD = (224, 108, 0), (37, 99, 235)


class Vocabulary:
    """The strings of token ids, and for each id the number of its word.

    Ids whose strings are equal up to case and surrounding white space ("The", " the") are one word.  Without
    a model the strings are unknown: a token reads "#17" and every id is a word of its own.
    """

    def __init__(self, strings: Sequence[str] | None) -> None:
        self._strings = list(strings) if strings is not None else None
        if self._strings is None:
            return
        numbers: dict[str, int] = {}
        self.words: list[str] = []
        self._word_of = np.empty(len(self._strings), dtype=np.int64)
        for i, string in enumerate(self._strings):
            word = string.strip().lower() or string
            if word not in numbers:
                numbers[word] = len(self.words)
                self.words.append(word)
            self._word_of[i] = numbers[word]

    @classmethod
    def of(cls, model: LanguageModel | None) -> Vocabulary:
        """The vocabulary of a model; of none, one that only knows numbers."""
        if model is None or model.tokenizer is None:
            return cls(None)
        return cls(model.decode_tokens(list(range(len(model.tokenizer)))))

    def string(self, token_id: int) -> str:
        if self._strings is None or token_id >= len(self._strings):
            return f"#{token_id}"
        return self._strings[token_id]

    def word_ids(self, token_ids: Int[np.ndarray, ...]) -> Int[np.ndarray, ...]:
        """The word of each token id, as a number."""
        ids = np.asarray(token_ids, dtype=np.int64)
        if self._strings is None:
            return ids
        known = np.minimum(ids, len(self._strings) - 1)
        return np.where(ids < len(self._strings), self._word_of[known], len(self.words) + ids)

    def word(self, word_id: int) -> str:
        if self._strings is None:
            return f"#{word_id}"
        return self.words[word_id] if word_id < len(self.words) else f"#{word_id - len(self.words)}"


def visible(token: str) -> str:
    """A token with its blanks, tabs and newlines shown as signs."""
    return token.translate(_MARKS)


def repr_html(
    tokens: Sequence[str],
    values: Iterable[float],
    *,
    limit: float | None = None,
    title: str | None = None,
) -> str:
    """Tokens as a coloured strip of HTML, for `IPython.display.HTML`.

    Positive values are warm, negative ones cold; the colour is full at `limit` (default: the largest
    magnitude).  Each token's tooltip tells its position and value.  Everything is escaped.

    Raises:
        ValueError: tokens and values differ in number, or a value is not finite.
    """
    numbers = [float(v) for v in values]
    if len(tokens) != len(numbers):
        raise ValueError(f"{len(tokens)} tokens but {len(numbers)} values: give one value a token")
    if not all(math.isfinite(v) for v in numbers):
        raise ValueError("values holds NaN or infinite numbers: there is no colour for them")
    full = limit if limit is not None else max((abs(v) for v in numbers), default=0.0)
    spans = []
    for position, (token, value) in enumerate(zip(tokens, numbers, strict=True)):
        r, g, b = WARM if value >= 0 else COLD
        strength = min(abs(value) / full, 1.0) if full > 0 else 0.0
        style = f"background:rgba({r},{g},{b},{0.85 * strength:.3f})" if strength else ""
        tip = html.escape(f"position {position}: {value:.4g}")
        text = html.escape(visible(token))
        spans.append(
            f'<span title="{tip}" style="border-radius:3px;padding:1px 0;{style}">{text}</span>'
            + ("<wbr>" if "\n" not in token else "<br>")
        )
    heading = f'<div style="opacity:.65;font-size:.85em">{html.escape(title)}</div>' if title else ""
    font = "font-family:ui-monospace,Menlo,Consolas,monospace;line-height:1.8;white-space:pre-wrap"
    return f'<div style="{font}">{heading}{"".join(spans)}</div>'
