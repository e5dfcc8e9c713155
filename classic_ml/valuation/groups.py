"""Who owns which rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from classic_ml.valuation.utility import GroupedUtility, IntArray, Utility


def owners(
    groups: Any, *, n_points: int | None = None, allow_empty: bool = False
) -> tuple[tuple[Any, ...], list[IntArray]]:
    """Names of the owners and the sorted row indices of each.

    Args:
        groups: an owner's name for every row [n] (numbers or strings), or a list of index arrays, one an owner.
        n_points: the number of rows that must be covered; None: as many as `groups` names.
        allow_empty: let a list hold owners without rows.

    Raises:
        ValueError: no rows, a row without an owner or with two, an owner without rows, names that can't be sorted.
        TypeError: indices that aren't whole numbers.
    """
    import pandas as pd

    if _is_list_of_indices(groups):
        for part in map(np.asarray, groups):
            if part.size and part.dtype.kind not in "iu":
                raise TypeError(f"groups: row indices must be whole numbers, got {part.dtype}: {part[:5]}")
        parts = [np.sort(np.asarray(part, np.int64).ravel()) for part in groups]
        names: tuple[Any, ...] = tuple(range(len(parts)))
    else:
        ids = np.asarray(groups)
        if ids.ndim != 1 or not len(ids):
            raise ValueError(f"groups: give an owner for every row [n], got shape {ids.shape}")
        missing = pd.isna(ids)  # None, NaN, NaT and NA
        if missing.any():
            raise ValueError(f"groups: row {int(missing.argmax())} has no owner; leave such rows out")
        try:
            unique, inverse = np.unique(ids, return_inverse=True)
        except TypeError as error:
            raise ValueError(f"groups: names of owners must be of one kind ({error})") from error
        names = tuple(unique.tolist())
        parts = [np.flatnonzero(inverse == i) for i in range(len(unique))]
    rows = np.sort(np.concatenate(parts))
    if not len(rows):
        raise ValueError("groups: nobody owns a row")
    wanted = len(rows) if n_points is None else n_points
    if len(rows) != wanted or not np.array_equal(rows, np.arange(wanted)):
        raise ValueError(
            f"groups must give each of the rows 0..{wanted - 1} to exactly one owner; got {len(rows)} rows "
            f"from {rows[0]} to {rows[-1]}, {len(np.unique(rows))} of them different"
        )
    if not allow_empty and (empty := [n for n, part in zip(names, parts, strict=True) if not len(part)]):
        raise ValueError(f"groups: owner {empty[0]!r} has no rows; leave it out or set allow_empty=True")
    return names, parts


def by_owner(rows: Utility, groups: Any) -> GroupedUtility:
    """A utility of rows as a game of their owners, for `exact_shapley` and `monte_carlo_shapley`."""
    names, parts = owners(groups, n_points=rows.n_points)
    return GroupedUtility(rows, parts, names)


def _is_list_of_indices(groups: Any) -> bool:
    return (
        isinstance(groups, Sequence) and len(groups) > 0 and all(np.ndim(part) == 1 for part in groups)
    ) and not isinstance(groups[0], str)
