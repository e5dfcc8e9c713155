"""Families too large to list: an adversary names the worst transformation, the learner refits on what it named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from classic_ml.invariance.inflated import InflatedRows, predictions
from classic_ml.invariance.mixture import MixtureClassifier, check_learner, checked_classes, clone_seeded
from classic_ml.invariance.transforms import Transform, transformed
from classic_ml.random_state import RandomState, as_seed
from interp.core.messages import at_least

if TYPE_CHECKING:
    import pandas as pd

WorstTransform = Callable[[Any, np.ndarray, np.ndarray], Transform]
"""(fitted predictor, X, y) -> the transformation under which it errs most."""


def worst_of(transforms: Sequence[Transform]) -> WorstTransform:
    """The best response within a list, the first of equals."""
    family = list(transforms)
    if not family:
        raise ValueError("transforms is empty: give at least one transformation")
    return partial(_worst, family)


def _worst(family: Sequence[Transform], predictor: Any, X: np.ndarray, y: np.ndarray) -> Transform:
    return family[int(InflatedRows(X, family).errors(predictor, y).argmax())]


class BestResponseTransformClassifier(MixtureClassifier):
    """Follow the leader: fit, let the adversary name the worst transformation, fit to all named so far, and so on.

    The first member is fitted to X as it is.  No rate is promised, since following the leader is no no-regret rule; but
    where the adversary's answer is exact, `worst_errors_` are worst cases over its whole family, so that the member of
    `best_round_` carries its own certificate.

    Parameters:
        estimator: a classifier that takes `sample_weight`; weights have total m.
        worst_transform: (predictor, X, y) -> transformation, such as `worst_of(list)` or a search.
        n_rounds: members; the last one's worst case is measured too.
        tol: stop when the worst case is within this of the member's mean error on the transformations named before.
        voting: as for `WorstCaseTransformClassifier`.
        random_state: None, a seed or a generator.

    Attributes:
        estimators_: the members.
        transforms_: what the adversary named, a round each.
        worst_errors_: (R,) error of each member under the transformation named for it.
        played_errors_: (R,) mean error of each member on what it was fitted to.
        best_round_: the member of least `worst_errors_`.
    """

    def __init__(
        self,
        estimator: Any = None,
        worst_transform: WorstTransform | None = None,
        *,
        n_rounds: int = 20,
        tol: float | None = None,
        voting: Literal["majority", "random", "soft"] = "majority",
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.worst_transform = worst_transform
        self.n_rounds = n_rounds
        self.tol = tol
        self.voting = voting
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> BestResponseTransformClassifier:
        """Play on X (m, d), y (m,). Raises as `WorstCaseTransformClassifier.fit` does."""
        check_learner(self.estimator)
        self._check_voting()
        at_least("n_rounds", self.n_rounds, 1)
        if not callable(self.worst_transform):
            raise TypeError(
                f"worst_transform = {self.worst_transform!r} must be a function (predictor, X, y) -> T"
            )
        if not has_fit_parameter(self.estimator, "sample_weight"):
            raise ValueError(f"estimator = {self.estimator!r} takes no sample_weight, which this needs")
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        self.classes_ = checked_classes(y)
        self.seed_ = as_seed(self.random_state)
        rng = np.random.default_rng(self.seed_)
        self.estimators_, self.transforms_ = [], []
        worst, played, rows = [], [], [X]
        for _ in range(self.n_rounds):
            copies = len(rows)
            member = clone_seeded(self.estimator, rng).fit(
                np.concatenate(rows), np.tile(y, copies), sample_weight=np.full(copies * len(y), 1 / copies)
            )
            self.estimators_.append(member)
            played.append(float(np.mean([(predictions(member, part) != y).mean() for part in rows])))
            self.transforms_.append(self.worst_transform(member, X, y))
            named = transformed(self.transforms_[-1], X, "what worst_transform names")
            worst.append(float((predictions(member, named) != y).mean()))
            rows = [named] if not self.transforms_[:-1] else [*rows, named]
            if self.tol is not None and worst[-1] - played[-1] <= self.tol:
                break
        self.worst_errors_, self.played_errors_ = np.array(worst), np.array(played)
        self.best_round_ = int(self.worst_errors_.argmin())
        return self

    def to_frame(self) -> pd.DataFrame:
        """A row per round."""
        import pandas as pd

        check_is_fitted(self)
        return pd.DataFrame({"worst": self.worst_errors_, "played": self.played_errors_})
