"""The forms in which models write answers about pairs; one reader each, from strict to loose.

A reader gets the text and a pattern for the network's names, and yields what it finds, first to last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

Span = tuple[int, int]


class Found(NamedTuple):
    """An answer about two names: the stretch of text it was read from, and its digit or word where it has one."""

    u: str
    v: str
    answer: float
    span: Span
    digit: Span | None = None


SOFT = r"[ \t*_`\"'“”‘’()（）\[\]{}]*"  # decoration around a name
ANSWER = r"(?P<a>(?:[01]?\.\d+|[01])(?![\w%]|\.\d)|(?<![a-z])(?:yes|no|true|false)(?![a-z])|✓|✔|✅|✗|✘|❌)"
_WORDS = r"answer|are|is|connected|associated|association|linked|link|value|related|pair|result|probability"
_BETWEEN = (
    rf"(?:[ \t*_`\"'“”‘’()（）\[\]{{}},，:;：=|>→–—?-]|\b(?:{_WORDS})\b)*?(?:\n[ \t]*(?=[01][ \t]*(?:\n|$)))?"
)
_JOIN = (
    rf"{SOFT}(?:[,，、|;]|<?[-–—]+>?|↔|→|&|/|(?<![a-z])(?:and|to|with|vs\.?)(?![a-z])){SOFT}"
    r"(?:(?:target|to|node ?2|node_2|b|v)[\"']?\s*:\s*[\"']?)?"
)
_ABOUT = re.compile(
    r"\b(?:(?:un|dis)?(?:associat|connect|link|relat)\w*|tied?|ties|friends?\w*|knows?|dating|dates|works? with|binds?|"
    r"interacts?|phosphorylates?|complex|club|choir|films?|paper|articles?|co-?author\w*|roads?|streets?|cousins?|"
    r"siblings?|acquaint\w+|relationship)\b",
    re.I,
)
_NEGATION = re.compile(
    r"\bnot?\b|n't\b|\bnever\b|\bun(?:associated|connected|linked|related)|\bdis\w+|\bneither\b|\bwithout\b",
    re.I,
)
_HEADING = re.compile(r"^(?P<head>[^\n:]{1,80}):(?P<rest>[^\n]*)$", re.M)
_POLAR = re.compile(r"associat|connect|link|relat|tied|\btrue\b|\bfalse\b|\byes\b|\bno\b|\b[01]s?\b", re.I)


def value(word: str) -> float:
    """0 or 1, or the probability that was written."""
    lowered = word.casefold()
    if lowered in ("yes", "true", "✓", "✔", "✅"):
        return 1.0
    if lowered in ("no", "false", "✗", "✘", "❌"):
        return 0.0
    return float(lowered)


def items(text: str, name: str) -> Iterator[Found]:
    """`(a,b): 1`, `a - b = yes`, rows of tables and CSV files, JSON objects of one pair each."""
    pattern = rf"(?<!\w)(?P<u>{name})(?!\w){_JOIN}(?<!\w)(?P<v>{name})(?!\w){_BETWEEN}{ANSWER}"
    for m in re.finditer(pattern, text, re.I):
        # A digit on the next line is an answer only where it stands alone; otherwise it numbers what follows.
        yield Found(m["u"], m["v"], value(m["a"]), m.span(), m.span("a"))


def nested(text: str, name: str) -> Iterator[Found]:
    """`a: {b: 1, c: 0}` in JSON or plain."""
    entry = rf"{SOFT}(?P<v>{name})(?!\w){SOFT}[:：= ]{SOFT}{ANSWER}"
    body = rf"(?:{entry}[ \t,;\n}}\"']*)+".replace("(?P<v>", "(?:").replace("(?P<a>", "(?:")
    pattern = rf"(?<!\w)(?P<u>{name})(?!\w){SOFT}[:：]\s*{{?\s*(?P<body>{body})"
    for m in re.finditer(pattern, text, re.I):
        offset = m.start("body")
        for inner in re.finditer(entry, m["body"], re.I):
            a, b = inner.span("a")
            yield Found(m["u"], inner["v"], value(inner["a"]), m.span(), (a + offset, b + offset))


def matrix(text: str, name: str) -> Iterator[Found]:
    """A header line of names and rows of a name and as many 0s and 1s; other marks leave a cell open."""
    columns: list[str] = []
    start = 0
    for line in re.finditer(r"[^\n]+", text):
        row = re.match(rf"\W*(?P<u>{name})(?!\w)(?P<cells>[\s|,;:*\d.x\\/–—-]*)$", line[0], re.I)
        if row and columns:
            cells = re.findall(r"\d+|[x\\/–—.-]+", row["cells"], re.I)
            if len(cells) == len(columns):
                for v, cell in zip(columns, cells, strict=True):
                    if cell in ("0", "1") and row["u"].casefold() != v.casefold():
                        yield Found(row["u"], v, float(cell), (start, line.end()))
                continue
        found = re.findall(rf"(?<!\w)(?:{name})(?!\w)", line[0], re.I)
        rest = re.sub(rf"(?<!\w)(?:{name})(?!\w)", "", line[0], flags=re.I)
        if len(found) > 1 and not re.search(r"[\w(){}:]", rest):
            columns, start = found, line.start()


def adjacency(text: str, name: str) -> Iterator[Found]:
    """`a: b, c` a line: those listed are associated; two that both have a line and list each other nowhere are not."""
    listed = rf"(?:[ \t*_`\"'\[\](),;|]|(?<!\w)(?:{name}|and|none)(?!\w))*"
    pattern = rf"^\W*(?P<u>{name})(?!\w){SOFT}(?:[:：]|->|→)(?P<rest>{listed})$"
    lists: dict[str, tuple[str, list[str], Span]] = {}
    for m in re.finditer(pattern, text, re.I | re.M):
        others = re.findall(rf"(?<!\w)(?:{name})(?!\w)", m["rest"], re.I)
        if others or "none" in m["rest"].casefold():
            lists[m["u"].casefold()] = (m["u"], others, m.span())
    if len(lists) < 2:
        return
    for u, others, span in lists.values():
        for v in others:
            yield Found(u, v, 1.0, span)
    for (a, (u, of_u, span)), (b, (v, of_v, _)) in combinations(lists.items(), 2):
        if b not in map(str.casefold, of_u) and a not in map(str.casefold, of_v):
            yield Found(u, v, 0.0, span)


def headed_lists(text: str, name: str) -> Iterator[Found]:
    """`Associated: (a,b), (c,d)` and `Not associated: ...`, on the heading's line or below it."""
    heads = [
        m for m in _HEADING.finditer(text) if not re.search(rf"(?<!\w)(?:{name})(?!\w)", m["head"], re.I)
    ]
    for index, m in enumerate(heads):
        if not _POLAR.search(m["head"]):
            continue
        absent = _NEGATION.search(m["head"]) or re.search(r"\b0s?\b|\bfalse\b", m["head"], re.I)
        end = heads[index + 1].start() if index + 1 < len(heads) else len(text)
        for pair in re.finditer(
            rf"(?<!\w)(?P<u>{name})(?!\w){_JOIN}(?<!\w)(?P<v>{name})(?!\w)", text[m.start("rest") : end], re.I
        ):
            offset = m.start("rest")
            yield Found(
                pair["u"], pair["v"], 0.0 if absent else 1.0, (pair.start() + offset, pair.end() + offset)
            )


def sentences(text: str, name: str) -> Iterator[Found]:
    """`a is linked with b and c, but not with d`; `Is a associated with b? No.`"""
    spans = [m.span() for m in re.finditer(r"[^\n.;!?]+[.;!?]*", text)]
    for index, (start, end) in enumerate(spans):
        sentence = text[start:end]
        asked = sentence.rstrip().endswith("?")
        following = text[slice(*spans[index + 1])].strip() if asked and index + 1 < len(spans) else ""
        reply = re.match(r"\W*(yes|no)\b", following, re.I)
        if asked and not reply:
            continue
        subjects: list[str] = []
        for clause in re.split(r"\b(?:but|while|whereas|however)\b", sentence, flags=re.I):
            names = [(m[0], m.start()) for m in re.finditer(rf"(?<!\w)(?:{name})(?!\w)", clause, re.I)]
            about = _ABOUT.search(clause)
            if not names or not (about or subjects):
                continue
            before = [n for n, at in names if about and at < about.start()]
            after = [n for n, at in names if n not in before]
            if not before and subjects:
                before = subjects
            subjects = before
            pairs = (
                list(product(before, after)) if before and after else list(combinations(before or after, 2))
            )
            answer = 0.0 if _NEGATION.search(clause) else 1.0
            if reply:
                answer = 1.0 if reply[1].casefold() == "yes" else 0.0
            for u, v in pairs:
                yield Found(u, v, answer, (start, end))
