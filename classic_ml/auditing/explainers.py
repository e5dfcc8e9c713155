"""Plain explainers: functions x [d] -> LocalExplanation, for demonstrations, tests and baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge

from classic_ml.auditing.explanations import ConstantModel, LinearModel, LocalExplanation, predicted
from classic_ml.auditing.regions import BallRegion, BoxRegion, FloatArray, vector
from interp.core.messages import at_least

Explainer = Callable[[Any], LocalExplanation]
Radius = float | Callable[[FloatArray], float]
"""Of the region around x: a number, or a function of x."""


def gradient_explainer(
    f_decision: Callable[[Any], Any],
    grad: Callable[[Any], Any],
    radius: Radius,
    *,
    n_features: int | None = None,
    labels: tuple[Hashable, Hashable] = (-1, 1),
) -> Explainer:
    """sign(f(x) + grad f(x) . (z - x)) in a ball around x: what saliency maps say when they are taken at their word.

    Args:
        f_decision: Z [n, d] -> values [n], positive for labels[1].
        grad: x [d] -> gradient [d] at x.
        n_features: keep only that many coordinates of the gradient, those of the largest |gradient * x|, as
            attributions are shown; the values of f at x and of g at x stay equal.
    """
    if n_features is not None:
        at_least("n_features", n_features, 1)

    def explain(x: Any) -> LocalExplanation:
        x = vector("x", x)
        value = float(np.asarray(f_decision(x[None])).reshape(()))
        slope = vector("grad(x)", grad(x))
        if n_features is not None:
            slope = np.where(_ranks(-np.abs(slope * x)) < n_features, slope, 0.0)
        return LocalExplanation(
            BallRegion(x, _radius(radius, x)), LinearModel(slope, value - slope @ x, labels)
        )

    return explain


def local_ridge_explainer(
    f: Any,
    sampler: Callable[[FloatArray, int], Any],
    radius: Radius,
    n_samples: int = 500,
    *,
    alpha: float = 1.0,
    labels: tuple[Hashable, Hashable] = (-1, 1),
) -> Explainer:
    """A plain LIME: ridge regression of f's labels on points sampled around x, read as a linear classifier.

    Args:
        f: Z [n, d] -> labels [n], or a fitted classifier.
        sampler: (x [d], n_samples) -> points [n_samples, d] around x; those are the explainer's own, and prove nothing
            about the data.
        alpha: ridge penalty.
    """
    at_least("n_samples", n_samples, 2)
    ask = _labels_of(f)

    def explain(x: Any) -> LocalExplanation:
        x = vector("x", x)
        points = np.asarray(sampler(x, n_samples), np.float64)
        if points.shape != (n_samples, len(x)):
            raise ValueError(f"sampler gave shape {points.shape}: it must give ({n_samples}, {len(x)})")
        targets = np.where(ask(points) == labels[1], 1.0, -1.0)
        fit = Ridge(alpha=alpha).fit(points - x, targets)
        model = LinearModel(fit.coef_, float(fit.intercept_ - fit.coef_ @ x), labels)
        return LocalExplanation(BallRegion(x, _radius(radius, x)), model)

    return explain


def constant_box_explainer(f: Any, half_width: float) -> Explainer:
    """ "Around x it is f(x)": an anchor without the search, and the baseline of every other explanation."""
    if not 0 < half_width < math.inf:
        raise ValueError(f"half_width = {half_width} must be a positive number")
    ask = _labels_of(f)

    def explain(x: Any) -> LocalExplanation:
        x = vector("x", x)
        return LocalExplanation(
            BoxRegion(x - half_width, x + half_width), ConstantModel(ask(x[None]).tolist()[0])
        )

    return explain


def constant_baseline(explanation: LocalExplanation, label: Hashable) -> LocalExplanation:
    """The same region with the one label f(x) in it: what any local model there has to beat."""
    return LocalExplanation(explanation.region, ConstantModel(label))


def _labels_of(f: Any) -> Callable[[Any], Any]:
    if hasattr(f, "predict"):
        return lambda Z: predicted(f, Z)
    return lambda Z: np.asarray(f(Z))


def _radius(radius: Radius, x: FloatArray) -> float:
    return float(radius(x)) if callable(radius) else radius


def _ranks(values: FloatArray) -> Any:
    ranks = np.empty(len(values), int)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks
