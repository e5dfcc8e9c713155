"""Reading answers as models really write them, and saying what could not be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interp.core.messages import one_of
from interp.recall import parsing_forms
from interp.recall.narration import Pair
from interp.recall.parsing_forms import Span

FORMS = ("matrix", "items", "nested", "adjacency", "headed_lists", "sentences")
DUPLICATES = ("last", "mean")
MAX_UNREAD = 20

_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.S | re.I)
_ITEM_OF_ANYONE = re.compile(r"\(\s*[^,()\n]+?\s*,\s*[^(),\n]+?\s*\)\s*[:=-]\s*[01]\b")
_REFUSAL = re.compile(
    r"\bi(?:['’]m| am) (?:sorry|unable|not able)|\bi (?:cannot|can['’]?t|can not|won['’]?t|refuse)\b|"
    r"\bi (?:don['’]?t|do not) (?:have|remember|recall|know)\b|\bas an ai\b|\bunable to\b",
    re.I,
)


@dataclass(frozen=True)
class ParsedAnswer:
    """What an answer says about the pairs asked.

    Attributes:
        answers: by pair, spelled as asked: 0 or 1, or between where the model wrote a probability, or contradicted
            itself and duplicates are averaged.
        spans: where the answer's digit or word stands in the text, where it has one of its own.
        how: the form it was read from (`FORMS`, or position).
        coverage: answered pairs / pairs asked.
        n_unparsed: statements about names or pairs that were not asked.
        n_duplicates, n_conflicts: answers beyond a pair's first; pairs that got different answers.
        unread: pieces of text with names in them that said nothing legible (20 at most).
        refusal: whether nothing was answered and the text reads like a refusal.
    """

    answers: dict[Pair, float]
    spans: dict[Pair, Span]
    how: dict[Pair, str]
    coverage: float
    n_unparsed: int
    n_duplicates: int
    n_conflicts: int
    unread: tuple[str, ...]
    refusal: bool

    @property
    def positional(self) -> bool:
        """Whether pairs were told apart by the order of the digits only."""
        return "position" in self.how.values()


def parse_answer(
    text: str, pairs: Sequence[Pair], nodes: Sequence[str] = (), *, duplicates: str = "last"
) -> ParsedAnswer:
    """Read an answer about `pairs`.

    The forms are tried from strict to loose, each on what the ones before left open: a 0/1 matrix, items
    (`(a,b): 1`, `a - b: yes`, table and CSV rows, JSON), nested JSON, adjacency lists, pairs below a heading,
    sentences; and, where none of them finds anything and there are as many digits as pairs, position. Case,
    orientation, quotes, bold, bullets and numbering don't matter; drafts in <think> tags are left out.

    Args:
        nodes: further names of the network that may come up without being asked about.
        duplicates: the `last` answer wins, or their `mean`.

    Raises:
        ValueError: no pairs, a pair asked twice, or an unknown value of duplicates.
    """
    one_of("duplicates", duplicates, DUPLICATES)
    asked = {_key(u, v): (u, v) for u, v in pairs}
    if not asked or len(asked) < len(pairs):
        raise ValueError(f"pairs: expected at least one and none twice, got {len(pairs)}")
    known = {name.casefold(): name for name in (*nodes, *(name for pair in pairs for name in pair))}
    name = "|".join(re.escape(n).replace(r"\ ", r"[ _]+") for n in sorted(known, key=len, reverse=True))
    # Drafts are blanked, not cut: offsets stay those of the text.
    clean = _THOUGHTS.sub(lambda m: " " * len(m[0]), text)

    seen: dict[Pair, list[float]] = {}
    spans: dict[Pair, Span] = {}
    how: dict[Pair, str] = {}
    used: list[Span] = []
    unread: list[str] = []
    for form in FORMS:
        mine: list[Span] = []
        for found in getattr(parsing_forms, form)(clean, name):
            if _overlaps(found.span, used):
                continue
            mine.append(found.span)
            pair = asked.get(_key(found.u, found.v))
            if pair is None:
                unread.append(clean[slice(*found.span)].strip())
            elif how.setdefault(pair, form) == form:
                seen.setdefault(pair, []).append(found.answer)
                if found.digit:
                    spans[pair] = found.digit
        used += mine
    if not seen:
        for pair, digit in zip(pairs, _digits_in_order(clean, len(pairs)), strict=False):
            seen[pair], spans[pair], how[pair] = [float(clean[digit[0]])], digit, "position"
    strangers = [m for m in _ITEM_OF_ANYONE.finditer(clean) if not _overlaps(m.span(), used)]
    unread += [m[0] for m in strangers]
    n_unparsed = len(unread)
    unread += _lines_with_names(clean, name, [*used, *(m.span() for m in strangers)])
    pick = (lambda values: values[-1]) if duplicates == "last" else (lambda values: float(np.mean(values)))
    answers = {pair: pick(seen[pair]) for pair in pairs if pair in seen}
    return ParsedAnswer(
        answers,
        {pair: spans[pair] for pair in answers if pair in spans},
        {pair: how[pair] for pair in answers},
        len(answers) / len(pairs),
        n_unparsed,
        sum(len(values) - 1 for values in seen.values()),
        sum(len(set(values)) > 1 for values in seen.values()),
        tuple(dict.fromkeys(unread))[:MAX_UNREAD],
        not answers and bool(_REFUSAL.search(clean)),
    )


def _key(u: str, v: str) -> frozenset[str]:
    return frozenset(re.sub(r"[ _]+", " ", name).casefold() for name in (u, v))


def _overlaps(span: Span, others: Sequence[Span]) -> bool:
    return any(a < span[1] and span[0] < b for a, b in others)


def _digits_in_order(text: str, n: int) -> list[Span]:
    """The only n digits of a text, standing alone or in one row of n; nothing where there are more or fewer."""
    row = re.findall(rf"(?<!\w)[01]{{{n}}}(?!\w)", text)
    if n > 1 and len(row) == 1:
        start = text.index(row[0])
        return [(start + k, start + k + 1) for k in range(n)]
    alone = [m.span() for m in re.finditer(r"(?<![\w.])[01](?![\w%]|\.\d)", text)]
    return alone if len(alone) == n else []


def _lines_with_names(text: str, name: str, used: Sequence[Span]) -> list[str]:
    pattern = re.compile(rf"(?<!\w)(?:{name})(?!\w)", re.I)
    lines = [m for m in re.finditer(r"[^\n]+", text) if not _overlaps(m.span(), used)]
    return [m[0].strip() for m in lines if pattern.search(m[0])]
