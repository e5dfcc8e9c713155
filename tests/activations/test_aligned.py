"""Several sites of one store, or two models' stores, served row by row side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from interp.activations.store import ActivationStore
from interp.activations.stream import StoreStream, TensorStream
from tests.activations.synthetic import make_contexts, write_store

SITES = ("resid_post.2", "mlp_out.1", "model.layers.1.mlp:in")
WIDTHS = (6, 4, 3)


def rows_of(seed: int) -> dict[str, torch.Tensor]:
    contexts, generator = make_contexts(300), torch.Generator().manual_seed(seed)
    values = {
        site: torch.randn(contexts.n_tokens, width, generator=generator)
        for site, width in zip(SITES, WIDTHS, strict=True)
    }
    for rows in values.values():
        rows[:, 0] = torch.arange(contexts.n_tokens)  # each row knows its number
    return values


def written(folder: Path, seed: int = 0, *, contexts_seed: int = 0, **plan) -> ActivationStore:
    contexts = make_contexts(300, seed=contexts_seed)
    values = {site: rows[: contexts.n_tokens] for site, rows in rows_of(seed).items()}
    return write_store(folder, contexts, values, **{"dtype": "float32", "shard_tokens": 700, **plan})


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> ActivationStore:
    return written(tmp_path_factory.mktemp("store"))


def small(store, site=None, **options) -> StoreStream:
    return StoreStream(store, site, **{"buffer_tokens": 3 * 8 * 32, "block_tokens": 32, **options})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_aligned_rows_are_those_of_each_site_by_itself(tmp_path: Path, dtype: str) -> None:
    store = written(tmp_path, dtype=dtype)
    together = small(store, SITES, seed=3)
    assert (together.sites, together.widths, together.d) == (SITES, WIDTHS, sum(WIDTHS))
    alone = [small(store, site, seed=3) for site in SITES]
    for _ in range(2 * len(together) // 500 + 2):  # over the end of an epoch
        batch, parts = together.next_batch(500), [stream.next_batch(500) for stream in alone]
        torch.testing.assert_close(batch.values, torch.cat([p.values for p in parts], 1), rtol=0, atol=0)
        assert torch.equal(batch.tokens, parts[0].tokens)
        assert torch.equal(batch.doc_ids, parts[2].doc_ids)
    assert together.epoch == 2
    assert together.counts == alone[0].counts
    sample = together.sample(50, seed=1)
    torch.testing.assert_close(sample, torch.cat([s.sample(50, seed=1) for s in alone], 1), rtol=0, atol=0)


def test_an_aligned_stream_resumes_where_it_stood(store: ActivationStore) -> None:
    stream = small(store, SITES[:2])
    for _ in range(5):
        stream.next_batch(100)
    state = stream.state_dict()
    after = stream.next_batch(100).values
    again = small(store, SITES[:2])
    again.load_state_dict(state)
    assert torch.equal(again.next_batch(100).values, after)


def test_the_first_sites_norms_decide_which_rows_are_served(tmp_path: Path) -> None:
    contexts, values = make_contexts(300), rows_of(0)
    for rows in values.values():
        rows[:, 0] = 1.0
    values[SITES[0]][40::50] *= 100
    values[SITES[1]][41::50] *= 100
    store = write_store(tmp_path, contexts, values, dtype="float32")
    first, second = (small(store, sites, max_norm_multiple=10) for sites in (SITES[:2], SITES[1::-1]))
    assert first.counts == small(store, SITES[0], max_norm_multiple=10).counts
    assert second.counts == small(store, SITES[1], max_norm_multiple=10).counts
    assert first.counts.dropped_norm > 0
    served = first.next_batch(len(first)).values
    assert served[:, :6].norm(dim=1).max() < 50 < served[:, 6:].norm(dim=1).max()


def test_two_models_stores_are_aligned_whatever_their_shards(store: ActivationStore, tmp_path: Path) -> None:
    tuned = written(tmp_path, seed=1, shard_tokens=1100)
    stream = small({"base": store, "tuned": tuned}, SITES[:2], seed=2)
    assert stream.sites == tuple(f"{name}/{site}" for name in ("base", "tuned") for site in SITES[:2])
    batch = stream.next_batch(300)
    number = batch.values[:, 0].long()
    wanted = [rows_of(seed)[site][number] for seed in (0, 1) for site in SITES[:2]]
    assert torch.equal(batch.values, torch.cat(wanted, 1))
    assert torch.equal(batch.values[:, :10], small(store, SITES[:2], seed=2).next_batch(300).values)


def test_what_cannot_be_aligned_is_refused(store: ActivationStore, tmp_path: Path) -> None:
    other = written(tmp_path / "other", contexts_seed=5)
    with pytest.raises(ValueError, match="not of the same contexts"):
        StoreStream({"base": store, "tuned": other}, SITES[0])
    with pytest.raises(ValueError, match="float32 and bfloat16"):
        StoreStream({"base": store, "tuned": written(tmp_path / "half", dtype="bfloat16")}, SITES[0])
    with pytest.raises(ValueError, match=r"resid_post\.2 is named twice"):
        StoreStream(store, [SITES[0], SITES[0]])
    with pytest.raises(ValueError, match="site is empty"):
        StoreStream(store, [])
    with pytest.raises(ValueError, match="holds several"):
        StoreStream(store)


def test_columns_of_a_tensor_may_be_several_sites() -> None:
    stream = TensorStream(torch.randn(10, 5), widths=(2, 3))
    assert (stream.widths, stream.sites, stream.d) == ((2, 3), ("tensor.0", "tensor.1"), 5)
    with pytest.raises(ValueError, match=r"widths = \(2, 2\) .* the array's 5 columns"):
        TensorStream(torch.randn(10, 5), widths=(2, 2))
