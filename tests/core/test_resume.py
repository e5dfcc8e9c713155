"""A resumed run ends with the bits of an uninterrupted one."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from interp.core.callbacks import Callback, EarlyStopping, KeepBest
from interp.core.checkpoint import WEIGHTS, latest_checkpoint, load_checkpoint
from interp.core.lock import FolderInUse
from interp.core.runtime import Runtime
from interp.core.stream import ArrayStream
from interp.core.trainer import Trainer, TrainerConfig
from tests.core.processes import start
from tests.core.tasks import Dropout, Fused, Linear, float_stream, regression, without_clock

STEPS = 30


def run(out_dir, *, task=None, stop_at=None, stream=None, callbacks=(), valid=None, resume="auto", **changes):
    """30 steps of 16 samples in two parts, of 60: the epochs end inside the run, and no stop is at an end of one."""
    settings = {
        "max_steps": STEPS,
        "batch_size": 16,
        "accumulate": 2,
        "log_every": 1,
        "progress": False,
        **changes,
    }
    config = TrainerConfig(out_dir=str(out_dir), **settings)
    task = task or Dropout()
    trainer = Trainer(config, Runtime("cpu"), callbacks)
    if stop_at is not None:
        interrupt_after(task, stop_at)
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(task, stream or float_stream(), valid, resume)
    else:
        trainer.fit(task, stream or float_stream(), valid, resume)
    return trainer, task


def interrupt_after(task, steps):
    """Ctrl-C in the middle of step number `steps`."""
    loss, asked = task.loss, []

    def interrupting(batch, ctx):
        if ctx.step == steps - 1 and not asked:
            asked.append(signal.raise_signal(signal.SIGINT))
        return loss(batch, ctx)

    task.loss = interrupting


def assert_equal(one, other):
    """Nested states, bit for bit."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


def assert_same_run(one, other):
    """Weights, optimiser, generators, data position, the task's own state and the logged rows."""
    a, b = load_checkpoint(latest_checkpoint(one)), load_checkpoint(latest_checkpoint(other))
    assert a.step == b.step
    assert_equal(a.weights, b.weights)
    clocks = {"seconds": 0.0}
    assert_equal({**a.state, **clocks}, {**b.state, **clocks})
    assert (a.path / WEIGHTS).read_bytes() == (b.path / WEIGHTS).read_bytes()
    rows = [
        [json.loads(line) for line in (f / "metrics.jsonl").read_text().splitlines()] for f in (one, other)
    ]
    assert without_clock(rows[0]) == without_clock(rows[1])
    steps = [row["step"] for row in rows[1]]
    assert steps == sorted(set(steps))


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    run(folder)
    return folder


@pytest.mark.parametrize("stops", [(13,), (5, 11, 23)])
def test_interrupted_runs_end_with_the_same_bits(tmp_path, straight, stops):
    for stop in stops:
        trainer, _ = run(tmp_path, stop_at=stop)
        assert trainer.step == stop
    trainer, task = run(tmp_path)
    assert trainer.step == STEPS
    assert task.seen == STEPS
    assert_same_run(tmp_path, straight)


def test_a_crash_goes_back_to_the_last_checkpoint_and_repeats_no_row(tmp_path, straight):
    class Crashing(Dropout):
        def loss(self, batch, ctx):
            if ctx.step == 17:
                raise RuntimeError("power cut")
            return super().loss(batch, ctx)

    with pytest.raises(RuntimeError, match="power cut"):
        run(tmp_path, task=Crashing(), checkpoint_every=6)
    assert latest_checkpoint(tmp_path).name == "step_00000012"
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 18, "lo')  # the row that was being written
    trainer, _ = run(tmp_path, checkpoint_every=6)
    assert len(trainer.history) == STEPS
    assert_same_run(tmp_path, straight)


def test_a_checkpoint_before_the_newest_can_be_chosen_and_the_later_ones_go(tmp_path, straight):
    run(tmp_path, stop_at=23, checkpoint_every=10, keep_last=5)
    run(tmp_path, resume=tmp_path / "step_00000010", max_steps=STEPS, checkpoint_every=10, keep_last=5)
    assert sorted(p.name for p in tmp_path.glob("step_*")) == [
        "step_00000010",
        "step_00000020",
        "step_00000030",
    ]
    assert_same_run(tmp_path, straight)


def test_another_runs_folder_can_be_continued_elsewhere(tmp_path, straight):
    run(tmp_path / "first", stop_at=13)
    run(tmp_path / "second", resume=tmp_path / "first")
    a, b = (load_checkpoint(latest_checkpoint(folder)) for folder in (tmp_path / "second", straight))
    assert_equal(a.weights, b.weights)


def test_starting_anew_replaces_what_was_there(tmp_path, straight, caplog):
    run(tmp_path, max_steps=40)
    run(tmp_path, resume=None)
    assert "removed the checkpoints that this run replaces" in caplog.text
    assert_same_run(tmp_path, straight)


def test_a_finished_run_is_left_alone(tmp_path, straight):
    run(tmp_path)
    before = (latest_checkpoint(tmp_path) / "meta.json").read_text()
    trainer, task = run(tmp_path)
    assert (latest_checkpoint(tmp_path) / "meta.json").read_text() == before
    assert len(trainer.history) == STEPS
    assert task.seen == STEPS
    assert_same_run(tmp_path, straight)


def test_a_run_can_be_made_longer(tmp_path, caplog):
    run(tmp_path, max_steps=10)
    trainer, _ = run(tmp_path, max_steps=14)
    assert trainer.step == 14
    assert "max_steps was 10 and is now 14" in caplog.text


def test_a_fused_task_resumes_with_its_own_state(tmp_path):
    settings = {"accumulate": 1, "checkpoint_every": 7}
    _, straight = run(tmp_path / "straight", task=Fused(), **settings)

    class Crashing(Fused):
        def update(self, batch, ctx):
            if ctx.step == 16:
                raise RuntimeError
            return super().update(batch, ctx)

    with pytest.raises(RuntimeError):
        run(tmp_path / "resumed", task=Crashing(), **settings)
    _, resumed = run(tmp_path / "resumed", task=Fused(), **settings)
    assert torch.equal(straight.momentum, resumed.momentum)
    assert_same_run(tmp_path / "resumed", tmp_path / "straight")


def test_early_stopping_and_the_best_weights_survive(tmp_path):
    def settings(folder):
        callbacks = (EarlyStopping(patience=4), KeepBest(folder / "best.safetensors"))
        return {"callbacks": callbacks, "valid": float_stream(20, seed=9), "eval_every": 3, "max_steps": 200}

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    a, _ = run(tmp_path / "a", **settings(tmp_path / "a"))
    assert 12 < a.step < 200
    run(tmp_path / "b", **settings(tmp_path / "b"), stop_at=a.step - 4)  # patience already half spent
    b, _ = run(tmp_path / "b", **settings(tmp_path / "b"))
    assert b.step == a.step
    assert b.callbacks[0].state_dict() == a.callbacks[0].state_dict()
    assert (tmp_path / "a/best.safetensors").read_bytes() == (tmp_path / "b/best.safetensors").read_bytes()
    assert_same_run(tmp_path / "b", tmp_path / "a")
    again, _ = run(tmp_path / "b", **settings(tmp_path / "b"))
    assert again.step == a.step
    assert again.stop_reason == a.stop_reason


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"batch_size": 8}, r"trainer\.batch_size was 16 there and is 8 here"),
        ({"accumulate": 4}, r"trainer\.accumulate was 2 there and is 4 here"),
        ({"seed": 5}, r"trainer\.seed was 0 there and is 5 here"),
        ({"task": Dropout(lr=1e-3)}, r"task\.lr was 0\.01 there and is 0\.001 here"),
        ({"stream": float_stream(seed=4)}, "seed = 4 .* 3"),
        ({"stream": float_stream(n=59)}, "rows = 59 .* 60"),
        ({"callbacks": (EarlyStopping(),)}, r"callbacks \[\]"),
    ],
)
def test_another_configuration_is_refused_by_name(tmp_path, straight, changes, name):
    with pytest.raises(ValueError, match=name):
        run(tmp_path, resume=straight, **changes)


def test_what_changes_no_number_may_change(tmp_path, straight):
    run(tmp_path, stop_at=13, checkpoint_every=4, keep_last=1)
    run(tmp_path, checkpoint_every=7, keep_last=3, log_every=1, compile="eager", progress=False)
    assert (
        load_checkpoint(latest_checkpoint(tmp_path)).step == load_checkpoint(latest_checkpoint(straight)).step
    )


def test_a_second_run_in_the_folder_is_refused_while_the_first_goes_on(tmp_path):
    class Second(Callback):
        told = ""

        def on_log(self, trainer, step, metrics):
            with ThreadPoolExecutor(1) as pool, pytest.raises(FolderInUse) as caught:
                pool.submit(run, tmp_path).result()
            self.told = str(caught.value)

    second = Second()
    run(tmp_path, stop_at=1, callbacks=(second,))
    assert f"in use by another training (process {os.getpid()} on" in second.told
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1


def test_a_log_that_was_emptied_is_told(tmp_path, caplog):
    run(tmp_path, stop_at=13, checkpoint_every=4)
    (tmp_path / "metrics.jsonl").write_text("")
    run(tmp_path)
    assert re.search(
        r"metrics\.jsonl holds 0 of \d+ rows that were logged up to this checkpoint", caplog.text
    )


# ---- signals


def test_the_first_ctrl_c_finishes_the_step_and_saves(tmp_path, caplog):
    handler = signal.getsignal(signal.SIGINT)
    trainer, task = run(tmp_path, stop_at=4)
    assert (trainer.step, task.seen) == (4, 4)
    assert latest_checkpoint(tmp_path).name == "step_00000004"
    assert "SIGINT: stopping after this step" in caplog.text
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_second_ctrl_c_acts_at_once(tmp_path):
    class Impatient(Linear):
        def loss(self, batch, ctx):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, task=Impatient(), stream=ArrayStream(regression()))
    assert latest_checkpoint(tmp_path) is None


def test_sigterm_saves_and_exits_with_0(tmp_path):
    class Terminated(Linear):
        def loss(self, batch, ctx):
            if ctx.step == 2:
                signal.raise_signal(signal.SIGTERM)
            return super().loss(batch, ctx)

    with pytest.raises(SystemExit) as exit_:
        run(tmp_path, task=Terminated(), stream=ArrayStream(regression()), accumulate=1)
    assert exit_.value.code == 0
    assert latest_checkpoint(tmp_path).name == "step_00000003"


def test_an_ignored_signal_stays_ignored(tmp_path):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task = Linear()
    interrupt_after(task, 2)
    trainer, _ = run(tmp_path, task=task, stream=ArrayStream(regression()))
    assert trainer.step == STEPS
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_runs_in_threads_leave_signals_alone(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path)[0].step))
    thread.start()
    thread.join()
    assert results == [STEPS]


# ---- SIGKILL


def job(folder: str) -> None:
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    run(folder, max_steps=72, checkpoint_every=3, log_every=2)
    Path(folder, "finished").touch()


def test_killed_at_random_moments_the_finished_weights_are_the_same_bytes(tmp_path):
    """SIGKILL up to 30 ms after a new checkpoint, six times, in a step or in a save."""
    draw = random.Random(11)
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for folder in (straight, killed):
        folder.mkdir()
    start(job, str(straight)).join()
    kills = 0
    while not (killed / "finished").exists():
        before = latest_checkpoint(killed)
        process = start(job, str(killed))
        if kills < 6:
            while process.is_alive() and latest_checkpoint(killed) == before:
                process.join(0.002)
            process.join(draw.uniform(0.0, 0.03))
            process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        assert process.exitcode in (0, -signal.SIGKILL)
    assert kills >= 3
    assert_same_run(killed, straight)
    assert [p.name for p in killed.glob("step_*.tmp-*")] == []
