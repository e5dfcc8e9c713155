"""What is said of a subject: to be linked with somebody, to know him, to have no tie to anyone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from interp.recall import prose_words as words
from interp.recall.prose_groups import Group
from interp.recall.prose_nouns import NounParser
from interp.recall.prose_words import Phrases, Token, maybe, phrases


class Predicate(NamedTuple):
    """`negated` is None where two negations meet; without an object the subjects are tied to each other."""

    negated: bool | None
    obj: Group | None
    each_other: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.obj.names if self.obj is not None and self.obj.listed else ()


Predicates = Iterator[tuple[int, Predicate]]
NOT_ONLY = phrases("not only")
DENIED, SAID = True, False


class PredicateParser(NounParser):
    """Parses predicates: a verb or form of "to be" with what belongs to it."""

    def __init__(self, tokens: Sequence[Token], everyone: Iterable[str]) -> None:
        super().__init__(tokens, everyone)
        self.predicates: Callable[[int], tuple[tuple[int, Predicate], ...]] = lru_cache(None)(
            lambda i: tuple(dict.fromkeys([*self.with_be(i), *self.with_verb(i), *self.with_noun(i)]))
        )

    def with_be(self, i: int) -> Predicates:
        """`is (not) linked with A`, `are friends`, `is not only linked with A but also with B`."""
        for start in [k for a in self.adverbs(i) for b in self.then(a, words.BE) for k in self.adverbs(b)]:
            yield from self.participle(start, SAID)
            for j in self.then(start, words.NOT):
                yield from self.participle(j, DENIED)
            for j in self.then(start, NOT_ONLY, words.WITH_OBJECT):
                yield from self.but_also(j)

    def but_also(self, i: int) -> Predicates:
        """`A but also with B` behind "not only linked with"."""
        if not self.named(i):
            return
        first = self.tokens[i].text
        for j in self.then(i + 1, words.COMMA, words.BUT_ALSO, words.WITH | words.WITH_OBJECT | maybe("")):
            for k, g in self.listed(j):
                if g.kind in ("one", "and") and first not in g.names:
                    yield k, Predicate(SAID, Group((first, *g.names), "and"))

    def participle(self, i: int, negated: bool) -> Predicates:
        """Behind a form of "to be": `linked with A`, `linked only with A`, `friends`, `unconnected`."""
        # "Not directly linked" leaves open whether they are linked.
        starts = list(self.then(i, maybe("" if negated else "directly")))
        for turned, with_object, alone in (
            (False, words.WITH_OBJECT, words.ADJECTIVES),
            (True, words.NEGATIVE_WITH_OBJECT, words.NEGATIVE_ADJECTIVES),
        ):
            denied = None if negated and turned else negated or turned
            for j in [j for s in starts for j in self.then(s, with_object)]:
                yield from self.objects(j, denied)
            for j in [j for s in starts for j in self.then(s, alone)]:
                yield j, Predicate(denied, None)
                yield from ((k, Predicate(denied, None, True)) for k in self.then(j, words.EACH_OTHER))
                if not denied:
                    for k in self.then(j, phrases("only"), words.WITH):
                        yield from ((e, Predicate(SAID, g)) for e, g in self.only(k))

    def objects(self, i: int, negated: bool | None) -> Predicates:
        """The names behind a predicate; those behind a colon are meant one by one."""
        yield from ((k, Predicate(negated, g)) for k, g in self.group(i))
        if self.mark(i, ":"):
            for k, g in self.listed(i + 1):
                yield k, Predicate(negated, Group(g.names, "one" if g.listed else g.kind))

    def with_verb(self, i: int) -> Predicates:
        """`knows A`, `does not know A`, `never met`, `know each other`."""
        finite = (words.VERBS, words.RECIPROCAL_VERBS, words.EACH_OTHER_VERBS)
        for start in self.adverbs(i):
            yield from self.verb(start, SAID, *finite)
            for j in self.then(start, phrases("never")):
                yield from self.verb(j, DENIED, *finite)
            for j in self.then(start, words.DO, words.NOT):
                yield from self.base_verb(j, DENIED)

    def base_verb(self, i: int, negated: bool) -> Predicates:
        return self.verb(
            i, negated, words.BASE_VERBS, words.BASE_RECIPROCAL_VERBS, words.BASE_EACH_OTHER_VERBS
        )

    def verb(
        self, i: int, negated: bool, transitive: Phrases, reciprocal: Phrases, each_other: Phrases
    ) -> Predicates:
        for j in self.then(i, transitive):
            yield from self.objects(j, negated)
        yield from ((j, Predicate(negated, None)) for j in self.then(i, reciprocal))
        mutual = [*self.then(i, reciprocal, words.EACH_OTHER), *self.then(i, each_other, words.EACH_OTHER)]
        yield from ((j, Predicate(negated, None, True)) for j in mutual)

    def with_noun(self, i: int) -> Predicates:
        """`has a link to A`, `does not have a link to A`, `have no link`."""
        have = phrases("have|share")
        for start in self.adverbs(i):
            for negated, before, ties in (
                (SAID, (words.HAVE,), words.A_TIE),
                (DENIED, (words.HAVE,), words.NO_TIE),
                (DENIED, (words.DO, words.NOT, have), words.ANY_TIE),
            ):
                for j in self.then(start, *before, ties, words.WITH):
                    yield from self.objects(j, negated)
                yield from ((j, Predicate(negated, None)) for j in self.then(start, *before, ties))
                for j in self.then(start, *before, ties, words.EACH_OTHER):
                    yield j, Predicate(negated, None, True)
            for j in self.then(start, words.HAVE, words.ROAD_TO):
                yield from self.objects(j, SAID)
            for j in self.then(start, words.DO, words.NOT, have, words.ROAD_TO):
                yield from self.objects(j, DENIED)

    def fragments(self, i: int, joint: str, negated: bool) -> Predicates:
        """Predicates without their verb, behind one that has it: `not with A`, `with A`, `friends with A`.

        After a comma or "and" they say the same as the one before; "but" turns a denial; "or" and "nor" carry it on.
        """
        joined = words.WITH | words.WITH_OBJECT
        if not negated:
            if joint in (",", "and", "but"):
                for j in self.then(i, words.NOT, joined | maybe("")):
                    yield from ((k, Predicate(DENIED, g)) for k, g in self.group(j))
            if joint in (",", "and"):
                for j in self.then(i, joined):
                    yield from ((k, Predicate(SAID, g)) for k, g in self.group(j))
            if joint in ("and", "but"):  # "and nobody else", "but with neither A nor B"
                for j in self.then(i, maybe("with|to")):
                    yield from (
                        (k, Predicate(SAID, g)) for k, g in self.group(j) if g.kind in ("nobody", "neither")
                    )
        elif joint in ("but", "or", "nor"):
            for j in self.then(i, joined):
                yield from ((k, Predicate(joint != "but", g)) for k, g in self.group(j))
