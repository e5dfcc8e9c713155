"""ChronoEpilogi: known structures are found, decisions match a plain implementation, bad input is named."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from classic_ml.selection import ChronoEpilogi, SolutionSet, class_f1_scores, lagged_matrix, make_noisy_var
from tests.classic_ml.selection.test_least_squares import plain_fit


def as_sets(classes: list[list]) -> set[frozenset]:
    return {frozenset(members) for members in classes}


def white(seed: int, n: int = 3000, d: int = 12) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng


def trap(seed: int) -> np.ndarray:
    """Series 3 mixes the two causes, so growing picks it first; only pruning can see that it is superfluous."""
    X, rng = white(seed)
    X[:, 3] = X[:, 1] + X[:, 2] + 0.5 * rng.standard_normal(3000)
    X[1:, 0] = X[:-1, 1] + X[:-1, 2] + rng.standard_normal(2999)
    return X


def copies(seed: int) -> np.ndarray:
    X, rng = white(seed)
    X[:, 3], X[:, 4], X[:, 5] = 0.4 * X[:, 1] + 0.3, -2 * X[:, 1], 3 * X[:, 2] - 1
    X[1:, 0] = X[:-1, 1] + 0.7 * X[:-1, 2] + rng.standard_normal(2999)
    return X


def plain_epilogi(X: np.ndarray, target: int, n_lags: int, variant: str) -> list[list[int]]:
    """The algorithm with a least-squares fit on the rows for every model, default thresholds, LR tests."""
    windows, y = lagged_matrix(X, n_lags), X[n_lags:, target]

    def p_value(large: list[int], small: list[int], of: np.ndarray = y) -> float:
        (rank_l, ssr_l, _), (rank_s, ssr_s, _) = (plain_fit(X, of, windows, s) for s in (large, small))
        return (
            float(stats.chi2.sf(len(y) * np.log(ssr_s / ssr_l), rank_l - rank_s)) if rank_l > rank_s else 1.0
        )

    selected, found = [target], {}
    candidates = [j for j in range(X.shape[1]) if j != target]
    while candidates:
        e = plain_fit(X, y, windows, selected)[2]
        strength = [
            max(abs(np.corrcoef(e, windows[:, j, l])[0, 1]) for l in range(n_lags)) for j in candidates
        ]
        j = candidates[int(np.argmax(strength))]
        if p_value([*selected, j], selected) >= 1e-3:
            break
        candidates.remove(j)
        if variant == "FE":
            found[j] = [k for k in candidates if min(p_value([j, k], [j], e), p_value([j, k], [k], e)) > 1e-4]
            candidates = [k for k in candidates if k not in found[j]]
        selected.append(j)
    while variant in ("FB", "FBE") and len(selected) > 1:
        p = [p_value(selected, [i for i in selected if i != j]) for j in selected[1:]]
        if max(p) < 1e-3:
            break
        selected.pop(1 + int(np.argmax(p)))
    rest = [k for k in range(X.shape[1]) if k not in selected]
    for j in selected[1:]:
        others = [i for i in selected if i != j]
        if variant == "FBE":
            found[j] = [
                k
                for k in rest
                if p_value([*others, k, j], [*others, k]) > 1e-4 and p_value([*others, k], others) < 1e-3
            ]
            rest = [k for k in rest if k not in found[j]]
        elif variant == "FE":
            found[j] = [k for k in found[j] if p_value([*others, k], others) < 1e-3]
    return [[target], *([j, *found.get(j, [])] for j in selected[1:])]


@pytest.mark.parametrize("variant", ["F", "FB", "FE", "FBE"])
@pytest.mark.parametrize("seed", [0, 1])
def test_decisions_are_those_of_least_squares_on_the_rows(variant: str, seed: int) -> None:
    X, classes = make_noisy_var(
        400, 16, n_parents=3, n_lags=2, n_replaceable=5, n_redundant=3, random_state=seed
    )
    target = classes[0][0]
    fitted = ChronoEpilogi(2, variant).fit(X, target=target)
    assert fitted.equivalence_classes_ == plain_epilogi(X, target, 2, variant)


def test_the_trap_needs_the_backward_phase() -> None:
    right = {frozenset({0}), frozenset({1}), frozenset({2})}
    for variant, expected in {
        "FBE": right,
        "F": right | {frozenset({3})},
        "FE": right | {frozenset({3})},
    }.items():
        found = [
            as_sets(ChronoEpilogi(1, variant).fit(trap(seed)).equivalence_classes_) for seed in range(20)
        ]
        assert found.count(expected) >= 19, variant
    fitted = ChronoEpilogi(1).fit(trap(0))
    assert [(row.series, row.action) for row in fitted.history_ if row.phase == "backward"] == [
        (3, "removed")
    ]


@pytest.mark.parametrize("variant", ["FBE", "FE"])
def test_rescaled_copies_are_one_class(variant: str) -> None:
    right = {frozenset({0}), frozenset({1, 3, 4}), frozenset({2, 5})}
    fits = [ChronoEpilogi(1, variant).fit(copies(seed)) for seed in range(20)]
    assert [as_sets(f.equivalence_classes_) for f in fits].count(right) >= 19
    assert fits[0].n_solutions_ == 6
    assert set(fits[0].replaceable_) == {1, 2, 3, 4, 5}
    assert fits[0].irreplaceable_ == [0]


@pytest.mark.parametrize(("variant", "least"), [("FBE", 0.95), ("FE", 0.85)])
@pytest.mark.parametrize("n_lags", [1, 5])
def test_classes_of_the_noisy_var(variant: str, least: float, n_lags: int) -> None:
    scores = []
    for seed in range(10):
        X, true = make_noisy_var(
            2500, 31, n_parents=4, n_lags=n_lags, n_replaceable=12, n_redundant=8, random_state=seed
        )
        found = ChronoEpilogi(n_lags, variant).fit(X, target=true[0][0]).equivalence_classes_
        scores.append(class_f1_scores(found, true))
    for kind in ("irreplaceable", "replaceable"):
        assert np.mean([s[kind] for s in scores]) >= least


def test_noise_is_selected_as_often_as_the_thresholds_say() -> None:
    hits = {1e-2: 0, 1e-3: 0}
    for seed in range(300):
        X, _ = white(seed, 1000, 20)
        p = next(row.p_value for row in ChronoEpilogi(2, "F").fit(X).history_ if row.phase == "forward")
        for threshold in hits:
            hits[threshold] += p < threshold
    for threshold, count in hits.items():
        assert count / 300 == pytest.approx(1 - (1 - threshold) ** 19, abs=0.06)


def test_the_present_is_no_predictor() -> None:
    """A series that moves with the target but does not lead it is not selected, one that leads it is."""
    X, rng = white(0, 1000, 3)
    X[1:, 0] = X[:-1, 1] + 0.5 * rng.standard_normal(999)
    X[:, 2] = X[:, 0] + 0.01 * rng.standard_normal(1000)
    assert ChronoEpilogi(1, "FB").fit(X).selected_features_ == [0, 1]


def test_rescaling_and_shifting_change_nothing() -> None:
    X, classes = make_noisy_var(600, 16, n_parents=3, n_lags=2, n_replaceable=5, random_state=3)
    first = ChronoEpilogi(2).fit(X, target=classes[0][0])
    moved = ChronoEpilogi(2).fit(X * np.geomspace(1e-3, 1e3, 16) + 1e3, target=classes[0][0])
    assert moved.equivalence_classes_ == first.equivalence_classes_
    for scale in (2.0**-700, 2.0**700):  # whose squares are no floating-point numbers
        scaled = ChronoEpilogi(2).fit(X * scale, target=classes[0][0])
        assert scaled.history_ == first.history_


def test_an_offset_that_leaves_digits_changes_nothing_and_one_that_does_not_is_constant() -> None:
    """1e11 in float64 goes by steps of 1.5e-5: a series of unit spread varies there, one of spread 1e-5 doesn't."""
    X, classes = make_noisy_var(600, 16, n_parents=3, n_lags=2, n_replaceable=5, random_state=3)
    target = classes[0][0]
    first = ChronoEpilogi(2).fit(X, target=target)
    for trend in ("c", "ct"):
        moved = ChronoEpilogi(2, trend=trend).fit(X + 1e11, target=target)
        assert moved.equivalence_classes_ == first.equivalence_classes_
    with pytest.raises(ValueError, match="is constant"):
        ChronoEpilogi(2).fit(1e-5 * X + 1e11, target=target)
    line = np.column_stack([X, 0.1 + 0.3 * np.arange(600)])
    with pytest.warns(UserWarning, match=r"never selected: \[16\]"):
        ChronoEpilogi(2, trend="ct").fit(line, target=target)


def test_one_enormous_value_outside_every_window_changes_nothing() -> None:
    X, _ = white(0, n=600, d=4)
    X[1:, 0] += 0.5 * X[:-1, 1]
    expected = ChronoEpilogi(1).fit(X).equivalence_classes_
    X[-1, 1] = 1e9  # no window holds the last step
    assert ChronoEpilogi(1).fit(X).equivalence_classes_ == expected == [[0], [1]]


def test_a_number_is_a_name_where_columns_are_called_by_numbers() -> None:
    import pandas as pd

    X, _ = white(0, n=600, d=3)
    X[1:, 0] += X[:-1, 1]  # column 0 is caused by column 1
    frame = pd.DataFrame(X, columns=[2, 1, 0])
    assert ChronoEpilogi(1).fit(frame).selected_features_ == [2, 1]
    assert ChronoEpilogi(1).fit(frame, target=2).selected_features_ == [2, 1]
    assert ChronoEpilogi(1).fit(frame, target=0).selected_features_ == [0]
    assert ChronoEpilogi(1).fit(X, target=0).selected_features_ == [0, 1]
    named = pd.DataFrame(X, columns=list("abc"))
    assert ChronoEpilogi(1).fit(named, target=0).selected_features_ == ["a", "b"]
    with pytest.raises(ValueError, match="target = 0 is no column of X"):
        ChronoEpilogi(1).fit(pd.DataFrame(X, columns=[10, 11, 12]), target=0)


def test_a_target_beside_x_is_forecast_like_a_column() -> None:
    X = copies(0)
    frame = pd.DataFrame(X, columns=[f"unit {i}" for i in range(12)])
    column = ChronoEpilogi(1).fit(frame, target="unit 3")
    rest, y = frame.drop(columns="unit 3"), frame["unit 3"]
    beside = ChronoEpilogi(1).fit(rest, y)
    assert beside.equivalence_classes_ == column.equivalence_classes_
    assert beside.selected_features_[0] == "unit 3"
    assert list(beside.get_feature_names_out()) == sorted(beside.selected_features_[1:])
    assert ChronoEpilogi(1).fit(rest, y.to_numpy()).selected_features_ == [
        "y",
        *beside.selected_features_[1:],
    ]
    assert (
        ChronoEpilogi(1).fit(X).equivalence_classes_ == ChronoEpilogi(1).fit(X, target=0).equivalence_classes_
    )


def test_two_targets_or_none_are_refused() -> None:
    X = copies(0)
    frame = pd.DataFrame(X, columns=[f"unit {i}" for i in range(12)])
    for y, target, message in (
        ("unit 3", None, "name a column of X with target='unit 3'"),
        (X[:, 0], 1, "are two targets"),
        (frame["unit 3"], None, "y is called 'unit 3', as a column of X is"),
        (X[:10, 0], None, "inconsistent numbers of samples"),
        (np.full(len(X), 2.0), None, "the target 'y' is constant"),
    ):
        with pytest.raises(ValueError, match=message):
            ChronoEpilogi(1).fit(frame, y, target=target)


def test_correlations_are_drawn_on_their_own_axis() -> None:
    left = ChronoEpilogi(1).fit(copies(0)).plot().axes[0]
    assert left.get_xlim() == (0, 1)


def test_p_values_below_the_smallest_float_still_rank_by_correlation() -> None:
    X, rng = white(0, 8000, 4)
    X[1:, 0] = X[:-1, 1] + 1.2 * X[:-1, 3] + 0.1 * rng.standard_normal(7999)
    fitted = ChronoEpilogi(1, "F").fit(X)
    assert [row.p_value for row in fitted.history_[:2]] == [0.0, 0.0]
    assert fitted.selected_features_ == [0, 3, 1]


def test_frames_keep_their_names_and_transform_is_the_reference_solution() -> None:
    X = pd.DataFrame(copies(0), columns=[f"unit {i}" for i in range(12)])
    fitted = ChronoEpilogi(1).fit(X, target="unit 0")
    assert fitted.selected_features_[0] == "unit 0"
    assert fitted.get_support(indices=True).tolist() == sorted(
        int(n.split()[1]) for n in fitted.selected_features_
    )
    assert set(fitted.get_feature_names_out()) == set(fitted.selected_features_)
    np.testing.assert_array_equal(fitted.transform(X), X.iloc[:, fitted.get_support(indices=True)])
    frame = fitted.to_frame()
    assert len(frame) == len(fitted.history_)
    assert set(frame[frame.phase == "equivalence"].other) <= set(fitted.selected_features_)
    assert len(fitted.plot().axes) == 2


def test_options_do_what_they_say() -> None:
    X = trap(0)
    assert len(ChronoEpilogi(1, "F", max_features=2).fit(X).selected_features_) == 2
    assert ChronoEpilogi(1, "F", min_obs_per_param=1000).fit(X).selected_features_ == [0, 3]
    first = ChronoEpilogi(1, backward_strategy="first", association="spearman", test="f", trend="ct").fit(X)
    assert as_sets(first.equivalence_classes_) == {frozenset({0}), frozenset({1}), frozenset({2})}


def test_a_weak_series_is_not_replaced_by_noise_unless_verification_is_off() -> None:
    X, rng = white(1, 400, 5)
    X[1:, 0] = 0.25 * X[:-1, 1] + rng.standard_normal(399)
    loose = {"n_lags": 1, "equivalence_threshold": 1e-9}
    assert ChronoEpilogi(**loose).fit(X).equivalence_classes_ == [[0], [1]]
    assert len(ChronoEpilogi(**loose, verify=False).fit(X).equivalence_classes_[1]) > 1


def test_groups_separate_sequences() -> None:
    """Within sequences of two steps only the second has a past; a jump between them must not count."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 3))
    X[1::2, 0] = X[::2, 1] + 0.1 * rng.standard_normal(400)
    groups = np.repeat(np.arange(400), 2)
    assert ChronoEpilogi(1).fit(X, groups=groups).selected_features_ == [0, 1]
    with pytest.raises(ValueError, match="leave 0 rows"):
        ChronoEpilogi(2).fit(X, groups=groups)


def test_constant_series_are_reported_and_left_out() -> None:
    X = copies(0)
    X[:, 7] = 4
    with pytest.warns(UserWarning, match=r"never selected: \[7\]"):
        fitted = ChronoEpilogi(1).fit(X)
    assert as_sets(fitted.equivalence_classes_) == {frozenset({0}), frozenset({1, 3, 4}), frozenset({2, 5})}


def test_too_few_rows_for_another_series_stop_the_growth() -> None:
    X, _ = white(0, 13, 4)
    X[1:, 0] = X[:-1, 1]
    with pytest.warns(UserWarning, match="too few for another 4"):
        assert ChronoEpilogi(4).fit(X).selected_features_ == [0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_lags": 0}, "n_lags = 0"),
        ({"variant": "BFE"}, "variant = 'BFE'"),
        ({"test": "wald"}, "test = 'wald'"),
        ({"association": "kendall"}, "association = 'kendall'"),
        ({"trend": "n"}, "trend = 'n'"),
        ({"backward_strategy": "last"}, "backward_strategy = 'last'"),
        ({"forward_threshold": 0}, "forward_threshold = 0"),
        ({"backward_threshold": 1}, "backward_threshold = 1"),
        ({"equivalence_threshold": -1}, "equivalence_threshold = -1"),
        ({"max_features": 0}, "max_features = 0"),
        ({"max_features": 2.5}, "max_features = 2.5"),
        ({"forward_threshold": "low"}, "forward_threshold = 'low'"),
        ({"min_obs_per_param": math.nan}, "min_obs_per_param = nan"),
        ({"n_lags": 98}, "100 steps leave 2 rows"),
    ],
)
def test_bad_settings_are_named(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ChronoEpilogi(**({"n_lags": 1} | parameters)).fit(np.random.default_rng(0).standard_normal((100, 3)))


def test_bad_data_is_refused() -> None:
    X, _ = white(0, 50, 3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="did you mean 'a'"):
        ChronoEpilogi(1).fit(frame, target="aa")
    for target in (3, -1, "a", True):
        with pytest.raises(ValueError, match="is no column of X"):
            ChronoEpilogi(1).fit(X, target=target)
    with pytest.raises(ValueError, match="target = -1 is no column of X; its columns are 0 to 2"):
        ChronoEpilogi(1).fit(X, target=-1)
    with pytest.raises(ValueError, match="duplicate column names: a"):
        ChronoEpilogi(1).fit(frame.set_axis(["a", "a", "c"], axis=1))
    with pytest.raises(ValueError, match="could not convert"):
        ChronoEpilogi(1).fit(frame.assign(c="text"))
    with pytest.raises(ValueError, match="NaN"):
        ChronoEpilogi(1).fit(np.where(X > 1, np.nan, X))
    with pytest.raises(ValueError, match="is constant"):
        ChronoEpilogi(1).fit(np.c_[np.full(50, 0.1), X])
    with pytest.raises(NotFittedError):
        ChronoEpilogi(1).solution_at(0)
    assert ChronoEpilogi(1).fit(X[:, :1]).equivalence_classes_ == [[0]]


@pytest.mark.parametrize("variant", ["FBE", "FE"])
def test_scikit_learn_accepts_it(variant: str) -> None:
    check_estimator(ChronoEpilogi(1, variant))


def test_solutions_are_the_product_in_order() -> None:
    classes = [["t"], ["a", "b", "c"], ["d", "e"]]
    solutions = SolutionSet(classes)
    every = [list(s) for s in itertools.product(*classes)]
    assert list(solutions.iterate()) == every == [solutions.at(i) for i in range(6)]
    assert list(solutions.iterate(2)) == every[:2]
    assert all(s in every for s in solutions.sample(20, random_state=0))
    assert solutions.sample(5, random_state=1) == solutions.sample(5, random_state=1)
    for index in (-1, 6):
        with pytest.raises(ValueError, match=f"index = {index}"):
            solutions.at(index)


def test_more_solutions_than_an_integer_of_64_bits_are_never_written_out() -> None:
    solutions = SolutionSet([list(range(50)) for _ in range(40)])
    assert solutions.n_solutions == 50**40
    assert solutions.at(50**40 - 1) == [49] * 40
    assert next(solutions.iterate()) == [0] * 40


def test_generator_builds_what_it_says() -> None:
    X, classes = make_noisy_var(
        2000, 31, n_parents=4, n_lags=3, n_replaceable=12, n_redundant=8, random_state=0
    )
    assert X.shape == (2000, 31)
    assert [len(c) for c in classes[:2]] == [1, 1]
    assert sum(len(c) for c in classes[2:]) == 12
    assert min(len(c) for c in classes[2:]) >= 2
    flat = [j for members in classes for j in members]
    assert len(set(flat)) == len(flat) == 14
    for members in classes[2:]:
        first = X[:, members[0]]
        for j in members[1:]:
            shifted = [np.corrcoef(first[: 2000 - s], X[s:, j])[0, 1] for s in range(3)]
            assert max(shifted) > 0.95
    again, _ = make_noisy_var(
        2000, 31, n_parents=4, n_lags=3, n_replaceable=12, n_redundant=8, random_state=0
    )
    np.testing.assert_array_equal(X, again)
    assert len(make_noisy_var(100, 10, n_parents=9, n_lags=1, random_state=0)[1]) == 10
    with pytest.raises(ValueError, match="n_series = 12 does not hold"):
        make_noisy_var(100, 12, n_parents=9, n_lags=1)
    with pytest.raises(ValueError, match="n_lags = 0"):
        make_noisy_var(100, 31, n_parents=4, n_lags=0)


def test_scores() -> None:
    true = [[0], [1], [2, 3]]
    assert class_f1_scores(true, true) == {"irreplaceable": 1.0, "replaceable": 1.0, "union": 1.0}
    scores = class_f1_scores([[0], [2, 4]], true)
    assert scores == {"irreplaceable": 2 / 3, "replaceable": 0.5, "union": 2 * 2 / 7}
