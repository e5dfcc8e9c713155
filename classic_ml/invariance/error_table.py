"""The report card: the error of every predictor under every transformation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from classic_ml.invariance.bounds import hoeffding_gap
from classic_ml.invariance.inflated import InflatedRows
from classic_ml.invariance.mixture import MixtureClassifier
from classic_ml.invariance.transforms import Transform, resolve_transforms
from classic_ml.selection.distances import as_matrix

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def err_matrix(
    predictors: Sequence[Any], transforms: Sequence[Transform], X: Any, y: Any
) -> Float[np.ndarray, "H K"]:
    """Share of wrong predictions of each predictor (fitted, or a function of rows) under each transformation.

    Raises ValueError for no predictor, no transformation, one that changes the shape of X, or lengths that differ.
    """
    X, y = as_matrix(X), np.asarray(y)
    _check_lengths(predictors, X, y)
    data = InflatedRows(X, resolve_transforms(transforms, rng=np.random.default_rng(0)))
    return np.stack([data.errors(predictor, y) for predictor in predictors])


@dataclass(frozen=True)
class ErrorTable:
    """Errors (H, K) with names, on `n_samples` rows."""

    errors: Float[np.ndarray, "H K"]
    predictors: list[str]
    transforms: list[str]
    n_samples: int

    @property
    def worst(self) -> Float[np.ndarray, " H"]:
        return self.errors.max(1)

    @property
    def mean(self) -> Float[np.ndarray, " H"]:
        return self.errors.mean(1)

    def gap(self, delta: float = 0.05) -> float:
        """`hoeffding_gap` of all entries at once; holds where no predictor was fitted to these rows."""
        n_predictors, n_transforms = self.errors.shape
        return hoeffding_gap(n_predictors, n_transforms, self.n_samples, delta)

    def to_frame(self) -> pd.DataFrame:
        """A row per predictor, a column per transformation, then mean and worst."""
        import pandas as pd

        table = pd.DataFrame(
            self.errors, index=pd.Index(self.predictors, name="predictor"), columns=self.transforms
        )
        return table.assign(mean=self.mean, worst=self.worst)

    def __str__(self) -> str:
        return (
            f"{self.to_frame().to_string(float_format='{:.3f}'.format)}\n"
            f"on {self.n_samples} rows; if these were held out, all within {self.gap():.3f} of the truth with 95 %"
        )

    def plot(self) -> Figure:
        """A heat map."""
        from classic_ml.invariance.plots import plot_errors

        return plot_errors(self.errors, self.predictors, self.transforms)


def error_table(
    predictors: Mapping[str, Any], transforms: Sequence[Transform] | Mapping[str, Transform], X: Any, y: Any
) -> ErrorTable:
    """The report card of named predictors; a mixture has a row for its `predict` and one for the randomised predictor.

    Args:
        transforms: a list, or by name.
    """
    X, y = as_matrix(X), np.asarray(y)
    family = list(transforms.values()) if isinstance(transforms, Mapping) else list(transforms)
    _check_lengths(predictors, X, y)
    data = InflatedRows(X, resolve_transforms(family, rng=np.random.default_rng(0)))
    named = list(transforms) if isinstance(transforms, Mapping) else data.names
    rows: dict[str, Any] = {}
    for name, predictor in predictors.items():
        if isinstance(predictor, MixtureClassifier):
            both = np.array([predictor.both_errors(data.part(k), y) for k in range(len(data))])
            rows[name], rows[f"{name}, mixture"] = both.T
        else:
            rows[name] = data.errors(predictor, y)
    return ErrorTable(np.stack(list(rows.values())), list(rows), [str(name) for name in named], len(X))


def _check_lengths(predictors: Sized, X: np.ndarray, y: np.ndarray) -> None:
    if y.shape != (len(X),):
        raise ValueError(f"X has {len(X)} rows, but y has shape {y.shape}; give a label a row")
    if len(predictors) == 0:
        raise ValueError("predictors is empty: give at least one")
