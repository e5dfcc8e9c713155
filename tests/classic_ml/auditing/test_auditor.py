"""The auditor's interface: roles, pooled batches, labels of any kind, reports, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier

from classic_ml.auditing import (
    BallRegion,
    BoxRegion,
    ConstantModel,
    ExplanationAuditor,
    LocalExplanation,
    audit_plan,
    constant_box_explainer,
    gradient_explainer,
    local_loss,
    local_ridge_explainer,
)
from classic_ml.auditing.explainers import constant_baseline
from tests.classic_ml.auditing.worlds import RATES, SHARES, Cells, step

box = constant_box_explainer(lambda Z: np.where(np.asarray(Z)[:, 0] < 0.5, "in", "out"), 0.5)


def rings(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, np.where((X**2).sum(1) > 1.5, "out", "in")


def test_counts_are_those_of_local_loss_and_nobody_judges_himself() -> None:
    X, f = rings(400)
    explanations = [LocalExplanation(BallRegion(x, 0.4), ConstantModel(y)) for x, y in zip(X, f, strict=True)]
    report = ExplanationAuditor(**RATES, random_state=0).audit(X, f, explanations)
    assert report.n_audit == 100
    reference = np.setdiff1d(np.arange(400), report.audited_rows)
    for i, row in enumerate(report.audited_rows):
        loss, n = local_loss(explanations[row], X[reference], f[reference])
        assert report.n_in_region[i] == n
        assert report.local_losses[i] == loss or (n == 0 and np.isnan(report.local_losses[i]))
        low, high = report.low[i], report.high[i]
        assert n == 0 or low <= loss <= high
    assert report.self_agreement == 1
    for example in report.counterexamples:
        assert example.reference in reference
        assert explanations[example.audited].region.contains(example.point[None]).all()
        assert np.array_equal(example.point, X[example.reference])
        assert example.classifier == f[example.reference] != example.model
    assert [e.low for e in report.counterexamples] == sorted(report.low, reverse=True)[:3]


def test_a_pool_in_batches_keeps_roles_and_counts() -> None:
    X, f = rings(900, 1)
    explain = constant_box_explainer(lambda Z: np.where((Z**2).sum(1) > 1.5, "out", "in"), 0.5)
    explanations = [explain(x) for x in X]
    pooled = ExplanationAuditor(**RATES, random_state=0)
    roles: list[set[int]] = []
    for part in (slice(0, 100), slice(100, 103), slice(103, 900)):
        pooled.partial_fit(X[part], f[part], explanations[part])
        roles.append(set(pooled.report_.audited_rows.tolist()))
    assert roles[0] <= roles[1] <= roles[2]
    assert {row for row in roles[2] if row < 100} == roles[0]
    assert [len(r) for r in roles] == [25, 25, 225]
    report = pooled.report_
    reference = np.setdiff1d(np.arange(900), report.audited_rows)
    brute = [local_loss(explanations[row], X[reference], f[reference]) for row in report.audited_rows]
    assert report.n_in_region.tolist() == [n for _, n in brute]
    assert np.array_equal(report.local_losses, [loss for loss, _ in brute], equal_nan=True)
    by_function = ExplanationAuditor(**RATES, random_state=0)
    for part in (slice(0, 100), slice(100, 103), slice(103, 900)):
        by_function.partial_fit(X[part], f[part], explain)
    assert str(by_function.report_) == str(report)
    assert str(pooled.audit(X, f, explanations)) == str(
        clone(pooled).audit(X, f, explanations)
    )  # audit starts anew


def test_a_batch_that_is_refused_leaves_the_pool_as_it_was() -> None:
    X, f = rings(200)
    auditor = ExplanationAuditor(**RATES, random_state=0).partial_fit(X, f, box)
    before = str(auditor.report_)

    class Broken:
        def predict(self, Z: np.ndarray) -> np.ndarray:
            return np.zeros((len(Z), 2))

    broken = [LocalExplanation(BallRegion(x, 9), Broken()) for x in X]
    with pytest.raises(ValueError, match="predict gave shape"):
        auditor.partial_fit(X, f, broken)
    assert str(auditor.report_) == before
    assert auditor.partial_fit(X, f, box).report_.n_reference == 300


def test_a_function_is_asked_for_the_audited_inputs_only() -> None:
    X, f = rings(100)
    asked = []

    def explain(x: np.ndarray) -> LocalExplanation:
        asked.append(x)
        return LocalExplanation(BallRegion(x, 1), ConstantModel("in"))

    report = ExplanationAuditor(**RATES, n_audit=7, random_state=0).audit(X, f, explain)
    assert np.array_equal(np.array(asked), X[report.audited_rows])
    assert len(asked) == 7


def test_many_classes_and_scikit_learn_models() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(2000, 2))
    f = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [0.3, 0.7])]
    tree = DecisionTreeClassifier(max_depth=2).fit(X, f)
    shared = LocalExplanation(BoxRegion([0, 0], [1, 1]), tree)
    report = ExplanationAuditor(**RATES, random_state=0).audit(X, f, [shared] * 2000)
    assert (report.decided_by, report.estimate, report.mean_local_loss) == (
        "certificate",
        report.interval.high / 2,
        0,
    )
    wrong = constant_baseline(shared, "a")
    report = ExplanationAuditor(**RATES, random_state=0).audit(X, f, [wrong] * 2000)
    assert report.mean_local_loss == pytest.approx(0.7, abs=0.05)
    assert report.counterexamples[0].model == "a"
    assert report.at(0.6).high == 1
    assert report.at(0.8).low == 0


def test_labels_that_the_classifier_never_gave_are_told() -> None:
    X, f = rings(100)
    with pytest.warns(UserWarning, match=r"\['1'\] against \['in', 'out'\]"):
        ExplanationAuditor(**RATES).audit(X, f, constant_box_explainer(lambda Z: np.ones(len(Z), int), 1.0))


def test_paper_constants_and_the_lower_bound_reach_the_report() -> None:
    rates = {"eps1": 0.02, "eps2": 0.02, "gamma": 0.3, "delta": 0.1}
    X, f, explanations = Cells(SHARES).queries(2000, 0)
    tight = ExplanationAuditor(**rates, random_state=0).audit(X, f, explanations)
    paper = ExplanationAuditor(**rates, constants="paper", random_state=0).audit(X, f, explanations)
    assert (
        tight.n_lower_bound
        == paper.n_lower_bound
        == audit_plan(tight.locality_estimate, **rates).n_lower_bound
    )
    assert tight.n_lower_bound > 0
    assert paper.n_required > tight.n_required > 2000
    assert f"{tight.n_lower_bound:,.0f}" in str(tight)


def test_random_states_of_every_kind() -> None:
    X, f = rings(120)
    explain = box

    def rows(state: object) -> list[int]:
        return ExplanationAuditor(**RATES, random_state=state).audit(X, f, explain).audited_rows.tolist()  # type: ignore[arg-type]

    assert rows(3) == rows(3) == rows(np.random.default_rng(3)) != rows(4)
    assert rows(np.random.RandomState(3)) == rows(np.random.RandomState(3))
    assert clone(ExplanationAuditor(gamma=0.2, random_state=5)).get_params()["gamma"] == 0.2


def test_report_as_table_and_figure() -> None:
    report = ExplanationAuditor(**RATES, random_state=0).audit(*Cells(SHARES).queries(3000, 0))
    frame = report.to_frame()
    assert frame.index.tolist() == report.audited_rows.tolist()
    assert frame.loc[frame.surely == "wrong", "low"].min() >= 0.3
    assert frame.loc[frame.surely == "fine", "high"].max() < 0.3
    assert ((frame.surely == "open") == ((frame.low < 0.3) & (frame.high >= 0.3))).all()
    assert (frame.local_loss * frame.n_in_region).round(9).mod(1).isin([0, 1]).all()
    figure = report.plot()
    assert len(figure.axes) == 2
    assert figure.axes[1].lines[0].get_xdata()[0] == report.k_min == 164
    text = str(report)
    for part in ("738 explanations audited on 2,262", "undetermined", "median share of", "queries", "row "):
        assert part in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"f_X": np.ones(5)}, r"f_X has shape \(5,\) for 50 inputs"),
        ({"f_X": np.full(50, np.nan)}, "f_X holds 50 NaN"),
        ({"explanations": []}, "0 explanations for 50 inputs"),
        ({"n_audit": 50}, "n_audit = 50 of 50"),
        ({"n_audit": 0}, "n_audit = 0 must be at least 1"),
        ({"gamma": 1.0}, "gamma = 1.0"),
        ({"constants": "loose"}, "constants = 'loose'"),
        ({"X": np.full((50, 2), np.nan)}, "X contains NaN"),
    ],
)
def test_refusals(change: dict, message: str) -> None:
    X, f = rings(50)
    explain = box
    data = {"X": X, "f_X": f, "explanations": explain} | {
        k: v for k, v in change.items() if k in ("X", "f_X", "explanations")
    }
    options = {k: v for k, v in change.items() if k not in data}
    with pytest.raises(ValueError, match=message):
        ExplanationAuditor(**{**RATES, **options}).audit(**data)


def test_further_refusals() -> None:
    X, f = rings(50)
    explain = box
    with pytest.raises(ValueError, match="1 query: an audit needs"):
        ExplanationAuditor(**RATES).audit(X[:1], f[:1], explain)
    with pytest.raises(ValueError, match="3 columns, the pool so far 2"):
        ExplanationAuditor(**RATES).partial_fit(X, f, explain).partial_fit(np.zeros((50, 3)), f, explain)
    with pytest.raises(TypeError, match="explanation 0 is a tuple"):
        ExplanationAuditor(**RATES).audit(X, f, [(1, 2)] * 50)  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"n_audit = 3\.5"):
        ExplanationAuditor(**RATES, n_audit=3.5).audit(X, f, explain)  # type: ignore[arg-type]


def test_inputs_outside_their_own_region_are_named() -> None:
    X, f = rings(60)
    explanations = [LocalExplanation(BallRegion(x, 0.5), ConstantModel(y)) for x, y in zip(X, f, strict=True)]
    for i in (7, 23):
        explanations[i] = LocalExplanation(BallRegion(X[i] + 2, 0.5), ConstantModel("in"))
    with pytest.raises(ValueError, match=r"2 of 60 inputs .*\(rows 7, 23\)"):
        ExplanationAuditor(**RATES).audit(X, f, explanations)
    with pytest.warns(UserWarning, match=r"rows 7, 23"):
        ExplanationAuditor(**RATES, strict=False).audit(X, f, explanations)
    with pytest.raises(ValueError, match=r"rows 60, 61"):
        ExplanationAuditor(**RATES).partial_fit(X, f, box).partial_fit(X[:2], f[:2], [explanations[7]] * 2)


def test_gradient_explanations_of_a_linear_classifier_are_right_everywhere() -> None:
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(3000, 5)), np.array([3.0, 0.01, -2.0, 0.02, 1.0])
    f = np.where(X @ w + 0.2 >= 0, 1, -1)
    explain = gradient_explainer(lambda Z: Z @ w + 0.2, lambda x: w, 2.0)
    model = explain(X[0]).model
    assert np.array_equal(model.predict(X), f)
    report = ExplanationAuditor(**RATES, random_state=0).audit(X, f, explain)
    assert report.mean_local_loss == 0
    sparse = gradient_explainer(lambda Z: Z @ w + 0.2, lambda x: w, lambda x: np.abs(x).sum(), n_features=2)
    e = sparse(np.array([1.0, 100.0, 1.0, 1.0, 2.5]))  # |gradient * x| = 3, 1, 2, 0.02, 2.5
    assert e.model.coef.tolist() == [3, 0, 0, 0, 1.0]
    assert e.model.decision_function([[1.0, 100.0, 1.0, 1.0, 2.5]]) == pytest.approx(
        3 + 1 - 2 + 0.02 + 2.5 + 0.2
    )
    assert e.region.radius == 105.5


def test_local_ridge_finds_a_linear_boundary_and_takes_classifiers() -> None:
    rng = np.random.default_rng(0)

    def sampler(x: np.ndarray, n: int) -> np.ndarray:
        return x + rng.normal(size=(n, 2))

    explain = local_ridge_explainer(
        lambda Z: np.where(Z @ [2.0, -1.0] > 0, 1, -1), sampler, 1.0, n_samples=4000
    )
    coef = explain(np.zeros(2)).model.coef
    assert coef[1] / coef[0] == pytest.approx(-0.5, abs=0.1)
    X, f = rings(500)
    tree = DecisionTreeClassifier().fit(X, f)
    e = local_ridge_explainer(tree, sampler, 0.3, labels=("in", "out"))(np.array([3.0, 0.0]))
    assert e.model.predict([[3.0, 0.0]]).tolist() == tree.predict([[3.0, 0.0]]).tolist() == ["out"]
    assert constant_box_explainer(tree, 0.3)([3.0, 0.0]).model.label == "out"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gradient_explainer(len, len, 1.0, n_features=0), "n_features = 0"),
        (
            lambda: local_ridge_explainer(step, lambda x, n: np.zeros((3, 1)), 1.0)([0.5]),
            r"sampler gave shape \(3, 1\)",
        ),
        (lambda: local_ridge_explainer(step, len, 1.0, n_samples=1), "n_samples = 1"),
        (lambda: constant_box_explainer(step, 0), "half_width = 0"),
    ],
)
def test_explainers_refuse(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
