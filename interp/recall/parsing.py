"""Reading answers as models really write them, and saying what could not be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from interp.core.messages import one_of
from interp.recall.narration import Pair
from interp.recall.parsing_forms import ITEM_OF_ANYONE, Found, adjacency, items, matrix, nested
from interp.recall.parsing_lists import contradicts, headed_lists, heading_above
from interp.recall.prose import Reading, read_prose
from interp.recall.prose_words import DOUBTS, NEGATORS, RETRACTIONS, Names, Span

Reader = Callable[[str, Names], Iterator[Found]]
STRUCTURED: dict[str, Reader] = {
    "matrix": matrix,
    "items": items,
    "nested": nested,
    "adjacency": adjacency,
    "headed_lists": headed_lists,
}
FORMS = (*STRUCTURED, "sentences")
DUPLICATES = ("last", "mean")
MAX_UNREAD = 20

_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.S | re.I)
# "1 = not linked" turns every digit round.
_TURNED_ROUND = re.compile(
    r"\b1\b[\"']?\s*(?:=|:|means|for|if|indicates|is for|stands for)\s*[\"']?(?:they are |the two are )?"
    r"(?:not|no|un\w+|non|dis\w+)\b(?!\s*:)|\b0\b[\"']?\s*(?:=|means|for|if|indicates|is for|stands for)\s*[\"']?"
    r"(?:they are |the two are )?(?:associated|connected|linked|tied|related|yes)\b",
    re.I,
)
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
        n_unread: pieces of text with names in them that were not understood with certainty.
        unread: the statements of `n_unparsed` and the pieces of `n_unread`, the first 20.
        refusal: whether nothing was answered and the text reads like a refusal.
    """

    answers: dict[Pair, float]
    spans: dict[Pair, Span]
    how: dict[Pair, str]
    coverage: float
    n_unparsed: int
    n_duplicates: int
    n_conflicts: int
    n_unread: int
    unread: tuple[str, ...]
    refusal: bool

    @property
    def positional(self) -> bool:
        """Whether pairs were told apart by the order of the digits only."""
        return "position" in self.how.values()


class _Said(NamedTuple):
    answer: float
    form: str
    span: Span
    digit: Span | None
    corrects: bool


def parse_answer(
    text: str, pairs: Sequence[Pair], nodes: Sequence[str] = (), *, duplicates: str = "last"
) -> ParsedAnswer:
    """Read an answer about `pairs`: what is certain, and nothing else.

    The forms are tried from strict to loose, each on the text that the ones before left over: a 0/1 matrix, items
    (`(a,b): 1`, `a - b: yes`, table and CSV rows, JSON), nested JSON, adjacency lists, pairs below a heading,
    sentences (see `prose_grammar`); and, where there are as many digits as pairs and nothing else, position. Case,
    orientation, quotes, bold, bullets and numbering don't matter; drafts in <think> tags are left out.

    What is hedged, conditional, reported, ambiguous or made of unknown words goes to `unread`. A pair that got
    different answers stays open, unless the later one corrects the earlier expressly or both are items.

    Args:
        nodes: further names of the network that may come up without being asked about.
        duplicates: of different answers to a pair the `last` counts where it may, see above; or always their `mean`.

    Raises:
        ValueError: no pairs, a pair asked twice, or an unknown value of duplicates.
    """
    one_of("duplicates", duplicates, DUPLICATES)
    if not pairs:
        raise ValueError("pairs: expected at least one, got 0")
    names = Names(dict.fromkeys((*nodes, *(name for pair in pairs for name in pair))))
    asked = {frozenset((names.spelled(u), names.spelled(v))): (u, v) for u, v in pairs}
    if len(asked) < len(pairs):
        raise ValueError(f"pairs: expected none twice, got {len(asked)} different ones of {len(pairs)}")
    # Drafts are blanked, not cut: offsets stay those of the text.
    clean = _THOUGHTS.sub(lambda m: " " * len(m[0]), text)

    said, left = _structured(clean, names)
    prose = read_prose(left, names, said.keys())
    for statement in prose.statements:
        for couple, tied in statement.said:
            said.setdefault(couple, []).append(
                _Said(float(tied), "sentences", statement.span, None, statement.corrects)
            )
    left = _blanked(left, [statement.span for statement in prose.statements])
    unread = prose.unread + _withdraw(said, prose)

    strangers = [m.span() for m in ITEM_OF_ANYONE.finditer(left) if not _of_known(m[0], names)]
    explicit = [
        s.span for key, every in said.items() if key not in asked for s in every if s.form != "sentences"
    ]
    unread += _lines_with_names(_blanked(left, [*strangers, *unread]), names)
    told = {pair: said[key] for key, pair in asked.items() if key in said}
    n_conflicts = sum(len({s.answer for s in every}) > 1 for every in told.values())
    n_duplicates = sum(len(every) - 1 for every in told.values())
    answers: dict[Pair, float] = {}
    spans: dict[Pair, Span] = {}
    how: dict[Pair, str] = {}
    for pair in pairs:
        if (every := told.get(pair)) is None:
            continue
        if (answer := _settled(every, duplicates)) is None:
            unread += [s.span for s in every]
            continue
        answers[pair], how[pair] = answer, every[-1].form
        if every[-1].digit:
            spans[pair] = every[-1].digit
    if not said:
        for pair, digit in zip(pairs, _digits_in_order(clean, len(pairs), names), strict=False):
            answers[pair], spans[pair], how[pair] = float(clean[digit[0]]), digit, "position"
    outside = list(dict.fromkeys([*explicit, *strangers]))
    pieces = [clean[slice(*span)].strip() for span in (*outside, *sorted(set(unread)))]
    return ParsedAnswer(
        answers,
        spans,
        how,
        len(answers) / len(pairs),
        len(outside),
        n_duplicates,
        n_conflicts,
        len(set(unread)),
        tuple(dict.fromkeys(pieces))[:MAX_UNREAD],
        not answers and bool(_REFUSAL.search(clean)),
    )


def _structured(text: str, names: Names) -> tuple[dict[frozenset[str], list[_Said]], str]:
    """What all forms but sentences say of pairs, and the text without what they were read from."""
    said: dict[frozenset[str], list[_Said]] = {}
    turned_round = bool(_TURNED_ROUND.search(text))
    left = text
    for form, reader in STRUCTURED.items():
        used: list[Span] = []
        for found in reader(left, names):
            heading = [] if form == "headed_lists" else heading_above(text, found.span[0], names)
            if heading and contradicts(heading, None if form in ("matrix", "adjacency") else found.answer):
                continue
            if turned_round and form in ("matrix", "items", "nested"):
                continue
            used.append(found.reach or found.span)
            answer = _Said(found.answer, form, found.span, found.digit, False)
            said.setdefault(frozenset((found.u, found.v)), []).append(answer)
        left = _blanked(left, used)
    return said, left


def _of_known(item: str, names: Names) -> bool:
    return sum(t.kind == "name" for t in names.tokens(item)) == 2


def _blanked(text: str, spans: Sequence[Span]) -> str:
    for a, b in spans:
        text = text[:a] + re.sub(r"[^\n]", " ", text[a:b]) + text[b:]
    return text


def _settled(every: Sequence[_Said], duplicates: str) -> float | None:
    """The one answer, or None where several contradict each other and none corrects the others."""
    if duplicates == "mean":
        return float(np.mean([s.answer for s in every]))
    latest = max(every, key=lambda s: s.span)
    if len({s.answer for s in every}) == 1 or latest.corrects or {s.form for s in every} == {"items"}:
        return latest.answer
    return None


def _withdraw(said: dict[frozenset[str], list[_Said]], prose: Reading) -> list[Span]:
    """Take out what prose calls wrong or casts doubt on, and give back where it stood."""
    gone: list[Span] = []
    for key, every in list(said.items()):
        kept = []
        for s in every:
            wrong = s.form != "sentences" and any(s.span[1] <= at for at in prose.withdrawals)
            doubted = any(s.span[1] <= at and key in ps for at, ps in prose.doubted)
            if wrong or doubted:
                gone.append(s.span)
            else:
                kept.append(s)
        if kept:
            said[key] = kept
        else:
            del said[key]
    return gone


def _digits_in_order(text: str, n: int, names: Names) -> list[Span]:
    """The only n digits of a text that says nothing else, standing alone or in one row; otherwise nothing."""
    spoken = {t.text for t in names.tokens(text)}
    if names.within(text) or "?" in spoken or spoken & (NEGATORS | DOUBTS | RETRACTIONS):
        return []
    row = re.findall(rf"(?<!\w)[01]{{{n}}}(?!\w)", text)
    if n > 1 and len(row) == 1 and len(re.findall(r"\d+", text)) == 1:
        start = text.index(row[0])
        return [(start + k, start + k + 1) for k in range(n)]
    alone = [m.span() for m in re.finditer(r"(?<![\w.+−-])[01](?![\w%]|\.\d)", text)]
    between = re.fullmatch(r"[\s,;.|*\[\]01-]*", text[alone[0][0] : alone[-1][1]]) if alone else None
    return alone if len(alone) == n and between and len(re.findall(r"\d+", text)) == n else []


def _lines_with_names(text: str, names: Names) -> list[Span]:
    return [m.span() for m in re.finditer(r"[^\n]+", text) if names.within(m[0])]
