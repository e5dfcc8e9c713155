"""The order of the data is a function of (seed, epoch), and the position an integer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.core.stream import ArrayStream, DataStream


def rows(n):
    return torch.arange(n)


def read(stream, batches, size=4):
    return [stream.next_batch(size).tolist() for _ in range(batches)]


def flat(batches):
    return [row for batch in batches for row in batch]


def test_an_epoch_serves_every_row_once_and_the_next_in_another_order():
    stream = ArrayStream(rows(10), seed=1)
    epochs = [flat(read(stream, 3)) for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 2
    assert epochs[0] != epochs[1]
    assert (stream.epoch, stream.samples) == (2, 20)
    assert isinstance(stream, DataStream)


def test_a_batch_never_mixes_epochs():
    stream = ArrayStream(rows(10))
    assert [len(batch) for batch in read(stream, 6)] == [4, 4, 2, 4, 4, 2]
    assert len(ArrayStream(rows(3)).next_batch(100)) == 3


def test_seeds_and_shuffling():
    one, same, other = (ArrayStream(rows(50), seed=seed) for seed in (1, 1, 2))
    first = read(one, 30)
    assert first == read(same, 30)
    assert first != read(other, 30)
    assert flat(read(ArrayStream(rows(10), shuffle=False), 3)) == list(range(10))


@settings(deadline=None)
@given(n=st.integers(1, 30), size=st.integers(1, 12), before=st.integers(0, 20), seed=st.integers(0, 5))
def test_resume_goes_on_as_if_nothing_had_happened(n, size, before, seed):
    stream = ArrayStream(rows(n), seed=seed)
    read(stream, before, size)
    other = ArrayStream(rows(n), seed=seed)
    other.load_state_dict(stream.state_dict())
    assert read(stream, 8, size) == read(other, 8, size)
    assert (stream.epoch, stream.samples) == (other.epoch, other.samples)


@settings(deadline=None)
@given(n=st.integers(1, 30), size=st.integers(1, 12), world=st.integers(1, 4))
def test_ranks_share_the_global_batch(n, size, world):
    alone = ArrayStream(rows(n), seed=3)
    ranks = [ArrayStream(rows(n), seed=3) for _ in range(world)]
    for _ in range(6):
        whole = alone.next_batch(size).tolist()
        parts = [stream.next_batch(size, rank, world).tolist() for rank, stream in enumerate(ranks)]
        assert parts == [whole[rank::world] for rank in range(world)]
    assert {stream.samples for stream in ranks} == {alone.samples}


def test_tuples_and_mappings_keep_their_rows_together():
    x = rows(9)
    a, b = ArrayStream((x, -x), seed=2).next_batch(9)
    assert torch.equal(a, -b)
    batch = ArrayStream({"x": x, "y": x * 2.0}, seed=2).next_batch(5)
    assert torch.equal(batch["x"] * 2.0, batch["y"])
    assert torch.equal(batch["x"], a[:5])


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (torch.zeros(0, 3), "no rows"),
        ((), "empty"),
        ((torch.zeros(3), torch.zeros(4)), "the same number of rows, got {'0': 3, '1': 4}"),
        ({"x": torch.zeros(3), "y": torch.zeros(2)}, "{'x': 3, 'y': 2}"),
    ],
)
def test_what_can_not_be_streamed_is_refused(tensors, message):
    with pytest.raises(ValueError, match=message):
        ArrayStream(tensors)


@pytest.mark.parametrize("arguments", [(0,), (3, 2, 2), (3, -1, 2)])
def test_bad_sizes_and_ranks_are_refused(arguments):
    with pytest.raises(ValueError, match="size >= 1 and 0 <= rank < world"):
        ArrayStream(rows(5)).next_batch(*arguments)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (ArrayStream(rows(5), seed=1), "seed = 1"),
        (ArrayStream(rows(6)), "rows = 6"),
        (ArrayStream(rows(5), shuffle=False), "shuffle = False"),
    ],
)
def test_a_state_of_another_order_is_refused_by_name(other, name):
    with pytest.raises(ValueError, match=name):
        other.load_state_dict(ArrayStream(rows(5)).state_dict())
