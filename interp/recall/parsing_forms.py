"""The structured forms in which models write answers about pairs; one reader each, from strict to loose.

A reader gets the text and the network's names, and yields what it finds, first to last. An answer whose surroundings
could change it ("not", "or", "?", a second value) is not yielded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from interp.recall import prose_words as words
from interp.recall.prose_words import Names, Span


class Found(NamedTuple):
    """An answer about two names: the stretch of text it was read from, its digit or word where it has one, and how far
    what belongs to it reaches (a number before it, a reason behind it)."""

    u: str
    v: str
    answer: float
    span: Span
    digit: Span | None = None
    reach: Span | None = None


SOFT = r"[ \t*_`\"'“”‘’()（）\[\]{}]*"  # decoration around a name
ANSWER = (
    r"(?P<a>(?<![-+−.\w])(?:[01]?\.\d+|[01])(?![\w%]|\.\d)|"
    r"(?<![a-z])(?:yes|no|true|false)(?![a-z])(?=[*_`\"'”’]*[ \t]*(?:[,.;:!)\]}|(\n–—-]|$|because\b))|✓|✔|✅|✗|✘|❌)"
    r"(?![*_`\"'”’]*[ \t]*(?:[/\\?~+]|-\d|[-–—]\s*[01]\b))"
)
_WORDS = r"answer|are|is|connected|associated|association|linked|link|value|related|pair|result|probability"
# A dash stands between a pair and its answer only where no other sign does: behind one it is a minus.
_BETWEEN = (
    rf"(?:(?:[ \t*_`\"'“”‘’()（）\[\]{{}},，:;：=|→?]|[=-]>|\b(?:{_WORDS})\b)*?|"
    rf"{SOFT}[-–—]+>?[ \t]+(?:[*_`\"'“”‘’]|\b(?:{_WORDS})\b[ \t:=]*)*?|[ \t]*[)\]）][-–—]+)"
    r"(?:\n[ \t]*(?=[01][ \t]*(?:\n|$)))?"
)
_JOIN = (
    rf"{SOFT}(?:[,，、|;]|<?[-–—]+>?|↔|→|&|/|(?<![a-z])(?:and|to|with|vs\.?)(?![a-z])){SOFT}"
    r"(?:(?:target|to|node ?2|node_2|b|v)[\"']?\s*:\s*[\"']?)?"
)
ITEM_OF_ANYONE = re.compile(r"\(\s*[^,()\n]+?\s*,\s*[^(),\n]+?\s*\)\s*[:=-]\s*[01]\b")
_NUMBER = re.compile(r"(?:^|(?<=[\s|]))\(?(?:\d+[.):]|[-*•+#]+)\s*$")
_BEFORE_A_NAME = frozenset("pair and between for is are the source from node a u x item edge".split())
_CHANGES = words.DOUBTS | words.RETRACTIONS | {"either", "then", "sure", "certain", "or", "false"}


def value(word: str) -> float:
    """0 or 1, or the probability that was written."""
    lowered = word.casefold()
    if lowered in ("yes", "true", "✓", "✔", "✅"):
        return 1.0
    if lowered in ("no", "false", "✗", "✘", "❌"):
        return 0.0
    return float(lowered)


def items(text: str, names: Names) -> Iterator[Found]:
    """`(a,b): 1`, `a - b = yes`, rows of tables and CSV files, JSON objects of one pair each."""
    name = names.pattern
    pattern = rf"(?<!\w)(?<!\w[-'’])(?P<u>{name})(?!\w){_JOIN}(?<!\w)(?P<v>{name})(?!\w){_BETWEEN}{ANSWER}"
    # A digit on the next line is an answer only where it stands alone; otherwise it numbers what follows.
    found = list(re.finditer(pattern, text, re.I))
    edges = [0, *(m.end() for m in found)]
    for k, m in enumerate(found):
        after = found[k + 1].start() if k + 1 < len(found) else len(text)
        head, tail = _head(text, edges[k], m.start(), first=k == 0), _tail(text, m.end(), after)
        answer = value(m["a"])
        bracketed = bool(re.search(r"[(\[（{\"'“|,:;]\s*[*_`\"'“]*$", text[head : m.start()]))
        if _plain_head(names, text[head : m.start()], answer, bracketed) and _plain_tail(
            names, text[m.end() : tail], answer
        ):
            u, v = names.spelled(m["u"]), names.spelled(m["v"])
            yield Found(u, v, answer, m.span(), m.span("a"), (head, tail))


def _head(text: str, start: int, end: int, *, first: bool) -> int:
    """Where what stands before an item on its line begins, behind the item or sentence before it."""
    at = max(start, text.rfind("\n", 0, end) + 1)
    if (closed := _parenthesis(text, start, end)) is not None and not first:
        at = max(at, closed)
    ends = [m.end() for m in re.finditer(r"(?<!\d)[.!?](?=\s)|;", text[at:end])]
    ends += [m.end() for m in ITEM_OF_ANYONE.finditer(text[at:end])]
    return at + max(ends, default=0)


def _tail(text: str, start: int, end: int) -> int:
    """Where what stands behind an item on its line ends: at the next item, sentence or line."""
    if (closed := _parenthesis(text, start, end)) is not None:
        return closed
    stop = re.search(r"\n|[.!;](?=\s|$)|,\s*(?:$|(?=[(\[]))", text[start:end])
    return start + stop.start() if stop else end


def _parenthesis(text: str, start: int, end: int) -> int | None:
    """The end of the remark in brackets that stands right behind an item."""
    m = re.match(r"[ \t*_`]*\([^()\n]*\)", text[start:end])
    return start + m.end() if m else None


def _plain_head(names: Names, head: str, answer: float, bracketed: bool) -> bool:
    tokens = names.tokens(_NUMBER.sub("", head))
    spoken = [t.text for t in tokens if t.kind == "word"]
    if any(t.kind == "name" for t in tokens) or set(spoken) & (_CHANGES - words.RETRACTIONS):
        return False
    if set(spoken) & words.NEGATORS and (answer != 0 or "not" not in spoken):
        return False
    # "Lee Ann, Bob: 1" may be about somebody called Lee Ann.
    last = tokens[-1] if tokens else None
    return bracketed or last is None or last.kind != "word" or last.text in _BEFORE_A_NAME


def _plain_tail(names: Names, tail: str, answer: float) -> bool:
    tokens = names.tokens(tail)
    found = {t.text for t in tokens if t.kind == "word"}
    if "?" in tail or any(t.kind == "number" for t in tokens) or found & (_CHANGES - {"false"}):
        return False
    against = words.NEGATORS | {"false"} if answer > 0 else {"yes", "true"}
    return not found & against


def nested(text: str, names: Names) -> Iterator[Found]:
    """`a: {b: 1, c: 0}` in JSON or plain."""
    name = names.pattern
    entry = rf"{SOFT}(?P<v>{name})(?!\w){SOFT}[:：= ]{SOFT}{ANSWER}"
    body = rf"(?:{entry}[ \t,;\n}}\"']*)+".replace("(?P<v>", "(?:").replace("(?P<a>", "(?:")
    pattern = rf"(?<!\w)(?<!\w[-'’])(?P<u>{name})(?!\w){SOFT}[:：]\s*{{?\s*(?P<body>{body})"
    for m in re.finditer(pattern, text, re.I):
        offset, inners = m.start("body"), list(re.finditer(entry, m["body"], re.I))
        head = text[text.rfind("\n", 0, m.start()) + 1 : m.start()].rsplit("}", 1)[-1]
        if not _plain_head(names, head, 1, True):
            continue
        if not re.match(r"[ \t*_`\"']*(?:[,;}\n]|$)", text[offset + inners[-1].end() :]):
            continue
        for inner in inners:
            a, b = inner.span("a")
            u, v = names.spelled(m["u"]), names.spelled(inner["v"])
            yield Found(u, v, value(inner["a"]), m.span(), (a + offset, b + offset))


def matrix(text: str, names: Names) -> Iterator[Found]:
    """A header line of names and rows of a name and as many 0s and 1s; x, - and empty cells stay open.

    A row with any other cell is not read.
    """
    name = names.pattern
    columns: list[str] = []
    header = (0, 0)
    for line in re.finditer(r"[^\n]+", text):
        row = re.match(rf"\W*(?P<u>{name})(?!\w)(?P<cells>[^\n]*)$", line[0], re.I)
        if row and columns and (cells := _cells(row["cells"], len(columns))):
            u = names.spelled(row["u"])
            for v, cell in zip(columns, cells, strict=True):
                if cell in ("0", "1") and u != v:
                    between = not names.within(
                        text[header[1] : line.start()]
                    )  # the heading row belongs to it
                    reach = (header[0], line.end()) if between else line.span()
                    yield Found(u, v, float(cell), line.span(), reach=reach)
            continue
        found = [names.spelled(m[0]) for m in names.anywhere.finditer(line[0])]
        rest = names.anywhere.sub("", line[0])
        if len(found) > 1 and not re.search(r"[\w(){}:]", rest) and len(set(found)) == len(found):
            columns, header = found, line.span()


def _cells(row: str, count: int) -> list[str] | None:
    bare = re.sub(r"[*_`\"']", "", row).strip()
    # Two signs that stand for nothing next to each other, as in -1, are one unknown cell.
    split = (
        [c.strip() for c in bare.strip("|").split("|")]
        if "|" in bare
        else re.split(r"[\s,;:]+", bare.strip(" ,;:"))
    )
    if len(split) != count or any(
        cell not in ("0", "1", "", "x", "X", "-", "–", "—", ".", "/", "\\") for cell in split
    ):
        return None
    return split


def adjacency(text: str, names: Names) -> Iterator[Found]:
    """`a: b, c` a line: those listed are associated; two that both have one line and list each other nowhere are not.

    Where a name has several lines they list edges, not neighbours, and say nothing about other pairs.
    """
    name = names.pattern
    listed = rf"(?:[ \t*_`\"'\[\](),;|]|(?<!\w)(?:{name}|and|none)(?!\w))*"
    pattern = rf"^[^\w\n]*(?P<u>{name})(?!\w){SOFT}(?:[:：]|->|→)(?P<rest>{listed})\.?[ \t]*$"
    lists: dict[str, tuple[list[str], Span]] = {}
    lines: Counter[str] = Counter()
    edges: list[Found] = []
    for m in re.finditer(pattern, text, re.I | re.M):
        u = names.spelled(m["u"])
        others = [names.spelled(o[0]) for o in names.anywhere.finditer(m["rest"])]
        none = bool(re.search(r"\bnone\b", m["rest"], re.I))
        if bool(others) == none or u in others:
            continue
        lines[u] += 1
        lists[u] = (others, m.span())
        edges += [Found(u, v, 1.0, m.span()) for v in others]
    if len(lists) < 2:
        return
    yield from edges
    if max(lines.values()) > 1:
        return
    for (u, (of_u, span)), (v, (of_v, other)) in combinations(lists.items(), 2):
        if v not in of_u and u not in of_v:
            yield Found(u, v, 0.0, span if of_v else other)
