"""Trees as arrays, and batches of sentences cut out of them without a loop over sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.probes.treebank import DependencyTree

UNKNOWN = -1  # a relation type that the probe was not trained on


@dataclass(frozen=True)
class SentenceBatch:
    """Some sentences in order of their lengths.

    Attributes:
        lengths: [b] ascending.
        words: [W] where the batch's words stand among all words.
        distances: the n^2 tree distances of each sentence, one sentence after the other.
        depths: [W].
        heads: [W] the place within the batch of the word that each word hangs on, itself at the roots.
        types: [W] type of the edge above each word, -1 at the roots.
        roots: [b] place of each root within the batch.
    """

    lengths: Int[Tensor, " b"]
    words: Int[Tensor, " W"]
    distances: Float[Tensor, " Q"]
    depths: Float[Tensor, " W"]
    heads: Int[Tensor, " W"]
    types: Int[Tensor, " W"]
    roots: Int[Tensor, " b"]

    @property
    def dependents(self) -> Int[Tensor, " m"]:
        """Every word that has a head, that is every edge."""
        return (self.heads != torch.arange(len(self.heads))).nonzero()[:, 0]

    @cached_property
    def mask(self) -> Bool[Tensor, "b n"]:
        """True at the words of the batch when its sentences are padded to the longest."""
        return torch.arange(int(self.lengths.max())) < self.lengths[:, None]

    @cached_property
    def padded(self) -> Int[Tensor, "b n"]:
        """Place of each word within the batch; 0 where the mask is false."""
        places = torch.zeros(self.mask.shape, dtype=torch.int64)
        places[self.mask] = torch.arange(len(self.words))
        return places


class TreeData:
    """All trees of a corpus, words and edges counted through.

    Attributes:
        relations: the types; an edge of another one has the type -1.
        starts: [S + 1] first word of each sentence.
        heads: [N] the word that each word hangs on, itself at the roots.
        types: [N] type of the edge above each word, -1 at the roots.
        depths: [N].
    """

    def __init__(self, trees: Sequence[DependencyTree], relations: Sequence[str]) -> None:
        if not len(trees):
            raise ValueError("trees: an empty corpus")
        self.relations = tuple(relations)
        number = {relation: i for i, relation in enumerate(self.relations)}
        lengths = np.array([len(tree) for tree in trees])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        heads, types = np.arange(starts[-1]), np.full(starts[-1], UNKNOWN)
        for start, tree in zip(starts[:-1], trees, strict=True):
            for head, word, relation in tree.edges():
                heads[start + word] = start + head
                types[start + word] = number.get(relation, UNKNOWN)
        self.starts, self.lengths = torch.from_numpy(starts), torch.from_numpy(lengths)
        self.heads, self.types = torch.from_numpy(heads), torch.from_numpy(types)
        self.depths = torch.from_numpy(np.concatenate([tree.depths for tree in trees])).float()
        self.roots = torch.tensor([tree.root for tree in trees])
        self._distances = torch.from_numpy(
            np.concatenate([tree.distances().astype(np.int16).ravel() for tree in trees])
        )
        self._squares = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths**2)]))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def dependents(self) -> Int[Tensor, " E"]:
        """Every word that has a head, that is every edge."""
        return (self.heads != torch.arange(len(self.heads))).nonzero()[:, 0]

    def batch(self, sentences: Int[Tensor, " b"]) -> SentenceBatch:
        sentences = sentences[self.lengths[sentences].argsort(stable=True)]
        lengths = self.lengths[sentences]
        first = lengths.cumsum(0) - lengths  # of each sentence, within the batch
        shift = (first - self.starts[sentences]).repeat_interleave(lengths)
        words = torch.arange(len(shift)) - shift
        squares = lengths.square()
        cells = self._squares[sentences] - squares.cumsum(0) + squares
        places = torch.arange(int(squares.sum())) + cells.repeat_interleave(squares)
        return SentenceBatch(
            lengths=lengths,
            words=words,
            distances=self._distances[places].float(),
            depths=self.depths[words],
            heads=self.heads[words] + shift,
            types=self.types[words],
            roots=first + self.roots[sentences],
        )
