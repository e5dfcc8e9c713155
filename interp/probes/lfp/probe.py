"""Probes that read feedback out of features: a regression for graded feedback, a classification for pairs.

Marks et al. 2024 (arXiv 2310.08164).  The regression's target is not the true feedback but how far the activations of
a text move when its neutral word is replaced by a positive one (with a plus sign) or a negative one (with a minus):
the feedback that the activations imply, to be compared with the true one afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from interp.core.messages import one_of

TARGETS = ("signed_divergence", "valence")

Place = tuple[int, int]


class TripleFeatures(NamedTuple):
    """Features of n contrastive triples, read at their target words; see `features.collect_triples`."""

    positive: Float[np.ndarray, "n F"]
    negative: Float[np.ndarray, "n F"]
    neutral: Float[np.ndarray, "n F"]

    def rows(self) -> Float[np.ndarray, "2n F"]:
        """What a probe reads: the positive texts, then the negative ones."""
        return np.concatenate([self.positive, self.negative])

    def divergences(self) -> Float[np.ndarray, "2n"]:
        """``|P - Z|`` of the positive texts, then ``|N - Z|`` of the negative ones."""
        apart = (self.positive - self.neutral, self.negative - self.neutral)
        return np.concatenate([np.linalg.norm(part.astype(np.float64), axis=1) for part in apart])

    def signs(self) -> Float[np.ndarray, "2n"]:
        """+1 of the positive texts, then -1 of the negative ones."""
        ones = np.ones(len(self.positive))
        return np.concatenate([ones, -ones])

    def check(self) -> None:
        """Raise ValueError where the shapes differ, nothing is there, or a value isn't finite."""
        shapes = {name: np.shape(part) for name, part in self._asdict().items()}
        if len(set(shapes.values())) != 1 or self.positive.ndim != 2 or 0 in self.positive.shape:
            raise ValueError(
                f"triples have features of shapes {shapes}: give three equal ones, [n F] with n > 0"
            )
        for name, part in self._asdict().items():
            if not np.isfinite(part).all():
                raise ValueError(f"the {name} features hold NaN or infinite values")


class FeedbackProbe:
    """Ridge regression from features to feedback.

        probe = FeedbackProbe().fit(*collect_triples(model, triples, saes), places=feature_places(saes))
        probe.predict(features), probe.top_features(10)

    Args:
        alpha: the ridge penalty.
        target: "signed_divergence" (the paper's), or "valence", the true feedback itself: the upper bound that
            direct supervision reaches.

    Attributes:
        coef_, intercept_: of the regression.
        spread_: [F] standard deviation of each feature over the rows of the fit.
        places_: (layer, latent) of each feature, where it was said.
    """

    def __init__(self, alpha: float = 1.0, target: str = "signed_divergence") -> None:
        one_of("target", target, TARGETS)
        if not alpha >= 0:
            raise ValueError(f"alpha = {alpha} must not be negative")
        self.alpha, self.target = alpha, target

    def fit(
        self,
        positive: Float[np.ndarray, "n F"],
        negative: Float[np.ndarray, "n F"],
        neutral: Float[np.ndarray, "n F"],
        *,
        valence: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]] | None = None,
        places: Sequence[Place] | None = None,
    ) -> FeedbackProbe:
        """Fit on n triples.

        Args:
            valence: true feedback of the positive and of the negative texts; for ``target="valence"`` only.
            places: (layer, latent) of each feature, kept beside the weights.

        Raises ValueError for unequal shapes, values that aren't finite, or a valence that is missing or not wanted.
        """
        features = TripleFeatures(np.asarray(positive), np.asarray(negative), np.asarray(neutral))
        features.check()
        if (valence is not None) != (self.target == "valence"):
            raise ValueError(
                f"target = {self.target!r}: valence is given for the target 'valence' and no other"
            )
        y = features.signs() * features.divergences() if valence is None else np.concatenate(valence)
        return self.fit_rows(features.rows(), y, places=places)

    def fit_rows(
        self,
        X: Float[np.ndarray, "m F"],
        y: Float[np.ndarray, " m"],
        *,
        places: Sequence[Place] | None = None,
    ) -> FeedbackProbe:
        """Fit rows to targets of any making."""
        from sklearn.linear_model import Ridge

        if len(X) != len(y):
            raise ValueError(f"X has {len(X)} rows, y {len(y)}")
        if places is not None and len(places) != X.shape[1]:
            raise ValueError(f"places names {len(places)} features, the rows have {X.shape[1]}")
        X = np.asarray(X, dtype=np.float64)
        ridge = Ridge(alpha=self.alpha).fit(X, y)
        self.coef_: Float[np.ndarray, " F"] = ridge.coef_
        self.intercept_ = float(ridge.intercept_)
        self.spread_: Float[np.ndarray, " F"] = X.std(0)
        self.places_ = None if places is None else tuple((int(a), int(b)) for a, b in places)
        return self

    def predict(self, X: Float[np.ndarray, "m F"]) -> Float[np.ndarray, " m"]:
        """The feedback read from each row, in the units of the target.

        Raises ValueError before `fit`, or for another number of features.
        """
        if not hasattr(self, "coef_"):
            raise ValueError("this probe is not fitted: call fit first")
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != len(self.coef_):
            raise ValueError(f"X has shape {X.shape}, the probe was fitted on [m {len(self.coef_)}]")
        return X @ self.coef_ + self.intercept_

    @property
    def importance(self) -> Float[np.ndarray, " F"]:
        """How far each feature moves the prediction: ``|weight|`` times its standard deviation."""
        return np.abs(self.coef_) * self.spread_

    def top_features(self, k: int) -> dict[int, list[int]]:
        """The k most important features, latents by layer, most important first.

        Raises ValueError where the probe doesn't know its features' places.
        """
        if self.places_ is None:
            raise ValueError(
                "the probe was fitted without places: give fit(..., places=feature_places(saes))"
            )
        if not 1 <= k <= len(self.coef_):
            raise ValueError(f"k = {k}: the probe has {len(self.coef_)} features")
        best: dict[int, list[int]] = {layer: [] for layer in sorted({layer for layer, _ in self.places_})}
        for column in np.argsort(-self.importance, kind="stable")[:k]:
            layer, latent = self.places_[column]
            best[layer].append(latent)
        return {layer: latents for layer, latents in best.items() if latents}

    def state(self) -> dict[str, Any]:
        """JSON values from which `from_state` makes the same probe."""
        return {
            "alpha": self.alpha,
            "target": self.target,
            "intercept": self.intercept_,
            "coef": self.coef_.tolist(),
            "spread": self.spread_.tolist(),
            "places": None if self.places_ is None else [list(place) for place in self.places_],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> FeedbackProbe:
        """The probe whose `state` this is."""
        probe = cls(state["alpha"], state["target"])
        probe.coef_, probe.spread_ = np.asarray(state["coef"]), np.asarray(state["spread"])
        probe.intercept_ = state["intercept"]
        places = state["places"]
        probe.places_ = None if places is None else tuple((layer, latent) for layer, latent in places)
        return probe


class PairFeedbackProbe:
    """Logistic regression that tells chosen (1) from rejected (0) texts by their token-mean features.

    Args:
        C: inverse strength of the L2 penalty.
    """

    def __init__(self, C: float = 1.0) -> None:
        if not C > 0:
            raise ValueError(f"C = {C} must be positive")
        self.C = C

    def fit(self, chosen: Float[np.ndarray, "n F"], rejected: Float[np.ndarray, "m F"]) -> PairFeedbackProbe:
        """Fit; rows that come twice in a class count once, as the same text would."""
        X = np.concatenate([np.unique(np.asarray(part), axis=0) for part in (chosen, rejected)])
        y = np.concatenate(
            [np.full(len(np.unique(part, axis=0)), label) for part, label in ((chosen, 1), (rejected, 0))]
        )
        return self.fit_rows(X, y)

    def fit_rows(self, X: Float[np.ndarray, "m F"], y: np.ndarray) -> PairFeedbackProbe:
        """Fit rows to labels 1 (chosen) and 0 (rejected); ValueError where one of them is missing."""
        from sklearn.linear_model import LogisticRegression

        if set(np.unique(y)) != {0, 1}:
            raise ValueError("there must be chosen and rejected texts to learn from")
        fitted = LogisticRegression(C=self.C, max_iter=2000).fit(np.asarray(X, dtype=np.float64), y)
        self.coef_: Float[np.ndarray, " F"] = fitted.coef_[0]
        self.intercept_ = float(fitted.intercept_[0])
        return self

    def predict(self, X: Float[np.ndarray, "m F"]) -> Float[np.ndarray, " m"]:
        """The log-odds that each text is a chosen one."""
        if not hasattr(self, "coef_"):
            raise ValueError("this probe is not fitted: call fit first")
        return np.asarray(X) @ self.coef_ + self.intercept_


def rescale_to_range(
    predictions: Float[np.ndarray, " m"], low: float, high: float, percentile: float = 10.0
) -> Float[np.ndarray, " m"]:
    """Map the predictions' `percentile`-th percentile to `low`, its mirror image to `high`, and clip.

    Raises ValueError where the two percentiles coincide: nearly constant predictions can't be spread over a range.
    """
    if not low < high:
        raise ValueError(f"low = {low} must be below high = {high}")
    if not 0 <= percentile < 50:
        raise ValueError(f"percentile = {percentile} must lie in [0, 50)")
    at_low, at_high = np.percentile(predictions, [percentile, 100 - percentile])
    if at_low == at_high:
        raise ValueError(
            f"the predictions' percentiles {percentile:g} and {100 - percentile:g} are both {at_low:.6g}: the probe "
            "says the same of nearly every text"
        )
    return np.clip((predictions - at_low) / (at_high - at_low) * (high - low) + low, low, high)
