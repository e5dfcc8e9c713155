"""Boolean functions, permutations a row, and acceptance C in small (the script has it in full)."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from classic_ml.invariance import (
    BooleanProblem,
    compare_augmentation,
    full_parity,
    majority_of_parities,
    train_boolean,
)
from classic_ml.invariance.boolean import permute_blocks_each_row, permute_each_row
from classic_ml.invariance.network import DrawStream
from interp.core.device import make_generator


def all_bits(d: int) -> torch.Tensor:
    return torch.tensor(list(product((-1.0, 1.0), repeat=d)))


def test_labels_over_the_whole_cube() -> None:
    X = all_bits(9)
    by_hand = [np.sign(sum(np.prod(x[3 * j : 3 * j + 3]) for j in range(3))) for x in X.numpy()]
    assert majority_of_parities(9).labels(X).tolist() == by_hand
    assert full_parity(9).labels(X).tolist() == X.prod(1).tolist()


def test_permutations_keep_labels_and_law() -> None:
    X = all_bits(9)
    for problem in (full_parity(9), majority_of_parities(9), BooleanProblem(9, 1)):
        moved = problem.permute(X, make_generator(0))
        assert (problem.labels(moved) == problem.labels(X)).all()
        assert (moved.sum(1) == X.sum(1)).all()
        assert not (moved == X).all()


def test_an_unrelated_permutation_breaks_the_majority() -> None:
    X = all_bits(9)
    problem = majority_of_parities(9)
    assert (problem.labels(permute_each_row(X, make_generator(0))) != problem.labels(X)).float().mean() > 0.2


def test_each_row_has_a_permutation_of_its_own() -> None:
    rows = torch.arange(6.0).expand(1500, 6)
    free = {tuple(row) for row in permute_each_row(rows, make_generator(0)).tolist()}
    assert len(free) > 500  # of 720
    blocks = {tuple(row) for row in permute_blocks_each_row(rows, 3, make_generator(1)).tolist()}
    assert len(blocks) == 72
    for row in blocks:
        assert {frozenset(row[:3]), frozenset(row[3:])} == {frozenset((0, 1, 2)), frozenset((3, 4, 5))}


def test_draws_are_a_function_of_seed_and_position() -> None:
    X, y = torch.arange(50.0)[:, None], torch.arange(50.0)
    one, two = DrawStream(X, y, 3), DrawStream(X, y, 3)
    first = [one.next_batch(8) for _ in range(3)]
    two.load_state_dict({"samples": 16, "seed": 3, "rows": 50})
    assert two.next_batch(8)[1].tolist() == first[2][1].tolist()
    assert first[0][0][:, 0].tolist() == first[0][1].tolist()
    halves = [DrawStream(X, y, 3).next_batch(8, rank, 2)[1] for rank in (0, 1)]
    assert torch.stack(halves, 1).flatten().tolist() == first[0][1].tolist()
    assert one.samples == 24
    many = DrawStream(X, y, 0).next_batch(500)[1]
    assert len(set(many[:50].tolist())) < 50  # with replacement
    assert DrawStream(X, y).epoch == 0
    with pytest.raises(ValueError, match="seed = 4 of this stream"):
        DrawStream(X, y, 4).load_state_dict(one.state_dict())


def test_no_ties_in_a_majority() -> None:
    for bits, block in ((18, 3), (10, 3)):
        with pytest.raises(ValueError, match="odd number of blocks"):
            BooleanProblem(bits, block)
    assert str(full_parity(4)) == "parity of 4 bits"
    assert str(majority_of_parities(15)) == "majority of 3-bit parities, 15 bits"


def test_acceptance_c_on_a_smaller_parity() -> None:
    """The bounds of 12 bits; 100 of 512 rows teach a plain network nothing, and all of it with permutations."""
    runs = compare_augmentation(full_parity(9), 100, steps=600, seeds=(0,), eval_every=400)
    permuted, plain = runs.runs
    assert permuted.test_accuracy >= 0.98
    assert plain.test_accuracy <= 0.80
    assert plain.train_accuracy == 1
    assert runs.accuracies(True) == [permuted.test_accuracy]
    assert runs.to_frame().augment.tolist() == [True, False]
    assert [step for step, _ in plain.curve] == [400, 600]
    assert "parity of 9 bits" in str(runs)
    assert len(runs.plot().axes[0].lines) == 2


def test_repeats_resumes_and_leaves_global_generators_alone(tmp_path: Path) -> None:
    problem = majority_of_parities(9)
    before = torch.get_rng_state()
    options = {"augment": True, "n_test": 300, "eval_every": 10}
    whole = train_boolean(problem, 60, steps=40, **options)
    assert torch.equal(torch.get_rng_state(), before)
    assert train_boolean(problem, 60, steps=40, **options) == whole
    train_boolean(problem, 60, steps=20, out_dir=str(tmp_path / "run"), **options)
    assert train_boolean(problem, 60, steps=40, out_dir=str(tmp_path / "run"), **options).curve == whole.curve
    assert train_boolean(problem, 60, steps=40, seed=1, **options).curve != whole.curve
