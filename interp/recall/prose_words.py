"""The vocabulary of `prose`: tokens, phrases that state a tie, and words that cast doubt on what stands beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

Span = tuple[int, int]


class Token(NamedTuple):
    """A name (spelled as the network spells it), a lower-case word, a number or a mark, and where it stands."""

    kind: str
    text: str
    span: Span


class Names:
    """The network's names, found whatever their case and whether spaces or underscores join their parts.

    "Ann" is found neither in "Joanna" nor in "Mary-Ann".
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.by_key = {_folded(name): name for name in names}
        longest_first = sorted(self.by_key, key=len, reverse=True)
        self.pattern = "|".join(re.escape(name).replace(r"\ ", r"[ _]+") for name in longest_first)
        self.anywhere = re.compile(rf"(?<!\w)(?<!\w[-'’])(?:{self.pattern})(?!\w)", re.I)

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_key.values())

    def spelled(self, name: str) -> str:
        return self.by_key[_folded(name)]

    def within(self, text: str) -> bool:
        return bool(self.anywhere.search(text))

    def tokens(self, text: str, start: int = 0) -> list[Token]:
        """Tokens of a text that begins at offset `start`; contractions are written out, quotes and bold left out."""
        found: list[Token] = []
        scanner = re.compile(
            rf"(?P<name>(?:{self.pattern})(?!\w))|(?P<word>[^\W\d_]+(?:['’-][^\W\d_]+)*)|(?P<number>\d+(?:\.\d+)?)|"
            r"(?P<space>[\s*_`\"“”]+)|(?P<mark>[-–—]+|.)",
            re.I | re.S,
        )
        for m in scanner.finditer(text):
            span = (m.start() + start, m.end() + start)
            if m.lastgroup == "name":
                found.append(Token("name", self.spelled(m[0]), span))
            elif m.lastgroup == "word":
                found += [Token("word", w, span) for w in _written_out(m[0])]
            elif m.lastgroup != "space":
                found.append(Token(m.lastgroup or "", m[0], span))
        return found


def _folded(name: str) -> str:
    return re.sub(r"[ _]+", " ", name).casefold()


def _written_out(word: str) -> list[str]:
    plain = word.casefold().replace("’", "'")
    if plain.endswith("n't") and plain not in ("can't", "won't", "shan't", "ain't"):
        return [plain[:-3], "not"]
    pronoun, _, rest = plain.partition("'")
    if pronoun in ("they", "there") and rest in ("re", "s"):
        return [pronoun, {"re": "are", "s": "is"}[rest]]
    return [plain]


Phrases = frozenset[tuple[str, ...]]


@cache
def phrases(text: str) -> Phrases:
    """Phrases written with | between them, as tuples of words."""
    return frozenset(tuple(phrase.split()) for phrase in re.split(r"\s*\|\s*", " ".join(text.split())))


def maybe(text: str) -> Phrases:
    """These phrases, or nothing."""
    return phrases(text) | {()}


BE = phrases("is|are|was|were")
DO = phrases("do|does|did")
HAVE = phrases("has|have|had|shares|share|shared")
NOT = phrases("not|never")
COMMA = maybe(",")
BUT_ALSO = phrases("but also|but")
# Before a verb or participle, where they change nothing.
ADVERBS = phrases("also|both|all|each|clearly|definitely|indeed|too|additionally|furthermore")
WITH = phrases("with|to")
AND = phrases("and|&|as well as")
OR = phrases("or")
EXCEPT = phrases("except|except for|but|other than|apart from|aside from|save for|with the exception of")
EVERYONE = phrases(
    "everyone|everybody|everything|every person|every other person|every entity|every node|"
    "all people|all persons|all of them|all entities|all nodes"
)
NOBODY = phrases("nobody|no one|no-one|nothing|no person|no other person|no entity|no node")
ANYBODY = phrases("anyone|anybody|anything|any person|any other person|any entity|any node")
EACH_OTHER = phrases(
    "each other|one another|with each other|with one another|to each other|to one another|together"
)

_TIED = "connected|linked|associated|related|tied|joined|acquainted|friends|friendly|affiliated"
_NOT_TIED = (
    "unconnected|unlinked|unassociated|unrelated|disconnected|dissociated|disassociated|unacquainted|untied|"
    "non-connected|non-linked|non-associated|non-related|nonassociated|nonconnected|not-connected|not-linked|"
    "not-associated"
)
# Behind a form of "to be": of two people without an object, and with one.
ADJECTIVES = phrases(
    f"{_TIED}|dating|neighbours|neighbors|acquaintances|co-authors|coauthors|cousins|siblings|workmates|relatives|"
    "close relatives|in contact|in the same club|related by marriage|joined by a road|connected by a road|"
    "connected by road|tied together|linked together"
)
NEGATIVE_ADJECTIVES = phrases(_NOT_TIED)
WITH_OBJECT = (
    frozenset(
        (*adjective, preposition)
        for adjective in phrases(f"{_TIED}|in contact|in the same club as")
        for preposition in ("with", "to")
    )
    | phrases(
        "dating|a friend of|friend of|a neighbour of|a neighbor of|an acquaintance of|a co-author of|a coauthor of|"
        "a cousin of|a sibling of|a workmate of|a relative of|a close relative of|friends of|"
        "related by marriage to|joined by a road to|joined by a street to|connected by a road to|connected by road to|"
        "in the same club as|in a choir with|in a relationship with|co-authors with"
    )
) - frozenset({("friends", "to"), ("friendly", "to")})
NEGATIVE_WITH_OBJECT = frozenset(
    (*adjective, preposition) for adjective in NEGATIVE_ADJECTIVES for preposition in ("with", "to", "from")
)

# Verbs with an object, and of two who do it to each other; finite forms, and the one behind "does not".
_VERBS = """
knows know knew | dates date dated | binds bind bound | binds to, bind to, bound to |
phosphorylates phosphorylate phosphorylated | interacts interact interacted, with |
goes go went, to the same club as | watches watch watched, films with | sings sing sang, in a choir with |
plays play played, in the same club as | works work worked, with | forms form formed, a complex with |
wrote write wrote, a paper with | writes write wrote, a paper with | published publish published, an article with |
publishes publish published, an article with | co-authored co-author co-authored, a paper with |
leads lead led, to | connects connect connected, to | connects connect connected, with |
links link linked, to | links link linked, with
"""
_RECIPROCAL = """
goes go went, to the same club | watches watch watched, films together | sings sing sang, in a choir together |
sings sing sang, in the same choir | plays play played, in the same club | works work worked, together |
forms form formed, a complex | wrote write wrote, a paper together | published publish published, an article together |
interacts interact interacted
"""
_WITH_EACH_OTHER = (
    "knows know knew | dates date dated | binds bind bound | phosphorylates phosphorylate phosphorylated"
)


def _forms(text: str) -> tuple[Phrases, Phrases]:
    """Finite forms and the base form of each verb; what follows a comma follows every form."""
    finite, base = set(), set()
    for entry in " ".join(text.split()).split("|"):
        head, *rest = entry.strip().split(", ")
        verbs = [tuple(v.split()) for v in (entry.strip().split(", ") if " to," in entry else head.split())]
        tail = () if " to," in entry else tuple(" ".join(rest).split())
        finite |= {(*verb, *tail) for verb in verbs}
        base.add((*verbs[1], *tail))
    return frozenset(finite), frozenset(base)


VERBS, BASE_VERBS = _forms(_VERBS)
RECIPROCAL_VERBS, BASE_RECIPROCAL_VERBS = _forms(_RECIPROCAL)
EACH_OTHER_VERBS, BASE_EACH_OTHER_VERBS = _forms(_WITH_EACH_OTHER)

_NOUNS = (
    "link|links|tie|ties|connection|connections|association|associations|relationship|relationships|relation|edge|"
    "edges|friendship|road|roads|street"
)
NOUNS = phrases(_NOUNS)
A_TIE = (
    phrases("|".join(f"{article} {noun}" for noun in _NOUNS.split("|") for article in ("a", "an"))) | NOUNS
)
NO_TIE = phrases("|".join(f"{article} {noun}" for noun in _NOUNS.split("|") for article in ("no",)))
ANY_TIE = phrases(
    "|".join(f"{article} {noun}" for noun in _NOUNS.split("|") for article in ("a", "an", "any"))
)
ROAD_TO = phrases("a street that leads to|a road that leads to|a street to|a road to")
JOINS = phrases("links|connects|joins|ties|exists between|is between|leads from")
ALL_PAIRS = phrases("all pairs|all the pairs|all of the pairs|every pair|each pair|all of these pairs")
NO_PAIRS = phrases("no pair|no pairs|none of the pairs|none of these pairs")

OPENERS = phrases(
    "sure|also|so|thus|therefore|in summary|to summarize|overall|in the narrative|in the story|in the text|"
    "in this narrative|in this story|according to the narrative|according to the story|according to the text|"
    "based on the narrative|based on the story|based on the text|from the narrative|from the story|additionally|"
    "furthermore|moreover|similarly|likewise|finally|first|second|third|next|and|on the other hand|in contrast|however|"
    "certainly|of course"
)
LABELS = phrases("explanation|reason|reasoning|answer|note|summary|result")
CLOSERS = phrases("too|as well|also|either|in the narrative|in the story|in the text|in any way|at all")
JOINTS = phrases("and|but|while|whereas|however|and also|yet|;|–|—|-|--")

YES, NO = phrases("yes|correct"), phrases("no|nope")
# What takes back or replaces what was said before it.
RETRACTIONS = frozenset(
    "wait actually correction corrected sorry oops apologies apologize scratch instead rather mistake mistaken "
    "mistakenly wrong incorrect incorrectly untrue kidding lie lies lied disregard ignore reconsider "
    "reconsidering nevermind misremembered misspoke misread erratum retract".split()
)
# What makes of a statement something less, or something else, than a statement.
DOUBTS = frozenset(
    "unsure uncertain uncertainty unclear unknown maybe perhaps possibly possible probably probable likely "
    "unlikely might may could would should can can't cannot guess guessing guessed think thought believe "
    "assume assuming suppose supposing supposed supposedly imagine imagining hypothetical hypothetically "
    "allegedly apparently presumably if whether unless seems seem seemed appears appear depends ambiguous "
    "doubt doubtful doubtfully almost nearly hardly barely example pretend fictional opposite reverse reversed "
    "inverse swapped remember recall roughly approximately speculation speculative say says said tell tells "
    "told claim claims claimed thinks believes".split()
)
NEGATORS = frozenset(
    "not no never none nobody neither nor without false cannot can't won't nope except".split()
)
ABOUT_THE_REST = frozenset("rest other others remaining else anything".split())
