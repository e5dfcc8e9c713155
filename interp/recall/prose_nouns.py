"""Names in a sentence and how they are joined: the parser's words and noun phrases.

Parsing methods take a position in the sentence and give every position, with a value, at which what they look for
can end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache

from interp.recall import prose_words as words
from interp.recall.prose_groups import Group
from interp.recall.prose_words import Phrases, Token, maybe, phrases

Nouns = Iterator[tuple[int, Group]]
NEITHER_NOR = phrases("nor|or")
QUANTIFIERS = {"everyone": words.EVERYONE, "nobody": words.NOBODY, "anyone": words.ANYBODY}


@cache
def _sizes(of: Phrases) -> tuple[int, ...]:
    return tuple(sorted({len(phrase) for phrase in of}))


class NounParser:
    """Parses groups of names among the tokens of one sentence; `everyone` are the names of the network."""

    def __init__(self, tokens: Sequence[Token], everyone: Iterable[str]) -> None:
        self.tokens = [t for t in tokens if t.kind != "mark" or t.text not in ".!"]
        self.everyone = frozenset(everyone)
        self.length = len(self.tokens)
        self.spelled = tuple(
            None if t.kind == "name" else t.text for t in self.tokens
        )  # no phrase holds a name
        # Remembered by position: long lists would be parsed anew for every way to split them.
        self.group: Callable[[int], tuple[tuple[int, Group], ...]] = lru_cache(None)(
            lambda i: tuple(dict.fromkeys(self._groups(i)))
        )

    def then(self, i: int, *parts: Phrases) -> Iterator[int]:
        """Ends of the sequences that have one phrase of each part; a part may hold the empty phrase."""
        if not parts:
            yield i
            return
        for size in _sizes(parts[0]):
            if self.spelled[i : i + size] in parts[0]:
                yield from self.then(i + size, *parts[1:])

    def mark(self, i: int, marks: str) -> bool:
        """Whether one of these marks stands at i."""
        return i < self.length and self.tokens[i].kind == "mark" and self.tokens[i].text in marks

    def named(self, i: int) -> bool:
        return i < self.length and self.tokens[i].kind == "name"

    def adverbs(self, i: int) -> Iterator[int]:
        """After any number of words that change nothing."""
        yield i
        for j in self.then(i, words.ADVERBS):
            yield from self.adverbs(j)

    def _groups(self, i: int) -> Nouns:
        yield from self.listed(i)
        yield from self.quantified(i)
        yield from self.bracketed(i)
        for j in self.then(i, phrases("both")):
            yield from ((k, g) for k, g in self.listed(j) if g.kind == "and" and len(g.names) == 2)
        for j in self.then(i, phrases("either")):
            yield from ((k, g) for k, g in self.listed(j) if g.kind == "or")
        for j in self.then(i, phrases("neither")):
            yield from (
                (k, Group(g.names, "neither")) for k, g in self.listed(j, NEITHER_NOR) if g.kind == "or"
            )
        for j in self.then(i, phrases("only")):
            yield from self.only(j)
        for j in self.then(i, phrases("none of")):
            yield from ((k, Group(g.names, "none")) for k, g in self.listed(j) if g.kind in ("and", "or"))
        for j in self.then(i, phrases("not only")):
            for k in (
                self.then(j + 1, words.COMMA, words.BUT_ALSO)
                if self.named(j) and self.named(j + 1) is False
                else ()
            ):
                if self.named(k) and self.tokens[j].text != self.tokens[k].text:
                    yield k + 1, Group((self.tokens[j].text, self.tokens[k].text), "and")

    def listed(self, i: int, last: Phrases = words.OR) -> Nouns:
        """`A`, `A and B`, `A, B and C`, `A, B or C`, `A, B`; not `A and B, C` or `A and B or C`."""
        if not self.named(i):
            return
        names: tuple[str, ...] = (self.tokens[i].text,)
        end, joint = i + 1, ""
        yield end, Group(names, "one")
        kinds = {"and": words.AND, "or": last}
        while True:
            steps = [(j, kind) for kind, joints in kinds.items() for j in self.then(end, words.COMMA, joints)]
            steps += [(end + 1, "")] if self.mark(end, ",") else []
            steps = [(j, kind) for j, kind in steps if self.named(j)]
            if not steps or (joint and (self.mark(end, ",") or steps[0][1] != joint)):
                return
            at, joint = steps[0]
            names, end = (*names, self.tokens[at].text), at + 1
            if len(set(names)) < len(names):
                return
            yield end, Group(names, joint or "list")

    def only(self, i: int) -> Nouns:
        """The names behind "only"."""
        return ((k, Group(g.names, "only")) for k, g in self.listed(i) if g.kind in ("one", "and"))

    def quantified(self, i: int) -> Nouns:
        """`everyone`, `nobody else`, `everyone except A and B`."""
        for kind, quantifier in QUANTIFIERS.items():
            for j in self.then(i, quantifier):
                yield j, Group((), kind)
                yield from ((k, Group((), kind, rest=True)) for k in self.then(j, phrases("else")))
                for k in self.then(j, maybe("else"), words.COMMA, words.EXCEPT, maybe("with|to")):
                    yield from (
                        (e, Group(g.names, kind)) for e, g in self.listed(k) if g.kind in ("one", "and")
                    )

    def bracketed(self, i: int) -> Nouns:
        """`(A, B)`, `the pair (A, B)`."""
        for start in self.then(i, maybe("the pair|pair")):
            five = self.tokens[start : start + 5]
            spelled = ["name" if t.kind == "name" else t.text for t in five]
            if spelled == ["(", "name", ",", "name", ")"] and five[1].text != five[3].text:
                yield start + 5, Group((five[1].text, five[3].text), "pair")
