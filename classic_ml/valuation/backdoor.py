"""A backdoor planted in training rows, and whether cell values point at its trigger."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from classic_ml.random_state import RandomState, as_generator
from classic_ml.valuation.cells import cell_roc_auc, checked_table
from classic_ml.valuation.utility import BoolArray, FloatArray


def plant_trigger(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    cells: npt.ArrayLike,
    *,
    source: Any,
    target: Any,
    fraction: float = 0.15,
    value: float = 1.0,
    random_state: RandomState = None,
) -> tuple[FloatArray, np.ndarray, BoolArray]:
    """Set `cells` of some rows of class `source` to `value` and their label to `target`.

    Args:
        X: [n d]; images flattened.
        cells: the columns of the trigger, or a boolean mask of any shape with d entries.
        fraction: poisoned rows, as a share of all rows.

    Returns:
        X, y with the backdoor and a mask [n] of the poisoned rows.

    Raises:
        ValueError: fewer rows of class `source` than asked for, or columns outside the table.
    """
    table, labels = checked_table(X, y)
    columns = trigger_columns(cells, table.shape[1])
    rows = np.flatnonzero(labels == source)
    count = round(fraction * len(table))
    if not 0 < count <= len(rows):
        raise ValueError(
            f"fraction = {fraction} is {count} of {len(table)} rows, but {len(rows)} rows are of class {source!r}"
        )
    chosen = as_generator(random_state).choice(rows, count, replace=False)
    poisoned, new_labels = table.copy(), labels.copy()
    poisoned[np.ix_(chosen, np.flatnonzero(columns))] = value
    new_labels[chosen] = target
    mask = np.zeros(len(table), np.bool_)
    mask[chosen] = True
    return poisoned, new_labels, mask


def trigger_columns(cells: npt.ArrayLike, n_features: int) -> BoolArray:
    """A mask [d] of columns, from their numbers or from a mask of any shape with d entries."""
    c = np.asarray(cells)
    if c.dtype == np.bool_ and c.size == n_features and c.any():
        return c.ravel()
    if c.dtype.kind not in "iu" or not c.size or c.min() < 0 or c.max() >= n_features:
        raise ValueError(f"cells: give columns in 0..{n_features - 1} or a mask with {n_features} entries")
    mask = np.zeros(n_features, np.bool_)
    mask[c.ravel()] = True
    return mask


def trigger_auc(cell_values: npt.ArrayLike, poisoned: npt.ArrayLike, cells: npt.ArrayLike) -> float:
    """ROC-AUC, over the cells of the poisoned rows, of "high value = part of the trigger".

    High, not low: a model that may use the trigger reproduces the false label of a row that carries it.
    """
    values = np.asarray(cell_values, np.float64)[np.asarray(poisoned, np.bool_)]
    columns = trigger_columns(cells, values.shape[1])
    return cell_roc_auc(-values, np.broadcast_to(columns, values.shape))
