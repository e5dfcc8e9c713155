"""How many edges of a treebank were found: without direction, with it, and with the right label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from interp.core.messages import one_of
from interp.probes.readout import Edges
from interp.probes.tree_data import TreeData
from interp.probes.treebank import ROOT, DependencyTree, Edge

AVERAGES = ("macro", "micro")
PUNCTUATION = frozenset({"PUNCT", "''", ",", ".", ":", "``", "-LRB-", "-RRB-"})  # UD's tag and PTB's


@dataclass(frozen=True)
class AttachmentScores:
    """Shares of the gold edges that were found; the root arc is no edge. las <= uas <= uuas.

    Attributes:
        uuas: the pair of words is right.
        uas: and the direction.
        las: and the relation.
    """

    uuas: float
    uas: float
    las: float

    def __str__(self) -> str:
        return f"UUAS {self.uuas:.3f}  UAS {self.uas:.3f}  LAS {self.las:.3f}"


@dataclass(frozen=True)
class Matches:
    """For every gold edge whether its pair, its direction and its label were found; all [E].

    Attributes:
        dependents: the word below each gold edge.
        sentences: the sentence of each.
    """

    dependents: np.ndarray
    sentences: np.ndarray
    pair: np.ndarray
    directed: np.ndarray
    labelled: np.ndarray

    def scores(self, average: str = "macro") -> AttachmentScores:
        """`macro`: the mean over sentences with an edge; `micro`: over edges."""
        one_of("average", average, AVERAGES)
        if not len(self.dependents):
            raise ValueError("no sentence has an edge to score")
        found = (self.pair, self.directed, self.labelled)
        if average == "micro":
            return AttachmentScores(*(float(part.mean()) for part in found))
        totals = np.bincount(self.sentences)
        with_edges = totals > 0
        shares = [np.bincount(self.sentences, part)[with_edges] / totals[with_edges] for part in found]
        return AttachmentScores(*(float(share.mean()) for share in shares))


def match(predicted: Edges, gold: TreeData, keep: np.ndarray | None = None) -> Matches:
    """Compare decoded edges (words counted through the corpus) with the gold trees.

    Args:
        keep: [N] false at words left out (punctuation): gold edges with one of them don't count.
    """
    heads, types = gold.heads.numpy(), gold.types.numpy()
    n = len(heads)
    pair, directed, labelled = (np.zeros(n, dtype=bool) for _ in range(3))
    downwards = heads[predicted.dependents] == predicted.heads
    upwards = heads[predicted.heads] == predicted.dependents
    pair[predicted.dependents[downwards]] = True
    pair[predicted.heads[upwards]] = True
    directed[predicted.dependents[downwards]] = True
    same = downwards & (types[predicted.dependents] == predicted.types)
    labelled[predicted.dependents[same]] = True
    counted = gold.dependents.numpy()
    if keep is not None:
        counted = counted[keep[counted] & keep[heads[counted]]]
    sentences = np.searchsorted(gold.starts.numpy(), counted, side="right") - 1
    return Matches(counted, sentences, pair[counted], directed[counted], labelled[counted])


def is_word(trees: Sequence[DependencyTree]) -> np.ndarray:
    """[N] false at punctuation, by the trees' tags. Raises ValueError where trees have no tags."""
    if any(tree.tags is None for tree in trees):
        raise ValueError("exclude_punct=True: these trees have no tags to know punctuation by")
    return np.array([tag not in PUNCTUATION for tree in trees for tag in tree.tags or ()])


def kept_words(trees: Sequence[DependencyTree], keep: np.ndarray | None) -> list[np.ndarray]:
    """Which words of each sentence count, by their places in it: all, or those where `keep` [N] is true."""
    if keep is None:
        return [np.arange(len(tree)) for tree in trees]
    parts = np.split(keep, np.cumsum([len(tree) for tree in trees])[:-1])
    return [np.flatnonzero(part) for part in parts]


def attachment_scores(
    predicted: Sequence[Sequence[Edge]],
    gold: Sequence[DependencyTree],
    *,
    average: str = "macro",
    exclude_punct: bool = False,
) -> AttachmentScores:
    """Score edge sets (head, dependent, relation), one a sentence; a word may have several heads in them.

    A root arc, with the head -1, is no edge: it may stand among the predicted ones and never counts.

    Args:
        average: "macro" (mean over sentences with an edge) or "micro" (over all edges).
        exclude_punct: leave out edges to or from punctuation, by the trees' tags.

    Raises:
        ValueError: as many predictions as trees are needed; an edge with a word that its sentence lacks, or from
            a word to itself; no tags where punctuation is to be left out.
    """
    if len(predicted) != len(gold):
        raise ValueError(f"{len(predicted)} predictions for {len(gold)} trees")
    predicted = [
        _without_root_arcs(edges, len(tree), index)
        for index, (edges, tree) in enumerate(zip(predicted, gold, strict=True))
    ]
    relations = sorted(
        {r for tree in gold for r in tree.relations} | {r for edges in predicted for _, _, r in edges}
    )
    number = {relation: i for i, relation in enumerate(relations)}
    data = TreeData(gold, relations)
    rows = [
        (start + head, start + word, number[relation])
        for start, edges in zip(data.starts.tolist(), predicted, strict=False)
        for head, word, relation in edges
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    keep = is_word(gold) if exclude_punct else None
    return match(Edges(*columns), data, keep).scores(average)


def _without_root_arcs(edges: Sequence[Edge], n: int, index: int) -> list[Edge]:
    """The edges between words of a sentence of n. Raises ValueError for one that isn't there."""
    for edge in edges:
        whole = len(edge) == 3 and all(isinstance(place, Integral) for place in edge[:2])
        if not (whole and ROOT <= edge[0] < n and 0 <= edge[1] < n and edge[0] != edge[1]):
            raise ValueError(
                f"predicted[{index}] has the edge {tuple(edge)}: give (head, dependent, relation) of two of the "
                f"{n} words, counted from 0, or the head {ROOT} at the root"
            )
    return [edge for edge in edges if edge[0] != ROOT]
