"""Dependency trees: what a tree is and where its words stand in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

ROOT = -1
Edge = tuple[int, int, str]
Span = tuple[int, int]


@dataclass(frozen=True)
class DependencyTree:
    """One sentence with its dependency tree.

    Attributes:
        words: the n words.
        heads: position of each word's head, -1 for the root.
        relations: type of the edge from the head to the word; the root's own entry is not an edge.
        levels: nesting level of each word, where known (0 in the main clause).
        tags: universal part of speech, where known.
        text: the sentence as it is written; None joins the words by spaces.
        spans: start and end of each word in `text`, in characters; None looks the words up in it. The parts
            of a contraction whose letters are not theirs (French `au` = `à le`) share its span.

    Raises:
        ValueError: no words, sequences of different lengths, a head out of range, a word that is its own
            head, no root or several, a cycle, or a word that is not in the text.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    levels: tuple[int, ...] | None = None
    tags: tuple[str, ...] | None = None
    text: str | None = None
    spans: tuple[Span, ...] | None = None

    def __post_init__(self) -> None:
        n = len(self.words)
        if n == 0:
            raise ValueError("words=(): a tree has at least one word")
        for name in ("heads", "relations", "levels", "tags", "spans"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise ValueError(f"{name} has {len(value)} entries for {n} words")
        for word, head in enumerate(self.heads):
            if not ROOT <= head < n:
                raise ValueError(f"heads[{word}]={head}: must be -1 (root) or one of the {n} words")
            if head == word:
                raise ValueError(f"heads[{word}]={head}: a word can't be its own head")
        if (roots := self.heads.count(ROOT)) != 1:
            raise ValueError(f"heads={self.heads}: {roots} roots (head -1), there must be one")
        if (self.depths < 0).any():
            lost = int(np.argmax(self.depths < 0))
            raise ValueError(
                f"heads={self.heads}: word {lost} hangs in a cycle, not below the root: {self.words[lost]!r}"
            )
        if self.text is None:
            object.__setattr__(self, "text", " ".join(self.words))
        if self.spans is None:
            object.__setattr__(self, "spans", locate(self.words, self.text or ""))

    def __len__(self) -> int:
        return len(self.words)

    @property
    def root(self) -> int:
        return self.heads.index(ROOT)

    def edges(self) -> list[Edge]:
        """(head, dependent, relation) of every edge, in the order of the dependents; the root has none."""
        return [
            (head, word, relation)
            for word, (head, relation) in enumerate(zip(self.heads, self.relations, strict=True))
            if head != ROOT
        ]

    @cached_property
    def depths(self) -> np.ndarray:
        """Edges between each word and the root [n]."""
        depths = np.full(len(self.words), -1)
        children: dict[int, list[int]] = {}
        for word, head in enumerate(self.heads):
            children.setdefault(head, []).append(word)
        level, depth = children.get(ROOT, []), 0
        while level:
            depths[level] = depth
            level, depth = [child for word in level for child in children.get(word, [])], depth + 1
        return depths

    def distances(self) -> np.ndarray:
        """Number of edges between every two words [n n]."""
        distances = np.zeros((len(self), len(self)), dtype=np.int64)
        placed: list[int] = []
        # Top down: a word is one step further from all words placed so far than its head is.
        for word in np.argsort(self.depths, kind="stable"):
            if placed:
                distances[word, placed] = distances[placed, word] = distances[self.heads[word], placed] + 1
            placed.append(int(word))
        return distances

    def is_projective(self) -> bool:
        """Whether no two edges cross."""
        arcs = [(min(head, word), max(head, word)) for head, word, _ in self.edges()]
        return not any(a < c < b < d for a, b in arcs for c, d in arcs)


def locate(words: Sequence[str], text: str) -> tuple[Span, ...]:
    """Where each word stands in the text, from left to right. Raises ValueError for one that does not."""
    spans, at = [], 0
    for number, word in enumerate(words):
        start = text.find(word, at)
        if start < 0 or not word:
            raise ValueError(f"words[{number}]={word!r} is not in the text from character {at} on: {text!r}")
        at = start + len(word)
        spans.append((start, at))
    return tuple(spans)


def relation_types(trees: Sequence[DependencyTree]) -> tuple[str, ...]:
    """Every type that an edge of these trees has, sorted."""
    return tuple(sorted({relation for tree in trees for _, _, relation in tree.edges()}))
