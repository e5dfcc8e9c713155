"""A small grammar of sentences about ties. It holds only what is certain: a sentence is read where it parses from its
first word to its last and all its parses say the same; a word that the grammar doesn't know leaves it unread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from interp.recall import prose_words as words
from interp.recall.prose_groups import NOTHING, UNSURE, Group, Said, among, mutual, relate
from interp.recall.prose_predicates import DENIED, SAID, Predicate, PredicateParser
from interp.recall.prose_words import Phrases, Token, maybe, phrases

MAX_TOKENS = 400
THERE = phrases("there")
WHO = phrases("who")
BETWEEN = phrases("between")
EXISTS = phrases("exists|exist|is|are")
TIES: tuple[tuple[bool, Phrases], ...] = ((SAID, words.A_TIE), (DENIED, words.NO_TIE))
Clauses = Iterator[tuple[int, Said]]


def read_clauses(tokens: Sequence[Token], everyone: Iterable[str]) -> Said | None:
    """What a sentence says, or None where it isn't understood with certainty. Questions are `read_question`'s."""
    return _agreed(SentenceParser(tokens, everyone).sentence())


def read_question(tokens: Sequence[Token], everyone: Iterable[str]) -> Said | None:
    """What "yes" to a question about one pair would say, or None."""
    parser = SentenceParser(tokens, everyone)
    said = _agreed([*parser.question(), *parser.sentence()])
    return said if said and [answer for _, answer in said] == [1] else None


def _agreed(readings: Iterable[Said]) -> Said | None:
    different = set(readings)
    if len(different) != 1:
        return None
    (said,) = different
    pairs = {pair for pair, _ in said}
    return said if said and not said & UNSURE and len(pairs) == len(said) else None


class SentenceParser(PredicateParser):
    """Parses clauses and sentences; the value of each is what it says about pairs."""

    def __init__(self, tokens: Sequence[Token], everyone: Iterable[str]) -> None:
        super().__init__(tokens, everyone)
        self.rest: Callable[..., frozenset[tuple[int, Said]]] = lru_cache(None)(
            lambda *at: frozenset(self._rest(*at))
        )

    def say(self, subject: Group, predicate: Predicate, before: tuple[str, ...] = ()) -> Said | None:
        """See `relate` and `mutual`."""
        if predicate.negated is None:
            return UNSURE
        if predicate.obj is None:
            return mutual(subject, predicate.negated, self.everyone, each_other=predicate.each_other)
        return relate(subject, predicate.obj, predicate.negated, self.everyone, before)

    def clause(self, i: int) -> Clauses:
        yield from self.there_is(i)
        yield from self.tie_joins(i)
        yield from self.labelled(i)
        yield from self.all_pairs(i)
        for j, subject in self.group(i):
            yield from self.verb_phrase(j, subject)
            if subject.kind == "one" and self.mark(j, ","):  # "A, who knows B, knows C"
                for k, aside in self.relative(j + 1, subject):
                    if self.mark(k, ","):
                        yield from ((e, aside | said) for e, said in self.verb_phrase(k + 1, subject))

    def relative(self, i: int, subject: Group) -> Clauses:
        for j in self.then(i, WHO):
            yield from self.verb_phrase(j, subject)

    def verb_phrase(self, i: int, subject: Group) -> Clauses:
        """One predicate or several."""
        for j, predicate in self.predicates(i):
            yield from self.continued(j, subject, predicate, ())
            obj = predicate.obj
            if obj is None or obj.kind != "one" or subject.kind not in ("one", "and"):
                continue
            if (said := self.say(subject, predicate)) is not None:  # "A knows B, who knows C"
                for k in self.then(j, words.COMMA):
                    yield from ((e, said | more) for e, more in self.relative(k, obj))

    def continued(self, i: int, subject: Group, predicate: Predicate, before: tuple[str, ...]) -> Clauses:
        if (said := self.say(subject, predicate, before)) is None:
            return
        alone = predicate.obj is None
        for e, more in self.rest(i, subject, predicate.negated, alone, before + predicate.names):
            yield e, said | more

    def _rest(
        self, i: int, subject: Group, negated: bool | None, alone: bool, before: tuple[str, ...]
    ) -> Clauses:
        """Further predicates and objects of the same subject, from i on; (i, nothing) where the clause ends."""
        yield i, NOTHING
        if negated is None:
            return
        for j, joint in self.joints(i):
            following = [*self.predicates(j), *([] if alone else self.fragments(j, joint, negated))]
            for k, predicate in following:
                yield from self.continued(k, subject, predicate, before)

    def joints(self, i: int) -> Iterator[tuple[int, str]]:
        """What stands between two predicates of one subject."""
        if self.mark(i, ","):
            yield i + 1, ","
        for joint in ("and", "but", "or", "nor", "yet"):
            yield from ((j, joint) for j in self.then(i, words.COMMA, phrases(joint), maybe("also")))

    def between(self, i: int, negated: bool) -> Clauses:
        """`between A and B`, more of them joined by "and" (or, where it is denied, by "or")."""
        for j in self.then(i, BETWEEN):
            for k, said in self.two(j, negated):
                yield k, said
                for joint in self.then(k, words.COMMA, phrases("or|nor" if negated else "and")):
                    yield from ((e, said | more) for e, more in self.between(joint, negated))

    def two(self, i: int, negated: bool) -> Clauses:
        """`A and B`, `A and anyone`."""
        for j, group in self.listed(i):
            if group.kind == "and":
                yield j, among(group.names, 0 if negated else 1) if len(group.names) == 2 else UNSURE
            for k in self.then(j, phrases("and")) if group.kind == "one" else ():
                for e, other in self.quantified(k):
                    if (said := relate(group, other, negated, self.everyone)) is not None:
                        yield e, said

    def there_is(self, i: int) -> Clauses:
        """`there is a link between A and B`, `no link exists between A and B`, `between A and B there is no link`."""
        for negated, ties in TIES:
            for j in self.then(i, THERE, words.BE, maybe("also"), ties):
                yield from self.between(j, negated)
            for j in self.then(i, ties, EXISTS):
                yield from self.between(j, negated)
            for j, said in self.between(i, negated):
                yield from ((k, said) for k in self.then(j, THERE, words.BE, ties))
        for j in self.then(i, THERE, words.BE, words.NOT, words.ANY_TIE):
            yield from self.between(j, DENIED)

    def tie_joins(self, i: int) -> Clauses:
        """`a road joins A and B`, `no tie links A and B`."""
        for negated, ties in TIES:
            for j in self.then(i, ties, words.JOINS):
                yield from self.two(j, negated)

    def labelled(self, i: int) -> Clauses:
        """`A and B: not linked`, `(A, B): no link`, `A - B: they are friends`."""
        couples = [(j, g) for j, g in self.group(i) if g.kind in ("and", "pair") and len(g.names) == 2]
        if self.named(i) and self.mark(i + 1, "-–—") and self.named(i + 2):
            couples.append((i + 3, Group((self.tokens[i].text, self.tokens[i + 2].text), "pair")))
        they = maybe("they|they are|they were|are|were")
        for j, couple in couples:
            if not self.mark(j, ":=-–—") or couple.names[0] == couple.names[1]:
                continue
            for start in self.then(j + 1, they):
                for k, predicate in [*self.participle(start, SAID), *self.denied(start)]:
                    if predicate.obj is None and (said := self.say(couple, predicate)) is not None:
                        yield k, said
            for negated, ties in TIES:
                yield from ((k, among(couple.names, 0 if negated else 1)) for k in self.then(j + 1, ties))

    def denied(self, i: int) -> Iterator[tuple[int, Predicate]]:
        for j in self.then(i, words.NOT):
            yield from self.participle(j, DENIED)

    def all_pairs(self, i: int) -> Clauses:
        """`all pairs are linked`, `none of the pairs is linked`."""
        for answer, subjects in ((1, words.ALL_PAIRS), (0, words.NO_PAIRS)):
            for j in self.then(i, subjects, words.BE, words.ADJECTIVES):
                yield j, among(self.everyone, answer)

    def sentence(self) -> set[Said]:
        """Everything that the whole may say: clauses joined by commas, dashes, "and", "but", "while"."""
        whole: set[Said] = set()
        if self.length > MAX_TOKENS:
            return whole
        open_ways = {(i, NOTHING) for i in self.opened(0)}
        seen = set(open_ways)
        while open_ways:
            i, before = open_ways.pop()
            for j, said in set(self.clause(i)):
                together = before | said
                if self.closed(j):
                    whole.add(together)
                joints = [*self.then(j, words.COMMA, words.JOINTS), *([j + 1] if self.mark(j, ",") else [])]
                ways = {
                    (o, together) for k in joints for c in self.then(k, words.COMMA) for o in self.opened(c)
                }
                open_ways |= ways - seen
                seen |= ways
        return whole

    def opened(self, i: int) -> Iterator[int]:
        """After "In the narrative," and the like."""
        yield i
        for j in self.then(i, words.OPENERS, words.COMMA):
            yield from self.opened(j)
        for j in self.then(i, words.LABELS, phrases(":")):
            yield from self.opened(j)

    def closed(self, i: int) -> bool:
        """Whether nothing follows but "too", "in the narrative" and the like."""
        if i == self.length or (i == self.length - 1 and self.mark(i, ",")):
            return True
        return any(self.closed(j) for j in self.then(i, words.COMMA, words.CLOSERS))

    def question(self) -> set[Said]:
        """`Is A linked with B`, `Are A and B linked`, `Does A know B`, `Is there a link between A and B`."""
        found: list[tuple[int, Said | None]] = []
        for i in self.then(0, words.BE):
            for j, subject in self.group(i):
                found += [(k, self.say(subject, predicate)) for k, predicate in self.participle(j, SAID)]
            for j in self.then(i, THERE, words.ANY_TIE):
                found += self.between(j, SAID)
        for i in self.then(0, words.DO):
            for j, subject in self.group(i):
                found += [(k, self.say(subject, predicate)) for k, predicate in self.base_verb(j, SAID)]
        return {said for k, said in found if k == self.length and said is not None}
