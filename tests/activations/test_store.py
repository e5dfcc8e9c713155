from __future__ import annotations

import errno
import itertools
import json
import shutil
from contextlib import contextmanager

import pytest
import safetensors.torch
import torch

from interp.activations import shard_file
from interp.activations import writer as writer_module
from interp.activations.manifest import Manifest, shard_path, side_path
from interp.activations.row_format import decode_rows, encode_rows, stored_dtype_name
from interp.activations.store import ActivationStore
from interp.activations.writer import ShardWriter
from interp.core.files import atomic_write
from interp.core.identity import IdentityMismatch
from tests.activations.synthetic import folder_bytes, make_contexts, write_store

SITES = {"resid_post.1": 16, "mlp_out.0": 5}


@pytest.fixture
def contexts():
    return make_contexts(200)


@pytest.fixture
def values(contexts):
    generator = torch.Generator().manual_seed(1)
    return {site: torch.randn(contexts.n_tokens, d, generator=generator) for site, d in SITES.items()}


@pytest.fixture
def store(tmp_path, contexts, values):
    return write_store(tmp_path / "store", contexts, values, dtype="float32", shard_tokens=700)


# ---- the format


def test_the_safetensors_library_reads_what_we_wrote(store, contexts, values):
    for index, shard in enumerate(store.manifest.shards):
        tensors = safetensors.torch.load_file(shard_path(store.folder, index))
        here = slice(shard.first_row, shard.first_row + shard.n_rows)
        for site in SITES:
            assert torch.equal(tensors[site], values[site][here])
            assert torch.allclose(tensors[f"{site}.norm"], values[site][here].norm(dim=-1))
        assert set(tensors) == {
            *SITES, *(f"{site}.norm" for site in SITES), "token_ids", "positions", "doc_ids", "context_ids"
        }  # fmt: skip
        rows = contexts.rows(shard.first_context, shard.first_context + shard.n_contexts)
        for name, column in rows.items():
            assert torch.equal(tensors[name], torch.from_numpy(column))


def test_shards_hold_whole_contexts_and_follow_from_the_lengths_alone(store, contexts):
    shards = store.manifest.shards
    assert sum(shard.n_contexts for shard in shards) == len(contexts)
    assert [s.first_context for s in shards[1:]] == [s.first_context + s.n_contexts for s in shards[:-1]]
    lengths = contexts.lengths
    for shard in shards:
        here = lengths[shard.first_context : shard.first_context + shard.n_contexts]
        assert here.sum() == shard.n_rows <= 700
    for shard, after in itertools.pairwise(shards):
        assert shard.n_rows + lengths[after.first_context] > 700  # full: the next context didn't fit


def test_a_context_longer_than_a_shard_gets_its_own():
    manifest = Manifest.plan({"embed": 2}, [3, 10, 2, 2], shard_tokens=4)
    assert [(s.first_context, s.n_contexts, s.n_rows) for s in manifest.shards] == [
        (0, 1, 3),
        (1, 1, 10),
        (2, 2, 4),
    ]


def test_side_file_describes_the_shard(store, values):
    side = json.loads(side_path(store.folder, 1).read_text())
    shard = store.manifest.shards[1]
    assert side["bytes"] == shard_path(store.folder, 1).stat().st_size
    assert (side["n_tokens"], side["first_context"]) == (shard.n_rows, shard.first_context)
    columns = store.columns(slice(shard.first_row, shard.first_row + shard.n_rows))
    assert (side["first_doc"], side["last_doc"]) == (int(columns.doc_ids[0]), int(columns.doc_ids[-1]))


def test_norms_are_those_of_the_rows(store, values):
    first = store.columns().positions == 0
    for site, rows in values.items():
        for position0, chosen in ((True, rows[first]), (False, rows[~first])):
            norms = chosen.double().norm(dim=-1)
            stats = store.norms(site, position0=position0)
            assert stats.n == len(norms)
            assert stats.mean == pytest.approx(float(norms.mean()), rel=1e-6)
            assert stats.rms == pytest.approx(float(norms.square().mean().sqrt()), rel=1e-6)
            assert stats.max == pytest.approx(float(norms.max()), rel=1e-6)


# ---- rounding


def test_bfloat16_and_float16_round_trip_within_half_a_unit():
    rows = torch.randn(2000, 64, generator=torch.Generator().manual_seed(0)) * 100
    for dtype, bound in (("bfloat16", 2.0**-8), ("float16", 2.0**-11)):
        encoded = encode_rows(rows, dtype)
        error = (decode_rows(encoded.values, encoded.scale, torch.float32) - rows).abs() / rows.abs()
        # float16 is denormal below 6e-5: there is nothing that small here
        assert float(error.max()) <= bound
        assert float(error.max()) > bound / 2  # the bound is the format's own, not a loose one


def test_int8_error_is_at_most_half_a_scale_and_zero_rows_stay_zero():
    rows = torch.randn(2000, 64, generator=torch.Generator().manual_seed(0)) * 100
    rows[:, 3] *= 50  # an outlier dimension
    rows[7] = 0
    encoded = encode_rows(rows, "int8")
    assert torch.allclose(encoded.scale[:, 0], (rows.abs().amax(-1) / 127).masked_fill(rows.eq(0).all(-1), 1))
    error = (decode_rows(encoded.values, encoded.scale) - rows).abs()
    assert (error <= encoded.scale * 0.5 * (1 + 1e-4)).all()
    assert not decode_rows(encoded.values, encoded.scale)[7].any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8"])
def test_a_store_gives_back_what_the_format_keeps(tmp_path, contexts, values, dtype):
    store = write_store(tmp_path / dtype, contexts, values, dtype=dtype, shard_tokens=700)
    store.verify()
    for site, rows in values.items():
        encoded = encode_rows(rows, dtype)
        expected = decode_rows(encoded.values, encoded.scale)
        assert torch.equal(store.read(site, slice(None)), expected)
        assert store.read(site, slice(0, 3), torch.float64).dtype == torch.float64
    bytes_a_number = {"bfloat16": 2, "float16": 2, "float32": 4, "int8": 1}[dtype]
    scales = 4 * len(SITES) if dtype == "int8" else 0
    norms = 4 * len(SITES)
    data = contexts.n_tokens * (sum(SITES.values()) * bytes_a_number + scales + norms + 24)
    headers = store.manifest.total_bytes - data
    assert 0 < headers < 1000 * len(store.manifest.shards)
    on_disk = sum(path.stat().st_size for path in (tmp_path / dtype / "shards").glob("*.safetensors"))
    assert on_disk == store.manifest.total_bytes


def test_dtype_spellings():
    assert stored_dtype_name("bf16") == stored_dtype_name(torch.bfloat16) == "bfloat16"
    with pytest.raises(ValueError, match="dtype = 'float64'"):
        stored_dtype_name(torch.float64)


# ---- reading


def test_reading_any_rows_in_any_order(store, values, contexts):
    site, rows = "mlp_out.0", values["mlp_out.0"]
    for piece in (slice(0, 1), slice(690, 720), slice(650, 1500), slice(-5, None), slice(9, 9)):
        assert torch.equal(store.read(site, piece), rows[piece])
    wanted = torch.randint(0, contexts.n_tokens, (500,), generator=torch.Generator().manual_seed(2))
    assert torch.equal(store.read(site, wanted), rows[wanted])
    assert torch.equal(store.read(site, [5, 5, 0]), rows[[5, 5, 0]])
    whole = store.columns()
    for part, column in zip(store.columns(wanted), whole, strict=True):
        assert torch.equal(part, column[wanted])
    with pytest.raises(IndexError, match="rows run from 0 to"):
        store.read(site, [0, contexts.n_tokens])
    with pytest.raises(ValueError, match="step 1"):
        store.read(site, slice(0, 10, 2))


def test_contexts_lie_together(store, contexts):
    columns = store.columns()
    for index in (0, 1, 77, len(contexts) - 1):
        rows = store.context_rows(index)
        assert (columns.context_ids == index).nonzero()[:, 0].tolist() == list(range(rows.start, rows.stop))
        assert store.context(index).tolist() == contexts[index].input_ids[0].tolist()
    with pytest.raises(IndexError, match=r"0\.\.199"):
        store.context(200)


def test_sites_are_found_under_any_spelling(store):
    assert store.width("blocks.1.hook_resid_post") == 16
    assert store.site_name("resid_post.1") == "resid_post.1"
    with pytest.raises(ValueError, match=r"'resid_post.2'.*did you mean 'resid_post.1'"):
        store.width("resid_post.2")
    with pytest.raises(ValueError, match="this store holds several"):
        store.read(None, slice(0, 1))
    assert "1,000" not in repr(store)
    assert "resid_post.1 [16]" in repr(store)


# ---- what must never be stored


def test_nan_is_named_and_not_stored(tmp_path, contexts, values):
    values["mlp_out.0"][703, 2] = float("nan")
    with pytest.raises(ValueError, match=r"mlp_out.0 are NaN or Inf in 1 rows of shard") as error:
        write_store(tmp_path / "store", contexts, values, shard_tokens=700)
    batch = contexts.rows(0, len(contexts))
    where = f"context {batch['context_ids'][703]}, position {batch['positions'][703]}"
    assert where in str(error.value)
    assert not shard_path(tmp_path / "store", 1).exists()


def test_float16_overflow_is_named(tmp_path, contexts, values):
    values["resid_post.1"][3, 0] = 70_000.0
    with pytest.raises(ValueError, match=r"position 3 .*65504 don't fit float16"):
        write_store(tmp_path / "a", contexts, values, dtype="float16")
    write_store(tmp_path / "b", contexts, values, dtype="bfloat16")
    values["resid_post.1"][3, 0] = float("inf")
    with pytest.raises(ValueError, match="NaN or Inf"):
        write_store(tmp_path / "c", contexts, values, dtype="int8")


def test_half_filled_shards_and_wrong_widths_are_refused(tmp_path, contexts, values):
    manifest = Manifest.plan(SITES, contexts.lengths)
    writer = ShardWriter(tmp_path, manifest)
    buffer = writer.begin(0, contexts.rows(0, len(contexts)))
    buffer.put("resid_post.1", torch.arange(contexts.n_tokens), values["resid_post.1"])
    buffer.put("mlp_out.0", torch.arange(10), values["mlp_out.0"][:10])
    with pytest.raises(ValueError, match=f"{contexts.n_tokens - 10} of its rows were never filled"):
        writer.commit(buffer)
    with pytest.raises(ValueError, match=r"values of mlp_out.0 have shape \(10, 16\), not \(n, 5\)"):
        buffer.put("mlp_out.0", torch.arange(10), values["resid_post.1"][:10])
    with pytest.raises(ValueError, match=r"site 'mlp_out.1' is not in this store"):
        buffer.put("mlp_out.1", torch.arange(10), values["mlp_out.0"][:10])
    with pytest.raises(ValueError, match=r"column 'token_ids' has shape"):
        writer.begin(0, contexts.rows(0, 3))


def test_empty_plans_are_refused():
    for sites, lengths, message in (
        ({}, [3], "sites is empty"),
        ({"embed": 2}, [], "lengths"),
        ({"embed": 2}, [3, 0], "lengths"),
    ):
        with pytest.raises(ValueError, match=message):
            Manifest.plan(sites, lengths)
    with pytest.raises(ValueError, match="shard_tokens=0"):
        Manifest.plan({"embed": 2}, [3], shard_tokens=0)


# ---- damage


def test_damage_is_named(store):
    store.verify()
    path = shard_path(store.folder, 2)
    content = path.read_bytes()

    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(ValueError, match=r"1 shards are corrupt .*shard-000002"):
        ActivationStore.open(store.folder).verify()
    with pytest.raises(ValueError, match=r"1 shards are corrupt .*shard-000002"):
        ActivationStore.open(store.folder).read(store.sites[0], slice(None))
    unchecked = ActivationStore.open(store.folder, check=False)
    assert len(unchecked.read(store.sites[0], slice(None))) == store.n_tokens

    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"1 shards are missing or truncated: shard-000002"):
        ActivationStore.open(store.folder)

    path.unlink()
    with pytest.raises(ValueError, match=r"1 shards are missing or truncated: shard-000002"):
        ActivationStore.open(store.folder)

    side_path(store.folder, 2).unlink()
    with pytest.raises(ValueError, match=r"1 of \d+ shards are still to be written: shard-000002"):
        ActivationStore.open(store.folder)


def test_a_shard_with_another_header_is_not_read(store):
    path = shard_path(store.folder, 0)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"mlp_out.0"', b'"mlp_out.1"'))
    with pytest.raises(ValueError, match=r"shard-000000.safetensors is damaged: its header doesn't hold"):
        ActivationStore.open(store.folder, check=False).read("mlp_out.0", slice(0, 1))
    path.write_bytes(b"\xff" * len(content))
    with pytest.raises(ValueError, match=r"shard-000000.safetensors is cut short or no safetensors file"):
        ActivationStore.open(store.folder, check=False).read("mlp_out.0", slice(0, 1))


def test_a_shard_cut_while_it_is_open_is_not_half_read(store):
    store.read("mlp_out.0", slice(0, 1))
    path = shard_path(store.folder, 0)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match="is truncated"):
        store.read("mlp_out.0", slice(0, 700))


def test_what_is_not_a_store_or_of_another_schema(tmp_path, store):
    with pytest.raises(ValueError, match=r"is not an activation store: it has no manifest.json"):
        ActivationStore.open(tmp_path)
    path = store.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "schema_version": 99}))
    with pytest.raises(ValueError, match="schema_version=99, this library reads 2"):
        ActivationStore.open(store.folder)
    path.write_text(json.dumps({**manifest, "colour": 1}))
    with pytest.raises(ValueError, match="colour"):
        ActivationStore.open(store.folder)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"manifest.json is not valid JSON"):
        ActivationStore.open(store.folder)


# ---- going on after a failure


def test_a_full_disk_fails_cleanly_and_the_next_run_goes_on(tmp_path, contexts, values, monkeypatch):
    whole = write_store(tmp_path / "whole", contexts, values, shard_tokens=700)

    @contextmanager
    def full_disk_from_shard_2(path):
        with atomic_write(path) as temporary:
            if path.name == "shard-000002.safetensors":
                temporary.symlink_to("/dev/full")  # every write to it is a real ENOSPC
            yield temporary

    monkeypatch.setattr(shard_file, "atomic_write", full_disk_from_shard_2)
    with pytest.raises(OSError, match=r"shard 2 of \d+ could not be written \(No space left") as error:
        write_store(tmp_path / "store", contexts, values, shard_tokens=700)
    assert error.value.errno == errno.ENOSPC
    assert sorted(p.name for p in (tmp_path / "store" / "shards").iterdir()) == [
        f"shard-00000{i}.{kind}" for i in (0, 1) for kind in ("json", "safetensors")
    ]
    monkeypatch.undo()
    write_store(tmp_path / "store", contexts, values, shard_tokens=700)
    assert folder_bytes(tmp_path / "store") == folder_bytes(whole.folder)


def test_leftovers_and_broken_shards_are_written_again(tmp_path, contexts, values, caplog):
    store = write_store(tmp_path / "store", contexts, values, shard_tokens=700)
    expected = folder_bytes(store.folder)
    shards = store.folder / "shards"
    (shards / "shard-000001.safetensors.tmp-123").write_bytes(b"half")
    (store.folder / "manifest.json.tmp-99").write_bytes(b"half")
    shard_path(store.folder, 3).write_bytes(b"truncated")
    side_path(store.folder, 0).unlink()
    writer = ShardWriter(store.folder, store.manifest)
    assert writer.pending() == [0, 3]
    assert "shard-000003.safetensors is cut short" in caplog.text
    assert "shard-000003.safetensors will be written again" in caplog.text
    write_store(store.folder, contexts, values, shard_tokens=700)
    assert folder_bytes(store.folder) == expected


def test_ranks_share_out_the_shards(tmp_path, contexts, values):
    manifest = Manifest.plan(SITES, contexts.lengths, shard_tokens=300)
    writer = ShardWriter(tmp_path, manifest)
    n = len(manifest.shards)
    for world in (1, 2, 3):
        shares = [writer.pending(rank, world) for rank in range(world)]
        assert sorted(itertools.chain(*shares)) == list(range(n))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_another_harvest_is_refused_with_the_field_named(tmp_path, contexts, values):
    plan = {"shard_tokens": 700, "model": {"name": "a", "weights": {"sha256": "1"}}}
    store = write_store(tmp_path / "store", contexts, values, **plan)
    expected = folder_bytes(store.folder)
    other_weights = {**plan, "model": {"name": "a", "weights": {"sha256": "2"}}}
    changes = [
        (values, contexts, other_weights, "model.weights.sha256 was '1' there and is '2' here"),
        (values, contexts, {**plan, "dtype": "float16"}, "dtype was 'bfloat16' there and is 'float16' here"),
        (values, contexts, {**plan, "shard_tokens": 600}, "shards was"),
        ({"embed": values["mlp_out.0"]}, contexts, plan, "sites.resid_post.1 was 16 there and is None here"),
        (values, make_contexts(200, per_document=3), plan, "contexts.sha256 was"),
    ]  # fmt: skip
    for rows, other, changed, message in changes:
        with pytest.raises(IdentityMismatch, match=message):
            write_store(store.folder, other, rows, **changed)
    assert folder_bytes(store.folder) == expected
    write_store(store.folder, contexts, values, **plan, environment={"torch": "0.0"})


def test_an_unwritable_folder_is_named(tmp_path, contexts):
    manifest = Manifest.plan(SITES, contexts.lengths)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"out='.*file/store' can't be written to .*choose another folder"):
        ShardWriter(tmp_path / "file" / "store", manifest)


def test_a_read_only_folder_is_named(tmp_path, contexts, monkeypatch):
    def denied(path, value):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(writer_module, "write_json", denied)
    with pytest.raises(ValueError, match=r"can't be written to .*Permission denied"):
        ShardWriter(tmp_path / "store", Manifest.plan(SITES, contexts.lengths))


def test_a_store_may_be_moved(tmp_path, store, values):
    moved = tmp_path / "elsewhere"
    shutil.copytree(store.folder, moved)
    shutil.rmtree(store.folder)
    assert torch.equal(ActivationStore.open(moved).read("mlp_out.0", slice(None)), values["mlp_out.0"])
