"""What one probe says about a treebank: decoded trees, matches with the gold ones, tables of both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.probes.bank import ProbeBank
from interp.probes.readout import Pairs, by_sentence, cosines, decode, nearest_words
from interp.probes.scores import AttachmentScores, Matches, is_word, match
from interp.probes.tree_data import TreeData
from interp.probes.treebank import DependencyTree, Edge
from interp.probes.words import WordActivations

if TYPE_CHECKING:
    import pandas as pd


def read_out(
    bank: ProbeBank,
    words: WordActivations,
    trees: Sequence[DependencyTree],
    *,
    rooted: bool = False,
    exclude_punct: bool = False,
) -> list[ReadOut]:
    """Decode all sentences with every probe of a bank; one `ReadOut` a probe.

    Args:
        rooted: hang every tree on one root (`orient_from_root`); the paper's read-out does not.
        exclude_punct: leave punctuation out of the trees and all scores, by the trees' tags.

    Raises:
        ValueError: activations that do not fit the trees or the probes, or are not finite; trees without tags to
            know punctuation by.
    """
    words.check(trees)
    points = bank.transform(words).double().cpu().numpy()
    if not np.isfinite(points).all():
        lost = (
            int(np.searchsorted(words.starts.numpy(), np.argwhere(~np.isfinite(points))[0][1], "right")) - 1
        )
        raise ValueError(f"the activations of sentence {lost} hold NaN or infinite values")
    return [
        ReadOut(bank, probe, own, trees, rooted=rooted, exclude_punct=exclude_punct)
        for probe, own in enumerate(points)
    ]


class ReadOut:
    """What one probe says about the sentences of a treebank.

    Attributes:
        points: [N k] the words in the probe's space, in float64.
        prototypes: [R k].
        keep: [N] false at punctuation where it is left out, else None.
        edges: the decoded edges, words counted through the corpus.
        matches: these edges against the gold ones.
    """

    def __init__(
        self,
        bank: ProbeBank,
        probe: int,
        points: Float[np.ndarray, "N k"],
        trees: Sequence[DependencyTree],
        *,
        rooted: bool = False,
        exclude_punct: bool = False,
    ) -> None:
        self.spec = bank.specs[probe]
        self.trees, self.relations, self.points = trees, bank.relations, points
        self.prototypes = bank.prototypes[probe].double().cpu().numpy()
        self.data = TreeData(trees, bank.relations)
        self.starts = self.data.starts.numpy()
        self.keep = is_word(trees) if exclude_punct else None
        self.pairs = Pairs.within(self.starts, self.keep)
        roots = None
        if self.spec.root:
            centre = bank.centre[probe].detach().double().cpu().numpy()
            roots = nearest_words(points, centre, self.starts, self.keep)
        self.edges = decode(self.pairs, points, self.prototypes, self.starts, rooted=rooted, roots=roots)
        self.matches: Matches = match(self.edges, self.data, self.keep)

    def _split(self, values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, self.starts[1:-1])

    def scores(self, average: str = "macro") -> AttachmentScores:
        return self.matches.scores(average)

    def sentences(self) -> list[list[Edge]]:
        """The decoded edges (head, dependent, relation) of every sentence."""
        return by_sentence(self.edges, self.starts, self.relations)

    @cached_property
    def edge_vectors(self) -> Float[np.ndarray, "E k"]:
        """Head minus dependent of the gold edges that are scored."""
        words = self.matches.dependents
        return self.points[self.data.heads.numpy()[words]] - self.points[words]

    @cached_property
    def edge_types(self) -> np.ndarray:
        """The type of each of them; -1 for one that the probe was not trained on."""
        return self.data.types.numpy()[self.matches.dependents]

    @cached_property
    def edge_cosines(self) -> Float[np.ndarray, "E R"]:
        return cosines(self.edge_vectors, self.prototypes)

    @property
    def label_hits(self) -> np.ndarray:
        """Whether the type of each gold edge is that of the nearest prototype."""
        return self.edge_cosines.argmax(1) == self.edge_types

    @property
    def balanced_label_accuracy(self) -> float:
        """Label accuracy averaged over the types; one unknown to the probe has 0."""
        kinds = np.unique(self.edge_types)
        return float(np.mean([self.label_hits[self.edge_types == kind].mean() for kind in kinds]))

    @property
    def label_auc(self) -> float:
        """Area under the ROC curve of cos(edge, prototype) for its type against the others, averaged over types."""
        from sklearn.metrics import roc_auc_score

        areas = []
        for kind in range(len(self.relations)):
            mine = self.edge_types == kind
            if mine.any() and not mine.all():
                areas.append(roc_auc_score(mine, self.edge_cosines[:, kind]))
        return float(np.mean(areas)) if areas else float("nan")

    def distance_matrices(self) -> list[Float[np.ndarray, "n n"]]:
        """Squared distances of all words of each sentence."""
        return [np.square(part[:, None] - part[None]).sum(-1) for part in self._split(self.points)]

    def depths(self) -> list[Float[np.ndarray, " n"]]:
        """Squared norms of the words of each sentence, which a depth term makes their depths."""
        return self._split(np.square(self.points).sum(1))

    @property
    def root_accuracy(self) -> float:
        """How often the word of the smallest depth is the root, over sentences of two words or more; NaN for none.

        Where punctuation is left out, it is neither found nor counted as a word or as a root.
        """
        lowest = nearest_words(self.points, np.zeros(self.points.shape[1]), self.starts, self.keep)
        roots = self.starts[:-1] + self.data.roots.numpy()
        keep = np.ones(len(self.points), bool) if self.keep is None else self.keep
        counted = keep[roots] & (np.add.reduceat(keep.astype(int), self.starts[:-1]) > 1)
        return float(np.mean((lowest == roots)[counted])) if counted.any() else float("nan")

    def by_relation(self) -> pd.DataFrame:
        """For every relation: edges, how many were found (uuas, uas, las), label accuracy on gold edges."""
        names = np.array([*self.relations, "(unknown)"])
        return self._table("relation", names[self.edge_types]).sort_values("edges", ascending=False)

    def by_depth(self) -> pd.DataFrame:
        """The same by the depth of the dependent below the root."""
        return self._table("depth", self.data.depths.numpy().astype(int)[self.matches.dependents])

    def by_tree_depth(self) -> pd.DataFrame:
        """The same by the depth of the sentence's whole tree."""
        deepest = np.array([int(tree.depths.max()) for tree in self.trees])
        return self._table("tree_depth", deepest[self.matches.sentences])

    def _table(self, name: str, group: np.ndarray) -> pd.DataFrame:
        import pandas as pd

        found = self.matches
        frame = pd.DataFrame(
            {
                name: group,
                "uuas": found.pair,
                "uas": found.directed,
                "las": found.labelled,
                "label_accuracy": self.label_hits,
            }
        )
        grouped = frame.groupby(name)
        return grouped.mean().astype(float).assign(edges=grouped.size()).reset_index()
