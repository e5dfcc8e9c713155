"""Runs whose folder is not as it should be: damaged checkpoints, leftovers, a refused continuation."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from interp.core.checkpoint import load_latest, save_checkpoint
from interp.core.runtime import Runtime
from interp.core.trainer import Trainer, TrainerConfig
from tests.core.tasks import Dropout, float_stream


def run(folder: Path, max_steps: int, **changes) -> Dropout:
    resume = changes.pop("resume", "auto")
    settings = {"batch_size": 16, "checkpoint_every": 4, "keep_last": 3, "progress": False, **changes}
    task = Dropout()
    config = TrainerConfig(max_steps=max_steps, out_dir=str(folder), **settings)
    Trainer(config, Runtime("cpu")).fit(task, float_stream(), resume=resume)
    return task


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in folder.glob("step_*"))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


@pytest.mark.parametrize("name", ["state.pt", "model.safetensors", "meta.json"])
def test_a_run_goes_on_from_the_newest_checkpoint_that_is_good(tmp_path, caplog, name):
    """With the schedule of 12 steps in both, so that the last checkpoint is the very one that was damaged."""
    whole = run(tmp_path, 12)
    damaged = tmp_path / "step_00000012" / name
    cut_short(damaged)
    with caplog.at_level(logging.WARNING):
        again = run(tmp_path, 12)
    assert str(damaged) in caplog.text
    assert again.seen == whole.seen == 12
    assert again.noise_sum == whole.noise_sum
    for one, other in zip(whole.net.parameters(), again.net.parameters(), strict=True):
        assert torch.equal(one, other)
    assert steps(tmp_path) == [4, 8, 12]
    assert load_latest(tmp_path).step == 12


def test_where_no_checkpoint_is_good_the_newest_damage_is_named(tmp_path):
    run(tmp_path, 8)
    for step in (4, 8):
        cut_short(tmp_path / f"step_0000000{step}" / "state.pt")
    with pytest.raises(ValueError, match=r"step_00000008.state\.pt"):
        run(tmp_path, 12)
    assert steps(tmp_path) == [4, 8]


def test_a_refused_continuation_removes_nothing(tmp_path):
    run(tmp_path, 12)
    before = {name: (tmp_path / name).read_text() for name in ("metrics.jsonl", "run.json")}
    with pytest.raises(ValueError, match="batch_size"):
        run(tmp_path, 12, batch_size=8, resume=tmp_path / "step_00000004")
    assert steps(tmp_path) == [4, 8, 12]
    assert {name: (tmp_path / name).read_text() for name in before} == before


def test_what_interrupted_writes_left_is_removed(tmp_path):
    run(tmp_path, 4)
    (tmp_path / "step_00000008.tmp-1").mkdir()
    (tmp_path / "step_00000008.tmp-1" / "state.pt").touch()
    (tmp_path / "metrics.jsonl.tmp-1").touch()
    run(tmp_path, 8)
    assert not list(tmp_path.glob("*.tmp-*"))


@pytest.mark.parametrize("thing", [np.float64(1.0), {1, 2}, object(), np.zeros(2)])
def test_state_that_could_not_be_read_back_is_refused_when_it_is_saved(tmp_path, thing):
    with pytest.raises(TypeError, match=r"state\['task'\]\['counts'\]\[1\] is a"):
        save_checkpoint(tmp_path, 1, weights={}, state={"task": {"counts": [0, thing]}}, meta={})
    assert os.listdir(tmp_path) == []
