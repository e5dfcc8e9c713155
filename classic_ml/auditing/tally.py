"""Counts of an audit: how many reference points each audited region holds, and on how many its model is wrong."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from classic_ml.auditing.explanations import LinearModel, LocalExplanation, LocalModel, predicted
from classic_ml.auditing.membership import IntArray, members


@dataclass(frozen=True)
class Counterexample:
    """A reference point inside an explanation's region on which its model contradicts the classifier.

    Attributes:
        audited, reference: rows of the data (counted over all batches).
        point: the reference point [d].
        classifier, model: its two labels.
        local_loss, low: of the explanation: estimated, and surely at least.
        n_in_region: reference points in its region.
    """

    audited: int
    reference: int
    point: Any
    classifier: Hashable
    model: Hashable
    local_loss: float
    low: float
    n_in_region: int

    def __str__(self) -> str:
        return (
            f"row {self.audited}: wrong on {self.local_loss:.1%} of {self.n_in_region} (surely {self.low:.1%}), e.g. "
            f"row {self.reference}, where f = {self.classifier} and g = {self.model}"
        )


@dataclass
class Tally:
    """Per audited explanation [m].

    Attributes:
        n_in_region, n_wrong: counts.
        first_wrong: a reference row on which the model is wrong, -1 where none is known.
        first_label: what the model says there.
        strange: labels that models gave and the classifier never did.
    """

    n_in_region: IntArray
    n_wrong: IntArray
    first_wrong: IntArray
    first_label: list[Hashable]
    strange: set[Hashable]

    def add(self, other: Tally) -> None:
        """Add counts of the same explanations on further reference points."""
        self.n_in_region = self.n_in_region + other.n_in_region
        self.n_wrong = self.n_wrong + other.n_wrong
        for i in np.flatnonzero((self.first_wrong < 0) & (other.first_wrong >= 0)):
            self.first_wrong[i], self.first_label[i] = other.first_wrong[i], other.first_label[i]
        self.strange |= other.strange

    def extend(self, other: Tally) -> None:
        """Append further explanations counted on the same reference points."""
        for name in ("n_in_region", "n_wrong", "first_wrong"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(other, name)]))
        self.first_label += other.first_label
        self.strange |= other.strange


def tally(
    explanations: Sequence[LocalExplanation], Z: Any, f_Z: Any, rows: IntArray, known: set[Hashable]
) -> Tally:
    """Hold explanations against reference points Z [n, d] with labels f_Z [n], rows [n] of the whole data.

    An explanation that several audited points share is computed once.  `known` are the classifier's labels.
    """
    distinct = list({id(e): e for e in explanations}.values())
    place = {id(e): j for j, e in enumerate(distinct)}
    back = np.array([place[id(e)] for e in explanations], np.int64)
    inside, wrong = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.int64)
    first, label, strange = np.full(len(distinct), -1), [None] * len(distinct), set()  # type: ignore[var-annotated]
    for j, here in members([e.region for e in distinct], Z):
        if len(here) == 0:
            continue
        says = _labels(distinct[j].model, Z, here)
        differs = np.flatnonzero(says != f_Z[here])
        inside[j], wrong[j] = len(here), len(differs)
        if len(differs):
            first[j], label[j] = rows[here[differs[0]]], says[differs[:1]].tolist()[0]
            strange |= set(np.unique(says[differs]).tolist()) - known
    return Tally(inside[back], wrong[back], first[back], [label[j] for j in back], strange)


def _labels(model: LocalModel, Z: Any, here: IntArray) -> Any:
    """The model's labels of the rows `here`; where these are many, a product with all rows is faster than a copy."""
    if isinstance(model, LinearModel) and 4 * len(here) > len(Z):
        return model.predict(Z)[here]
    return predicted(model, Z[here])
