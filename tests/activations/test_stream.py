from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from interp.activations.packing import pack
from interp.activations.source import ActivationBatch, ActivationSource, RowCounts
from interp.activations.stream import LiveStream, StoreStream, TensorStream
from interp.core.stream import DataStream
from tests.activations.synthetic import ByteTokenizer, RunningSum, make_contexts, sorted_rows, write_store

SITE = "resid_post.2"


@pytest.fixture(scope="module")
def contexts():
    return make_contexts(400)


@pytest.fixture(scope="module")
def values(contexts):
    rows = torch.randn(contexts.n_tokens, 6, generator=torch.Generator().manual_seed(3))
    rows[:, 0] = torch.arange(contexts.n_tokens)  # each row knows its number
    return rows


@pytest.fixture(scope="module")
def store(tmp_path_factory, contexts, values):
    return write_store(
        tmp_path_factory.mktemp("store"), contexts, {SITE: values}, dtype="float32", shard_tokens=1000
    )


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(0)
    return ["".join(map(chr, random.integers(97, 123, size=int(n)))) for n in random.integers(5, 60, 60)]


def small_store_stream(store, **options) -> StoreStream:
    return StoreStream(store, **{"buffer_tokens": 3 * 8 * 32, "block_tokens": 32, **options})


def one_epoch(stream: ActivationSource, size: int = 100) -> ActivationBatch:
    epoch, batches = stream.epoch, []
    while stream.epoch == epoch:
        batches.append(stream.next_batch(size))
    assert all(len(batch) == size for batch in batches[:-1])
    assert 0 < len(batches[-1]) <= size
    return ActivationBatch(
        *(
            torch.cat([getattr(b, name) for b in batches])
            for name in ("values", "tokens", "positions", "doc_ids")
        )
    )


def sources(store, texts, seed=0):
    model = RunningSum()
    live = pack(texts, model, context_size=32, mode="pack")
    return {
        "store": small_store_stream(store, seed=seed),
        "live": LiveStream(model, live, SITE, seed=seed, buffer_tokens=2 * 8 * 32),
        "tensor": TensorStream(torch.randn(777, 6, generator=torch.Generator().manual_seed(0)), seed=seed),
    }


@pytest.mark.parametrize("kind", ["store", "live", "tensor"])
def test_the_order_is_a_function_of_seed_and_epoch_and_every_row_comes_once(store, texts, kind):
    stream = sources(store, texts)[kind]
    assert isinstance(stream, DataStream)
    first, second = one_epoch(stream), one_epoch(stream, size=37)
    again, other = sources(store, texts)[kind], sources(store, texts, seed=1)[kind]
    assert torch.equal(one_epoch(again, size=64).values, first.values)  # whatever the batch size
    different = one_epoch(other)
    assert len(first) == len(stream) == stream.counts.kept
    rows = sorted_rows(first.values)
    assert len(rows.unique(dim=0)) > 0.9 * len(rows)
    for epoch in (second, different):
        assert torch.equal(sorted_rows(epoch.values), rows)
        assert not torch.equal(epoch.values, first.values)
    assert stream.samples == 2 * len(stream)
    assert stream.epoch == 2


@pytest.mark.parametrize("kind", ["store", "live", "tensor"])
def test_resume_anywhere_is_exact(store, texts, kind):
    make = lambda: sources(store, texts)[kind]  # noqa: E731
    stream = make()
    n_batches = 3 * len(stream) // 97
    states, batches = [], []
    for _ in range(n_batches):
        states.append(stream.state_dict())
        batches.append(stream.next_batch(97))
    for at in (0, 1, n_batches // 3, n_batches // 2, n_batches - 3):
        resumed = make()
        resumed.load_state_dict(states[at])
        for expected in batches[at : at + 3]:
            got = resumed.next_batch(97)
            assert torch.equal(got.values, expected.values)
            assert torch.equal(got.tokens, expected.tokens)
            assert torch.equal(got.doc_ids, expected.doc_ids)
        assert resumed.samples == states[at]["samples"] + sum(map(len, batches[at : at + 3]))
    for at in reversed(range(n_batches)):  # and a stream that has run on can be taken back
        stream.load_state_dict(states[at])
        assert torch.equal(stream.next_batch(97).values, batches[at].values)


@pytest.mark.parametrize("kind", ["store", "live", "tensor"])
def test_state_of_another_order_is_refused(store, texts, kind):
    state = sources(store, texts, seed=0)[kind].state_dict()
    with pytest.raises(ValueError, match="seed was 0 and is 1 now"):
        sources(store, texts, seed=1)[kind].load_state_dict(state)
    if kind == "store":
        with pytest.raises(ValueError, match="block_rows was 32 and is 16 now"):
            small_store_stream(store, block_tokens=16).load_state_dict(state)


@pytest.mark.parametrize("kind", ["store", "live", "tensor"])
def test_ranks_take_strides_of_the_global_batch(store, texts, kind):
    whole, parts = sources(store, texts)[kind], [sources(store, texts)[kind] for _ in range(3)]
    while whole.epoch < 2:
        expected = whole.next_batch(50)
        for rank, stream in enumerate(parts):
            got = stream.next_batch(50, rank, 3)
            assert torch.equal(got.values, expected.values[rank::3])
            assert torch.equal(got.doc_ids, expected.doc_ids[rank::3])
        assert {stream.samples for stream in parts} == {whole.samples}


@pytest.mark.parametrize("kind", ["store", "live", "tensor"])
def test_a_last_batch_smaller_than_the_world_leaves_some_ranks_empty(store, texts, kind):
    stream = sources(store, texts)[kind]
    stream.next_batch(len(stream) - 1, rank=2, world=3)
    batch = stream.next_batch(50, rank=2, world=3)
    assert batch.values.shape == (0, stream.d)
    assert (stream.epoch, stream.samples) == (1, len(stream))


def test_rows_come_with_their_token_position_and_document(store, values):
    columns = store.columns()
    batch = one_epoch(small_store_stream(store, skip_positions=(), skip_special=False))
    rows = batch.values[:, 0].long()
    assert torch.equal(batch.values, values[rows])
    assert torch.equal(batch.tokens, columns.token_ids[rows].long())
    assert torch.equal(batch.positions, columns.positions[rows].long())
    assert torch.equal(batch.doc_ids, columns.doc_ids[rows])
    assert sorted(rows.tolist()) == list(range(len(values)))


def test_position_0_and_special_tokens_are_left_out_and_counted(store, contexts):
    columns = store.columns()
    first, special = columns.positions == 0, columns.token_ids == 7
    stream = small_store_stream(store)
    assert stream.counts == RowCounts(
        kept=int((~first & ~special).sum()),
        dropped_position0=len(contexts),
        dropped_special=int((special & ~first).sum()),
    )
    assert stream.counts.total == store.n_tokens
    rows = one_epoch(stream).values[:, 0].long()
    assert sorted(rows.tolist()) == (~first & ~special).nonzero()[:, 0].tolist()
    assert small_store_stream(store, skip_special=False).counts.dropped_special == 0
    assert small_store_stream(store, skip_positions=(0, 1)).counts.dropped_position0 == 2 * len(contexts)


def test_rows_of_outlying_norm_are_left_out_on_request(tmp_path, contexts):
    rows = torch.randn(contexts.n_tokens, 16, generator=torch.Generator().manual_seed(0))
    outliers = torch.arange(1, contexts.n_tokens, 50)
    rows[outliers] *= 100
    norms = rows.norm(dim=-1)
    for dtype in ("float32", "int8"):
        store = write_store(tmp_path / dtype, contexts, {SITE: rows}, dtype=dtype)
        options = {"skip_positions": (), "skip_special": False, "max_norm_multiple": 10.0}
        stream = small_store_stream(store, **options)
        assert stream.counts.dropped_norm == len(outliers)
        served = one_epoch(stream).values
        assert len(served) == contexts.n_tokens - len(outliers)
        assert float(served.norm(dim=-1).max()) < 10.5 * float(norms.median())
    with pytest.raises(ValueError, match=r"max_norm_multiple=0.5"):
        small_store_stream(store, max_norm_multiple=0.5)


def test_int8_and_bfloat16_stores_serve_what_they_hold(tmp_path, contexts, values):
    for dtype in ("bfloat16", "int8"):
        store = write_store(tmp_path / dtype, contexts, {SITE: values[:, 1:]}, dtype=dtype)
        served = one_epoch(small_store_stream(store, skip_positions=(), skip_special=False))
        assert served.values.dtype == torch.float32
        assert torch.equal(sorted_rows(served.values), sorted_rows(store.read(SITE, slice(None))))
    raw = small_store_stream(write_store(tmp_path / "bfloat16", contexts, {SITE: values[:, 1:]}), dtype=None)
    assert raw.next_batch(4).values.dtype == torch.bfloat16


def test_neighbours_in_a_batch_come_from_all_over(tmp_path):
    """Adjacent rows are of the same document no more often than chance allows (64 blocks in the pool)."""
    contexts = make_contexts(8192, longest=16, per_document=16)
    rows = torch.randn(contexts.n_tokens, 2, generator=torch.Generator().manual_seed(0))
    store = write_store(tmp_path, contexts, {SITE: rows}, shard_tokens=10_000)
    stream = StoreStream(store, buffer_tokens=3 * 64 * 256, block_tokens=256, skip_positions=())
    docs = one_epoch(stream, size=1024).doc_ids.double()
    assert len(docs) > 3 * 64 * 256
    correlation = torch.corrcoef(torch.stack([docs[:-1], docs[1:]]))[0, 1]
    assert abs(float(correlation)) < 0.05
    in_order = store.columns().doc_ids.double()
    assert float(torch.corrcoef(torch.stack([in_order[:-1], in_order[1:]]))[0, 1]) > 0.99
    # The same document twice in a row: with 64 blocks of 256 rows that hold about 25 documents, 1 in 60.
    assert float((docs[1:] == docs[:-1]).double().mean()) < 0.03


def test_a_sample_is_of_kept_rows_without_repeats_and_moves_nothing(store, texts):
    for kind, stream in sources(store, texts).items():
        whole = {tuple(row) for row in one_epoch(sources(store, texts)[kind]).values.tolist()}
        before = stream.state_dict()
        sample = stream.sample(150, seed=4)
        assert stream.state_dict() == before
        assert sample.shape == (150, stream.d)
        assert {tuple(row) for row in sample.tolist()} <= whole
        assert torch.equal(sample, stream.sample(150, seed=4))
        assert not torch.equal(sample, stream.sample(150, seed=5))
        assert len(stream.sample(10**6)) == len(stream)
        with pytest.raises(ValueError, match="n=0"):
            stream.sample(0)
    rows = small_store_stream(store).sample(1000)[:, 0]
    assert len(rows.unique()) == 1000
    assert abs(float(rows.mean()) / store.n_tokens - 0.5) < 0.04  # uniform: standard deviation 0.009


def test_peak_memory_is_bounded_by_the_buffer_not_the_store(tmp_path):
    """One million rows of 64 numbers (152 MB) through a buffer of 65,536 rows (10 MB)."""
    code = """
import sys, numpy as np, torch
from pathlib import Path
from interp.activations.packing import TokenContexts
from interp.activations.store import ActivationStore
from interp.activations.stream import StoreStream
from tests.activations.synthetic import write_store

def write(folder):
    n = 1_000_000
    contexts = TokenContexts(np.zeros(n), np.arange(0, n + 1, 100), np.arange(n // 100),
                             np.arange(n // 100 + 1), context_size=100)
    write_store(Path(folder), contexts, {"embed": torch.ones(n, 64)})

def peak():
    fields = dict(line.split(":") for line in open("/proc/self/status"))
    return int(fields["VmHWM"].split()[0]) / 1024

if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    store = ActivationStore.open(sys.argv[2])
    warm = torch.randperm(1000)[:10].float() @ torch.ones(10)
    before = peak()
    stream = StoreStream(store, buffer_tokens=65_536)
    rows = 0
    while stream.epoch < 1:
        rows += len(stream.next_batch(4096))
    print(rows, peak() - before)
"""

    def run(mode: str) -> str:
        command = [sys.executable, "-c", code, mode, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    run("write")
    rows, megabytes = run("read").split()
    assert int(rows) == 990_000
    pool = 65_536 * (64 * 2 + 16) / 2**20
    assert float(megabytes) < pool + 25  # the column scan, a batch in float32 and the allocator's slack


def test_live_rows_are_the_models(texts):
    model = RunningSum()
    contexts = pack(texts, model, context_size=32, mode="pack")
    stream = LiveStream(model, contexts, SITE, buffer_tokens=2 * 8 * 32)
    model.shapes.clear()
    served = one_epoch(stream)
    batch = contexts[:]
    site = model.check_site(SITE)
    whole = model.activations(
        batch.input_ids, [site], position_ids=batch.position_ids, segment_ids=batch.segment_ids
    )[site]
    keep = batch.attention_mask.bool() & (batch.position_ids != 0)
    assert torch.equal(sorted_rows(served.values), sorted_rows(whole[keep]))
    assert stream.counts == RowCounts(int(keep.sum()), int(batch.attention_mask.sum() - keep.sum()))
    # every context was run once, in forward passes no wider than a context
    assert sum(b * s for b, s in model.shapes[:-1]) >= contexts.n_tokens
    assert max(s for _, s in model.shapes[:-1]) <= 32


def test_live_buffer_holds_rows_of_two_chunks(texts):
    """Half of what is refilled waits for the next: batches mix contexts that were run at different times."""
    model = RunningSum()
    contexts = pack(texts * 4, model, context_size=32, mode="pack")
    stream = LiveStream(model, contexts, SITE, buffer_tokens=2 * 8 * 32)
    runs_at = []
    while stream.epoch == 0:
        before = sum(b for b, _ in model.shapes)
        stream.next_batch(16)
        runs_at.append(sum(b for b, _ in model.shapes) - before)
    assert max(runs_at) <= 2 * 8 + 8  # never more contexts at once than chunks of 8 that fit the buffer
    assert sum(runs_at) == len(contexts)


def test_memory_mapped_arrays(tmp_path):
    rows = np.random.default_rng(0).standard_normal((500, 4)).astype(np.float16)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    stream = TensorStream(np.load(path, mmap_mode="r"))
    batch = one_epoch(stream)
    assert torch.equal(batch.values, torch.from_numpy(rows[batch.doc_ids.numpy()]).float())
    assert sorted(batch.doc_ids.tolist()) == list(range(500))
    assert (batch.tokens == -1).all()


def test_bad_arrays_are_named():
    with pytest.raises(ValueError, match=r"array has shape \(5,\)"):
        TensorStream(torch.zeros(5))
    with pytest.raises(ValueError, match=r"array has shape \(0, 3\)"):
        TensorStream(torch.zeros(0, 3))
    with pytest.raises(TypeError, match=r"array holds torch.int64"):
        TensorStream(torch.zeros(5, 3, dtype=torch.long))
    with pytest.raises(TypeError, match="array holds int32"):
        TensorStream(np.zeros((5, 3), dtype=np.int32))
    with pytest.raises(TypeError, match="array is a list"):
        TensorStream([[1.0]])  # type: ignore[arg-type]


def test_nan_is_found_in_the_first_batch_and_later_ones():
    rows = torch.zeros(70 * 10, 3)
    order = TensorStream(rows).next_batch(700).doc_ids
    for at in (5, 64 * 10 + 5):  # batches 0 and 64 are looked at
        bad = rows.clone()
        bad[order[at], 1] = float("nan")
        stream = TensorStream(bad)
        with pytest.raises(ValueError, match="1 of 10 rows of tensor are NaN or Inf"):
            [stream.next_batch(10) for _ in range(70)]


def test_impossible_requests_are_refused(store):
    stream = small_store_stream(store)
    for arguments in ((0,), (8, 2, 2), (8, -1, 1)):
        with pytest.raises(ValueError, match="next_batch"):
            stream.next_batch(*arguments)
    with pytest.raises(
        ValueError, match="buffer_tokens=1000 is too small for blocks of 1024 rows: at least 3072"
    ):
        StoreStream(store, buffer_tokens=1000)
    with pytest.raises(ValueError, match="block_tokens=0"):
        StoreStream(store, block_tokens=0)
    with pytest.raises(ValueError, match=r"no row of .* is left to serve"):
        small_store_stream(store, skip_positions=range(1000))
    with pytest.raises(ValueError, match=r"layer|not one of"):
        LiveStream(RunningSum(), pack(["abc"], ByteTokenizer()), "resid_post.9")


def test_batch_moves_to_a_device(store):
    batch = small_store_stream(store).next_batch(5).to("cpu")
    assert len(batch) == 5
    assert batch.positions.dtype == torch.int64
