"""The data under every transformation: the inflated set {(T_k(x_i), y_i)}, kept where it is small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from classic_ml.invariance.transforms import Rows, Transform, transform_name, transformed

MAX_ENTRIES = 10_000_000


class InflatedRows:
    """T_k(X) for every transformation of a family.

    Args:
        X: (m, d).
        transforms: K of them.
        max_entries: K m d up to which all are kept; above, each is computed when asked for.
    """

    def __init__(self, X: Rows, transforms: Sequence[Transform], max_entries: int = MAX_ENTRIES) -> None:
        self.X, self.transforms = X, list(transforms)
        self.names = [transform_name(one, k) for k, one in enumerate(self.transforms)]
        self.entries, self.max_entries = len(self.transforms) * X.size, max_entries
        self._all: Float[np.ndarray, "Km d"] | None = None
        if self.entries <= max_entries:
            self._all = np.concatenate([self._compute(k) for k in range(len(self.transforms))])

    def __len__(self) -> int:
        return len(self.transforms)

    def _compute(self, k: int) -> Rows:
        return transformed(self.transforms[k], self.X, f"transforms[{k}] ({self.names[k]})")

    def part(self, k: int) -> Rows:
        """T_k(X), (m, d)."""
        m = len(self.X)
        return self._compute(k) if self._all is None else self._all[k * m : (k + 1) * m]

    def stacked(self) -> Float[np.ndarray, "Km d"]:
        """All, transformation by transformation. Raises ValueError above `max_entries`."""
        if self._all is None:
            raise ValueError(
                f"{len(self)} transformations of X {self.X.shape} are {self.entries} entries, more than "
                f"max_entries = {self.max_entries}: raise it, or set oracle_mode='resample' (n_augment=1 to augment)"
            )
        return self._all

    def mixed(self, which: Int[np.ndarray, " n"], rows: Int[np.ndarray, " n"]) -> Rows:
        """Row i is T_{which[i]} of x_{rows[i]}."""
        if self._all is not None:
            return self._all[which * len(self.X) + rows]
        result = np.empty((len(rows), self.X.shape[1]), self.X.dtype)
        for k in np.unique(which):
            inside = which == k
            result[inside] = self._compute(int(k))[rows[inside]]
        return result

    def chunks(self) -> Iterator[Rows]:
        """The inflated set in order, at once where it is kept, else transformation by transformation."""
        if self._all is not None:
            yield self._all
        else:
            yield from (self.part(k) for k in range(len(self)))

    def errors(self, predictor: Any, y: np.ndarray) -> Float[np.ndarray, " K"]:
        """Share of rows that a predictor gets wrong under each transformation."""
        labels = np.concatenate([predictions(predictor, rows) for rows in self.chunks()])
        return (labels.reshape(len(self), -1) != y).mean(1)


def predictions(predictor: Any, X: Rows) -> np.ndarray:
    """Labels (n,) of a fitted classifier, or of a function of rows. Raises TypeError for anything else."""
    predict = getattr(predictor, "predict", predictor)
    if not callable(predict) or isinstance(predictor, type):
        raise TypeError(
            f"predictor {predictor!r} has no predict and is no function; give a fitted classifier"
        )
    labels = np.asarray(predict(X))
    if labels.shape != (len(X),):
        raise ValueError(f"predictor {predictor!r} gave labels of shape {labels.shape} for {len(X)} rows")
    return labels
