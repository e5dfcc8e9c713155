"""The queries of an audit so far, and what they say about one another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from classic_ml.auditing.explanations import LocalExplanation, predicted
from classic_ml.auditing.membership import IntArray
from classic_ml.auditing.regions import BoolArray, FloatArray
from classic_ml.auditing.tally import Tally, tally


class QueryPool:
    """Audited explanations, reference points, and the counts of every explanation on every reference point.

    Attributes:
        explanations, audited_rows, counts: [m] of the audited points; rows count over all batches.
        agreement: [m] whether g_x(x) = f(x).
        reference [n2, d], reference_labels, reference_rows: [n2].
        known: labels the classifier gave.
    """

    def __init__(self, rng: np.random.Generator, width: int) -> None:
        self.rng, self.width, self.n_rows = rng, width, 0
        self.explanations: list[LocalExplanation] = []
        self.audited_rows = np.zeros(0, np.int64)
        self.agreement: BoolArray = np.zeros(0, bool)
        self.reference: FloatArray = np.zeros((0, width))
        self.reference_labels: Any = None
        self.reference_rows = np.zeros(0, np.int64)
        self.known: set[Hashable] = set()
        nothing = np.zeros(0, np.int64)
        self.counts = Tally(nothing, nothing, nothing, [], set())

    def add(
        self, new: list[LocalExplanation], X: FloatArray, labels: Any, audited: IntArray, reference: IntArray
    ) -> None:
        """Take in a batch X [n, d] with labels [n]: `new` explanations of its `audited` rows, and `reference` rows."""
        known = self.known | set(np.unique(labels).tolist())
        rows = reference + self.n_rows
        more = tally(self.explanations, X[reference], labels[reference], rows, known)
        points = np.concatenate([self.reference, X[reference]])
        old = labels[:0] if self.reference_labels is None else self.reference_labels
        point_labels = np.concatenate([old, labels[reference]])
        point_rows = np.concatenate([self.reference_rows, rows])
        further = tally(new, points, point_labels, point_rows, known)
        agreement = np.zeros(len(new), bool)
        for explanation, own in sharing(new).values():
            agreement[own] = predicted(explanation.model, X[audited[own]]) == labels[audited[own]]
        self.counts.add(more)
        self.counts.extend(further)
        self.explanations += new
        self.audited_rows = np.concatenate([self.audited_rows, audited + self.n_rows])
        self.agreement = np.concatenate([self.agreement, agreement])
        self.reference, self.reference_labels, self.reference_rows = points, point_labels, point_rows
        self.known = known
        self.n_rows += len(X)


def sharing(explanations: Sequence[LocalExplanation]) -> dict[int, tuple[LocalExplanation, list[int]]]:
    """Distinct explanations with the places where they stand."""
    places: dict[int, list[int]] = defaultdict(list)
    for i, explanation in enumerate(explanations):
        if not isinstance(explanation, LocalExplanation):
            raise TypeError(
                f"explanation {i} is a {type(explanation).__name__}: give LocalExplanation(region, model)"
            )
        places[id(explanation)].append(i)
    return {key: (explanations[own[0]], own) for key, own in places.items()}
