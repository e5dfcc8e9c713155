"""Pairs listed below a heading: what the heading says of them, and whether nothing but pairs is listed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from interp.recall import prose_words as words
from interp.recall.parsing_forms import Found
from interp.recall.prose_words import Names, Span, Token

_FILLING = frozenset(
    "the following these those this all each every pair pairs of are is were was that which who here list lists with "
    "answer answers answered value values score scores in as people entities nodes persons other directly and any way "
    "they only edges".split()
)
_TIED = frozenset(phrase[0] for phrase in words.ADJECTIVES if len(phrase) == 1) | frozenset(
    "link links tie ties connection connections association associations friendship friendships know each".split()
)
_NOT_TIED = frozenset(phrase[0] for phrase in words.NEGATIVE_ADJECTIVES)
_NOT = frozenset("not no none never neither nor non without".split())
_MARKS = frozenset("( ) , - – — # * [ ] | •".split())
# A heading with one of these speaks of something else than the answers.
_NOT_THE_ANSWERS = frozenset(
    "wrong incorrect untrue mistaken example examples hypothetical hypothetically suppose imagine if opposite reverse "
    "reversed inverse inverted swapped pretend".split()
)
_BULLET = re.compile(r"\s*(?:[-*•+]\s+|\(?\d+[.)]\s+|[-*•+](?=[(\[]))*")


def heading_says(tokens: Sequence[Token]) -> int | None:
    """1 or 0 where a heading says clearly that the pairs below it are tied or not, else None."""
    found = [t.text.removesuffix("s") if t.text in ("1s", "0s") else t.text for t in tokens]
    if any(t.kind == "name" or (t.kind == "mark" and t.text not in _MARKS) for t in tokens):
        return None
    spoken = [w for t, w in zip(tokens, found, strict=True) if t.kind != "mark" and w != "s"]
    if spoken and spoken[0] in ("is", "are", "was", "were"):  # a question
        return None
    tied = sum(w in _TIED or w in _NOT_TIED for w in spoken)
    denied = sum(w in _NOT or w in _NOT_TIED for w in spoken)
    answers = {1 for w in spoken if w in ("1", "yes", "true")} | {0 for w in spoken if w in ("0", "false")}
    known = _FILLING | _TIED | _NOT_TIED | _NOT | {"yes", "true", "false", "1", "0"}
    if any(w not in known and not w.isdigit() for w in spoken) or denied > 1:
        return None
    if denied and {"all", "each", "every", "only"} & set(spoken):  # "not all of these pairs are linked"
        return None
    if tied:
        answers.add(0 if denied else 1)
    elif denied:  # "No:", but not "not 1:"
        if answers or set(spoken) - _FILLING != {"no"}:
            return None
        answers = {0}
    return answers.pop() if len(answers) == 1 else None


def heading_above(text: str, start: int, names: Names) -> list[Token]:
    """The tokens of the heading over the line at `start`: the next line up without a name, where it ends in a colon."""
    for line in reversed(text[: text.rfind("\n", 0, start) + 1].split("\n")):
        if line.strip() and not names.within(line):
            ended = line.rstrip(" \t*_")
            return names.tokens(ended[:-1]) if ended.endswith((":", "：")) else []
    return []


def contradicts(heading: Sequence[Token], answer: float | None = None) -> bool:
    """Whether a heading makes the answer below it doubtful; None stands for what a list or matrix says as a whole."""
    spoken = {t.text for t in heading}
    if spoken & _NOT_THE_ANSWERS:
        return True
    if answer is None:
        return bool(spoken & (words.NEGATORS | words.RETRACTIONS | words.DOUBTS | _NOT_TIED))
    says = heading_says(heading)
    return says is not None and answer in (0, 1) and says != answer


def headed_lists(text: str, names: Names) -> Iterator[Found]:
    """`Associated: (a,b), (c,d)` and `Not associated: ...`, on the heading's line or below it."""
    says: int | None = None
    for m in re.finditer(r"[^\n]+", text):
        if not m[0].strip():
            continue
        head, colon, rest = m[0].partition(":")
        begin = m.start()
        if not names.within(head):
            bullet = _BULLET.match(head)
            title = names.tokens(head[bullet.end() if bullet else 0 :])
            if colon or not names.within(m[0]):
                says = heading_says(title)
                begin, head = m.start() + len(head) + 1, rest
            if not names.within(rest):
                continue
        else:
            head = m[0]
        if says is None:
            continue
        for u, v, span in pairs_only(head, begin, names) or ():
            yield Found(u, v, float(says), span, reach=(begin, m.end()))


def pairs_only(line: str, start: int, names: Names) -> list[tuple[str, str, Span]] | None:
    """The pairs of a line that holds nothing else; None where it does, or where it isn't clear who pairs with whom."""
    bullet = _BULLET.match(line)
    skip = bullet.end() if bullet else 0
    tokens = names.tokens(line[skip:], start + skip)
    spelled = "".join({"name": "N", "word": "w", "number": "#"}.get(t.kind, t.text) for t in tokens)
    spelled = _joined_words(spelled, tokens)
    inside = r"[(\[{]N[,;&a|/-]N[)\]}]"
    dashed = r"N[-–—↔&/t]+N"
    for pattern in (
        rf"(?:{inside}[,;a|]*)+[.]?",
        rf"(?:{dashed}[,;]?)+[.]?",
        r"N[,;|a]N[.,;]?",
        r"(?:NaN[,;])+(?:NaN)?[.]?",
        r"(?:NaN;)*NaN[.;]?",
    ):
        if re.fullmatch(pattern, spelled):
            named = [t for t in tokens if t.kind == "name"]
            couples = list(zip(named[::2], named[1::2], strict=True))
            if any(a.text == b.text for a, b in couples):
                return None
            return [(a.text, b.text, (a.span[0], b.span[1])) for a, b in couples]
    return None


def _joined_words(spelled: str, tokens: Sequence[Token]) -> str:
    """One letter a token, "and" as a, "to", "with", "vs" and arrows as t."""
    letters = {"and": "a", "to": "t", "with": "t", "vs": "t"}
    out = []
    for t in tokens:
        if t.kind == "word":
            out.append(letters.get(t.text, "w"))
        elif t.kind == "mark" and t.text in ("->", "→", "<", ">"):
            out.append("t")
        else:
            out.append({"name": "N", "number": "#"}.get(t.kind, t.text))
    return "".join(out)
