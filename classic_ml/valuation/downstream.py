"""Judging values without knowing the true ones: do they find bad owners, and what is the model without the best?

Garrido-Lucero et al. 2024, arXiv 2306.02071, section 5 (metrics of the data experiments).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from classic_ml.valuation.utility import BoolArray, FloatArray, IntArray, Utility, as_game


def detection_f1(values: npt.ArrayLike, bad: npt.ArrayLike, n_flagged: int | None = None) -> float:
    """F1 of calling the `n_flagged` owners of lowest value bad (as many as there are, by default); higher is better.

    Args:
        values: [I].
        bad: a mask [I] of the owners that are.

    Raises:
        ValueError: shapes that differ, no bad owner, or a number outside 1..I.
    """
    v, true = np.asarray(values, np.float64), np.asarray(bad, np.bool_)
    if v.ndim != 1 or v.shape != true.shape or not true.any():
        raise ValueError(
            f"values and bad must be [I] with a bad owner, got {v.shape} and {true.sum()} of {true.shape}"
        )
    count = int(true.sum()) if n_flagged is None else n_flagged
    if not 1 <= count <= len(v):
        raise ValueError(f"n_flagged = {n_flagged} must be in 1..{len(v)}")
    hits = int(true[np.argsort(v, kind="stable")[:count]].sum())
    return 2 * hits / (count + int(true.sum()))


def removal_curve(values: npt.ArrayLike, utility: Utility | Callable[[IntArray], float]) -> FloatArray:
    """Utility [I + 1] after removing 0, 1, ..., I owners, the most valuable first; falls fast for good values."""
    order = np.argsort(-np.asarray(values, np.float64), kind="stable")
    return _along(utility, order)[::-1]


def addition_curve(values: npt.ArrayLike, utility: Utility | Callable[[IntArray], float]) -> FloatArray:
    """Utility [I + 1] of the 0, 1, ..., I least valuable owners; rises late for good values."""
    order = np.argsort(np.asarray(values, np.float64), kind="stable")
    return _along(utility, order[::-1])


def _along(utility: Utility | Callable[[IntArray], float], order: IntArray) -> FloatArray:
    """Utility of the last 0, 1, ..., I owners of an order."""
    game, names = as_game(utility, None if isinstance(utility, Utility) else len(order))
    if len(names) != len(order):
        raise ValueError(f"values: {len(names)} owners need as many values, got {len(order)}")
    kept: BoolArray = np.zeros((len(order) + 1, len(order)), np.bool_)
    for k in range(1, len(order) + 1):
        kept[k, order[-k:]] = True
    return game.masks(kept)
