"""A checkpoint is whole or absent, and says what is wrong with it."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal

import pytest
import torch

from interp.core import checkpoint as checkpoints
from interp.core.checkpoint import (
    META,
    STATE,
    WEIGHTS,
    DamagedCheckpoint,
    latest_checkpoint,
    load_checkpoint,
    remove_after,
    save_checkpoint,
)
from interp.core.files import read_sealed_json, sha256_file, write_sealed_json
from tests.core.processes import start


def save(folder, step, **changes):
    arguments = {
        "weights": {"net.weight": torch.full((3, 2), float(step))},
        "state": {"moments": torch.arange(4.0), "position": step, "name": "adam", "nested": [{"a": None}]},
        "meta": {"config": {"lr": 0.1}},
        **changes,
    }
    return save_checkpoint(folder, step, **arguments)


def test_what_is_saved_is_loaded(tmp_path):
    path = save(tmp_path, 12)
    assert path == tmp_path / "step_00000012"
    assert sorted(p.name for p in path.iterdir()) == sorted([META, STATE, WEIGHTS])
    loaded = load_checkpoint(path)
    assert loaded.step == 12
    assert torch.equal(loaded.weights["net.weight"], torch.full((3, 2), 12.0))
    assert torch.equal(loaded.state["moments"], torch.arange(4.0))
    assert (loaded.state["position"], loaded.state["nested"]) == (12, [{"a": None}])
    assert loaded.meta["config"] == {"lr": 0.1}
    assert loaded.meta["schema_version"] == 2


def test_tied_and_transposed_weights_are_saved(tmp_path):
    weight = torch.arange(6.0).reshape(2, 3)
    path = save(tmp_path, 1, weights={"a": weight.T, "b": weight.clone()})
    assert torch.equal(load_checkpoint(path).weights["a"], weight.T)


def test_the_newest_are_kept(tmp_path):
    for step in (9, 100, 99999999, 100000000):
        save(tmp_path, step, keep_last=2)
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["step_100000000", "step_99999999"]
    assert latest_checkpoint(tmp_path).name == "step_100000000"


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 3)
    save(tmp_path, 3, state={"position": "again"})
    assert load_checkpoint(latest_checkpoint(tmp_path)).state == {"position": "again"}
    assert [p.name for p in tmp_path.iterdir()] == ["step_00000003"]


def test_there_may_be_none(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "absent") is None


def test_later_checkpoints_and_leftovers_are_removed(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step, keep_last=5)
    (tmp_path / "step_00000004.tmp-123").mkdir()
    (tmp_path / "step_5_of_mine").mkdir()
    removed = remove_after(tmp_path, 1)
    assert [p.name for p in removed] == ["step_00000002", "step_00000003"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_00000001", "step_5_of_mine"]


@pytest.mark.parametrize("where", ["write_tensors", "torch.save", "write_sealed_json", "os.replace"])
def test_a_failure_leaves_the_previous_one_and_no_rubbish(tmp_path, monkeypatch, where):
    save(tmp_path, 1)

    def full(*arguments, **more):
        raise OSError(28, "No space left on device")

    owner, _, name = where.rpartition(".")
    monkeypatch.setattr(getattr(checkpoints, owner) if owner else checkpoints, name, full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, 2)
    monkeypatch.undo()
    assert load_checkpoint(latest_checkpoint(tmp_path)).step == 1
    assert [p.name for p in tmp_path.iterdir()] == ["step_00000001"]


def die_inside(folder, where):
    """Save step 2, and be killed at the first call of `where`."""

    def die(*arguments, **more):
        os.kill(os.getpid(), signal.SIGKILL)

    owner, _, name = where.rpartition(".")
    setattr(getattr(checkpoints, owner) if owner else checkpoints, name, die)
    save(folder, 2, keep_last=1)


@pytest.mark.parametrize(
    "where", ["write_tensors", "torch.save", "write_sealed_json", "sync", "os.replace", "shutil.rmtree"]
)
def test_sigkill_inside_a_save_leaves_a_loadable_newest(tmp_path, where):
    save(tmp_path, 1, keep_last=1)
    if where == "shutil.rmtree":
        (tmp_path / "step_00000002.tmp-0").mkdir()
    process = start(die_inside, tmp_path, where)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert load_checkpoint(latest_checkpoint(tmp_path)).step == 1
    remove_after(tmp_path, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["step_00000001"]


@pytest.mark.parametrize("name", [WEIGHTS, STATE])
@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_a_corrupt_file_is_named(tmp_path, name, damage):
    path = save(tmp_path, 1)
    data = bytearray((path / name).read_bytes())
    if damage == "flip":
        data[-3] ^= 1
    (path / name).write_bytes(data if damage == "flip" else data[: len(data) // 2])
    with pytest.raises(ValueError, match=rf"{path / name} is corrupt"):
        load_checkpoint(path)


def test_a_broken_meta_file_is_named(tmp_path):
    path = save(tmp_path, 1)
    (path / META).write_text('{"step": ')
    with pytest.raises(ValueError, match=rf"{path / META} is not valid JSON"):
        load_checkpoint(path)


@pytest.mark.parametrize("name", [WEIGHTS, STATE, META])
def test_a_missing_file_is_named(tmp_path, name):
    path = save(tmp_path, 1)
    (path / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing or no file"):
        load_checkpoint(path)


@pytest.mark.parametrize("version", [1, 3, None, "2"])
def test_an_unknown_schema_is_refused(tmp_path, version):
    path = save(tmp_path, 1)
    meta = json.loads((path / META).read_text())
    (path / META).write_text(json.dumps({**meta, "schema_version": version}))
    with pytest.raises(ValueError, match=rf"schema_version {version!r}; this release reads 2"):
        load_checkpoint(path)


def test_a_state_with_code_in_it_is_not_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return (shutil.rmtree, (str(tmp_path),))

    path = save(tmp_path, 1)
    torch.save({"payload": Payload()}, path / STATE)
    meta = read_sealed_json(path / META)
    meta["sha256"][STATE] = sha256_file(path / STATE)
    write_sealed_json(path / META, meta)
    with pytest.raises(ValueError, match=rf"{path / STATE} holds more than tensors"):
        load_checkpoint(path)
    assert path.exists()


def change(meta, name, value):
    content = json.loads(meta.read_text())
    content[name] = value
    meta.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("name", "value"),
    [("step", 11), ("sha256", {}), ("sha256", {"/dev/zero": "0"}), ("config", {"lr": 0.2}), ("seal", None)],
)
def test_a_meta_file_that_was_changed_is_not_believed(tmp_path, name, value):
    path = save(tmp_path, 12)
    change(path / META, name, value)
    with pytest.raises(DamagedCheckpoint, match=rf"{path / META} was changed after it was written"):
        load_checkpoint(path)


def test_file_names_in_a_meta_file_are_never_opened(tmp_path):
    path = save(tmp_path, 1)
    meta = read_sealed_json(path / META)
    write_sealed_json(path / META, {**meta, "sha256": {"/dev/zero": "0", **meta["sha256"]}})
    assert load_checkpoint(path).step == 1
    write_sealed_json(path / META, {**meta, "sha256": {WEIGHTS: meta["sha256"][WEIGHTS]}})
    with pytest.raises(DamagedCheckpoint, match=rf"{path / STATE} is corrupt"):
        load_checkpoint(path)


@pytest.mark.parametrize("name", [WEIGHTS, STATE, META])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, name):
    path = save(tmp_path, 1)
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(DamagedCheckpoint, match=f"{name} is missing or no file"):
        load_checkpoint(path)


def test_a_checkpoint_under_another_step_is_not_believed(tmp_path):
    save(tmp_path, 14).rename(tmp_path / "step_00000015")
    with pytest.raises(DamagedCheckpoint, match=r"is the checkpoint of step 14 by its meta\.json"):
        load_checkpoint(tmp_path / "step_00000015")
    (tmp_path / "step_00000015").rename(tmp_path / "best")
    assert load_checkpoint(tmp_path / "best").step == 14


def test_names_that_are_no_checkpoints_do_not_stop_a_run(tmp_path, caplog):
    for name in ("step_\u00b2", "step_\u0664", "step_", "step_-1", "step_9x", "step_" + "9" * 30):
        (tmp_path / name).mkdir()
    (tmp_path / "step_00000007").write_text("mine")
    (tmp_path / "step_00000005").symlink_to("nowhere")
    before = sorted(p.name for p in tmp_path.iterdir())
    assert latest_checkpoint(tmp_path) is None
    assert remove_after(tmp_path, -1) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    for step in (5, 7):
        assert load_checkpoint(save(tmp_path, step)).step == step
    assert (tmp_path / f"step_00000007.in-the-way-{os.getpid()}").read_text() == "mine"
    assert os.readlink(tmp_path / f"step_00000005.in-the-way-{os.getpid()}") == "nowhere"
    assert caplog.text.count("was no checkpoint") == 2


def test_of_a_linked_checkpoint_only_the_link_is_removed(tmp_path):
    elsewhere = save(tmp_path / "elsewhere", 3)
    run = tmp_path / "run"
    run.mkdir()
    (run / elsewhere.name).symlink_to(elsewhere)
    assert load_checkpoint(latest_checkpoint(run)).step == 3
    assert [p.name for p in remove_after(run, 2)] == [elsewhere.name]
    assert list(run.iterdir()) == []
    assert load_checkpoint(elsewhere).step == 3


def test_only_our_own_leftovers_are_removed(tmp_path):
    ours = ("step_00000009.tmp-12", "step_00000009.tmp-old-12")
    for name in ours:
        (tmp_path / name).mkdir()
    for name in ("metrics.jsonl.tmp-9", "weights.safetensors.tmp-9"):
        (tmp_path / name).touch()
    theirs = ("notes.tmp-old", "notes.tmp-12", "step_5.tmp-mine", "run.json.tmp-")
    for name in theirs:
        (tmp_path / name).touch()
    remove_after(tmp_path, 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(theirs)


def test_a_disk_that_fills_up_in_the_state_is_named_as_such(tmp_path, monkeypatch):
    class Full(io.FileIO):
        def write(self, data):
            if self.tell() > 5000:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data)

    monkeypatch.setattr(checkpoints.io, "FileIO", Full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        save(tmp_path, 1, state={"moments": torch.zeros(100_000)})
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
