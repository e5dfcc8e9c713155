"""ChronoEpilogi: which series forecast a target, and every minimal set that does it equally well.

Vareille, Linardi, Tsamardinos & Christophides 2024, "ChronoEpilogi: Scalable Time Series Selection with Multiple
Solutions", NeurIPS.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from classic_ml.random_state import RandomState
from classic_ml.selection.epilogi_phases import Event, Search, Settings
from classic_ml.selection.lagged import TRENDS, LaggedGram, check_lags, of_unit_size, usable_rows
from classic_ml.selection.least_squares import TESTS
from classic_ml.selection.solutions import SolutionSet
from interp.core.messages import nearest, one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

VARIANTS = ("F", "FB", "FE", "FBE")
ASSOCIATIONS = ("pearson", "spearman")
MAX_FEATURES = 50


@dataclass(frozen=True)
class HistoryRow:
    """One decision of a fit; `other` is the selected series that an equivalent stands in for."""

    phase: str
    series: Any
    association: float | None
    p_value: float
    action: str
    other: Any = None


class ChronoEpilogi(SelectorMixin, BaseEstimator):
    """Select whole series (all their lags) for forecasting a target one step ahead, with all equivalent solutions.

    Models are linear autoregressions with distributed lags: the target at t on an intercept and the windows
    t-1..t-L of the selected series; the target's own past is always in. Rescaling or shifting a series changes
    nothing. Forward selection adds the series most correlated with the residuals while a nested test stays below
    `forward_threshold`; backward selection removes what became superfluous; then every series that makes a selected
    one superfluous joins its class. Sound and complete when dependence is compositional and equivalences are
    between single series (where A = B + C, {A} is found but not {B, C}).

    Args:
        n_lags: L, steps of the past.
        variant: "FBE" (sound), "FE" (faster: equivalents while growing, no pruning), "F" or "FB" (one solution).
        forward_threshold, backward_threshold: p-values below keep a series. The forward test is applied to the best
            of all candidates, so 0.05 selects noise in most runs with 50 of them.
        equivalence_threshold: a smaller one gives larger classes.
        test: "lr" (likelihood ratio) or "f".
        association: "pearson" or "spearman", the largest |correlation| over the lags.
        max_features: most series selected, the target included; None is min(D, 50).
        min_obs_per_param: rows per parameter below which growing stops.
        trend: "c" intercept or "ct" intercept and slope.
        backward_strategy: remove the least significant series ("max") or the first superfluous one ("first").
        verify: an equivalent must matter itself once the series it replaces is gone.

    Attributes:
        selected_features_: the reference solution in order of selection, target first (names for a DataFrame).
        equivalence_classes_: one list per selected series, the series itself first.
        n_solutions_: product of the class sizes, an exact int.
        irreplaceable_, replaceable_: members of classes of one, and of larger classes.
        history_: list of HistoryRow.
    """

    def __init__(
        self,
        n_lags: int,
        variant: Literal["F", "FB", "FE", "FBE"] = "FBE",
        forward_threshold: float = 1e-3,
        backward_threshold: float = 1e-3,
        equivalence_threshold: float = 1e-4,
        test: Literal["lr", "f"] = "lr",
        association: Literal["pearson", "spearman"] = "pearson",
        max_features: int | None = None,
        min_obs_per_param: float = 1.0,
        trend: Literal["c", "ct"] = "c",
        backward_strategy: Literal["max", "first"] = "max",
        verify: bool = True,
    ) -> None:
        self.n_lags = n_lags
        self.variant = variant
        self.forward_threshold = forward_threshold
        self.backward_threshold = backward_threshold
        self.equivalence_threshold = equivalence_threshold
        self.test = test
        self.association = association
        self.max_features = max_features
        self.min_obs_per_param = min_obs_per_param
        self.trend = trend
        self.backward_strategy = backward_strategy
        self.verify = verify

    def fit(
        self, X: Any, y: Any = None, *, target: int | str | None = None, groups: Any = None
    ) -> ChronoEpilogi:
        """Select from X (N steps, D series), an array or DataFrame.

        Args:
            y: (N,) the target, where it is no column of X; called by its name where it has one (a Series), else "y".
            target: the column of X that is the target, where there is no `y`: its name, or its position where no column
                has a number for a name; None is the first column, whatever it is called.
            groups: (N,) name of the sequence a row belongs to; windows never cross from one into another.

        Raises ValueError for bad settings, NaN, duplicate column names, an unknown, constant or doubly given target,
        and fewer than n_lags + 4 usable rows.
        """
        self._check_parameters()
        columns = _column_names(X)
        if y is None:
            X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
            names = columns or list(range(X.shape[1]))
            position = 0 if target is None else _position(target, columns, X.shape[1])
        else:
            name = _name_of(y, target, columns)
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
            names, position = [*(columns or range(X.shape[1])), name], X.shape[1]
            X = np.column_stack([X, np.asarray(y, np.float64)])
        n = len(usable_rows(len(X), self.n_lags, groups))
        if n < self.n_lags + 4:
            raise ValueError(
                f"{len(X)} steps leave {n} rows with {self.n_lags} lags, fewer than the {self.n_lags + 4} "
                "that even the target's own past needs; give more steps or fewer n_lags"
            )
        X = of_unit_size(X)
        gram = LaggedGram(X, position, self.n_lags, trend=self.trend, groups=groups)
        if gram.target_is_constant:
            raise ValueError(f"the target {names[position]!r} is constant, so there is nothing to forecast")
        if len(gram.constant):
            constant = [names[j] for j in gram.constant]
            warnings.warn(f"constant series are never selected: {constant}", UserWarning, stacklevel=2)
        search = Search(gram, self._settings(X.shape[1]), position)
        search.run(self.variant)
        self._keep(search, names)
        return self

    def solutions(self, max_solutions: int | None = None) -> Iterator[list[Any]]:
        """Minimal sets, one at a time, the reference solution first; each lists one member per class."""
        return self._solution_set().iterate(max_solutions)

    def solution_at(self, index: int) -> list[Any]:
        """Solution number `index` without walking to it; any whole number below `n_solutions_`."""
        return self._solution_set().at(index)

    def sample_solutions(self, n: int, random_state: RandomState = None) -> list[list[Any]]:
        """`n` solutions drawn uniformly."""
        return self._solution_set().sample(n, random_state)

    def to_frame(self) -> pd.DataFrame:
        """The history, one row per decision."""
        import pandas as pd

        check_is_fitted(self)
        columns = list(HistoryRow.__dataclass_fields__)
        frame = pd.DataFrame({name: [getattr(row, name) for row in self.history_] for name in columns})
        others = pd.Series([row.other for row in self.history_], dtype=object)  # names, where there is one
        return frame.assign(other=others)

    def plot(self) -> Figure:
        """Association and evidence of every forward step, and the equivalence classes."""
        from classic_ml.selection.selection_plots import plot_classes

        check_is_fitted(self)
        return plot_classes(self)

    def _solution_set(self) -> SolutionSet:
        check_is_fitted(self)
        return SolutionSet(self.equivalence_classes_)

    def _get_support_mask(self) -> Bool[np.ndarray, " D"]:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[[j for j in self._selected_positions if j < len(mask)]] = (
            True  # a target given as y is no column
        )
        return mask

    def _check_parameters(self) -> None:
        check_lags(self.n_lags)
        one_of("variant", self.variant, VARIANTS)
        one_of("test", self.test, TESTS)
        one_of("association", self.association, ASSOCIATIONS)
        one_of("trend", self.trend, TRENDS)
        one_of("backward_strategy", self.backward_strategy, ("max", "first"))
        for name in ("forward_threshold", "backward_threshold", "equivalence_threshold"):
            value = getattr(self, name)
            if isinstance(value, str) or not 0 < value < 1:
                raise ValueError(f"{name} = {value!r} must lie strictly between 0 and 1")
        most = self.max_features
        if most is not None and (not isinstance(most, int | np.integer) or most < 1):
            raise ValueError(f"max_features = {most!r} must be a whole number from 1: it counts the target")
        if not self.min_obs_per_param >= 1:
            raise ValueError(f"min_obs_per_param = {self.min_obs_per_param} must be at least 1")

    def _settings(self, n_series: int) -> Settings:
        return Settings(
            forward=self.forward_threshold,
            backward=self.backward_threshold,
            equivalence=self.equivalence_threshold,
            test=self.test,
            association=self.association,
            max_features=self.max_features or min(n_series, MAX_FEATURES),
            min_obs_per_param=self.min_obs_per_param,
            backward_strategy=self.backward_strategy,
            verify=self.verify,
        )

    def _keep(self, search: Search, names: list[Any]) -> None:
        self._selected_positions = search.selected
        self.selected_features_ = [names[j] for j in search.selected]
        self.equivalence_classes_ = [[names[j] for j in members] for members in search.classes()]
        self.n_solutions_ = SolutionSet(self.equivalence_classes_).n_solutions
        self.irreplaceable_ = [c[0] for c in self.equivalence_classes_ if len(c) == 1]
        self.replaceable_ = [j for c in self.equivalence_classes_ if len(c) > 1 for j in c]
        self.history_ = [_row(event, names) for event in search.history]


def _row(event: Event, names: list[Any]) -> HistoryRow:
    other = None if event.other is None else names[event.other]
    return HistoryRow(event.phase, names[event.series], event.association, event.p_value, event.action, other)


def _column_names(X: Any) -> list[Any]:
    names = list(getattr(X, "columns", ()))
    if len(set(names)) < len(names):
        twice = sorted({str(name) for name in names if names.count(name) > 1})
        raise ValueError(f"X has duplicate column names: {', '.join(twice)}; rename them")
    return names


def _name_of(y: Any, target: Any, columns: list[Any]) -> Any:
    """What to call the target that was given as `y`."""
    if isinstance(y, str):
        raise ValueError(f"y = {y!r} must hold the target's values; name a column of X with target={y!r}")
    if target is not None:
        raise ValueError(f"y and target = {target!r} are two targets; give one of them")
    name = getattr(y, "name", None)
    name = "y" if name is None else name
    if name in columns:
        raise ValueError(
            f"y is called {name!r}, as a column of X is; give target={name!r} without y, or drop the column"
        )
    return name


def _position(target: Any, columns: list[Any], n_series: int) -> int:
    """Of a name among `columns`; a number is a name where columns are called by numbers, else a position."""
    numbered = any(_is_number(name) for name in columns)
    if not isinstance(target, bool):
        if target in columns:
            return columns.index(target)
        if _is_number(target) and not numbered and 0 <= target < n_series:
            return int(target)
    there = nearest(target, columns) if columns else f"its columns are 0 to {n_series - 1}"
    raise ValueError(f"target = {target!r} is no column of X; {there}")


def _is_number(name: Any) -> bool:
    return isinstance(name, int | np.integer) and not isinstance(name, bool)
