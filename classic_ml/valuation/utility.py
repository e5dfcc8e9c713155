"""What a set is worth: one face for trained models, closed forms and plain functions.

A `Utility` answers `u(S)` for sets of indices (rows of a data set, or players of a game).  It pays for a set once,
asks in parallel, shows progress and counts: `n_calls` is what a method asked for, `n_evaluations` what it cost.
Higher is better: for an error, give its negative.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from classic_ml.valuation.memo import Memo, digest
from interp.core.identity import Identity
from interp.core.progress import progress as progress_bar

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

MEMO = "memo of utilities"
SETS_AT_A_TIME = 512
INDICES_AT_A_TIME = 1 << 24


class Utility:
    """u(S) for sets of indices, from a function of the sorted indices.

    Args:
        function: sorted int64 indices -> float.  It should be a function of the set alone: give a model a fixed
            `random_state`.
        n_points: how many indices there are (rows or players); they are checked against it where it is known.
        empty_value: u of the empty set.  None: `function` is asked, as for any other set.
        n_jobs: processes (joblib), as in scikit-learn; the values don't depend on it.
        memo_file: keeps the values on disk, so that a run that was interrupted repeats no evaluation.
        identity: of what is valued, for the memo file: one of another utility is refused.  None: the function's own,
            by its code and what it refers to.
        progress: show a bar ("auto": on rank 0).

    Raises:
        ValueError: an index outside 0..n_points - 1 or given twice, a value that isn't a finite number, a memo file
            that is damaged or belongs to another utility.
        TypeError: a memo file is asked for, and the function can't be told from its like: give `identity`.
    """

    def __init__(
        self,
        function: Callable[[IntArray], float],
        *,
        n_points: int | None = None,
        empty_value: float | None = None,
        n_jobs: int | None = None,
        memo_file: str | os.PathLike[str] | None = None,
        identity: Identity | None = None,
        progress: bool | Literal["auto"] = False,
    ) -> None:
        if not callable(function):
            raise TypeError(f"function = {function!r} can't be called; give a function of sorted indices")
        if empty_value is not None and not math.isfinite(empty_value):
            raise ValueError(f"empty_value = {empty_value} must be a finite number: the utility of no data")
        self.function, self.n_points, self.empty_value = function, n_points, empty_value
        self.n_jobs, self.progress = n_jobs, progress
        if memo_file is not None and identity is None:
            identity = Identity.of(MEMO, function=function)
        self.memo = Memo(memo_file, identity)
        self.n_calls = 0
        self.n_evaluations = 0

    def __call__(self, indices: npt.ArrayLike) -> float:
        """u of one set."""
        return float(self.many([indices])[0])

    def many(self, sets: Iterable[npt.ArrayLike], *, total: int | None = None) -> FloatArray:
        """u of many sets, [m].  An iterator is consumed in blocks; `total` tells the bar how long it is."""
        total = len(sets) if total is None and isinstance(sets, Sequence) else total
        values: list[float] = []
        with (
            progress_bar(total=total, desc="utilities", unit="set", enabled=self.progress) as bar,
            self.memo.kept(),
        ):
            for block in _blocks(self._as_set(s) for s in sets):
                values += self._block(block, bar)
        return np.array(values, np.float64)

    def masks(self, masks: BoolArray) -> FloatArray:
        """u of the sets given as rows of a boolean matrix [m n_points] -> [m]."""
        return self.many((np.flatnonzero(mask) for mask in masks), total=len(masks))

    def _block(self, sets: list[IntArray], bar: Any) -> list[float]:
        known_empty = self.empty_value is not None
        keys = [digest(s) for s in sets]
        new = {
            key: s
            for key, s in zip(keys, sets, strict=True)
            if key not in self.memo and not (known_empty and len(s) == 0)
        }
        for (key, s), value in zip(new.items(), self._run(list(new.values())), strict=True):
            self.memo[key] = _finite(value, s)
            self.n_evaluations += 1
            self.memo.save_if_due()
            bar.update()
        bar.update(len(sets) - len(new))
        self.n_calls += sum(not (known_empty and len(s) == 0) for s in sets)
        return [
            self.empty_value if self.empty_value is not None and len(s) == 0 else self.memo[key]
            for key, s in zip(keys, sets, strict=True)
        ]

    def _run(self, sets: list[IntArray]) -> Iterator[float]:
        if self.n_jobs in (None, 1) or len(sets) < 2:
            return map(self.function, sets)
        from sklearn.utils.parallel import Parallel, delayed

        parallel = Parallel(n_jobs=self.n_jobs, return_as="generator")
        return parallel(delayed(self.function)(s) for s in sets)

    def _as_set(self, indices: npt.ArrayLike) -> IntArray:
        array = np.asarray(indices)
        if array.size and array.dtype.kind not in "iu":
            raise TypeError(f"a set must hold integer indices, got {array.dtype}: {array.ravel()[:5]}")
        s = np.sort(array.astype(np.int64).ravel())
        if len(s) and (s[0] < 0 or (self.n_points is not None and s[-1] >= self.n_points)):
            raise ValueError(f"index {s[0] if s[0] < 0 else s[-1]} is outside 0..{self.n_points} - 1")
        if len(s) > 1 and (repeated := s[1:][s[1:] == s[:-1]]).size:
            raise ValueError(f"index {repeated[0]} is in the set twice")
        return s


class ClosedForm(Utility):
    """A game whose utility is a formula over a boolean matrix of coalitions [m n_players] -> [m], all at once.

    Nothing is remembered (the formula is cheaper than a look-up): every call is an evaluation.
    """

    def __init__(self, formula: Callable[[BoolArray], FloatArray], n_players: int) -> None:
        super().__init__(self._one, n_points=n_players)
        self.formula, self.n_players = formula, n_players

    def _one(self, players: IntArray) -> float:
        mask = np.zeros((1, self.n_players), np.bool_)
        mask[0, players] = True
        return float(self.formula(mask)[0])

    def masks(self, masks: BoolArray) -> FloatArray:
        values = np.asarray(self.formula(masks), np.float64)
        if values.shape != (len(masks),):
            raise ValueError(
                f"the formula gave shape {values.shape} for {len(masks)} coalitions; give one value each"
            )
        if not np.isfinite(values).all():
            _finite(values[bad := int(np.flatnonzero(~np.isfinite(values))[0])], np.flatnonzero(masks[bad]))
        self.n_calls += len(masks)
        self.n_evaluations += len(masks)
        return values


class GroupedUtility(Utility):
    """A utility of rows seen as a game of their owners: a coalition is worth the union of its members' rows.

    Memory and counts are the underlying utility's, so methods that work on rows and on owners share them.
    """

    def __init__(
        self, rows: Utility, groups: Sequence[IntArray], names: tuple[Any, ...] | None = None
    ) -> None:
        super().__init__(rows.function, n_points=len(groups))
        self.names = tuple(range(len(groups))) if names is None else names
        self.rows, self.groups = rows, list(groups)

    def many(self, sets: Iterable[npt.ArrayLike], *, total: int | None = None) -> FloatArray:
        total = len(sets) if total is None and isinstance(sets, Sequence) else total
        before = self.rows.n_calls, self.rows.n_evaluations
        values = self.rows.many((self._union(self._as_set(s)) for s in sets), total=total)
        self.n_calls += self.rows.n_calls - before[0]
        self.n_evaluations += self.rows.n_evaluations - before[1]
        return values

    def _union(self, players: IntArray) -> IntArray:
        return np.concatenate([np.empty(0, np.int64), *(self.groups[i] for i in players)])


def as_utility(
    utility: Utility | Callable[[IntArray], float],
    *,
    n_points: int | None = None,
    empty_value: float | None = None,
    n_jobs: int | None = None,
) -> Utility:
    """A `Utility` from a plain function; one that is a `Utility` already keeps its own settings.

    Raises ValueError where `empty_value` or `n_jobs` contradicts them.
    """
    if not isinstance(utility, Utility):
        return Utility(utility, n_points=n_points, empty_value=empty_value, n_jobs=n_jobs)
    for name, value in (("empty_value", empty_value), ("n_jobs", n_jobs)):
        own = getattr(utility, name)
        if value is not None and value != own:
            raise ValueError(f"{name} = {value}, but the Utility has {name} = {own}; set it there")
    return utility


def as_game(
    utility: Utility | Callable[[IntArray], float], n_players: int | None
) -> tuple[Utility, tuple[Any, ...]]:
    """A utility of players and their names (their numbers, unless they are owners of data).

    Raises ValueError where these are unknown or contradictory.
    """
    game = as_utility(utility, n_points=n_players)
    known = game.n_points
    if known is None and n_players is None:
        raise ValueError("n_players: the utility doesn't know how many players there are; give their number")
    if known is not None and n_players is not None and known != n_players:
        raise ValueError(f"n_players = {n_players}, but the utility is over {known}")
    count = int(n_players if known is None else known)  # type: ignore[arg-type]
    if count < 1:
        raise ValueError(f"n_players = {count} must be at least 1")
    return game, game.names if isinstance(game, GroupedUtility) else tuple(range(count))


def _blocks(sets: Iterable[IntArray]) -> Iterator[list[IntArray]]:
    """Lists of sets that are evaluated together, bounded in number and in memory."""
    block: list[IntArray] = []
    held = 0
    for s in sets:
        block.append(s)
        held += len(s)
        if len(block) == SETS_AT_A_TIME or held > INDICES_AT_A_TIME:
            yield block
            block, held = [], 0
    if block:
        yield block


def _finite(value: Any, indices: IntArray) -> float:
    number = float(value)
    if not math.isfinite(number):
        shown = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
        raise ValueError(
            f"the utility of {len(indices)} points ({shown}) is {number}; it must be a finite number"
        )
    return number
