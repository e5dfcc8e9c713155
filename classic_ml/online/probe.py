"""A linear probe trained online, without a learning rate: logistic loss on a ball, driven by any online learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from classic_ml.online.domains import Domain, L2Ball
from classic_ml.online.gradient_descent import OnlineGradientDescent, OptimisticOGD
from classic_ml.online.learner import OneGradientLearner
from classic_ml.online.metagrad import MetaGrad
from classic_ml.online.universal import UniversalOnlineLearner
from classic_ml.random_state import RandomState, as_generator
from interp.core.messages import at_least, one_of
from interp.core.stream import DataStream

LearnerFactory = Callable[[Domain, int, float], OneGradientLearner]
"""(domain, horizon, gradient_bound) -> a fresh learner."""

LEARNERS: dict[str, LearnerFactory] = {
    "universal": lambda domain, horizon, bound: UniversalOnlineLearner(
        domain, horizon, bound, restart_doubling=True
    ),
    "ogd": lambda domain, horizon, bound: OnlineGradientDescent(domain, bound),
    "optimistic_ogd": lambda domain, horizon, bound: OptimisticOGD(domain),
    "metagrad": lambda domain, horizon, bound: MetaGrad(domain, horizon, bound),
}


class OnlineProbe(ClassifierMixin, BaseEstimator):
    """Binary linear classifier from one pass over a stream; a round is a batch of rows with their mean logistic loss.

    The loss is on rows (x / feature_bound, 1) / sqrt(2), whose norms and gradients are at most 1, and weights in the
    ball of `radius`: nothing is left to tune but how large weights may become. `predict` uses the mean of the weights
    played, which the regret speaks of; the progressive scores judge each row by the weights played before it was seen.

    Args:
        learner: "universal", "ogd" (anytime steps), "optimistic_ogd", "metagrad", or a function (domain, horizon,
            gradient_bound) -> OneGradientLearner. The universal one and MetaGrad decompose a matrix of (d + 1)^2
            numbers each round: above 200 features, project first.
        radius: of the ball of weights, the largest logit of a row as long as the bound.
        feature_bound: rows longer than this are shortened to it; "auto" is the longest row of the first call.
        batch_size: rows a round.
        horizon: rounds expected of `partial_fit` and `fit_stream`; the universal learner restarts with twice as many
            when they are used up. `fit` knows its own.
        random_state: of the order in which `fit` goes through its rows.

    Attributes:
        coef_, intercept_: (1, d) and (1,), on the features as given.
        classes_, n_features_in_, feature_bound_.
        learner_: the online learner.
        round_losses_: mean log loss of every round under the weights played in it.
        progressive_log_loss_, progressive_accuracy_: over all rows.
        n_shortened_: rows that were longer than the bound.
    """

    def __init__(
        self,
        learner: str | LearnerFactory = "universal",
        *,
        radius: float = 20.0,
        feature_bound: float | str = "auto",
        batch_size: int = 1,
        horizon: int = 1000,
        random_state: RandomState = None,
    ) -> None:
        self.learner = learner
        self.radius = radius
        self.feature_bound = feature_bound
        self.batch_size = batch_size
        self.horizon = horizon
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> OnlineProbe:
        """One pass over the rows in random order."""
        X, y = self._validated(X, y, reset=True)
        at_least("batch_size", self.batch_size, 1)
        self._begin(X, np.unique(y), -(-len(X) // self.batch_size))
        order = as_generator(self.random_state).permutation(len(X))
        return self._learn(X[order], y[order])

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> OnlineProbe:
        """Go on with these rows in their order; `classes`, both, at the first call (default: those of its y)."""
        first = not hasattr(self, "learner_")
        X, y = self._validated(X, y, reset=first)
        if first:
            at_least("batch_size", self.batch_size, 1)
            self._begin(X, np.unique(y if classes is None else classes), self.horizon)
        return self._learn(X, y)

    def fit_stream(
        self,
        source: DataStream,
        labels: Callable[[Any], Any],
        n_batches: int,
        *,
        classes: Sequence[Any] = (0, 1),
    ) -> OnlineProbe:
        """Go on with `n_batches` batches of an `ActivationSource`, a round each; `labels(batch)` says the class of each
        of its rows `batch.values`. Call it again to read further.
        """
        at_least("n_batches", n_batches, 1)
        at_least("batch_size", self.batch_size, 1)
        for _ in range(n_batches):
            batch = source.next_batch(self.batch_size)
            X, y = np.asarray(batch.values, dtype=float), np.asarray(labels(batch))
            if not hasattr(self, "learner_"):
                self.partial_fit(X, y, classes)
            elif X.shape[1] != self.n_features_in_ or y.shape != X.shape[:1]:
                raise ValueError(
                    f"a batch has values of shape {X.shape} and labels of {y.shape}; give rows of "
                    f"{self.n_features_in_} numbers, and a label for each"
                )
            else:
                self._learn(X, y)  # without the estimator's checks, which take longer than a round
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, " n"]:
        """Log odds of the second class."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=float, reset=False)
        return X @ self.coef_[0] + self.intercept_[0]

    def predict(self, X: Any) -> Any:
        odds = self.decision_function(X)
        return self.classes_[(odds > 0).astype(int)]

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n 2"]:
        second = _sigmoid(self.decision_function(X))
        return np.stack([1 - second, second], 1)

    @property
    def progressive_log_loss_(self) -> float:
        return self._log_loss / self._n_rows

    @property
    def progressive_accuracy_(self) -> float:
        return self._n_right / self._n_rows

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=float, reset=reset)
        check_classification_targets(y)
        if (kind := type_of_target(y)) != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        return X, y

    def _begin(self, X: np.ndarray, classes: np.ndarray, horizon: int) -> None:
        if len(classes) != 2:
            raise ValueError(
                f"classes are {classes.tolist()}: a probe needs two; name both by partial_fit(..., classes=...) where "
                "the first rows hold one class"
            )
        make = self.learner
        if isinstance(make, str):
            one_of("learner", make, tuple(LEARNERS))
            make = LEARNERS[make]
        bound = float(np.linalg.norm(X, axis=1).max()) if self.feature_bound == "auto" else self.feature_bound
        if isinstance(bound, str) or not (np.isfinite(bound) and bound >= 0) or self.feature_bound == 0:
            raise ValueError(f"feature_bound = {self.feature_bound!r} must be 'auto' or a positive number")
        self.feature_bound_ = bound or 1.0
        self.classes_ = classes
        domain = L2Ball(self.radius, X.shape[1] + 1)
        self.learner_ = make(domain, horizon, 1.0)
        self.round_losses_: list[float] = []
        self.n_shortened_ = self._n_rows = self._n_right = 0
        self._log_loss = 0.0
        self._sum_played = np.zeros(domain.dim)

    def _learn(self, X: np.ndarray, y: np.ndarray) -> OnlineProbe:
        if not np.isin(y, self.classes_).all():
            raise ValueError(f"y holds {np.setdiff1d(y, self.classes_)}, not among classes {self.classes_}")
        norms = np.linalg.norm(X, axis=1)
        self.n_shortened_ += int((norms > self.feature_bound_ * (1 + 1e-9)).sum())
        scaled = X / np.maximum(norms, self.feature_bound_)[:, None]
        rows = np.column_stack([scaled, np.ones(len(X))]) / 2**0.5
        signed = rows * np.where(y == self.classes_[1], 1.0, -1.0)[:, None]
        for start in range(0, len(signed), self.batch_size):
            self._round(signed[start : start + self.batch_size])
        mean = self._sum_played / len(self.round_losses_) / 2**0.5
        self.coef_, self.intercept_ = mean[None, :-1] / self.feature_bound_, mean[-1:]
        return self

    def _round(self, signed: Float[np.ndarray, "b d1"]) -> None:
        played = self.learner_.predict()
        margins = signed @ played
        losses = np.logaddexp(0, -margins)
        self.learner_.update(-_sigmoid(-margins) @ signed / len(signed))
        self._sum_played += played
        self.round_losses_.append(float(losses.mean()))
        self._log_loss += float(losses.sum())
        self._n_right += int((margins > 0).sum())
        self._n_rows += len(signed)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(x / 2))
