"""LIME and SHAP explanations: hand-made objects of their shape, and the packages themselves where installed."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from classic_ml.auditing import BallRegion, ExplanationAuditor, from_lime, from_shap, local_loss


def lime_kernel(d: Any, kernel_width: float) -> Any:
    return np.sqrt(np.exp(-(d**2) / kernel_width**2))


class Bins:
    """Bins at 0 and 1, as LIME's discretizers answer."""

    def discretize(self, Z: np.ndarray) -> np.ndarray:
        return np.digitize(Z, [0, 1]).astype(float)


def lime_explainer(mean: Any, scale: Any, discretizer: Any = None, categorical: Any = ()) -> Any:
    return SimpleNamespace(
        discretizer=discretizer,
        scaler=SimpleNamespace(mean_=np.array(mean, float), scale_=np.array(scale, float)),
        categorical_features=list(categorical),
        base=SimpleNamespace(kernel_fn=partial(lime_kernel, kernel_width=1.5)),
    )


def lime_explanation(intercept: float, weights: list[tuple[int, float]], mode: str = "classification") -> Any:
    return SimpleNamespace(mode=mode, local_exp={1: weights}, intercept={1: intercept})


def test_lime_on_scaled_columns() -> None:
    explainer = lime_explainer([1, 10, 0], [2, 5, 1])
    e = from_lime(
        lime_explanation(0.4, [(1, 0.3), (0, -0.1)]), explainer, [1, 10, 0], cutoff=0.8, labels=(0, 1)
    )
    # Scores 0.4 + 0.3 (z1 - 10) / 5 - 0.1 (z0 - 1) / 2: at x 0.4, then 0.46 + 0.04, then 0.52 - 0.1.
    Z = np.array([[1, 10, 0], [-0.2, 10.7, 0], [1, 12, 0], [3, 12, 0]])
    assert e.model.predict(Z).tolist() == [0, 1, 1, 0]
    radius = 1.5 * np.sqrt(-2 * np.log(0.8))  # of LIME's root kernel
    assert e.region.contains([[1, 10, 0.999 * radius], [1, 10, 1.001 * radius]]).tolist() == [True, False]
    assert e.region.contains([[1 + 1.999 * radius, 10, 0], [1, 10 + 5.01 * radius, 0]]).tolist() == [
        True,
        False,
    ]


def test_lime_in_bins() -> None:
    """Features are "in the bin of x"; one other bin has distance 1, two sqrt 2."""
    explainer = lime_explainer([0, 0], [1, 1], Bins(), categorical=[0, 1])
    x = [0.5, 2.0]
    cutoff = float(lime_kernel(1.2, 1.5))
    e = from_lime(lime_explanation(0.2, [(0, 0.4), (1, -0.3)]), explainer, x, cutoff=cutoff)
    Z = np.array([[0.9, 7.0], [0.1, 0.5], [-3.0, 1.5], [-3.0, 0.0]])
    assert e.model.predict(Z).tolist() == [-1, 1, -1, -1]  # 0.3, 0.6, -0.1, 0.2 against 0.5
    assert e.region.contains(Z).tolist() == [True, True, True, False]
    mixed = lime_explainer([0, 0], [1, 1], None, categorical=[1])
    e = from_lime(lime_explanation(0.0, [(1, 1.0)]), mixed, [0.0, 3.0], cutoff=cutoff)
    assert e.model.predict([[9.0, 3.0], [0.0, 4.0]]).tolist() == [1, -1]
    assert e.region.contains([[1.1, 3.0], [0.0, 4.0], [0.9, 4.0]]).tolist() == [True, True, False]


def shap_row(values: Any, x: Any, base: Any) -> Any:
    return SimpleNamespace(values=np.array(values, float), data=np.array(x, float), base_values=base)


def test_shap_of_a_linear_score_is_the_score() -> None:
    rng = np.random.default_rng(0)
    w, background = np.array([1.5, -2.0, 0.0]), rng.normal(size=(50, 3))
    b = background.mean(0)
    x = np.array([0.3, -1.0, 2.0])
    row = shap_row(w * (x - b), x, w @ b + 0.7)
    e = from_shap(row, background, BallRegion(x, 1.0), threshold=0.2)
    assert e.model.coef == pytest.approx(w)
    assert e.model.intercept == pytest.approx(0.7 - 0.2)
    assert from_shap(row, b, BallRegion(x, 1.0)).model.intercept == pytest.approx(0.7)
    two = shap_row(np.stack([-(w * (x - b)), w * (x - b)], 1), x, np.array([0.0, w @ b + 0.7]))
    assert from_shap(two, b, BallRegion(x, 1.0), output=1).model.coef == pytest.approx(w)


def test_shap_value_of_a_column_at_the_mean() -> None:
    region = BallRegion([0, 1], 1.0)
    assert from_shap(shap_row([0, 2], [0, 1], 0.0), [0, 0], region).model.coef.tolist() == [0, 2]
    with pytest.raises(ValueError, match="column 0: the row equals the background's mean"):
        from_shap(shap_row([1, 2], [0, 1], 0.0), [0, 0], region)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: from_lime(lime_explanation(0, [(0, 1)], "regression"), None, [0], cutoff=0.5),
            "'regression'",
        ),
        (
            lambda: from_lime(lime_explanation(0, [(0, 1)]), None, [0], cutoff=0.5, label=2),
            r"explained: \[1\]",
        ),
        (lambda: from_lime(lime_explanation(0, [(0, 1)]), None, [0], cutoff=0), "cutoff = 0"),
        (
            lambda: from_shap(shap_row([[1], [2]], [0, 1], 0.0), [0, 0], None),
            r"explanation.values has shape \(2, 1\)",
        ),
        (lambda: from_shap(shap_row([1, 2], [0, 1], 0.0), [0, 0], None, output=1), "output = 1"),
        (
            lambda: from_shap(shap_row([1, 2], [0, 1], 0.0), [0, 0, 0], None),
            "background has 3 columns, the row 2",
        ),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def classes(n: int = 400) -> tuple[np.ndarray, np.ndarray, LogisticRegression]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)) * [1, 5, 0.2, 1]
    y = (X @ [2, 0.1, 3, 0] + 0.3 > 0).astype(int)
    return X, y, LogisticRegression(C=10).fit(X, y)


@pytest.mark.parametrize("discretize", [False, True])
def test_lime_itself(discretize: bool) -> None:
    tabular = pytest.importorskip("lime.lime_tabular", reason="pip install '.[auditing]'")
    X, _, f = classes()
    explainer = tabular.LimeTabularExplainer(X, discretize_continuous=discretize, random_state=0)
    explanation = explainer.explain_instance(X[0], f.predict_proba, num_samples=1000)
    e = from_lime(explanation, explainer, X[0], cutoff=0.5, labels=(0, 1))
    score = e.model.linear.decision_function(e.model.features(X[:1])[:, e.model.columns])[0]
    assert score + 0.5 == pytest.approx(float(explanation.local_pred[0]))  # LIME's own prediction at x
    assert e.region.contains(X[:1]).all()

    def explain(x: np.ndarray) -> Any:
        explanation = explainer.explain_instance(x, f.predict_proba, num_samples=300)
        return from_lime(explanation, explainer, x, cutoff=0.5, labels=(0, 1))

    report = ExplanationAuditor(0.5, 0.2, 0.3, 0.1, n_audit=20, random_state=0).audit(
        X, f.predict(X), explain
    )
    assert np.median(report.n_in_region) > 20
    assert 0 <= report.mean_local_loss < 0.5


def test_shap_itself() -> None:
    shap = pytest.importorskip("shap", reason="pip install '.[auditing]'")
    X, _, f = classes()
    explanation = shap.LinearExplainer(f, X[:100])(X[:3])
    for i in range(3):
        e = from_shap(explanation[i], X[:100], BallRegion(X[i], 3.0), labels=(0, 1))
        assert e.model.coef == pytest.approx(f.coef_[0], rel=1e-6)
        assert local_loss(e, X, f.predict(X)).loss == 0  # a linear f is its own explanation
    exact = shap.Explainer(f.predict_proba, X[:50])(X[:1])
    e = from_shap(exact[0], X[:50], BallRegion(X[0], 1.0), output=1, threshold=0.5)
    assert e.model.decision_function(X[:1])[0] + 0.5 == pytest.approx(f.predict_proba(X[:1])[0, 1])
