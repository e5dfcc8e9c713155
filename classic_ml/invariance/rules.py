"""Choosing one predictor by its errors under every transformation: worst case, mean, favourable count, regret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_ROUNDING = 1e-12


@dataclass(frozen=True)
class SelectionResult:
    """What a rule chose.

    Attributes:
        index: the chosen row of `errors`.
        value: its score.
        scores: (H,) what the rule compares.
        errors: (H, K).
        rule: in words.
    """

    index: int
    value: float
    scores: Float[np.ndarray, " H"]
    errors: Float[np.ndarray, "H K"]
    rule: str

    def to_frame(self) -> pd.DataFrame:
        """A row per predictor."""
        import pandas as pd

        table = {"score": self.scores, "mean": self.errors.mean(1), "worst": self.errors.max(1)}
        return pd.DataFrame(table).assign(chosen=np.arange(len(self.scores)) == self.index)

    def __str__(self) -> str:
        head = f"{self.rule}: predictor {self.index}, {self.value:.4g}"
        return f"{head}\n{self.to_frame().to_string(float_format='{:.4f}'.format)}"

    def plot(self) -> Figure:
        """The errors as a heat map, the chosen row marked."""
        from classic_ml.invariance.plots import plot_errors

        return plot_errors(self.errors, chosen=self.index, title=self.rule)


def worst_case_erm(errors: Any) -> SelectionResult:
    """argmin_h max_T err(h, T), the paper's rule (Eq. 2). Ties here and below: the smaller mean, then the first row.

    With |err_S - err| <= eps/2 for all pairs the choice is within eps of the best worst case.
    """
    errors = as_errors(errors)
    return _least(errors.max(1), errors, "worst-case error")


def average_erm(errors: Any) -> SelectionResult:
    """argmin_h of the mean over transformations: what augmentation minimises, the baseline."""
    errors = as_errors(errors)
    return _least(errors.mean(1), errors, "mean error")


def worst_case_regret(errors: Any) -> SelectionResult:
    """argmin_h max_T [err(h, T) - min_h' err(h', T)].

    With |err_S - err| <= eps for all pairs the choice is within 4 eps of the best possible regret.
    """
    errors = as_errors(errors)
    return _least((errors - errors.min(0)).max(1), errors, "worst-case regret")


def favourable_count(errors: Any, eps0: float, *, eps: float = 0.0, prior: Any = None) -> SelectionResult:
    """argmax_h of how many transformations have err(h, T) <= eps0 + eps, or of their weight under a prior.

    With |err_S - err| <= eps for all pairs, the chosen has true error at most eps0 + 2 eps on at least as many as any
    predictor has at most eps0 on.

    Args:
        prior: (K,) weights of the transformations, not negative; None counts each as 1.
    """
    errors = as_errors(errors)
    if not 0 <= eps0 <= 1 or eps < 0:
        raise ValueError(f"eps0 = {eps0} must lie in [0, 1] and eps = {eps} must not be negative")
    weights = np.ones(errors.shape[1]) if prior is None else np.asarray(prior, dtype=np.float64)
    if weights.shape != errors.shape[1:] or not (weights >= 0).all():
        raise ValueError(
            f"prior must hold a weight >= 0 for each of {errors.shape[1]} transformations, got {prior!r}"
        )
    counts = (errors <= eps0 + eps + _ROUNDING) @ weights
    chosen = _least(-counts, errors, f"transformations with error <= {eps0 + eps:g}")
    return SelectionResult(chosen.index, float(counts[chosen.index]), counts, errors, chosen.rule)


def as_errors(errors: Any) -> Float[np.ndarray, "H K"]:
    """Raises ValueError unless it is a matrix of numbers in [0, 1] with a row and a column at least."""
    errors = np.asarray(errors, dtype=np.float64)
    if errors.ndim != 2 or errors.size == 0:
        raise ValueError(
            f"errors of shape {errors.shape} must be (predictors, transformations), none of them 0"
        )
    if not ((errors >= 0) & (errors <= 1)).all():
        raise ValueError("errors must lie in [0, 1]: give shares of wrong predictions")
    return errors


def _least(scores: np.ndarray, errors: np.ndarray, rule: str) -> SelectionResult:
    tied = np.flatnonzero(scores <= scores.min() + _ROUNDING)
    index = int(tied[errors[tied].mean(1).argmin()])
    return SelectionResult(index, float(scores[index]), scores, errors, rule)
