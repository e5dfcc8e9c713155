"""A run that was stopped and continued ends with the bits of one that wasn't."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from interp.core.callbacks import Callback
from interp.core.checkpoint import load_checkpoint
from interp.sae.loading import load_sae
from interp.sae.training import train
from tests.sae.sparse_world import sparse_rows

ROOT = Path(__file__).resolve().parents[2]

# Two dictionaries, one with dead latents that are revived before and after the stop, in the middle of an epoch.
RUN = {
    "variants": {
        "gated": {
            "d_sae": 96,
            "b_dec_init": "zero",
            "resample_at": (0.3, 0.6),
            "dead_window": 0.05,
            "init_fire_rate": None,
        },
        "baseline": {"architecture": "standard", "beta1": 0.9, "grad_clip": 1.0},
    },
    "d_sae": 40,
    "l1_coefficient": 0.5,
    "steps": 100,
    "batch_size": 128,
    "lr": 3e-3,
    "seed": 3,
    "log_every": 5,
    "progress": False,
    "checkpoint_every": None,
}


def rows():
    return sparse_rows(3000) + 2


class Interrupt(Callback):
    """The first Ctrl-C, after a step."""

    def __init__(self, step: int | None = None) -> None:
        self.step = step

    def on_log(self, trainer, step, metrics) -> None:
        if step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def interrupted(step: int, **options) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(rows(), callbacks=[Interrupt(step)], **options)


def tensors_of(value, name=""):
    """All tensors and numbers in nested state, by path."""
    if isinstance(value, dict):
        return {k: v for key in value for k, v in tensors_of(value[key], f"{name}/{key}").items()}
    if isinstance(value, list | tuple):
        return {k: v for i, item in enumerate(value) for k, v in tensors_of(item, f"{name}/{i}").items()}
    return {name: value}


def logged(folder: Path) -> list[dict]:
    """The rows of a run, without what depends on the clock."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if "seconds" not in k and "per_second" not in k} for row in rows]


def assert_same_end(a: Path, b: Path) -> None:
    """Weights, optimiser, dead counters, restarts, scale, stream, generators, logged rows."""
    first, second = (load_checkpoint(folder / "step_00000100") for folder in (a, b))
    assert set(first.weights) == set(second.weights)
    assert [k for k in first.weights if not torch.equal(first.weights[k], second.weights[k])] == []
    states = [tensors_of({k: c.state[k] for k in ("task", "stream", "generators")}) for c in (first, second)]
    assert set(states[0]) == set(states[1])
    for key, value in states[0].items():
        same = (
            torch.equal(value, states[1][key]) if isinstance(value, torch.Tensor) else value == states[1][key]
        )
        assert same, key
    assert logged(a) == logged(b)
    for name in ("gated", "baseline"):
        assert (a / name / "sae/weights.safetensors").read_bytes() == (
            b / name / "sae/weights.safetensors"
        ).read_bytes()


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    results = train(rows(), out=folder, backend="dense", callbacks=[Interrupt()], **RUN)
    dead = [row["dead"] for row in results[0].history]
    assert dead[5] > 0.1 > dead[6]  # the run does revive latents
    assert dead[11] > dead[12]
    return folder


def test_stopped_twice_in_one_process(straight, tmp_path):
    for stop in (15, 50):
        interrupted(stop, out=tmp_path, backend="dense", **RUN)
        assert load_checkpoint(tmp_path / f"step_{stop:08d}").step == stop
    train(rows(), out=tmp_path, backend="dense", callbacks=[Interrupt()], **RUN)
    assert_same_end(straight, tmp_path)


def test_continued_in_a_new_process(straight, tmp_path):
    interrupted(50, out=tmp_path, backend="dense", **RUN)
    code = (
        "from tests.sae.test_resume import *\n"
        f"train(rows(), out={str(tmp_path)!r}, backend='dense', callbacks=[Interrupt()], **RUN)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)
    assert_same_end(straight, tmp_path)


def test_the_scale_is_not_estimated_again(straight, tmp_path, monkeypatch):
    interrupted(50, out=tmp_path, backend="dense", **RUN)
    saved = load_checkpoint(tmp_path / "step_00000050").state["task"]["scales"][0]

    def refuse(*_):
        raise AssertionError("a resumed run has its scale")

    monkeypatch.setattr("interp.sae.task.activation_scale", refuse)
    results = train(rows(), out=tmp_path, backend="dense", callbacks=[Interrupt()], **RUN)
    assert [r.metadata.activation_scale for r in results] == [saved, saved]


def test_a_run_may_go_on_with_another_backend(tmp_path):
    options = {**RUN, "variants": None, "precision": "64", "steps": 6, "log_every": 1, "d_sae": 32}
    straight = train(rows(), backend="dense", **options)
    interrupted(3, out=tmp_path, backend="dense", **options)
    mixed = train(rows(), out=tmp_path, backend="reference", callbacks=[Interrupt()], **options)
    assert [row["backend"] for row in mixed.history] == ["dense"] * 3 + ["reference"] * 3
    for p, q in zip(straight.sae.parameters(), mixed.sae.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-8, atol=1e-8)


def test_an_interrupted_run_is_no_sae_yet(tmp_path):
    options = {**RUN, "variants": None, "steps": 20}
    interrupted(10, out=tmp_path / "run", backend="dense", **options)
    assert not (tmp_path / "run" / "sae").exists()
    with pytest.raises(FileNotFoundError, match="unfinished run"):
        load_sae(tmp_path / "run")
    assert load_sae(tmp_path / "run" / "step_00000010").cfg.d_sae == 40


def test_a_checkpoint_of_several_is_not_guessed_at(straight):
    with pytest.raises(ValueError, match="gated, baseline"):
        load_sae(straight / "step_00000100")
