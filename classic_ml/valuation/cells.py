"""Cells of a table: planting outliers, finding them, and what repairing or removing the worst ones does.

The protocol of Sun, Shen & Kwon 2024, "2D-OOB", arXiv 2408.03572, section 4.  Values are [n d], one a cell; a cell
without a value (NaN) comes last whichever way the others are sorted.  Ties keep the order of the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from classic_ml.random_state import RandomState, as_generator
from classic_ml.valuation.utility import BoolArray, FloatArray, IntArray


def make_cell_outliers(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    row_fraction: float = 0.4,
    column_fraction: float = 0.4,
    tail_probability: float = 0.01,
    random_state: RandomState = None,
) -> tuple[FloatArray, BoolArray]:
    """Replace cells by draws from the tails of their class: (X with outliers [n d], mask of them [n d]).

    In `row_fraction` of the rows, `column_fraction` of the columns (others in every row) get a draw from N(0, 1)
    conditioned on the two-sided tail, of probability `tail_probability`, of the normal fit of that column within the
    row's class.  Columns should be standardised.  The tails are sampled by inversion in log space, so one far from 0
    is no problem.

    Raises:
        ValueError: fractions outside (0, 1], lengths that don't fit, values that aren't finite.
    """
    from scipy.special import log_ndtr, ndtri, ndtri_exp

    table, labels = checked_table(X, y)
    for name, value in (("row_fraction", row_fraction), ("column_fraction", column_fraction)):
        if not 0 < value <= 1:
            raise ValueError(f"{name} = {value} must be in (0, 1]")
    if not 0 < tail_probability < 1:
        raise ValueError(f"tail_probability = {tail_probability} must be between 0 and 1")
    rng = as_generator(random_state)
    n, d = table.shape
    mean, sd = _class_moments(table, labels)
    reach = -ndtri(tail_probability / 2) * sd
    rows = rng.permutation(n)[: max(1, round(row_fraction * n))]
    mask = np.zeros((n, d), np.bool_)
    columns = np.argsort(rng.random((len(rows), d)), axis=1)[:, : max(1, round(column_fraction * d))]
    mask[rows[:, None], columns] = True
    log_lower, log_upper = log_ndtr((mean - reach)[mask]), log_ndtr(-(mean + reach)[mask])
    above = rng.random(mask.sum()) < np.exp(log_upper - np.logaddexp(log_lower, log_upper))
    drawn = ndtri_exp(np.where(above, log_upper, log_lower) + np.log1p(-rng.random(mask.sum())))
    changed = table.copy()
    changed[mask] = np.where(above, -drawn, drawn)
    return changed, mask


def class_z_scores(X: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
    """-|x_ij - mean of column j in the class of row i| [n d]: the plain baseline for outliers, low for suspicious."""
    table, labels = checked_table(X, y)
    return -np.abs(table - _class_moments(table, labels)[0])


def checked_table(X: npt.ArrayLike, y: npt.ArrayLike) -> tuple[FloatArray, np.ndarray]:
    """X as floats [n d] and y [n]; ValueError where they don't fit or X isn't finite."""
    table, labels = np.asarray(X, np.float64), np.asarray(y)
    if table.ndim != 2 or labels.shape != table.shape[:1]:
        raise ValueError(f"X [n d] and y [n] don't fit: {table.shape} and {labels.shape}")
    if not np.isfinite(table).all():
        row, column = (int(axis[0]) for axis in np.nonzero(~np.isfinite(table)))
        raise ValueError(f"X[{row}, {column}] = {table[row, column]} is not finite; impute or drop it")
    return table, labels


def checked_rows(rows: npt.ArrayLike, n: int) -> IntArray:
    """Positions of rows in a table of `n` as an array; ValueError for one that isn't there or isn't whole."""
    chosen = np.atleast_1d(np.asarray(rows))
    if not chosen.size or chosen.dtype.kind not in "iu" or not ((-n <= chosen) & (chosen < n)).all():
        raise ValueError(f"rows = {rows!r}: expected positions from 0 to {n - 1}")
    return chosen.astype(np.int64)


def _class_moments(table: FloatArray, labels: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation [n d] of each cell's column within its row's class."""
    _, inverse = np.unique(labels, return_inverse=True)
    one_hot = np.eye(inverse.max() + 1)[inverse]
    counts = one_hot.sum(0)[:, None]
    mean = (one_hot.T @ table / counts)[inverse]
    variance = (one_hot.T @ (table - mean) ** 2 / counts)[inverse]
    return mean, np.sqrt(variance)


def cell_order(values: npt.ArrayLike, *, ascending: bool = True) -> IntArray:
    """Flat indices of all cells from the worst to the best (`ascending`), cells without a value last; stable."""
    flat = np.asarray(values, np.float64).ravel()
    return np.argsort(np.where(np.isnan(flat), np.inf, flat if ascending else -flat), kind="stable")


def detection_curve(values: npt.ArrayLike, mask: npt.ArrayLike, *, ascending: bool = True) -> FloatArray:
    """Share of the true cells among the first r inspected, r = 1..nd.

    Raises ValueError where the shapes differ or no cell is true.
    """
    true = np.asarray(mask, np.bool_)
    if np.shape(values) != true.shape:
        raise ValueError(f"values and mask must have one shape, got {np.shape(values)} and {true.shape}")
    if not true.any():
        raise ValueError("mask: no cell is marked, there is nothing to detect")
    return np.cumsum(true.ravel()[cell_order(values, ascending=ascending)]) / true.sum()


def gain_auc(values: npt.ArrayLike, mask: npt.ArrayLike, *, ascending: bool = True) -> float:
    """Mean of `detection_curve`: 0.5 for a random order, at most 1 - (m - 1) / 2N for m true cells of N, not 1."""
    return float(detection_curve(values, mask, ascending=ascending).mean())


def cells_to_inspect(values: npt.ArrayLike, mask: npt.ArrayLike, share: float = 0.9) -> float:
    """Share of all cells to inspect, in order, until `share` of the true ones are found."""
    curve = detection_curve(values, mask)
    return float((np.searchsorted(curve, share - 1e-12) + 1) / len(curve))


def cell_roc_auc(values: npt.ArrayLike, mask: npt.ArrayLike) -> float:
    """ROC-AUC of "low value = true cell" over the cells that have a value."""
    from sklearn.metrics import roc_auc_score

    v, true = np.asarray(values, np.float64), np.asarray(mask, np.bool_)
    known = ~np.isnan(v)
    return float(roc_auc_score(true[known], -v[known]))


def cell_fixation_curve(
    values: npt.ArrayLike,
    X: npt.ArrayLike,
    X_true: npt.ArrayLike,
    y: npt.ArrayLike,
    X_test: Any,
    y_test: Any,
    *,
    fractions: Sequence[float] = (0.0, 0.05, 0.1, 0.15, 0.2),
    estimator: Any = None,
) -> FloatArray:
    """Test score of a model refitted after the lowest-valued cells got their true values, one a fraction.

    Args:
        values: [n d].
        X, X_true: the table with errors and the right one [n d].
        estimator: None for logistic regression.
    """
    table, labels = checked_table(X, y)
    right = np.asarray(X_true, np.float64)
    if right.shape != table.shape or np.shape(values) != table.shape:
        raise ValueError(f"values, X and X_true differ: {np.shape(values)}, {table.shape} and {right.shape}")
    order = cell_order(values)
    scores = []
    for count in _counts(fractions, table.size):
        fixed = table.copy().ravel()
        fixed[order[:count]] = right.ravel()[order[:count]]
        scores.append(_score(estimator, fixed.reshape(table.shape), labels, X_test, y_test))
    return np.array(scores)


def cell_removal_curve(
    values: npt.ArrayLike,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    X_test: npt.ArrayLike,
    y_test: Any,
    *,
    fractions: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4),
    ascending: bool = True,
    estimator: Any = None,
) -> FloatArray:
    """Test score of a model refitted after removing the lowest (or highest) cells, one a fraction.

    A removed cell gets the mean of what remains of its column; a row or column that is removed entirely is left out.
    """
    table, labels = checked_table(X, y)
    test = np.asarray(X_test, np.float64)
    if np.shape(values) != table.shape:
        raise ValueError(f"values and X must have one shape, got {np.shape(values)} and {table.shape}")
    order = cell_order(values, ascending=ascending)
    scores = []
    for count in _counts(fractions, table.size):
        kept = np.ones(table.shape, np.bool_)
        kept.flat[order[:count]] = False
        rows, columns = kept.any(1), kept.any(0)
        part, known = table[np.ix_(rows, columns)], kept[np.ix_(rows, columns)]
        means = (part * known).sum(0) / known.sum(0)
        filled = np.where(known, part, means)
        scores.append(_score(estimator, filled, labels[rows], test[:, columns], y_test))
    return np.array(scores)


def row_removal_curve(
    data_values: npt.ArrayLike,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    X_test: Any,
    y_test: Any,
    *,
    fractions: Sequence[float] = (0.0, 0.05, 0.1, 0.15, 0.2),
    estimator: Any = None,
) -> FloatArray:
    """Test score of a model refitted without the lowest-valued rows, one a fraction."""
    table, labels = checked_table(X, y)
    order = cell_order(data_values)
    if len(order) != len(table):
        raise ValueError(f"data_values: {len(table)} rows need {len(table)} values, got {len(order)}")
    kept = [np.sort(order[count:]) for count in _counts(fractions, len(table))]
    return np.array([_score(estimator, table[rows], labels[rows], X_test, y_test) for rows in kept])


def _counts(fractions: Sequence[float], total: int) -> list[int]:
    if any(not 0 <= f < 1 for f in fractions):
        raise ValueError(f"fractions = {list(fractions)} must be in [0, 1)")
    return [round(f * total) for f in fractions]


def _score(estimator: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> float:
    from sklearn.base import clone, is_classifier
    from sklearn.linear_model import LogisticRegression

    from classic_ml.valuation.few_classes import fit_classifier

    chosen = LogisticRegression(max_iter=1000) if estimator is None else estimator
    fitted = fit_classifier(chosen, X, y) if is_classifier(chosen) else clone(chosen).fit(X, y)
    return float(fitted.score(X_test, y_test))
