"""The controlled benchmark: English sentences with nested phrases, and the trees they were made from.

After the controlled sentences of Diego-Simon et al. 2024 (arXiv 2412.05571). Universal Dependencies relations:

    S   -> NP V NP                      nsubj, obj
    NP  -> Det [Adj] N [Mod]            det, amod
    Mod -> P NP                         case, nmod          one level deeper
         | that V NP                    acl:relcl, nsubj (that), obj
         | that NP V                    acl:relcl, obj (that), nsubj
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interp.core.device import derive_seed
from interp.core.messages import one_of
from interp.probes.treebank import ROOT, DependencyTree

NOUNS = tuple(
    "dog cat boy girl king queen doctor nurse farmer teacher painter singer pilot judge baker sailor lawyer "
    "actor student writer soldier hunter guard robot".split()
)
VERBS = tuple(
    "see like chase hear help follow admire visit call greet know trust warn blame thank meet".split()
)
ADJECTIVES = tuple("old young tall happy tired famous clever quiet angry".split())
PREPOSITIONS = tuple("near behind beside with above under".split())
PATIENCE = 1000  # repeated sentences in a row after which a grammar counts as exhausted
NESTED = ("nmod", "acl:relcl")  # the edges that go one level deeper


@dataclass(frozen=True)
class _Template:
    """Kinds of the words (N noun, V verb, P preposition, others as they are), heads and relations."""

    words: str
    heads: tuple[int, ...]
    relations: str


TEMPLATES = {
    "short": _Template("the N V the N", (1, 2, ROOT, 4, 2), "det nsubj root det obj"),
    "prepositional": _Template(
        "the N P the N V the N", (1, 5, 4, 4, 1, ROOT, 7, 5), "det nsubj case det nmod root det obj"
    ),
    "relative": _Template(
        "the N that the N V V the N",
        (1, 6, 5, 4, 5, 1, ROOT, 8, 6),
        "det nsubj obj det nsubj acl:relcl root det obj",
    ),
    "long_nested": _Template(
        "the N that the N P the N V V the N P the N",
        (1, 9, 8, 4, 8, 7, 7, 4, 1, ROOT, 11, 9, 14, 14, 11),
        "det nsubj obj det nsubj case det nmod acl:relcl root det obj case det nmod",
    ),
}


@dataclass(frozen=True)
class ControlledGrammar:
    """The grammar and its chances.

        trees = ControlledGrammar().sample(600, seed=0)

    Attributes:
        p_nmod, p_relcl: how often a noun phrase that may nest further has a prepositional phrase, a relative
            clause (half of them subject, half object relatives).
        p_adj: how often a noun has an adjective.
        held_out_nouns: nouns that never occur; a grammar with only these makes sentences of unseen nouns
            (`unseen()`).
    """

    p_nmod: float = 0.3
    p_relcl: float = 0.3
    p_adj: float = 0.3
    nouns: tuple[str, ...] = NOUNS
    held_out_nouns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("p_nmod", "p_relcl", "p_adj"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}: a probability lies between 0 and 1")
        if self.p_nmod + self.p_relcl > 1:
            raise ValueError(f"p_nmod + p_relcl = {self.p_nmod + self.p_relcl}: at most 1")
        for noun in self.held_out_nouns:
            one_of("held_out_nouns", noun, self.nouns)
        if not self._nouns:
            raise ValueError("held_out_nouns: at least one noun must stay")

    @property
    def _nouns(self) -> tuple[str, ...]:
        return tuple(noun for noun in self.nouns if noun not in self.held_out_nouns)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word that any of these grammars' sentences can have."""
        nouns = [form for noun in self.nouns for form in (noun, noun + "s")]
        verbs = [form for verb in VERBS for form in (verb, verb + "s")]
        return (*nouns, *verbs, *ADJECTIVES, *PREPOSITIONS, "the", "a", "some", "that")

    def unseen(self) -> ControlledGrammar:
        """The same grammar with the held-out nouns only."""
        if not self.held_out_nouns:
            raise ValueError("held_out_nouns=(): no nouns were held out")
        return replace(self, nouns=self.held_out_nouns, held_out_nouns=())

    def sample(
        self,
        n: int,
        *,
        max_depth: int = 2,
        kind: str | None = None,
        seed: int = 0,
        without: Sequence[DependencyTree] = (),
    ) -> list[DependencyTree]:
        """`n` different sentences with their trees and nesting levels; the same for the same seed.

        Args:
            max_depth: how deep phrases nest; no matter where `kind` is given.
            kind: a fixed template: short, prepositional, relative or long_nested.
            without: sentences that must not come again (those of another split).

        Raises:
            ValueError: an unknown kind, or so many sentences that the grammar runs out of new ones.
        """
        if n < 1 or max_depth < 0:
            raise ValueError(f"n={n}, max_depth={max_depth}: n must be at least 1, max_depth not negative")
        if kind is not None:
            one_of("kind", kind, tuple(TEMPLATES))
        random = np.random.default_rng(derive_seed(seed, "grammar"))
        seen = {tree.words for tree in without}
        trees: list[DependencyTree] = []
        repeated = 0
        while len(trees) < n:
            if kind is None:
                tree = _Sentence(self, random).tree(max_depth)
            else:
                tree = self._from_template(TEMPLATES[kind], random)
            if tree.words in seen:
                repeated += 1
                if repeated == PATIENCE:
                    raise ValueError(f"n={n}: this grammar has hardly more than {len(trees)} new sentences")
                continue
            repeated = 0
            seen.add(tree.words)
            trees.append(tree)
        return trees

    def split(
        self, *sizes: int, max_depth: int = 2, kind: str | None = None, seed: int = 0
    ) -> list[list[DependencyTree]]:
        """Several sets that share no sentence, e.g. train, validation and test."""
        trees = self.sample(sum(sizes), max_depth=max_depth, kind=kind, seed=seed)
        ends = np.cumsum(sizes)
        return [trees[end - size : end] for end, size in zip(ends, sizes, strict=True)]

    def _from_template(self, template: _Template, random: np.random.Generator) -> DependencyTree:
        relations, kinds = template.relations.split(), template.words.split()
        plural = {i: bool(random.integers(2)) for i, kind in enumerate(kinds) if kind == "N"}
        words = []
        for i, kind in enumerate(kinds):
            if kind == "N":
                words.append(_noun(random.choice(self._nouns), plural[i]))
            elif kind == "V":
                subject = next(j for j, h in enumerate(template.heads) if h == i and relations[j] == "nsubj")
                words.append(_verb(random.choice(VERBS), plural[subject]))
            else:
                words.append(str(random.choice(PREPOSITIONS)) if kind == "P" else kind)
        return _with_levels(words, template.heads, relations)


class _Sentence:
    """A sentence under construction: words in order, each with its head and relation."""

    def __init__(self, grammar: ControlledGrammar, random: np.random.Generator) -> None:
        self.grammar, self.random = grammar, random
        self.words: list[str] = []
        self.heads: list[int] = []
        self.relations: list[str] = []

    def tree(self, max_depth: int) -> DependencyTree:
        subject, plural = self.noun_phrase(max_depth)
        verb = self.add(_verb(self.random.choice(VERBS), plural))
        object_, _ = self.noun_phrase(max_depth)
        self.attach(subject, verb, "nsubj")
        self.attach(object_, verb, "obj")
        self.attach(verb, ROOT, "root")
        return _with_levels(self.words, self.heads, self.relations)

    def add(self, word: str) -> int:
        self.words.append(str(word))
        self.heads.append(ROOT)
        self.relations.append("root")
        return len(self.words) - 1

    def attach(self, word: int, head: int, relation: str) -> None:
        self.heads[word], self.relations[word] = head, relation

    def noun_phrase(self, depth: int) -> tuple[int, bool]:
        """The position of its noun, and whether that is plural."""
        plural = bool(self.random.integers(2))
        other = "some" if plural else "a"
        determiner = self.add("the" if self.random.random() < 0.6 else other)
        adjective = None
        if self.random.random() < self.grammar.p_adj:
            adjective = self.add(self.random.choice(ADJECTIVES))
        noun = self.add(_noun(self.random.choice(self.grammar._nouns), plural))
        self.attach(determiner, noun, "det")
        if adjective is not None:
            self.attach(adjective, noun, "amod")
        draw = self.random.random()
        if depth > 0 and draw < self.grammar.p_nmod:
            self.prepositional_phrase(noun, depth - 1)
        elif depth > 0 and draw < self.grammar.p_nmod + self.grammar.p_relcl:
            self.relative_clause(noun, plural, depth - 1)
        return noun, plural

    def prepositional_phrase(self, noun: int, depth: int) -> None:
        preposition = self.add(self.random.choice(PREPOSITIONS))
        inner, _ = self.noun_phrase(depth)
        self.attach(preposition, inner, "case")
        self.attach(inner, noun, "nmod")

    def relative_clause(self, noun: int, plural: bool, depth: int) -> None:
        that = self.add("that")
        if self.random.random() < 0.5:
            verb = self.add(_verb(self.random.choice(VERBS), plural))
            inner, _ = self.noun_phrase(depth)
            subject, object_ = that, inner
        else:
            inner, inner_plural = self.noun_phrase(depth)
            verb = self.add(_verb(self.random.choice(VERBS), inner_plural))
            subject, object_ = inner, that
        self.attach(verb, noun, "acl:relcl")
        self.attach(subject, verb, "nsubj")
        self.attach(object_, verb, "obj")


def _noun(noun: str, plural: bool) -> str:
    return noun + "s" * plural


def _verb(verb: str, plural_subject: bool) -> str:
    return verb + "s" * (not plural_subject)


def _with_levels(words: Sequence[str], heads: Sequence[int], relations: Sequence[str]) -> DependencyTree:
    """Levels count the nested edges between the root and the phrase that a word belongs to."""
    levels: dict[int, int] = {}

    def level(word: int) -> int:
        if word not in levels:
            above = 0 if heads[word] == ROOT else level(heads[word])
            levels[word] = above + (relations[word] in NESTED)
        return levels[word]

    return DependencyTree(
        tuple(words), tuple(heads), tuple(relations), levels=tuple(level(w) for w in range(len(words)))
    )
