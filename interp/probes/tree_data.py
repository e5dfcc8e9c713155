"""Trees as arrays, and batches of sentences cut out of them without a loop over sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.probes.treebank import DependencyTree

UNKNOWN = -1  # a relation type that the probe was not trained on


@dataclass(frozen=True)
class SentenceBatch:
    """Some sentences: their words one after the other, and the same padded to the longest sentence.

    Attributes:
        words: [W] where the batch's words stand among all words.
        padded: [b n] place of each word within the batch; 0 where the mask is false.
        mask: [b n].
        distances: [b n n] tree distances.
        depths: [b n].
        heads, dependents, types: [m] the edges, as places within the batch.
        roots: [b] place of each root within its sentence.
    """

    words: Int[Tensor, " W"]
    padded: Int[Tensor, "b n"]
    mask: Bool[Tensor, "b n"]
    distances: Float[Tensor, "b n n"]
    depths: Float[Tensor, "b n"]
    heads: Int[Tensor, " m"]
    dependents: Int[Tensor, " m"]
    types: Int[Tensor, " m"]
    roots: Int[Tensor, " b"]


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
        lengths = self.lengths[sentences]
        first = lengths.cumsum(0) - lengths  # of each sentence, within the batch
        shift = (first - self.starts[sentences]).repeat_interleave(lengths)
        words = torch.arange(len(shift)) - shift
        column = torch.arange(int(lengths.max()))
        mask = column < lengths[:, None]
        padded = torch.where(mask, first[:, None] + column, 0)
        square = mask[:, :, None] & mask[:, None, :]
        cell = column[:, None] * lengths[:, None, None] + column + self._squares[sentences][:, None, None]
        heads = self.heads[words] + shift
        edges = (heads != torch.arange(len(words))).nonzero()[:, 0]
        return SentenceBatch(
            words=words,
            padded=padded,
            mask=mask,
            distances=self._distances[torch.where(square, cell, 0)].float() * square,
            depths=self.depths[words][padded] * mask,
            heads=heads[edges],
            dependents=edges,
            types=self.types[words][edges],
            roots=self.roots[sentences],
        )
