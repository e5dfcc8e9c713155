"""Where the numbers go: a file of ours, and W&B without a network."""

from __future__ import annotations

import json
import sys
import time

import pytest

from interp.core.runtime import Runtime
from interp.core.tracking import Tracker, make_tracker
from interp.core.trainer import Trainer, TrainerConfig
from tests.core.tasks import Dropout, float_stream


def test_jsonl_rows_and_what_made_them(tmp_path):
    tracker = make_tracker("jsonl", tmp_path / "run", config={"lr": 0.1})
    tracker.log({"loss": 1.5}, 1)
    tracker.log({"loss": float("nan"), "l0": 3}, 2)
    tracker.summary({"loss": float("inf"), "l0": 3})
    tracker.finish()
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 1, "loss": 1.5},
        {"step": 2, "loss": None, "l0": 3},
    ]
    assert json.loads((tmp_path / "run/summary.json").read_text()) == {"loss": None, "l0": 3}
    facts = json.loads((tmp_path / "run/run.json").read_text())
    assert facts["config"] == {"lr": 0.1}
    assert "git_commit" in facts["environment"]
    assert "torch" in facts["environment"]["versions"]


@pytest.mark.parametrize("kind", ["none", "jsonl"])
def test_nothing_is_kept_without_a_folder_or_when_not_wanted(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    tracker = make_tracker(kind, tmp_path if kind == "none" else None)
    tracker.log({"loss": 1.0}, 1)
    tracker.summary({"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_other_ranks_keep_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    make_tracker("jsonl", tmp_path).log({"loss": 1.0}, 1)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_tracker_is_named():
    with pytest.raises(ValueError, match=r"tracker = 'wandbb' is not known; did you mean 'wandb'\?"):
        make_tracker("wandbb")


def test_the_trainer_keeps_a_file_by_itself(tmp_path):
    config = TrainerConfig(max_steps=3, log_every=1, progress=False, out_dir=str(tmp_path))
    history = Trainer(config, Runtime("cpu")).fit(Dropout(), float_stream())
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows == history.rows
    assert {"step", "loss", "lr", "seconds", "samples", "samples_per_second"} <= set(rows[0])
    assert json.loads((tmp_path / "run.json").read_text())["config"]["max_steps"] == 3


# ---- W&B


@pytest.fixture
def offline(monkeypatch):
    """No key, no network: a proxy that refuses everything."""
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_SILENT", "true")


def records(path):
    """The records of a .wandb file: a LevelDB log with W&B's seven-byte header, in blocks of 32 KiB."""
    data, position, record = path.read_bytes(), 7, b""
    assert data[:4] in (b"", b":W&B")
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        if position + 7 + length > len(data):
            return  # still being written
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def read_wandb(path):
    """Configuration, run record and rows of a .wandb file, once W&B's own process has written its last record."""
    from wandb.proto import wandb_internal_pb2

    for _ in range(600):
        config, run, rows, ended = {}, None, [], False
        for data in records(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            ended |= kind == "exit"
            if kind == "run":
                run = record.run
                config |= {item.key: json.loads(item.value_json) for item in run.config.update}
            elif kind == "history":
                items = record.history.item
                rows.append(
                    {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}
                )
        if ended:
            return config, run, rows
        time.sleep(0.1)
    raise AssertionError(f"{path} never got its last record")


def test_wandb_mirrors_the_file_offline_and_a_resumed_run_joins_the_group(tmp_path, offline):
    folder = tmp_path / "run"
    for steps in (4, 7):
        tracker = make_tracker("wandb", folder, config={"lr": 0.1}, project="test", name="small")
        config = TrainerConfig(max_steps=steps, log_every=1, progress=False, out_dir=str(folder))
        Trainer(config, Runtime("cpu"), tracker=tracker).fit(Dropout(), float_stream())
        tracker.summary({"final": 1.0})
        tracker.finish()
    ours = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in ours] == list(range(1, 8))
    known = json.loads((folder / "wandb.json").read_text())
    theirs = []
    for run_id in known["runs"]:
        (path,) = folder.glob(f"wandb/offline-run-*-{run_id}/run-{run_id}.wandb")
        config, run, rows = read_wandb(path)
        assert (run.project, run.display_name, run.run_group) == ("test", "small", known["group"])
        assert config["lr"] == 0.1
        assert "torch" in config["environment"]["versions"]
        theirs += rows
    assert len(known["runs"]) == 2
    assert [row["_step"] for row in theirs] == list(range(1, 8))
    assert [row["loss"] for row in theirs] == [row["loss"] for row in ours]


def test_without_wandb_there_is_one_warning_and_the_file(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "wandb", None)
    for folder in ("a", "b"):
        tracker = make_tracker("wandb", tmp_path / folder)
        assert type(tracker) is Tracker
        tracker.log({"loss": 1.0}, 1)
        assert (tmp_path / folder / "metrics.jsonl").exists()
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "tracker = 'wandb', but wandb is not installed: logging to a file only"
    ]


def test_a_wandb_that_can_not_start_does_not_stop_the_run(tmp_path, monkeypatch, caplog):
    import wandb

    def refuse(**arguments):
        raise wandb.errors.AuthenticationError("no API key")

    monkeypatch.setattr(wandb, "init", refuse)
    assert type(make_tracker("wandb", tmp_path)) is Tracker
    assert "W&B could not start (no API key)" in caplog.text


def test_a_run_that_the_user_has_open_stays_open(tmp_path, offline):
    import wandb

    theirs = wandb.init(project="theirs", dir=str(tmp_path), mode="offline")
    try:
        tracker = make_tracker("wandb", tmp_path / "run", project="ours")
        tracker.log({"loss": 1.0}, 1)
        assert tracker.run.id != theirs.id
        tracker.finish()
        theirs.log({"still": "open"})
        assert wandb.run is None or wandb.run.id == theirs.id
    finally:
        theirs.finish()


def test_a_wandb_mode_of_no_meaning_does_not_stop_the_run(tmp_path, offline, monkeypatch, caplog):
    monkeypatch.setenv("WANDB_MODE", "bogus")
    monkeypatch.setattr("interp.core.messages._said", set())
    tracker = make_tracker("wandb", tmp_path)
    assert type(tracker) is Tracker
    assert "W&B could not start (1 validation error" in caplog.text
    assert "'bogus'" in caplog.text


@pytest.mark.parametrize("content", ["[]", "{}", '{"group": 1}', "{"])
def test_a_damaged_record_of_runs_is_named(tmp_path, offline, content):
    (tmp_path / "wandb.json").write_text(content)
    tracker = make_tracker("wandb", tmp_path)
    assert type(tracker) is Tracker
