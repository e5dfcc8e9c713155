"""Explanations of the `lime` and `shap` packages as local explanations that can be audited.

Neither package is imported: their objects are read.  Both explain a score; what is audited is the classifier that the
score makes at a threshold.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from classic_ml.auditing.explanations import LinearModel, LocalExplanation, checked_labels
from classic_ml.auditing.regions import CallableRegion, FloatArray, Region, rows_of, vector


def from_lime(
    explanation: Any,
    explainer: Any,
    x: npt.ArrayLike,
    *,
    cutoff: float,
    label: int = 1,
    threshold: float = 0.5,
    labels: tuple[Hashable, Hashable] = (-1, 1),
) -> LocalExplanation:
    """A tabular LIME explanation.

    The local model is LIME's weighted linear fit of the probability of `label`, on the features it kept; LIME's own
    features: scaled columns, or for discretised and categorical ones "in the same bin as x".  LIME publishes no
    region: here it is where LIME's kernel gives a weight of at least `cutoff` (its default kernel is
    sqrt(exp(-d^2 / kernel_width^2)), d Euclidean in those features).

    Args:
        explanation: what `explainer.explain_instance(x, ...)` gave.
        explainer: the `LimeTabularExplainer`, for its scale, bins and kernel.
        x: the row explained [d].
        cutoff: in (0, 1].
        label: index of the class explained; with more than two classes audit the question "is it this class".
        threshold: of the probability.
        labels: what the audited classifier says below and from the threshold.

    Raises:
        ValueError: a regression, a label that was not explained, a cutoff outside (0, 1].
    """
    if getattr(explanation, "mode", "classification") != "classification":
        raise ValueError(
            f"explanation.mode = {explanation.mode!r}: only explanations of classifiers can be audited"
        )
    if label not in explanation.local_exp:
        raise ValueError(f"label = {label} was not explained; explained: {sorted(explanation.local_exp)}")
    if not 0 < cutoff <= 1:
        raise ValueError(f"cutoff = {cutoff} must lie in (0, 1]: it is the least kernel weight in the region")
    features = _LimeFeatures(explainer, vector("x", x))
    kernel = explainer.base.kernel_fn

    def near(Z: Any) -> npt.NDArray[np.bool_]:
        difference = features(Z) - features.origin
        return np.asarray(kernel(np.sqrt(np.einsum("ij,ij->i", difference, difference)))) >= cutoff

    columns, weights = zip(*explanation.local_exp[label], strict=True)
    linear = LinearModel(weights, float(explanation.intercept[label]) - threshold, labels)
    return LocalExplanation(CallableRegion(near), _OnFeatures(linear, features, np.array(columns, int)))


class _LimeFeatures:
    """LIME's interpretable features of rows [n, d], those of x being `origin`."""

    def __init__(self, explainer: Any, x: FloatArray) -> None:
        self.discretizer = explainer.discretizer
        self.mean, self.scale = np.asarray(explainer.scaler.mean_), np.asarray(explainer.scaler.scale_)
        self.binary = np.asarray(explainer.categorical_features, int)
        self.x = self._binned(x[None])[0]
        self.origin = self(x[None])[0]

    def __call__(self, Z: Any) -> FloatArray:
        data = self._binned(rows_of(Z, len(self.x), "this LIME explanation"))
        data[:, self.binary] = data[:, self.binary] == self.x[self.binary]
        return (data - self.mean) / self.scale

    def _binned(self, Z: FloatArray) -> FloatArray:
        return np.array(Z if self.discretizer is None else self.discretizer.discretize(Z), np.float64)


class _OnFeatures:
    """A linear model on some of LIME's features."""

    def __init__(self, linear: LinearModel, features: _LimeFeatures, columns: npt.NDArray[np.int64]) -> None:
        self.linear, self.features, self.columns = linear, features, columns

    def predict(self, Z: Any) -> npt.NDArray[Any]:
        return self.linear.predict(self.features(Z)[:, self.columns])


def from_shap(
    explanation: Any,
    background: npt.ArrayLike,
    region: Region,
    *,
    output: int | None = None,
    threshold: float = 0.0,
    labels: tuple[Hashable, Hashable] = (-1, 1),
) -> LocalExplanation:
    """SHAP values of one row, read as a linear model around it:

        g(z) = base + sum_j phi_j (z_j - b_j) / (x_j - b_j),    b the background's mean.

    It has SHAP's own value f(x) at x and the base value at b; of a linear f with independent features it is f. SHAP
    publishes no region: declare one.

    Args:
        explanation: one row of a `shap.Explanation` (values, base_values, data), `values` [d] or [d, outputs].
        background: rows [n, d] that the explainer was given, or their mean [d].
        output: which output, where there are several.
        threshold: of the explained score: 0 for margins, 0.5 for probabilities.
        labels: what the audited classifier says below and from the threshold.

    Raises:
        ValueError: several rows or outputs, or a column where x equals the background's mean with a value that is not
            0, which no linear model through b can give.
    """
    checked_labels(labels)
    values, x = np.asarray(explanation.values, np.float64), vector("explanation.data", explanation.data)
    base = np.asarray(explanation.base_values, np.float64)
    if output is not None:
        if values.ndim != 2 or not 0 <= output < values.shape[1]:
            raise ValueError(f"output = {output}, but explanation.values has shape {values.shape}")
        values, base = values[:, output], base[output] if base.ndim else base
    if values.shape != x.shape or base.size != 1:
        raise ValueError(
            f"explanation.values has shape {values.shape} for a row of {len(x)} columns: give one row, e.g. "
            "explanation[0], and `output` where there are several"
        )
    b = np.asarray(background, np.float64)
    b = vector("background", b.mean(0) if b.ndim == 2 else b)
    if b.shape != x.shape:
        raise ValueError(f"background has {len(b)} columns, the row {len(x)}")
    step = x - b
    if (stuck := (step == 0) & (np.abs(values) > 1e-9 * np.abs(values).max())).any():
        raise ValueError(
            f"column {int(np.flatnonzero(stuck)[0])}: the row equals the background's mean there, yet its SHAP value "
            "is not 0; give the background the explainer was given"
        )
    coef = np.divide(values, step, out=np.zeros_like(values), where=step != 0)
    return LocalExplanation(region, LinearModel(coef, float(base.reshape(()) - coef @ b - threshold), labels))
