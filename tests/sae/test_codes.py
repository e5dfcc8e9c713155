"""SparseCodes: the list form of codes."""

from __future__ import annotations

import pytest
import torch

from interp.sae.codes import SparseCodes

DENSE = torch.tensor([[0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.5, 0.0]])


def test_entries_of_a_known_array():
    codes = SparseCodes.from_dense(DENSE)
    assert codes.indptr.tolist() == [0, 2, 2, 4]
    assert codes.indices.tolist() == [1, 3, 0, 2]
    assert codes.values.tolist() == [2.0, 1.0, 3.0, 0.5]
    assert codes.rows.tolist() == [0, 0, 2, 2]
    assert (codes.nnz, codes.shape) == (4, (3, 4))


def test_dense_and_back():
    assert torch.equal(SparseCodes.from_dense(DENSE).to_dense(), DENSE)


def test_l0_counts_values_that_are_not_zero():
    assert SparseCodes.from_dense(DENSE).l0() == pytest.approx(4 / 3)
    stored_zero = SparseCodes(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([0.0, 1.0]), (1, 4))
    assert stored_zero.l0() == 1


def test_select_silences_the_others():
    chosen = SparseCodes.from_dense(DENSE).select([1, 2])
    assert torch.equal(chosen.to_dense(), DENSE * torch.tensor([0, 1, 1, 0]))


def test_no_tokens():
    codes = SparseCodes.from_dense(torch.zeros(0, 4))
    assert (codes.nnz, codes.to_dense().shape) == (0, (0, 4))


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (lambda: SparseCodes(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([1.0]), (2, 4)), "indptr"),
        (lambda: SparseCodes(torch.tensor([0, 1]), torch.tensor([0]), torch.ones(2), (1, 4)), "values"),
        (lambda: SparseCodes.from_dense(torch.zeros(2, 3, 4)), r"\[n, F\]"),
        (lambda: SparseCodes.from_dense(DENSE).select([4]), r"0\.\.3"),
    ],
)
def test_errors_name_what_is_wrong(bad, named):
    with pytest.raises(ValueError, match=named):
        bad()
