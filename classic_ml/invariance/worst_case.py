"""Any classifier made robust to the worst of a family of transformations, by multiplicative weights over the family."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from classic_ml.invariance.game import GameRecord, n_rounds_for, play_game
from classic_ml.invariance.inflated import MAX_ENTRIES, InflatedRows
from classic_ml.invariance.mixture import (
    MixtureClassifier,
    check_learner,
    checked_classes,
    clone_seeded,
    vote_shares,
)
from classic_ml.invariance.transforms import resolve_transforms
from classic_ml.random_state import RandomState, as_seed
from classic_ml.valuation.few_classes import fit_classifier
from interp.core.messages import at_least, one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

OBJECTIVES = ("risk", "regret")
ORACLE_MODES = ("weights", "resample")


class WorstCaseTransformClassifier(MixtureClassifier):
    """A mixture of classifiers whose worst error over the transformations is near the best that mixtures attain.

    Each round the adversary puts more weight on the transformations that hurt, and a copy of the estimator is fitted to
    the transformed data under these weights (of total m, so that a regularised learner sees m rows whatever K is).  The
    output is the mixture of all copies, not the last one.  With an estimator that minimises the weighted 0-1 error,
    the mixture's worst training error is at most v* + sqrt(ln K / (2 R)), v* the value of the game and at most the best
    worst case of a single predictor; one that minimises a surrogate is compared with what it attains (see
    `game_.oracle_gaps`).  The majority vote errs at most twice as often as the mixture under every transformation,
    whatever the number of classes, since it is right where more than half of the members are.

    Only the maps listed are covered: the identity is one of them with `include_identity`.

    Parameters:
        estimator: any classifier; with `sample_weight` in `fit` for oracle_mode="weights".
        transforms: functions of rows, arrays of the transformed rows aligned with X, or both; or a sampler
            rng -> function, of which `n_transforms` are drawn.
        n_rounds: R; None for ln K / (2 eps^2), rounded up.
        eps: the slack that this R leaves.
        tol: stop as soon as the measured gap to the game's value is at most this; None plays all rounds.
        objective: "regret" plays with err(h, T) - err(best for T, T), one more fit a transformation.
        voting: of `predict`: "majority", "random" (a member drawn a row), "soft" (mean probability).
        oracle_mode: "resample" draws m transformed rows a round by the weights instead.
        n_transforms: how many to draw of a sampler.
        include_identity: X as it is, one more transformation.
        max_entries: numbers of the inflated set (K m d) up to which it is kept; above, "resample" computes its rows.
        random_state: None, a seed or a generator, for draws and for the estimator's own randomness.

    Attributes:
        estimators_: the R members.
        transforms_: the K transformations as a list.
        transform_weights_: (R, K) of the adversary.
        mixture_errors_, vote_errors_: (K,) training errors of the mixture and of its majority vote.
        worst_case_error_: the largest of `mixture_errors_`.
        best_errors_: (K,) training error of the copy fitted to each transformation alone, for objective="regret" only.
        bound_: on the mixture's worst training error (or regret), as the game was played: `game_.bound`.
        oracle_gap_: (R,), how much worse each member is than the best earlier one at its weights.
        game_: the `GameRecord`.
    """

    def __init__(
        self,
        estimator: Any = None,
        transforms: Any = None,
        *,
        n_rounds: int | None = None,
        eps: float = 0.05,
        tol: float | None = None,
        objective: Literal["risk", "regret"] = "risk",
        voting: Literal["majority", "random", "soft"] = "majority",
        oracle_mode: Literal["weights", "resample"] = "weights",
        n_transforms: int | None = None,
        include_identity: bool = False,
        max_entries: int = MAX_ENTRIES,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.transforms = transforms
        self.n_rounds = n_rounds
        self.eps = eps
        self.tol = tol
        self.objective = objective
        self.voting = voting
        self.oracle_mode = oracle_mode
        self.n_transforms = n_transforms
        self.include_identity = include_identity
        self.max_entries = max_entries
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> WorstCaseTransformClassifier:
        """Play the game on X (m, d), y (m,).

        Raises:
            ValueError: no transformation, one that changes the shape of X or gives values that aren't finite; one class
                only; an estimator without `sample_weight` for oracle_mode="weights"; an inflated set above
                `max_entries` there; a parameter out of range.
            TypeError: an estimator that is no classifier.
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        self.classes_ = checked_classes(y)
        self.seed_ = as_seed(self.random_state)
        rng = np.random.default_rng(self.seed_)
        self.transforms_ = resolve_transforms(
            self.transforms, n_transforms=self.n_transforms, include_identity=self.include_identity, rng=rng
        )
        data = InflatedRows(X, self.transforms_, self.max_entries)
        fit = self._oracle(data, y, rng)
        self.estimators_ = []
        offsets: Any = 0.0
        if self.objective == "regret":
            ones = np.eye(len(data))
            self.best_errors_ = offsets = np.array([data.errors(fit(q), y)[k] for k, q in enumerate(ones)])

        def answer(q: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
            self.estimators_.append(fit(q))
            return data.errors(self.estimators_[-1], y) - offsets

        self.game_: GameRecord = play_game(
            answer, len(data), n_rounds=self.n_rounds, eps=self.eps, tol=self.tol
        )
        self.transform_weights_ = self.game_.weights
        self.mixture_errors_ = self.game_.mixture_costs + offsets
        votes = [vote_shares(self.estimators_, rows, self.classes_).argmax(1) for rows in data.chunks()]
        self.vote_errors_ = (self.classes_[np.concatenate(votes)].reshape(len(data), -1) != y).mean(1)
        self.worst_case_error_ = float(self.mixture_errors_.max())
        self.bound_ = self.game_.bound
        self.oracle_gap_ = self.game_.oracle_gaps
        self.transform_names_ = data.names
        return self

    def to_frame(self) -> pd.DataFrame:
        """A row per transformation: training errors of mixture and vote, the adversary's mean weight."""
        import pandas as pd

        check_is_fitted(self)
        table = {
            "mixture": self.mixture_errors_,
            "vote": self.vote_errors_,
            "weight": self.transform_weights_.mean(0),
        }
        return pd.DataFrame(table, index=pd.Index(self.transform_names_, name="transformation"))

    def plot(self) -> Figure:
        """Convergence of the game, and the adversary's weights."""
        from classic_ml.invariance.plots import plot_game

        check_is_fitted(self)
        return plot_game(self.game_, self.transform_names_)

    def _check_parameters(self) -> None:
        check_learner(self.estimator)
        self._check_voting()
        one_of("objective", self.objective, OBJECTIVES)
        one_of("oracle_mode", self.oracle_mode, ORACLE_MODES)
        at_least("max_entries", self.max_entries, 1)
        n_rounds_for(1, self.eps)
        if self.n_rounds is not None:
            at_least("n_rounds", self.n_rounds, 1)
        if self.tol is not None and not self.tol >= 0:
            raise ValueError(f"tol = {self.tol} must not be negative (or None)")
        if self.oracle_mode == "weights" and not has_fit_parameter(self.estimator, "sample_weight"):
            raise ValueError(
                f"estimator = {self.estimator!r} takes no sample_weight, which oracle_mode='weights' needs; "
                "use oracle_mode='resample'"
            )

    def _oracle(
        self, data: InflatedRows, y: np.ndarray, rng: np.random.Generator
    ) -> Callable[[Float[np.ndarray, " K"]], Any]:
        """Weights over transformations -> a fitted copy of the estimator."""
        m = len(y)
        if self.oracle_mode == "weights":
            rows, labels = data.stacked(), np.tile(y, len(data))
            return lambda q: clone_seeded(self.estimator, rng).fit(
                rows, labels, sample_weight=np.repeat(q, m)
            )

        def fit(q: Float[np.ndarray, " K"]) -> Any:
            which, drawn = rng.choice(len(data), m, p=q), rng.integers(m, size=m)
            return fit_classifier(clone_seeded(self.estimator, rng), data.mixed(which, drawn), y[drawn])

        return fit
