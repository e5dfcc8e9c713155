"""Utilities count, remember, refuse nonsense, and give the same values in parallel and after an interruption."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer, mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

from classic_ml.valuation.groups import by_owner, owners
from classic_ml.valuation.models import ModelScore, model_utility
from classic_ml.valuation.shapley import exact_shapley
from classic_ml.valuation.utility import ClosedForm, Utility, as_game, as_utility
from interp.core.identity import Identity


def total(indices: np.ndarray) -> float:
    return float(np.sum(indices))


def test_a_set_is_paid_for_once_in_any_order():
    u = Utility(total, n_points=5, empty_value=-1.0)
    assert u.many([[1, 2], [2, 1], [3], []]).tolist() == [3, 3, 3, -1]
    assert u([1, 2]) == 3
    assert (u.n_calls, u.n_evaluations) == (4, 2)
    assert u([]) == -1
    assert u.n_calls == 4


def test_without_an_empty_value_the_function_is_asked():
    u = Utility(lambda s: 7.0 if len(s) == 0 else 1.0)
    assert u([]) == 7
    assert (u.n_calls, u.n_evaluations) == (1, 1)


def test_masks_and_jobs_give_the_same_values():
    masks = np.random.default_rng(0).random((40, 6)) < 0.5
    alone, parallel = Utility(total, n_points=6), Utility(total, n_points=6, n_jobs=2)
    np.testing.assert_array_equal(alone.masks(masks), masks @ np.arange(6))
    with joblib.parallel_config("threading"):  # processes are tried with du_shapley_data
        np.testing.assert_array_equal(parallel.masks(masks), masks @ np.arange(6))
    assert alone.n_evaluations == parallel.n_evaluations == len(np.unique(masks, axis=0))


def test_the_memo_file_spares_an_interrupted_run_its_evaluations(tmp_path):
    path, done = tmp_path / "u.safetensors", []

    def slow(s: np.ndarray) -> float:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(tuple(s))
        return float(len(s))

    sets = [[0], [1], [2], [3], [4]]
    about = Identity.of("memo of utilities", worth="length")
    with pytest.raises(KeyboardInterrupt):
        Utility(slow, memo_file=path, identity=about).many(sets)
    resumed = Utility(lambda s: float(len(s)), memo_file=path, identity=about)
    assert resumed.many(sets).tolist() == [1] * 5
    assert resumed.n_evaluations == 2
    other = Identity.of("memo of utilities", worth="sum")
    with pytest.raises(ValueError, match="worth was 'length' there and is 'sum' here; name another file"):
        Utility(total, memo_file=path, identity=other)
    with pytest.raises(ValueError, match=r"memo_file = .* is a folder"):
        Utility(total, memo_file=tmp_path)


def test_a_plain_function_is_known_by_what_it_does(tmp_path):
    def weigh(weight: float, *, squared: bool = False):
        if squared:
            return Utility(lambda s: weight * len(s) ** 2, memo_file=tmp_path / "u")
        return Utility(lambda s: weight * len(s), memo_file=tmp_path / "u")

    assert weigh(2.0).many([[0, 1], [2]]).tolist() == [4, 2]
    again = weigh(2.0)
    assert again.many([[0, 1], [2]]).tolist() == [4, 2]
    assert again.n_evaluations == 0
    with pytest.raises(ValueError, match=r"function.*closure\.weight was 2\.0 there and is 3\.0 here"):
        weigh(3.0)
    with pytest.raises(ValueError, match=r"function.*code was"):
        weigh(2.0, squared=True)


def test_a_damaged_memo_is_refused(tmp_path):
    path = tmp_path / "u.safetensors"
    Utility(total, memo_file=path).many([[1], [2], [3]])
    whole = path.read_bytes()
    assert len(Utility(total, memo_file=path).memo) == 3
    rng = np.random.default_rng(0)
    for _ in range(60):
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(bytes(changed))
        with pytest.raises(ValueError, match=r"u\.safetensors"):
            Utility(total, memo_file=path)
    for cut in (0, 5, 200, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"u\.safetensors"):
            Utility(total, memo_file=path)


@pytest.mark.parametrize(
    ("indices", "error", "match"),
    [
        ([0, 0], ValueError, "index 0 is in the set twice"),
        ([5], ValueError, "index 5 is outside"),
        ([-1], ValueError, "index -1 is outside"),
        ([0.5], TypeError, "integer indices"),
    ],
)
def test_sets_that_are_none(indices, error, match):
    with pytest.raises(error, match=match):
        Utility(total, n_points=5)(indices)


def test_values_must_be_finite():
    with pytest.raises(ValueError, match=r"utility of 2 points \(1, 3\) is nan"):
        Utility(lambda s: np.nan)([3, 1])
    with pytest.raises(ValueError, match=r"utility of 1 points \(0\) is inf"):
        ClosedForm(lambda m: np.where(m[:, 0], np.inf, 0.0), 2).masks(np.eye(2, dtype=bool))
    with pytest.raises(ValueError, match="one value each"):
        ClosedForm(lambda m: np.zeros(1), 2).masks(np.eye(2, dtype=bool))
    with pytest.raises(ValueError, match="empty_value"):
        Utility(total, empty_value=np.nan)
    with pytest.raises(TypeError, match="function"):
        Utility(3)  # type: ignore[arg-type]


def test_settings_may_not_contradict():
    u = Utility(total, n_points=3, empty_value=0.0)
    assert as_utility(u, empty_value=0.0) is u
    with pytest.raises(ValueError, match="empty_value = 1"):
        as_utility(u, empty_value=1.0)
    with pytest.raises(ValueError, match="n_players = 4"):
        as_game(u, 4)
    with pytest.raises(ValueError, match="how many players"):
        as_game(total, None)
    with pytest.raises(ValueError, match="at least 1"):
        as_game(total, 0)


def test_owners_share_the_memory_of_their_rows():
    rows = Utility(total, n_points=4, empty_value=0.0)
    game = by_owner(rows, ["b", "a", "b", "a"])
    assert game.masks(np.array([[0, 0], [1, 0], [0, 1], [1, 1]], bool)).tolist() == [0, 4, 2, 6]
    assert rows([0, 2]) == 2
    assert (rows.n_calls, rows.n_evaluations) == (4, 3)
    assert (game.n_calls, game.n_evaluations) == (3, 3)
    assert exact_shapley(game).names == ("a", "b")


def test_who_owns_what():
    names, parts = owners(["b", "a", "b"])
    assert names == ("a", "b")
    assert [p.tolist() for p in parts] == [[1], [0, 2]]
    names, parts = owners([[2, 0], [1]])
    assert names == (0, 1)
    assert [p.tolist() for p in parts] == [[0, 2], [1]]
    assert owners(pd.Series([1, 1, 0]))[0] == (0, 1)
    assert [len(p) for p in owners([[0], [], [1]], allow_empty=True)[1]] == [1, 0, 1]


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        ([[0, 1], [1]], "exactly one owner"),
        ([[0], [2]], "exactly one owner"),
        ([[0], []], "owner 1 has no rows"),
        ([[], []], "nobody owns"),
        ([], "an owner for every row"),
        ([0, 1, np.nan], "row 2 has no owner"),
        (["a", None], "row 1 has no owner"),
        (["a", pd.NA], "row 1 has no owner"),
        (pd.Series([1, 2, pd.NA], dtype="Int64"), "row 2 has no owner"),
        (pd.Series(["a", None], dtype="category"), "row 1 has no owner"),
        (pd.to_datetime(["2026-01-01", None]), "row 1 has no owner"),
    ],
)
def test_owners_that_do_not_cover(groups, match):
    with pytest.raises(ValueError, match=match):
        owners(groups)


def test_owners_are_told_apart_by_names_of_one_kind_and_whole_indices():
    with pytest.raises(ValueError, match="names of owners must be of one kind"):
        owners(np.array(["a", 1, "b"], dtype=object))
    for indices in ([[0.2, 1.7], [2.0]], [[True, False], [1]]):
        with pytest.raises(TypeError, match="row indices must be whole numbers"):
            owners(indices)


def test_rows_are_counted_against_the_data():
    with pytest.raises(ValueError, match=r"rows 0..3"):
        owners([0, 0, 1], n_points=4)


def test_a_model_scores_what_it_was_given():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X = (X - X.mean()) / X.std()
    model = LogisticRegression(max_iter=50)
    u = model_utility(model, X[:300], y[:300], X[300:], y[300:], empty_value=0.5)
    chosen = np.arange(0, 300, 7)
    expected = LogisticRegression(max_iter=50).fit(X.iloc[chosen], y.iloc[chosen]).score(X[300:], y[300:])
    assert u(chosen[::-1]) == expected
    one_class = np.flatnonzero(y[:300] == 0)[:5]
    assert u(one_class) == np.mean(y[300:] == 0)
    assert u([]) == 0.5


def test_metrics_by_name_and_by_function():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.standard_normal(30)
    named = ModelScore(Ridge(), X[:20], y[:20], X[20:], y[20:], "neg_mean_squared_error")
    function = ModelScore(Ridge(), X[:20], y[:20], X[20:], y[20:], lambda t, p: -mean_squared_error(t, p))
    assert named(np.arange(9)) == pytest.approx(function(np.arange(9)), rel=1e-12)
    with pytest.raises(ValueError, match="give empty_value"):
        named(np.arange(0))
    with pytest.raises(ValueError, match="nonsense"):
        model_utility(Ridge(), X, y, X, y, "nonsense", empty_value=0.0)
    with pytest.raises(ValueError, match="inconsistent"):
        model_utility(Ridge(), X, y[:-1], X, y, empty_value=0.0)
    moving = LogisticRegression(random_state=np.random.RandomState(0))
    for model in (moving, make_pipeline(StandardScaler(), moving)):
        with pytest.raises(ValueError, match="random_state is a generator"):
            model_utility(model, X, y > 0, X, y > 0, empty_value=0.5)


@pytest.fixture(scope="module")
def three_classes():
    """Train and test rows of three classes, named by strings; 7, 6 and 7 of the test rows are of each."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    y = np.array(["a", "b", "c"])[np.argsort(np.argsort(x[:, 0])) // 20]
    test = np.concatenate([np.flatnonzero(y == c)[:n] for c, n in (("a", 7), ("b", 6), ("c", 7))])
    train = np.setdiff1d(np.arange(60), test)
    return x[train], y[train], x[test], y[test]


EPS = np.finfo(np.float64).eps  # where scikit-learn clips probabilities


def test_log_loss_of_samples_that_lack_classes(three_classes):
    X, y, X_test, y_test = three_classes
    score = ModelScore(LogisticRegression(), X, y, X_test, y_test, "neg_log_loss")
    # 13 of 20 rows are not of class a; each costs -log(eps), the others nothing.
    assert score(np.flatnonzero(y == "a")[:4]) == pytest.approx(13 / 20 * np.log(EPS), rel=1e-12)
    rows = np.flatnonzero(y != "b")[:12]
    model = LogisticRegression().fit(X[rows], y[rows])
    p = dict(zip(model.classes_, model.predict_proba(X_test).T, strict=True))
    costs = [np.log(EPS) if c == "b" else np.log(p[c][i]) for i, c in enumerate(y_test)]
    assert score(rows) == pytest.approx(np.mean(costs), rel=1e-12)
    everything = np.arange(len(y))
    model = LogisticRegression().fit(X, y)
    assert score(everything) == get_scorer("neg_log_loss")(model, X_test, y_test)


def test_a_test_class_that_no_training_row_has_is_never_predicted(three_classes):
    X, y, X_test, y_test = three_classes
    known = y != "c"
    score = ModelScore(LogisticRegression(), X[known], y[known], X_test, y_test, "neg_log_loss")
    assert score(np.flatnonzero(y[known] == "a")) == pytest.approx(13 / 20 * np.log(EPS), rel=1e-12)


def auc(positive, scores):
    """Share of pairs in the right order, ties by half."""
    gaps = scores[positive][:, None] - scores[~positive][None]
    return np.mean((gaps > 0) + 0.5 * (gaps == 0))


@pytest.mark.parametrize("model", [LogisticRegression(), SVC(), make_pipeline(StandardScaler(), SVC())])
def test_roc_auc_of_samples_of_one_class_is_that_of_a_constant(three_classes, model):
    X, y, X_test, y_test = three_classes
    score = ModelScore(model, X, y == "a", X_test, y_test == "a", "roc_auc")
    for value in ("a", "b"):
        assert score(np.flatnonzero(y == value)[:5]) == 0.5
    rows = np.arange(12)
    scores = clone(model).fit(X[rows], y[rows] == "a").decision_function(X_test)
    assert score(rows) == pytest.approx(auc(y_test == "a", scores), rel=1e-12)


def test_roc_auc_over_three_classes(three_classes):
    X, y, X_test, y_test = three_classes
    score = ModelScore(LogisticRegression(), X, y, X_test, y_test, "roc_auc_ovr")
    assert score(np.flatnonzero(y == "b")) == 0.5
    rows = np.flatnonzero(y != "b")[:12]
    p = LogisticRegression().fit(X[rows], y[rows]).predict_proba(X_test)
    by_class = [auc(y_test == "a", p[:, 0]), 0.5, auc(y_test == "c", p[:, 1])]
    assert score(rows) == pytest.approx(np.mean(by_class), rel=1e-12)


@pytest.mark.parametrize(
    "metric",
    ["accuracy", "f1_macro", "neg_brier_score", "average_precision", "balanced_accuracy"],
)
def test_every_sample_has_a_score(three_classes, metric):
    X, y, X_test, y_test = three_classes
    y, y_test = (y == "a").astype(int), (y_test == "a").astype(int)
    u = model_utility(LogisticRegression(), X, y, X_test, y_test, metric, empty_value=0.0)
    assert np.isfinite(u.many([[i] for i in range(len(y))])).all()


def test_a_memo_of_another_model_is_refused(tmp_path):
    X = np.random.default_rng(0).standard_normal((20, 3))
    y = X[:, 0]

    def make(alpha: float):
        path = tmp_path / "m.safetensors"
        return model_utility(
            Ridge(alpha=alpha), X, y, X, y, groups=[0, 1] * 10, empty_value=0.0, memo_file=path
        )

    make(1.0).masks(np.eye(2, dtype=bool))
    again = make(1.0)
    again.masks(np.eye(2, dtype=bool))
    assert again.n_evaluations == 0
    with pytest.raises(ValueError, match=r"estimator\.params\.alpha was 1\.0 there and is 2\.0 here"):
        make(2.0)


def test_a_memo_sees_all_of_an_estimator_and_of_the_data(tmp_path):
    """What scikit-learn leaves out of an estimator's text: the end of a mapping of 40 entries, of a long pipeline."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, 3)), np.tile(np.arange(40), 2)

    def weighted(last: float):
        return LogisticRegression(class_weight={**dict.fromkeys(range(39), 1.0), 39: last})

    def piped(last: float):
        return make_pipeline(*(MinMaxScaler((0, k)) for k in range(1, 40)), Ridge(alpha=last))

    for name, build in (("weights", weighted), ("steps", piped)):
        path = tmp_path / name

        def make(last, table, build=build, path=path):
            return model_utility(build(last), table, y, X, y, empty_value=0.0, memo_file=path)

        first = make(1.0, X)([0, 1, 39])
        again = make(1.0, X.copy())
        assert (again([0, 1, 39]), again.n_evaluations) == (first, 0)
        with pytest.raises(ValueError, match=r"estimator.* was 1\.0 there and is 99\.0 here"):
            make(99.0, X)
        changed = X.copy()
        changed[50, 1] += 1e-9
        for other in (changed, pd.DataFrame(X), csr_array(X), X.astype(np.float32)):
            with pytest.raises(ValueError, match="another memo of utilities: X"):
                make(1.0, other)


def test_a_memo_of_a_callable_metric_is_resumed_and_known_by_its_code(tmp_path):
    X = np.random.default_rng(0).standard_normal((20, 3))
    y = X[:, 0]

    def make(factor: float, power: int):
        if power == 2:
            metric = lambda true, predicted: -factor * np.mean((true - predicted) ** 2)  # noqa: E731
        else:
            metric = lambda true, predicted: -factor * np.mean((true - predicted) ** 4)  # noqa: E731
        return model_utility(Ridge(), X, y, X, y, metric, empty_value=0.0, memo_file=tmp_path / "m")

    first = make(1.0, 2)([0, 1, 2])
    again = make(1.0, 2)
    assert (again([0, 1, 2]), again.n_evaluations) == (first, 0)
    for factor, power in ((2.0, 2), (1.0, 4)):
        with pytest.raises(ValueError, match="another memo of utilities: metric"):
            make(factor, power)


def test_another_process_resumes_a_memo(tmp_path):
    code = (
        "import sys, numpy as np\n"
        "from scipy.sparse import csr_array\n"
        "from sklearn.linear_model import Ridge\n"
        "from sklearn.metrics import mean_squared_error\n"
        "from classic_ml.valuation import model_utility\n"
        "X = np.random.default_rng(0).standard_normal((20, 3))\n"
        "data = csr_array(X), X[:, 0], X, X[:, 0]\n"
        "for k, metric in enumerate((mean_squared_error, lambda t, p: -abs(t - p).mean())):\n"
        "    u = model_utility(Ridge(), *data, metric, empty_value=0.0, memo_file=sys.argv[1] + str(k))\n"
        "    print(u([1, 2, 3]), u.n_evaluations)"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code, tmp_path / "m"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert told[0][::2] == told[1][::2]
    assert (told[0][1::2], told[1][1::2]) == (["1", "1"], ["0", "0"])
