"""Transformations that are not known: a heuristic of ours, without a guarantee, over a pool of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from classic_ml.invariance.inflated import predictions
from classic_ml.invariance.rules import SelectionResult
from classic_ml.invariance.transforms import Transform, resolve_transforms, transformed
from classic_ml.selection.distances import as_matrix


def invariance_score(predictor: Any, transform: Transform, X: Any) -> float:
    """The share of rows on which h(T(x)) = h(x)."""
    X = as_matrix(X)
    return float((predictions(predictor, transformed(transform, X)) == predictions(predictor, X)).mean())


def select_by_invariance(
    predictors: Sequence[Any],
    transforms: Sequence[Transform],
    X: Any,
    y: Any,
    *,
    tol: float = 0.02,
    tau: float = 0.05,
) -> SelectionResult:
    """Among predictors with error <= best + tol, the one that is invariant (score >= 1 - tau) under most candidates.

    Ties: the smaller error, then the first. `errors` of the result are 1 - score; scores of predictors that err too
    much are -1.
    """
    X, y = as_matrix(X), np.asarray(y)
    if tol < 0 or not 0 <= tau < 1:
        raise ValueError(f"tol = {tol} must not be negative and tau = {tau} must lie in [0, 1)")
    if len(predictors) == 0:
        raise ValueError("predictors is empty: give at least one")
    family = resolve_transforms(transforms, rng=np.random.default_rng(0))
    error = np.array([(predictions(h, X) != y).mean() for h in predictors])
    changed = np.array([[1 - invariance_score(h, one, X) for one in family] for h in predictors])
    counts = np.where(error <= error.min() + tol + 1e-12, (changed <= tau + 1e-12).sum(1), -1)
    tied = np.flatnonzero(counts == counts.max())
    index = int(tied[error[tied].argmin()])
    return SelectionResult(
        index, float(counts[index]), counts, changed, f"transformations it ignores on {1 - tau:.0%}"
    )
