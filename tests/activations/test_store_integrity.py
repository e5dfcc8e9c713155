"""A store is its manifest's and nobody else's, and what its files say is held against what they are."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from interp.activations import writer as writer_module
from interp.activations.estimate import size_text
from interp.activations.harvest import harvest
from interp.activations.manifest import Manifest, shard_path, side_path
from interp.activations.store import ActivationStore
from interp.activations.stream import StoreStream
from interp.activations.writer import ShardWriter
from interp.core.identity import IdentityMismatch
from interp.core.lock import FolderInUse, RunLock
from tests.activations.synthetic import RunningSum, folder_bytes, make_contexts, write_store
from tests.fuzz import store_files

SITE = "resid_post.0"
OPTIONS = {"shard_tokens": 700, "progress": False}


def other_model() -> RunningSum:
    model = RunningSum()
    model.table = model.table + 1
    return model


@pytest.fixture
def store(tmp_path):
    store_files.make(tmp_path / "store")
    return tmp_path / "store"


# ---- whose shards these are


def test_another_models_shards_are_not_taken_for_ones_own(tmp_path):
    contexts, out = make_contexts(), tmp_path / "s"
    harvest(RunningSum(), contexts, SITE, out, **OPTIONS)
    before = folder_bytes(out)
    (out / "manifest.json").unlink()
    with pytest.raises(
        IdentityMismatch, match=r"has no manifest.json, but shards of another harvest.*000000"
    ):
        harvest(other_model(), contexts, SITE, out, **OPTIONS)
    harvest(RunningSum(), contexts, SITE, out, **OPTIONS)  # one's own are used, and none is written again
    assert folder_bytes(out) == before


def test_a_store_with_shards_of_two_harvests_is_refused_and_mended(tmp_path):
    contexts = make_contexts()
    stores = {
        name: harvest(model, contexts, SITE, tmp_path / name, **OPTIONS)
        for name, model in (("a", RunningSum()), ("b", other_model()))
    }
    whole = folder_bytes(stores["b"].folder)
    for kinds in ((".safetensors", ".json"), (".json",), (".safetensors",)):
        mixed = tmp_path / "mixed"
        shutil.rmtree(mixed, ignore_errors=True)
        shutil.copytree(stores["b"].folder, mixed)
        for kind in kinds:
            shutil.copy(stores["a"].folder / "shards" / f"shard-000001{kind}", mixed / "shards")
        for check in (True, False):
            with pytest.raises(ValueError, match=r"shard-000001.* belongs to another store"):
                ActivationStore.open(mixed, check=check).read(None, slice(None))
        harvest(other_model(), contexts, SITE, mixed, **OPTIONS)
        assert folder_bytes(mixed) == whole
    # A shard in another place of its own store, of the same size.
    same = write_store(
        tmp_path / "same", make_contexts(40, longest=4), {SITE: torch.randn(160, 3)}, shard_tokens=40
    )
    shutil.copy(shard_path(same.folder, 0), shard_path(same.folder, 2))
    with pytest.raises(ValueError, match=r"shard-000002.*belongs to another store, or to another place"):
        ActivationStore.open(same.folder, check=False).read(None, slice(None))


def test_a_job_whose_folder_is_swapped_writes_nothing_into_the_other(tmp_path):
    contexts = make_contexts()
    harvest(other_model(), contexts, SITE, tmp_path / "other", **OPTIONS)
    out, expected = tmp_path / "s", folder_bytes(tmp_path / "other")

    class Swapped(RunningSum):
        def activations(self, *arguments, **options):
            if (tmp_path / "other").exists() and side_path(out, 0).exists():
                out.rename(tmp_path / "moved")
                (tmp_path / "other").rename(out)
            return super().activations(*arguments, **options)

    with pytest.raises(IdentityMismatch, match=r"has become another store while this one was written"):
        harvest(Swapped(), contexts, SITE, out, batch_size=2, **OPTIONS)
    assert folder_bytes(out) == expected


# ---- what the files say


def edited(path: Path, change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(n_tokens=m["n_tokens"] + 5),
        lambda m: m.update(n_tokens=m["n_tokens"] - 5),
        lambda m: m.update(n_contexts=m["n_contexts"] + 1),
        lambda m: m["shards"][1].update(first_context=m["shards"][1]["first_context"] - 1),
        lambda m: m["shards"][1].update(n_contexts=m["shards"][1]["n_contexts"] + 1),
        lambda m: m["shards"][0].update(n_rows=10**30),
        lambda m: m["shards"].pop(),
        lambda m: m["sites"].update({"resid_post.1": 10**13}),
        lambda m: m["sites"].update({"resid_post.1": "wide"}),
        lambda m: m["sites"].clear(),
        lambda m: m.update(shards={}),
        lambda m: m.update(dtype="float64"),
        lambda m: m["model"].update(weights="1"),
        lambda m: m["contexts"].update(special_token_ids=[8]),
        lambda m: m.pop("identity"),
        lambda m: m.pop("sites"),
    ],
)
def test_a_changed_manifest_is_refused(store, change):
    edited(store / "manifest.json", change)
    with pytest.raises(ValueError, match=r"manifest.json"):
        ActivationStore.open(store)


@pytest.mark.parametrize(
    "content", ["[" * 5000 + "]" * 5000, "[1]", "7" * 6000, '{"schema_version": 2}', "{}"]
)
def test_json_of_any_kind_is_refused_by_name(store, content):
    for path in (store / "manifest.json", side_path(store, 1)):
        before = path.read_text()
        path.write_text(content)
        with pytest.raises(ValueError, match=path.name):
            ActivationStore.open(store)
        path.write_text(before)


def test_side_files_are_protected(store):
    for change in (
        lambda side: side["norms"]["mlp_out.0"]["rest"].update(norm_sum=1.0),
        lambda side: side.update(sha256="0" * 64),
        lambda side: side.update(norms={}),
        lambda side: side.update(checksum=""),
    ):
        path, before = side_path(store, 1), side_path(store, 1).read_text()
        edited(path, change)
        with pytest.raises(ValueError, match=r"shard-000001.json was changed after it was written"):
            ActivationStore.open(store)
        path.write_text(before)
    ActivationStore.open(store).verify(progress=False)


def test_the_head_is_held_against_its_checksum_before_anything_of_it_is_used(store):
    """Tokens, positions and norms are checked without the values being read, which have a checksum of their own."""
    path = shard_path(store, 1)
    content = bytearray(path.read_bytes())
    layout = ActivationStore.open(store).manifest.layout(1)
    n_values = sum(
        width for name, (_, (_, *width)) in layout.items() if name in store_files.SITES for width in width
    )
    rows = ActivationStore.open(store).manifest.shards[1].n_rows
    first_value = len(content) - n_values * rows  # int8: a byte a number
    for place, head_is_bad in ((first_value - 1, True), (first_value, False), (len(content) - 1, False)):
        damaged = content.copy()
        damaged[place] ^= 1
        path.write_bytes(damaged)
        opened = ActivationStore.open(store)
        if head_is_bad:
            with pytest.raises(ValueError, match=r"1 shards are corrupt .*shard-000001"):
                opened.columns()
        else:
            opened.columns()
        with pytest.raises(ValueError, match=r"1 shards are corrupt .*shard-000001"):
            opened.read("mlp_out.0", slice(None))
        with pytest.raises(ValueError, match=r"1 shards are corrupt .*shard-000001"):
            ActivationStore.open(store).verify(progress=False)


def test_header_offsets_are_checked_without_checksums_too(store):
    path = shard_path(store, 0)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    a, b = header["token_ids"], header["positions"]
    a["data_offsets"], b["data_offsets"] = b["data_offsets"], a["data_offsets"]
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    assert len(text) == length
    path.write_bytes(content[:8] + text + content[8 + length :])
    with pytest.raises(ValueError, match=r"shard-000000.* its header doesn't hold what the manifest says"):
        ActivationStore.open(store, check=False).columns()


def test_a_shard_cut_while_its_store_is_open_is_an_error_not_a_bus_error(store):
    code = textwrap.dedent(
        f"""
        import os, sys
        from pathlib import Path
        from interp.activations.store import ActivationStore
        store = ActivationStore.open({str(store)!r})
        store.read("resid_post.1", slice(None)), store.read("resid_post.1", range(0, 200, 3))
        os.truncate({str(shard_path(store, 0))!r}, 4000)
        for read in (lambda: store.read("resid_post.1", range(60, 90)), lambda: store.context_rows(9)):
            try:
                print(read())
            except ValueError as error:
                print(error)
        """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "shard-000000.safetensors is truncated" in done.stdout


def test_row_norms_are_in_the_store_and_opening_for_training_reads_no_values(tmp_path):
    contexts = make_contexts()
    rows = torch.randn(contexts.n_tokens, 64, generator=torch.Generator().manual_seed(0))
    store = write_store(tmp_path, contexts, {SITE: rows}, shard_tokens=700)
    assert torch.allclose(store.row_norms(None, slice(None)), rows.norm(dim=-1))
    read = []

    class Watched(ActivationStore):
        def shard(self, index, part="all"):
            read.append(part)
            return super().shard(index, part)

    watched = Watched(store.folder, store.manifest)
    stream = StoreStream(watched, max_norm_multiple=1.1, buffer_tokens=3000, block_tokens=100)
    assert set(read) == {"head"}
    kept = rows.norm(dim=-1)[(store.columns().positions != 0) & (store.columns().token_ids != 7)]
    assert stream.max_norm == pytest.approx(1.1 * float(kept.median()), rel=1e-6)  # all rows are the sample
    assert stream.counts.dropped_norm == int((kept > stream.max_norm).sum()) > 0
    stream.next_batch(10)
    assert "all" in read


# ---- one job a folder


def test_a_second_harvest_of_the_same_store_is_refused_and_names_the_first(tmp_path):
    contexts, out, refused = make_contexts(), tmp_path / "s", []

    class Second(RunningSum):
        def activations(self, *arguments, **options):
            if not refused:
                refused.append(True)
                with (
                    ThreadPoolExecutor(1) as another,  # for the thread that holds it a lock is no hindrance
                    pytest.raises(FolderInUse, match=rf"use by another harvest \(process {os.getpid()} on"),
                ):
                    another.submit(harvest, RunningSum(), contexts, SITE, out, **OPTIONS).result()
            return super().activations(*arguments, **options)

    whole = harvest(RunningSum(), contexts, SITE, tmp_path / "whole", **OPTIONS)
    harvest(Second(), contexts, SITE, out, **OPTIONS)
    assert refused
    assert folder_bytes(out) == folder_bytes(whole.folder)
    with RunLock(out, "harvest"), ThreadPoolExecutor(1) as another:  # a finished store isn't written to
        another.submit(harvest, RunningSum(), contexts, SITE, out, **OPTIONS).result()


# ---- messages


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EDQUOT, "make room"),
        (errno.EACCES, "get leave to write"),
        (errno.EROFS, "get leave to write"),
        (errno.ENOENT, "the folder was removed"),
        (errno.EIO, "mend that"),
    ],
)
def test_a_shard_that_cannot_be_written_says_why(tmp_path, monkeypatch, code, advice):
    def fails(path, *_):
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(writer_module, "write_shard", fails)
    contexts = make_contexts(20)
    with pytest.raises(
        OSError, match=rf"shard 0 of 1 could not be written \({os.strerror(code)}\).*{advice}"
    ) as raised:
        write_store(tmp_path, contexts, {SITE: torch.randn(contexts.n_tokens, 3)})
    assert raised.value.errno == code
    assert ("make room" in str(raised.value)) == (code in (errno.ENOSPC, errno.EDQUOT))


def test_a_folder_that_vanishes_is_not_made_anew(tmp_path):
    contexts = make_contexts(20)
    manifest = Manifest.plan({SITE: 3}, contexts.lengths)
    writer = ShardWriter(tmp_path / "s", manifest)
    buffer = writer.begin(0, contexts.rows(0, 20))
    buffer.put(SITE, torch.arange(contexts.n_tokens), torch.randn(contexts.n_tokens, 3))
    shutil.rmtree(tmp_path / "s")
    with pytest.raises(FileNotFoundError, match="the folder was removed"):
        writer.commit(buffer)
    assert not (tmp_path / "s").exists()


def test_sizes_are_given_in_units_that_show_them():
    sizes = [0, 999, 1000, 44_000, 999_999, 1_000_000, 12_345_678_901, 5 * 10**15, 10**19]
    assert [size_text(size) for size in sizes] == [
        "0 bytes", "999 bytes", "1.00 kB", "44.00 kB", "1000.00 kB", "1.00 MB", "12.35 GB", "5.00 PB", "10000.00 PB",
    ]  # fmt: skip
