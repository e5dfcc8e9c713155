"""What is audited: a region with a local model in it, and the two losses that say how wrong it is."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from classic_ml.auditing.regions import Region, rows_of, vector


class LocalModel(Protocol):
    """Anything that predicts a label per row: a scikit-learn classifier, or one of the models below."""

    def predict(self, X: Any, /) -> Any:
        """Labels [n] of rows [n, d]."""


class LinearModel:
    """labels[1] where coef . z + intercept >= 0, labels[0] elsewhere (0 counts as +1).

    Args:
        coef: [d].
        labels: of the negative and of the positive side, as the classifier spells them.
    """

    def __init__(
        self, coef: npt.ArrayLike, intercept: float = 0.0, labels: tuple[Hashable, Hashable] = (-1, 1)
    ) -> None:
        self.coef = vector("coef", coef)
        self.intercept = float(intercept)
        if not np.isfinite(self.intercept):
            raise ValueError(f"intercept = {intercept} must be a finite number")
        self.labels = checked_labels(labels)

    def decision_function(self, Z: Any) -> npt.NDArray[np.float64]:
        return rows_of(Z, len(self.coef), "LinearModel") @ self.coef + self.intercept

    def predict(self, Z: Any) -> npt.NDArray[Any]:
        return self.labels[(self.decision_function(Z) >= 0).astype(int)]

    def __repr__(self) -> str:
        return f"LinearModel(d={len(self.coef)}, labels={tuple(self.labels.tolist())})"


@dataclass(frozen=True)
class ConstantModel:
    """One label everywhere: what an anchor says, and the baseline of every local model."""

    label: Hashable

    def predict(self, Z: Any) -> npt.NDArray[Any]:
        return np.full(len(Z), self.label)


@dataclass(frozen=True, eq=False)
class LocalExplanation:
    """E(f, x): inside `region`, `model` claims to give the classifier's labels."""

    region: Region
    model: LocalModel

    def __post_init__(self) -> None:
        for name, value, method in (("region", self.region, "contains"), ("model", self.model, "predict")):
            if not callable(getattr(value, method, None)):
                raise TypeError(f"{name} = {value!r} has no method {method}()")


class LocalLoss(NamedTuple):
    """Share of the region's points on which the model is wrong (NaN for an empty region), and their number."""

    loss: float
    n_in_region: int


def local_loss(explanation: LocalExplanation, Z: Any, f_Z: Any) -> LocalLoss:
    """Estimate L(E, f, x) = Pr[g(z) != f(z) | z in R_x] from rows Z [n, d] of the data and their labels f_Z [n].

    The rows must be the data's own: perturbations around x measure something else, and so does x itself, on which
    an explanation is usually right by construction.  An empty region says nothing: its loss is NaN, not 0.
    """
    labels = np.asarray(f_Z)
    if labels.shape != (len(Z),):
        raise ValueError(f"f_Z has shape {labels.shape}, Z {len(Z)} rows: give one label per row")
    inside = np.flatnonzero(explanation.region.contains(Z))
    if len(inside) == 0:
        return LocalLoss(float("nan"), 0)
    wrong = predicted(explanation.model, np.asarray(Z)[inside]) != labels[inside]
    return LocalLoss(float(wrong.mean()), len(inside))


def explanation_loss(local_losses: npt.ArrayLike, gamma: float) -> float:
    """L_gamma: the share of points whose local loss is at least gamma; not the mean of the losses.

    Raises ValueError for NaN, the loss of an empty region, which is neither wrong nor fine.
    """
    losses = np.asarray(local_losses, np.float64)
    if losses.ndim != 1 or len(losses) == 0:
        raise ValueError(f"local_losses has shape {losses.shape}: give (n,) with n >= 1")
    if np.isnan(losses).any():
        raise ValueError(
            f"local_losses: {int(np.isnan(losses).sum())} of {len(losses)} are NaN, from regions that no point fell "
            "in; those are undetermined: let ExplanationAuditor account for them"
        )
    in_unit_interval("gamma", gamma)
    return float((losses >= gamma).mean())


def predicted(model: LocalModel, Z: Any) -> npt.NDArray[Any]:
    """The model's labels [n], their shape checked."""
    labels = np.asarray(model.predict(Z))
    if labels.shape != (len(Z),):
        raise ValueError(
            f"{model!r}.predict gave shape {labels.shape} for {len(Z)} rows: it must give ({len(Z)},)"
        )
    return labels


def checked_labels(labels: tuple[Hashable, Hashable]) -> npt.NDArray[Any]:
    """The two labels [2] of a binary local model."""
    array = np.asarray(labels)
    if array.shape != (2,) or array[0] == array[1]:
        raise ValueError(
            f"labels = {labels!r} must be two different labels: of the negative and the positive side"
        )
    return array


def in_unit_interval(name: str, value: float) -> None:
    """Raise ValueError unless 0 < value < 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} = {value} must lie strictly between 0 and 1")
