"""ChronoEpilogi's phases: growing, pruning, and the search for series that could stand in for the selected."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from classic_ml.selection.lagged import LaggedGram
from classic_ml.selection.least_squares import Blocks, Fit, Model, nested_test


@dataclass(frozen=True)
class Settings:
    """Thresholds and rules of one run."""

    forward: float
    backward: float
    equivalence: float
    test: str
    association: str
    max_features: int
    min_obs_per_param: float
    backward_strategy: str
    verify: bool


@dataclass(frozen=True)
class Event:
    """One decision: a series was added, rejected, removed or found equivalent, and on what evidence."""

    phase: str
    series: int
    association: float | None
    p_value: float
    action: str
    other: int | None = None


@dataclass
class Search:
    """A run on one set of series: what is selected, who could replace whom, and the history."""

    gram: LaggedGram
    settings: Settings
    target: int
    selected: list[int] = field(default_factory=list)
    equivalents: dict[int, list[int]] = field(default_factory=dict)
    history: list[Event] = field(default_factory=list)

    def run(self, variant: str) -> None:
        """`F`, `FB`, `FE` (equivalents found while growing) or `FBE` (after pruning)."""
        self.forward(collect=variant == "FE")
        if "B" in variant:
            self.backward()
        if variant == "FBE":
            self.equivalence()
        elif variant == "FE" and self.settings.verify:
            self.verify_collected()

    def forward(self, *, collect: bool) -> None:
        """Add the series most associated with the residuals while it improves the model."""
        gram, rules = self.gram, self.settings
        self.selected = [self.target]
        current = Model.of(gram, self.selected)
        candidates = [j for j in range(gram.n_series) if j != self.target]
        while (
            candidates
            and len(self.selected) < rules.max_features
            and gram.n / current.rank >= rules.min_obs_per_param
        ):
            if gram.n < gram.n_lags * (len(self.selected) + 1) + 4:
                warnings.warn(
                    f"the forward phase stopped at {len(self.selected)} series: {gram.n} rows are too few for another "
                    f"{gram.n_lags} parameters",
                    UserWarning,
                    stacklevel=4,
                )
                break
            strengths = association(current, candidates, rules.association)
            best = int(strengths.argmax())
            j, strength = candidates[best], float(strengths[best])
            grown = current.append([j])
            p = self._p_value(current.fit(), grown.fit())
            accepted = p < rules.forward
            self.history.append(Event("forward", j, strength, p, "added" if accepted else "rejected"))
            if not accepted:
                break
            candidates.remove(j)
            if collect:
                self.equivalents[j] = self._equivalents_on_residuals(current, j, candidates)
                candidates = [k for k in candidates if k not in self.equivalents[j]]
            self.selected.append(j)
            current = grown

    def backward(self) -> None:
        """Remove series that the others make superfluous, one at a time, testing afresh after each."""
        rules = self.settings
        while len(self.selected) > 1:
            full = Model.of(self.gram, self.selected).fit()
            superfluous: tuple[float, int] | None = None
            for j in self.selected[1:]:
                p = self._p_value(Model.of(self.gram, self._without(j)).fit(), full)
                if p >= rules.backward and (superfluous is None or p > superfluous[0]):
                    superfluous = (p, j)
                    if rules.backward_strategy == "first":
                        break
            if superfluous is None:
                return
            p, j = superfluous
            self.history.append(Event("backward", j, None, p, "removed"))
            self.selected.remove(j)

    def equivalence(self) -> None:
        """For every selected j, the series k that make j superfluous when they take its place."""
        rules = self.settings
        rest = [k for k in range(self.gram.n_series) if k not in self.selected]
        for j in self.selected[1:]:
            base = Model.of(self.gram, self._without(j))
            blocks = Blocks.given(base, j, rest)
            found = []
            for position, k in enumerate(rest):
                with_k, with_both = blocks.pair(position)
                p = self._p_value(with_k, with_both)
                if p <= rules.equivalence:
                    continue
                if not rules.verify or self._p_value(base.fit(), with_k) < rules.backward:
                    found.append(k)
                    self.history.append(Event("equivalence", k, None, p, "equivalent to", j))
            self.equivalents[j] = found
            rest = [k for k in rest if k not in found]

    def verify_collected(self) -> None:
        """Drop the equivalents found while growing that add nothing to the rest of the final selection."""
        for j in self.selected[1:]:
            base = Model.of(self.gram, self._without(j))
            candidates = self.equivalents[j]
            blocks = Blocks.given(base, j, candidates)
            for position, k in enumerate(list(candidates)):
                p = self._p_value(base.fit(), blocks.pair(position)[0])
                if p >= self.settings.forward:
                    self.equivalents[j].remove(k)
                    self.history.append(Event("verification", k, None, p, "not equivalent to", j))

    def classes(self) -> list[list[int]]:
        return [[self.target]] + [[j, *self.equivalents.get(j, [])] for j in self.selected[1:]]

    def _equivalents_on_residuals(self, current: Model, j: int, candidates: list[int]) -> list[int]:
        blocks = Blocks.on_residuals(current, j, candidates)
        with_j, found = blocks.with_j(), []
        for position, k in enumerate(candidates):
            with_k, with_both = blocks.pair(position)
            p = min(self._p_value(with_j, with_both), self._p_value(with_k, with_both))
            if p > self.settings.equivalence:
                found.append(k)
                self.history.append(Event("forward", k, None, p, "equivalent to", j))
        return found

    def _without(self, j: int) -> list[int]:
        return [i for i in self.selected if i != j]

    def _p_value(self, small: Fit, large: Fit) -> float:
        rules = self.settings
        return nested_test(small.ssr, small.rank, large.ssr, large.rank, self.gram.n, kind=rules.test).p_value


def association(model: Model, series: list[int], how: str) -> Float[np.ndarray, " k"]:
    """Largest |correlation| over the lags of each series' window with the model's residuals."""
    if how == "pearson":
        return np.abs(model.residual_products()[series]).max(axis=1) / np.sqrt(model.ssr)
    from scipy.stats import rankdata

    gram = model.gram
    ranks = _unit(rankdata(model.residuals())[:, None])[:, 0]
    best = np.zeros(len(series))
    for lag in range(1, gram.n_lags + 1):
        columns = _unit(rankdata(gram.past(lag)[:, series], axis=0))
        best = np.maximum(best, np.abs(ranks @ columns))
    return best


def _unit(columns: np.ndarray) -> np.ndarray:
    columns = columns - columns.mean(axis=0)
    length = np.linalg.norm(columns, axis=0)
    return columns / np.where(length > 0, length, 1)
