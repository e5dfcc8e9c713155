"""More than 700 ways to answer, made from templates over names and relation words, each with what it truly says.

What is present and absent is written beside each template; nothing here knows the parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, permutations

NAMES = ("Ann", "Bob", "Cy", "Dora")
PAIRS = tuple(combinations(NAMES, 2))


@dataclass(frozen=True)
class Phrasing:
    """A text, the pairs it says are tied and those it says are not; `plain` ones must be read in full."""

    kind: str
    text: str
    present: frozenset[frozenset[str]]
    absent: frozenset[frozenset[str]]
    plain: bool


# To be ... with, and of two: (adjective, preposition). Verbs: (finite, base).
ADJECTIVES = (
    ("linked", "with"),
    ("connected", "to"),
    ("associated", "with"),
    ("related", "to"),
    ("friends", "with"),
)
VERBS = (("knows", "know"), ("works with", "work with"), ("interacts with", "interact with"), ("binds", "bind"),
         ("goes to the same club as", "go to the same club as"))  # fmt: skip
NOUNS = ("link", "connection", "tie", "association")

# {A} to {D} are names, {rel} "linked with", {adj} "linked", {p} "with", {V} "knows", {v} "know", {N} "link".
# Present and absent pairs are spelled AB etc.; behind them "all" stands for every pair.
POSITIVE = [
    ("{A} is {rel} {B}.", "AB", ""),
    ("{A} and {B} are {adj}.", "AB", ""),
    ("Yes, {A} is {rel} {B}.", "AB", ""),
    ("{A} is also {rel} {B}!", "AB", ""),
    ("{A} is directly {rel} {B}.", "AB", ""),
    ("{A} {V} {B}.", "AB", ""),
    ("In the narrative, {A} {V} {B}.", "AB", ""),
    ("{A} has a {N} with {B}.", "AB", ""),
    ("There is a {N} between {A} and {B}.", "AB", ""),
    ("{A} and {B} are {adj}; {C} and {D} are {adj} too.", "AB CD", ""),
    ("({A}, {B}) are {adj}.", "AB", ""),
    ("{A} and {B}: {adj}", "AB", ""),
    ("({A},{B}): {adj}", "AB", ""),
    ("Is {A} {rel} {B}? Yes.", "AB", ""),
    ("Are {A} and {B} {adj}? Yes, they are.", "AB", ""),
    ("Does {A} {v} {B}? Yes", "AB", ""),
    ("Is there a {N} between {A} and {B}? Yes.", "AB", ""),
]
NEGATIVE = [
    ("{A} is not {rel} {B}.", "", "AB"),
    ("{A} isn't {rel} {B}.", "", "AB"),
    ("{A} isn’t {rel} {B}.", "", "AB"),
    ("{A} and {B} are not {adj}.", "", "AB"),
    ("{A} and {B} aren't {adj} to each other.", "", "AB"),
    ("No, {A} is not {rel} {B}.", "", "AB"),
    ("{A} was never {rel} {B}.", "", "AB"),
    ("{A} does not {v} {B}.", "", "AB"),
    ("{A} doesn't {v} {B}.", "", "AB"),
    ("{A} never {V} {B}.", "", "AB"),
    ("{A} has no {N} with {B}.", "", "AB"),
    ("{A} does not have a {N} to {B}.", "", "AB"),
    ("There is no {N} between {A} and {B}.", "", "AB"),
    ("There isn't any {N} between {A} and {B}.", "", "AB"),
    ("No {N} exists between {A} and {B}.", "", "AB"),
    ("{A} and {B} have no {N}.", "", "AB"),
    ("{A} and {B}: not {adj}", "", "AB"),
    ("({A},{B}): not {adj}", "", "AB"),
    ("({A},{B}): no {N}", "", "AB"),
    ("{A} is unconnected to {B}.", "", "AB"),
    ("{A} and {B} are unrelated.", "", "AB"),
    ("Is {A} {rel} {B}? No.", "", "AB"),
    ("Are {A} and {B} {adj}? No, they are not.", "", "AB"),
    ("Does {A} {v} {B}? No", "", "AB"),
    ("Neither {A} nor {B} is {rel} {C}.", "", "AC BC"),
    ("{A} is {rel} neither {B} nor {C}.", "", "AB AC"),
    ("{A} is not {rel} {B} or {C}.", "", "AB AC"),
    ("{A} is not {rel} either {B} or {C}.", "", "AB AC"),
    ("{A} and {B} are not {rel} {C}.", "", "AC BC"),
    ("{A} does not {v} {B} or {C}.", "", "AB AC"),
]
LISTED = [
    ("{A} is {rel} {B} and {C}.", "AB AC", ""),
    ("{A} is {rel} {B}, {C} and {D}.", "AB AC AD", ""),
    ("{A} is {rel} {B}, {C}, and {D}.", "AB AC AD", ""),
    ("{A} is {rel} both {B} and {C}.", "AB AC", ""),
    ("{A} {V} {B} and {C}.", "AB AC", ""),
    ("{A} and {B} are {rel} {C}.", "AC BC", ""),
    ("Both {A} and {B} are {rel} {C}.", "AC BC", ""),
    ("{A} is {rel} {B} as well as {C}.", "AB AC", ""),
    ("{A} is {rel}: {B}, {C}", "AB AC", ""),
    ("{A}, {B} and {C} are all {adj}.", "AB AC BC", ""),
    ("{Adj}: ({A},{B}), ({C},{D})", "AB CD", ""),
    ("{Adj} pairs:\n- ({A}, {B})\n- ({C}, {D})", "AB CD", ""),
    ("The following pairs are {adj}:\n1. {A} and {B}\n2. {C} and {D}", "AB CD", ""),
    ("Not {adj}: ({A},{B}), ({C},{D})", "", "AB CD"),
    ("Non-associated: ({A},{B})", "", "AB"),
    ("Unconnected pairs: ({A},{B}), ({A},{C})", "", "AB AC"),
    ("None of these pairs are {adj}: ({A},{B}), ({C},{D})", "", "AB CD"),
    ("The following pairs are not {adj}:\n- {A}, {B}\n- {C}, {D}", "", "AB CD"),
    ("Pairs that are {adj}: ({A},{B}). \nPairs that are not {adj}: ({C},{D}).", "AB", "CD"),
    ("**{Adj}:**\n* {A} - {B}\n\n**Not {adj}:**\n* {C} - {D}", "AB", "CD"),
    ("({A},{B}): 1, ({A},{C}): 0, ({C},{D}): 1", "AB CD", "AC"),
    ("{A}-{B}: yes\n{C}-{D}: no", "AB", "CD"),
    ("1. {A} and {B} are {adj}.\n2. {C} and {D} are not {adj}.", "AB", "CD"),
    ("- {A} is {rel} {B}\n- {C} is not {rel} {D}", "AB", "CD"),
    ("{A} and {B} are {adj}\n{C} and {D} are not {adj}", "AB", "CD"),
]
SCOPED = [
    ("{A} is {rel} {B} and {C} is {rel} {D}.", "AB CD", ""),
    ("{A} is {rel} {B}, and {C} is not {rel} {D}.", "AB", "CD"),
    ("{A} is not {rel} {B}, but {C} is {rel} {D}.", "CD", "AB"),
    ("{A} is {rel} {B} but not {C}.", "AB", "AC"),
    ("{A} is {rel} {B}, not {p} {C}.", "AB", "AC"),
    ("{A} is {rel} {B}, but not {p} {C} or {D}.", "AB", "AC AD"),
    ("{A} is not {rel} {B} but {p} {C}.", "AC", "AB"),
    ("{A} is not {rel} {B} but is {rel} {C}.", "AC", "AB"),
    ("{A} is {rel} {B} and is not {rel} {C}.", "AB", "AC"),
    ("{A} is not only {rel} {B} but also {p} {C}.", "AB AC", ""),
    ("Not only {A} but also {B} is {rel} {C}.", "AC BC", ""),
    ("{A} is {rel} {B}, while {C} and {D} are not {adj}.", "AB", "CD"),
    ("{A} is {rel} {B}, whereas {A} is not {rel} {C}.", "AB", "AC"),
    ("{A}, who is {rel} {B}, is not {rel} {C}.", "AB", "AC"),
    ("{A} is {rel} {B}, who is {rel} {C}.", "AB BC", ""),
    ("{A} is {rel} {B}, who is not {rel} {C}.", "AB", "BC"),
    ("{A} {V} {B} and {C} {V} {D}.", "AB CD", ""),
    ("{A} {V} {B} but does not {v} {C}.", "AB", "AC"),
    ("There is a {N} between {A} and {B}, but no {N} exists between {C} and {D}.", "AB", "CD"),
    ("{A} and {B} are {adj}, {C} and {D} are not.", None, None),
]
QUANTIFIED = [
    ("Everyone is {rel} {A}.", "AB AC AD", ""),
    ("{A} is {rel} everyone.", "AB AC AD", ""),
    ("{A} is {rel} everyone except {B}.", "AC AD", "AB"),
    ("{A} {V} everyone but {B}.", "AC AD", "AB"),
    ("Everybody except {B} is {rel} {A}.", "AC AD", "AB"),
    ("{A} is {rel} everyone except {B} and {C}.", "AD", "AB AC"),
    ("Nobody is {rel} {A}.", "", "AB AC AD"),
    ("No one is {rel} {A}.", "", "AB AC AD"),
    ("{A} is {rel} nobody.", "", "AB AC AD"),
    ("{A} is not {rel} anyone.", "", "AB AC AD"),
    ("{A} does not {v} anybody.", "", "AB AC AD"),
    ("{A} is not {rel} anyone except {B}.", "AB", "AC AD"),
    ("{A} is {rel} no one but {B}.", "AB", "AC AD"),
    ("Nobody except {B} is {rel} {A}.", "AB", "AC AD"),
    ("{A} is {rel} only {B}.", "AB", "AC AD"),
    ("{A} is {rel} {B} and nobody else.", "AB", "AC AD"),
    ("Nobody is {rel} {A} or {B}.", "", "AC AD BC BD"),
    ("There is no {N} between {A} and anyone.", "", "AB AC AD"),
    ("All pairs are {adj}.", "all", ""),
]
# Everything that says less than it seems to: nothing may be read but what stands behind it.
OPEN = {
    "hedged": [
        ("Maybe {A} is {rel} {B}.", "", ""),
        ("{A} might be {rel} {B}.", "", ""),
        ("{A} may or may not be {rel} {B}.", "", ""),
        ("{A} is probably {rel} {B}.", "", ""),
        ("{A} is possibly not {rel} {B}.", "", ""),
        ("I think {A} is {rel} {B}.", "", ""),
        ("I don't think {A} is {rel} {B}.", "", ""),
        ("I don't know if {A} is {rel} {B}.", "", ""),
        ("I am not sure whether {A} is {rel} {B}.", "", ""),
        ("It is unclear whether {A} and {B} are {adj}.", "", ""),
        ("{A} seems to be {rel} {B}.", "", ""),
        ("{A} is {rel} {B}, I think.", "", ""),
        ("{A} is {rel} {B}, but I'm not sure.", "", ""),
        ("{A} is {rel} {B}. I'm not sure, though.", "", ""),
        ("I'm not certain. {A} is {rel} {B}.", "", ""),
        ("({A},{B}): 1 (not sure)", "", ""),
        ("({A},{B}): 1?", "", ""),
        ("({A},{B}): probably 1", "", ""),
        ("Possibly {adj}: ({A},{B})", "", ""),
        ("{A} is almost {rel} {B}.", "", ""),
        ("{A} cannot be {rel} {B}, can they?", "", ""),
    ],
    "alternatives": [
        ("{A} is {rel} {B} or {C}.", "", ""),
        ("{A} is {rel} either {B} or {C}.", "", ""),
        ("Either {A} or {B} is {rel} {C}.", "", ""),
        ("{A} or {B} is {rel} {C}.", "", ""),
        ("One of {A} and {B} is {rel} {C}.", "", ""),
        ("({A},{B}): 1/0", "", ""),
        ("({A},{B}): 1 or 0", "", ""),
        ("({A},{B}): 0 or ({A},{C}): 1", "", ""),
        ("{A} is {rel} {B}. Or with {C}.", "", ""),
        ("Not all of these pairs are {adj}: ({A},{B}), ({C},{D})", "", ""),
        ("{A} is not {rel} both {B} and {C}.", "", ""),
        ("{A} is not {rel} everyone.", "", ""),
        ("Not everyone is {rel} {A}.", "", ""),
        ("{A} is {rel} some of the others, maybe {B}.", "", ""),
        ("{A} and {B} are not both {rel} {C}.", "", ""),
        ("Someone is {rel} {A}, perhaps {B}.", "", ""),
    ],
    "conditional": [
        ("If {A} is {rel} {B}, then {C} is {rel} {D}.", "", ""),
        ("{A} is {rel} {B} if {C} is {rel} {D}.", "", ""),
        ("{A} is {rel} {B} unless {C} is {rel} {D}.", "", ""),
        ("{A} would be {rel} {B}.", "", ""),
        ("Suppose {A} is {rel} {B}.", "", ""),
        ("Imagine the following. {A} is {rel} {B}.", "", ""),
        ("{A} is {rel} {B}\nif {C} is.", "", ""),
        ("Were {A} {rel} {B}, {C} would know.", "", ""),
        ("For example: ({A},{B}): 1", "", ""),
        ("Example:\n({A},{B}): 1", "", ""),
        ("If ({A},{B}): 1 then ({C},{D}): 1", "", ""),
    ],
    "reported": [
        ("{C} says that {A} is {rel} {B}.", "", ""),
        ("According to {C}, {A} is {rel} {B}.", "", ""),
        ("{C} believes {A} isn't {rel} {B}.", "", ""),
        ("It is said that {A} and {B} are {adj}.", "", ""),
        ("You asked whether {A} is {rel} {B}.", "", ""),
        ("{A} claims to be {rel} {B}.", "", ""),
        ("“{A} is {rel} {B}” is what {C} told {D}.", "", ""),
        ("{C} wonders if {A} {V} {B}.", "", ""),
        ("{C} said: {A} is {rel} {B}.", "", ""),
    ],
    "questions": [
        ("Is {A} {rel} {B}?", "", ""),
        ("Is {A} {rel} {B}? I don't know.", "", ""),
        ("Is {A} {rel} {B}? Maybe.", "", ""),
        ("Is {A} {rel} {B}? Yes and no.", "", ""),
        ("Isn't {A} {rel} {B}? No.", "", ""),
        ("Is {A} {rel} {B} or {C}? Yes.", "", ""),
        ("Who is {rel} {A}? {B}?", "", ""),
        ("Does {A} {v} {B}? Hard to say.", "", ""),
        ("({A},{B})? Not that I recall.", "", ""),
        ("{A} is {rel} {B}?", "", ""),
        ("Are {A} and {B} {adj}? Perhaps {C} and {D} are.", "", ""),
    ],
    "denied": [
        ("It is not true that {A} is {rel} {B}.", "", "AB"),
        ("It is false that {A} is not {rel} {B}.", "AB", ""),
        ("{A} is {rel} {B}: false.", "", "AB"),
        ("{A} is not unconnected to {B}.", "AB", ""),
        ("I do not believe that\n{A} is {rel} {B}.", "", ""),
        ("The following statements are false:\n{A} is {rel} {B}.", "", "AB"),
        ("The following answers are wrong:\n({A},{B}): 1", "", "AB"),
        ("It is not the case that ({A},{B}): 1", "", "AB"),
        ("Not {adj}:\n({A},{B}): 1", "", ""),
        ("{Adj}: none\nNot {adj} at all, I guess: ({A},{B})", "", "AB"),
        ("{A} is not {rel} {B} and {C}.", "", ""),
        ("{A}, {B} and {C} are not all {adj}.", "", ""),
        ("({A},{B}): -1", "", ""),
        ("({A},{B}) = - 1", "", ""),
        ("1 means not {adj}, 0 means {adj}.\n({A},{B}): 1, ({A},{C}): 0", "AC", "AB"),
        ("There are no such pairs: ({A},{B})", "", "AB"),
        ("{A} is indirectly {rel} {B}.", "", ""),
        ("{A} is not directly {rel} {B}.", "", ""),
        ("{A} is no longer {rel} {B}.", "", ""),
        ("Mary-{A} is {rel} {B}.", "", ""),
        ("Lee {A}, {B}: 1", "", ""),
        ("{A}, {B}, {C}: 1", "", ""),
        ("{A}'s sister is {rel} {B}.", "", ""),
        ("{A} is {rel} {B}'s brother.", "", ""),
        ("{A} is {rel} somebody who is {rel} {B}.", "", ""),
        ("Everyone who is {rel} {A} is {rel} {B}.", "", ""),
        ("{A} is {rel} {B} through {C}.", "", ""),
    ],
    "corrected": [
        ("{A} is {rel} {B}. Wait, no.", "", "AB"),
        ("{A} is {rel} {B}. Wait, no, {A} is not {rel} {B}.", "", "AB"),
        ("{A} is {rel} {B}. Wait, no, {A} is {rel} {C}.", "AC", "AB"),
        ("{A} is {rel} {B}. Actually, that is wrong.", "", "AB"),
        ("{A} is {rel} {B}. Sorry, I meant {C}.", "AC", "AB"),
        ("{A} is {rel} {B} - no, wait, {C}.", "AC", "AB"),
        ("{A} is not {rel} {B}. Correction: {A} is {rel} {B}.", "AB", ""),
        ("({A},{B}): 1\nWait, that's wrong.", "", "AB"),
        ("({A},{B}): 1, no, 0", "", "AB"),
        ("({A},{B}): 0 (actually 1)", "AB", ""),
        ("({A},{B}): 1\nCorrection: {A} is not {rel} {B}.", "", "AB"),
        ("({A},{B}): 0. Correction: ({A},{B}): 1", "AB", ""),
        ("{A} is {rel} {B}. That was a lie.", "", "AB"),
        ("{A} is {rel} {B}. Just kidding!", "", "AB"),
        ("No, {A} is {rel} {C}.", "AC", ""),
    ],
    "contradictory": [
        ("{A} is {rel} {B}. {A} is not {rel} {B}.", "", ""),
        ("{A} is {rel} {B} and {A} is not {rel} {B}.", "", ""),
        ("{A} is {rel} {B} but {B} is not {rel} {A}.", "", ""),
        ("{Adj}: ({A},{B})\nNot {adj}: ({A},{B})", "", ""),
        ("({A},{B}): 1\n{A} and {B} are not {adj}.", "", ""),
        ("({A},{B}): 1 (there is no {N})", "", ""),
        ("  {A} {B}\n{A} 0 1\n{B} 0 0", "", ""),
        ("No, {A} is {rel} {B}. Yes, {A} is not {rel} {B}.", "", ""),
        ("Is {A} {rel} {B}? Yes, they are not.", "", ""),
    ],
    "partial": [
        ("{A} is {rel} {B}. I don't remember the rest.", "AB", ""),
        ("{A} is {rel} {B}. Something about {C} and {D}.", "AB", ""),
        ("({A},{B}): 1, ({A},{C}): unknown, ({C},{D}): 0", "AB", "CD"),
        ("({A},{B}): 1, ({A},Zed): 1, ({C},{D}): 0", "AB", "CD"),
        ("({A},{B}): 1\n({A},{C}): -1\n({C},{D}): 0", "AB", "CD"),
        ("{Adj}: ({A},{B}), maybe ({C},{D})", "AB", ""),
        ("{A} is {rel} {B}. Perhaps {C} is {rel} {D}.", "AB", ""),
        ("{A} and Zed are {adj}. {A} and {B} are not {adj}.", "", "AB"),
        ("{A}: {{{B}: 1, {C}: -1}}", "AB", ""),
        ("  {A} {B} {C}\n{A} - 1 0\n{B} 1 -1 0\n", "AB", "AC BC"),
    ],
}


def phrasings() -> Iterator[Phrasing]:
    """Every template with several orders of names and several relation words."""
    plain = {"positive": POSITIVE, "negative": NEGATIVE, "listed": LISTED}
    for kind, templates in {**plain, "scoped": SCOPED, "quantified": QUANTIFIED, **OPEN}.items():
        for number, (template, present, absent) in enumerate(templates):
            orders = list(permutations(NAMES))
            for k in range(3):
                order = dict(zip("ABCD", orders[(7 * number + 5 * k) % len(orders)], strict=True))
                adjective, preposition = ADJECTIVES[(number + k) % len(ADJECTIVES)]
                finite, base = VERBS[(number + k) % len(VERBS)]
                text = template.format(
                    **order, rel=f"{adjective} {preposition}", adj=adjective, Adj=adjective.capitalize(), p=preposition,
                    V=finite, v=base, N=NOUNS[(number + k) % len(NOUNS)],
                )  # fmt: skip
                pairs = _spelled(order)
                must = present is not None and kind in (*plain, "scoped", "quantified")
                yield Phrasing(kind, text, pairs(present or ""), pairs(absent or ""), must)


def _spelled(order: dict[str, str]) -> Callable[[str], frozenset[frozenset[str]]]:
    def pairs(letters: str) -> frozenset[frozenset[str]]:
        if letters == "all":
            return frozenset(map(frozenset, PAIRS))
        return frozenset(frozenset(order[letter] for letter in pair) for pair in letters.split())

    return pairs
