"""Two processes train what one process trains. One torchrun serves all tests here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from interp.core import distributed
from interp.core.checkpoint import latest_checkpoint, load_checkpoint
from interp.core.runtime import Runtime
from interp.core.trainer import Trainer, TrainerConfig
from tests.core.distributed_job import exact, fit, resumed
from tests.core.tasks import Dropout, float_stream

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    out = tmp_path_factory.mktemp("job")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "tests.core.distributed_job", str(out)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    ranks = [torch.load(out / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]
    return out, ranks


def test_the_ranks_know_themselves(job):
    _, ranks = job
    assert [(r["rank"], r["world_size"], r["is_main"]) for r in ranks] == [(0, 2, True), (1, 2, False)]
    assert [r["gathered"] for r in ranks] == [[0, 1]] * 2


@pytest.mark.parametrize(("accumulate", "n"), [(1, 47), (3, 47), (2, 27)])
def test_two_processes_equal_one(job, accumulate, n):
    alone = exact(Runtime("cpu"), 1, n)
    for rank in job[1]:
        both = rank[f"exact-{accumulate}-{n}"]
        assert list(both["weights"]) == ["model.weight"]
        torch.testing.assert_close(both["weights"], alone["weights"], rtol=0, atol=1e-12)
        assert len(both["rows"]) == len(alone["rows"])
        for a, b in zip(both["rows"], alone["rows"], strict=True):
            assert set(a) == set(b)
            for name in ("loss", "rmse2", "grad_norm", "valid_loss", "samples"):
                if name in b:
                    assert a[name] == pytest.approx(b[name], rel=1e-12), (name, a["step"])


def test_the_schedule_steps_once_a_step(job):
    assert [rank["asked"] for rank in job[1]] == [list(range(100))] * 2


def test_one_rank_stops_all(job):
    assert [rank["stopped"] for rank in job[1]] == [4, 4]


def test_a_signal_to_one_rank_saves_and_the_resumed_run_has_the_same_bits(job):
    out, ranks = job
    assert [rank["ended"] for rank in ranks] == ["interrupted"] * 2
    straight, again = (load_checkpoint(latest_checkpoint(out / name)) for name in ("straight", "resumed"))
    assert (straight.step, again.step) == (30, 30)
    assert (straight.path / "model.safetensors").read_bytes() == (
        again.path / "model.safetensors"
    ).read_bytes()
    assert len(again.state["generators"]) == 2
    for one, other in zip(straight.state["generators"], again.state["generators"], strict=True):
        assert torch.equal(one["torch"], other["torch"])
    assert not torch.equal(again.state["generators"][0]["torch"], again.state["generators"][1]["torch"])
    assert len((out / "resumed/metrics.jsonl").read_text().splitlines()) == 30


def test_going_around_the_wrapped_module_is_noticed(job):
    for rank in job[1]:
        assert "gradients differ between ranks: call ctx.modules[...] in loss()" in rank["around"]


def test_a_runtime_that_exchanges_nothing_trains_fused_tasks_only(job):
    for rank in job[1]:
        assert (
            "2 processes, but this runtime exchanges no gradients; pass runtime=Runtime.fabric()"
            in rank["plain"]
        )
        assert rank["updates"] == 9


def test_one_process_goes_on_from_two_with_a_warning(job, caplog):
    out, _ = job
    config = TrainerConfig(max_steps=14, batch_size=16, log_every=1, progress=False)
    trainer = Trainer(config, Runtime("cpu"))
    trainer.fit(Dropout(), float_stream(), resume=out / "short")
    assert trainer.step == 14
    assert "made by 2 processes, this run has 1: it goes on, but not bit for bit" in caplog.text


def test_fabric_in_one_process_is_the_plain_runtime(tmp_path):
    fabric = Runtime.fabric(accelerator="cpu", devices=1)
    settings = {"max_steps": 30, "batch_size": 16, "accumulate": 2}
    plain = fit(Dropout(), float_stream(), Runtime("cpu"), **settings)
    wrapped = fit(Dropout(), float_stream(), fabric, out_dir=str(tmp_path / "straight"), **settings)
    assert list(plain.weights()) == list(wrapped.weights())
    for key, value in plain.weights().items():
        assert torch.equal(value, wrapped.weights()[key])
    assert resumed(fabric, tmp_path / "resumed") == "interrupted"
    saved = [latest_checkpoint(tmp_path / name) / "model.safetensors" for name in ("straight", "resumed")]
    assert saved[0].read_bytes() == saved[1].read_bytes()


def test_sharding_strategies_are_refused():
    from lightning_fabric.strategies import ModelParallelStrategy

    strategy = ModelParallelStrategy(lambda module, mesh: module)
    with pytest.raises(ValueError, match="ModelParallelStrategy shards the weights"):
        Runtime.fabric(accelerator="cpu", devices=1, strategy=strategy)


def test_fabric_is_named_where_it_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    with pytest.raises(ImportError, match=r"interp-toolkit\[distributed\]"):
        Runtime.fabric()


def test_alone_there_is_nothing_to_wait_for_or_add():
    assert (distributed.rank(), distributed.world_size(), distributed.local_rank()) == (0, 1, 0)
    distributed.init_from_env()
    distributed.barrier()
    assert distributed.all_reduce_sum(torch.ones(2)).tolist() == [1, 1]
    assert distributed.gather("x") == ["x"]


@pytest.mark.parametrize("fails", [False, True])
def test_from_main_gives_rank_0s_items_to_all_and_its_failure_too(monkeypatch, fails):
    """Two ranks, one after the other: what the first sends, the second hears."""
    sent: list[object] = []

    def items():
        yield from "ab"
        if fails:
            raise ValueError("the text is broken")

    def unread():
        raise AssertionError("the others' own items are never read")
        yield

    monkeypatch.setattr(distributed, "_joined", lambda: True)
    monkeypatch.setattr(distributed, "is_main", lambda: True)
    monkeypatch.setattr(
        distributed.dist, "broadcast_object_list", lambda message, src: sent.append(message[0])
    )
    got = distributed.from_main(items())
    assert [next(got), next(got)] == ["a", "b"]
    with pytest.raises(ValueError if fails else StopIteration, match="the text is broken" if fails else None):
        next(got)

    monkeypatch.setattr(distributed, "is_main", lambda: False)
    heard = iter(sent)
    monkeypatch.setattr(
        distributed.dist, "broadcast_object_list", lambda message, src: message.__setitem__(0, next(heard))
    )
    got = distributed.from_main(unread())
    assert [next(got), next(got)] == ["a", "b"]
    with pytest.raises(RuntimeError if fails else StopIteration, match="rank 0 failed" if fails else None):
        next(got)
