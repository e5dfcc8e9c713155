"""Utilities count, remember, refuse nonsense, and give the same values in parallel and after an interruption."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import mean_squared_error

from classic_ml.valuation.groups import by_owner, owners
from classic_ml.valuation.models import ModelScore, model_utility
from classic_ml.valuation.shapley import exact_shapley
from classic_ml.valuation.utility import ClosedForm, Utility, as_game, as_utility


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
    with pytest.raises(KeyboardInterrupt):
        Utility(slow, memo_file=path).many(sets)
    resumed = Utility(lambda s: float(len(s)), memo_file=path)
    assert resumed.many(sets).tolist() == [1] * 5
    assert resumed.n_evaluations == 2
    with pytest.raises(ValueError, match="another utility"):
        Utility(total, memo_file=path, fingerprint="b")
    with pytest.raises(ValueError, match=r"memo_file = .* is a folder"):
        Utility(total, memo_file=tmp_path)
    path.write_bytes(b"not safetensors")
    with pytest.raises(ValueError, match="not a file of utilities"):
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
    with pytest.raises(ValueError, match="random_state is a generator"):
        model_utility(moving, X, y > 0, X, y > 0, empty_value=0.5)


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
    with pytest.raises(ValueError, match="another utility"):
        make(2.0)
