"""Transformations against their definitions, and how a family is given."""

from __future__ import annotations

import numpy as np
import pytest

from classic_ml.invariance import (
    BlockPermutation,
    Compose,
    LinearMap,
    PermuteColumns,
    ScaleColumns,
    Shift,
    Unchanged,
    err_matrix,
    error_table,
    invariance_score,
    select_by_invariance,
)
from classic_ml.invariance.inflated import InflatedRows
from classic_ml.invariance.transforms import resolve_transforms, transformed

X = np.arange(24.0).reshape(4, 6)


def test_definitions() -> None:
    assert PermuteColumns([1, 0, 2, 3, 5, 4])(X)[0].tolist() == [1, 0, 2, 3, 5, 4]
    assert BlockPermutation([1, 0], [[0, 1, 2], [2, 0, 1]])(X)[0].tolist() == [3, 4, 5, 2, 0, 1]
    assert ScaleColumns(-2, [1])(X)[0].tolist() == [0, -2, 2, 3, 4, 5]
    assert ScaleColumns([2, 3], [0, 5])(X)[1].tolist() == [12, 7, 8, 9, 10, 33]
    assert ScaleColumns(0.5)(X).tolist() == (X / 2).tolist()
    assert Shift(np.arange(6), 2)(X)[0].tolist() == [0, 3, 6, 9, 12, 15]
    swap = np.eye(6)[[1, 0, 2, 3, 4, 5]] * 2
    assert LinearMap(swap)(X)[0].tolist() == [2, 0, 4, 6, 8, 10]
    both = Compose([Shift(np.ones(6)), ScaleColumns(3)])
    assert both(X)[0].tolist() == [3, 6, 9, 12, 15, 18]  # the first of the list is applied first
    assert Unchanged()(X) is X
    assert X[0].tolist() == [0, 1, 2, 3, 4, 5]  # nothing was changed in place


def test_linear_map_multiplies_columns_of_the_matrix() -> None:
    A = np.random.default_rng(0).standard_normal((6, 6))
    assert LinearMap(A)(X) == pytest.approx(np.stack([A @ x for x in X]))


def test_draws_are_uniform_permutations_that_keep_blocks() -> None:
    rng = np.random.default_rng(0)
    rows = np.arange(6.0)[None]
    drawn = [BlockPermutation.draw(2, 3, rng)(rows)[0] for _ in range(1500)]
    for row in drawn:
        assert {frozenset(part) for part in row.reshape(2, 3)} == {frozenset((0, 1, 2)), frozenset((3, 4, 5))}
    assert len({tuple(row) for row in drawn}) == 2 * 6 * 6  # all that there are
    assert sorted(PermuteColumns.draw(6, rng)(rows)[0]) == [0, 1, 2, 3, 4, 5]


def test_integer_rows_can_be_scaled() -> None:
    assert ScaleColumns(0.5, [0])(np.array([[1, 2]])).tolist() == [[0.5, 2]]


def test_families() -> None:
    rng = np.random.default_rng(0)
    listed = resolve_transforms([Shift(np.ones(6)), X + 1], rng=rng)
    assert len(listed) == 2
    with_identity = resolve_transforms([Shift(np.ones(6))], include_identity=True, rng=rng)
    assert with_identity[-1] == Unchanged()
    assert resolve_transforms(None, include_identity=True, rng=rng) == [Unchanged()]
    drawn = resolve_transforms(
        lambda r: PermuteColumns.draw(6, r), n_transforms=4, rng=np.random.default_rng(1)
    )
    again = resolve_transforms(
        lambda r: PermuteColumns.draw(6, r), n_transforms=4, rng=np.random.default_rng(1)
    )
    assert [t.order.tolist() for t in drawn] == [t.order.tolist() for t in again]
    assert len({tuple(t.order) for t in drawn}) > 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"transforms": []}, ValueError, "transforms is empty"),
        ({"transforms": None}, ValueError, "transforms is empty"),
        ({"transforms": Unchanged()}, ValueError, "give a list of transformations"),
        ({"transforms": [Unchanged()], "n_transforms": 2}, ValueError, "n_transforms = 2 is for a sampler"),
        ({"transforms": lambda r: Unchanged(), "n_transforms": 0}, ValueError, "n_transforms = 0"),
        ({"transforms": ["flip"]}, TypeError, r"transforms\[0\] is a str"),
    ],
)
def test_families_that_are_refused(arguments, error, message: str) -> None:
    with pytest.raises(error, match=message):
        resolve_transforms(**arguments, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda X: X[:2], r"returns shape \(2, 6\) for X of shape \(4, 6\)"),
        (X[:3], r"holds rows of shape \(3, 6\)"),
        (lambda X: X / 0 * 0, "NaN or infinite"),
        (PermuteColumns([1, 0]), "order is for 2 columns, but X has 6"),
        (LinearMap(np.eye(2)), "matrix is for 2 columns, but X has 6"),
        (BlockPermutation([0], [[1, 0]]), "inner is for 2 columns, but X has 6"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_that_are_refused(transform, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transformed(transform, X)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PermuteColumns([0, 0]),
        lambda: BlockPermutation([0, 0], [[0], [0]]),
        lambda: BlockPermutation([0, 1], [[0, 1]]),
    ],
)
def test_broken_permutations(make) -> None:
    with pytest.raises(ValueError, match="once"):
        make()


def test_inflated_rows_alike_kept_and_computed() -> None:
    y = np.array([0, 1, 0, 1])
    family = [Unchanged(), X[::-1].copy(), ScaleColumns(-1)]
    kept, computed = InflatedRows(X, family), InflatedRows(X, family, max_entries=10)
    which, rows = np.array([2, 0, 1, 1]), np.array([3, 0, 1, 2])
    by_hand = np.stack([-X[3], X[0], X[2], X[1]])
    for data in (kept, computed):
        assert data.mixed(which, rows).tolist() == by_hand.tolist()
        assert data.errors(lambda rows: (rows[:, 0] > 5).astype(int), y).tolist() == [0.25, 0.75, 0.5]
        assert np.concatenate(list(data.chunks())).tolist() == kept.stacked().tolist()
    with pytest.raises(ValueError, match="72 entries, more than max_entries = 10"):
        computed.stacked()


def test_error_matrix_and_table() -> None:
    y = np.array([0, 0, 1, 1])

    def above(rows: np.ndarray) -> np.ndarray:
        return (rows[:, 0] > 8).astype(int)

    def never(rows: np.ndarray) -> np.ndarray:
        return np.zeros(len(rows), int)

    errors = err_matrix([above, never], [Unchanged(), ScaleColumns(-1), X[::-1].copy()], X, y)
    assert errors.tolist() == [[0, 0.5, 1], [0.5, 0.5, 0.5]]
    table = error_table(
        {"above": above, "never": never}, {"as is": Unchanged(), "flipped": ScaleColumns(-1)}, X, y
    )
    assert table.to_frame().loc["above"].tolist() == [0, 0.5, 0.25, 0.5]
    assert table.to_frame().columns.tolist() == ["as is", "flipped", "mean", "worst"]
    assert table.gap() == pytest.approx(np.sqrt(np.log(2 * 4 / 0.05) / 8))
    assert "on 4 rows" in str(table)
    assert len(table.plot().axes) == 2
    named = error_table(
        {"above": above}, [Unchanged(), ScaleColumns(2), lambda X: X, Shift(np.ones(6), 0.5)], X, y
    )
    assert named.transforms == ["identity", "ScaleColumns(2)", "T_2", "Shift(0.5)"]


def test_error_matrix_refuses() -> None:
    with pytest.raises(ValueError, match="a label a row"):
        err_matrix([np.sign], [Unchanged()], X, [0, 1])
    with pytest.raises(ValueError, match="predictors is empty"):
        err_matrix([], [Unchanged()], X, [0, 0, 1, 1])
    with pytest.raises(TypeError, match="has no predict"):
        err_matrix([3], [Unchanged()], X, [0, 0, 1, 1])
    with pytest.raises(ValueError, match="gave labels of shape"):
        err_matrix([lambda X: X], [Unchanged()], X, [0, 0, 1, 1])


def test_invariance_of_predictors() -> None:
    rows = np.array([[1.0, -1], [1, 1], [-1, -1], [-1, 1]])
    y = np.array([1, 1, -1, -1])
    models = [
        lambda X: np.sign(X[:, 0]),
        lambda X: np.sign(X[:, 0] + 0.5 * X[:, 1]),
        lambda X: np.ones(len(X)),
    ]
    flips = [ScaleColumns(-1, [1]), ScaleColumns(-1, [0]), ScaleColumns(-3, [1])]
    assert invariance_score(models[0], flips[0], rows) == 1
    assert invariance_score(models[0], flips[1], rows) == 0
    assert invariance_score(models[1], flips[2], rows) == 0.5
    chosen = select_by_invariance(models, flips, rows, y)
    assert chosen.index == 0  # the constant is invariant under all, but errs too much
    assert chosen.scores.tolist() == [2, 1, -1]
    assert select_by_invariance(models, flips, rows, y, tol=0.5).index == 2
    assert select_by_invariance(models, flips, rows, y, tau=0.6).index == 0
    with pytest.raises(ValueError, match="tau = 1"):
        select_by_invariance(models, flips, rows, y, tau=1)
    with pytest.raises(ValueError, match="predictors is empty"):
        select_by_invariance([], flips, rows, y)
