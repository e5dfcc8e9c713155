"""What test_distributed.py runs in two processes: `torchrun --nproc-per-node 2 -m tests.core.distributed_job OUT`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import torch

from interp.core.callbacks import Callback
from interp.core.distributed import gather, is_main
from interp.core.runtime import Runtime
from interp.core.stream import ArrayStream
from interp.core.task import OptimizerSpec
from interp.core.trainer import Trainer, TrainerConfig
from tests.core.tasks import Dropout, Fused, Linear, float_stream, regression, without_clock


def fit(
    task: Any, stream: Any, runtime: Runtime, callbacks: Any = (), valid: Any = None, **changes: Any
) -> Trainer:
    settings = {"max_steps": 9, "batch_size": 13, "log_every": 1, "progress": False, **changes}
    trainer = Trainer(TrainerConfig(**settings), runtime, callbacks)
    trainer.fit(task, stream, valid)
    return trainer


def weighted(n: int) -> ArrayStream:
    """Rows of uneven weight, so that counts differ between micro-batches and ranks."""
    x, y = regression(n)
    return ArrayStream((x, y, torch.arange(n) % 5 + 0.25), seed=4)


def exact(runtime: Runtime, accumulate: int, n: int) -> dict[str, Any]:
    """Least squares under uneven weights; with n = 27 the last batch of an epoch is a single row."""
    task = Linear()
    trainer = fit(
        task, weighted(n), runtime, valid=weighted(n), eval_every=3, accumulate=accumulate, grad_clip=2.0
    )
    return {"weights": trainer.weights(), "rows": without_clock(trainer.history)}


class Scheduled(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        return OptimizerSpec(optimizer, lambda step: self.asked.append(step) or 1.0)  # type: ignore[func-returns-value]


class Around(Linear):
    """Calls its module, not the wrapped one."""

    def loss(self, batch: Any, ctx: Any) -> Any:
        ctx.modules["model"] = self.model
        return super().loss(batch, ctx)


class StopOnRank1(Callback):
    def on_log(self, trainer: Trainer, step: int, metrics: dict[str, float]) -> None:
        if step == 4 and trainer.runtime.rank == 1:
            trainer.stop("rank 1 has had enough")


class InterruptedOnLastRank(Dropout):
    """Ctrl-C on one rank during step 13."""

    def after_step(self, ctx: Any) -> None:
        super().after_step(ctx)
        if ctx.step == 12 and ctx.runtime.rank == ctx.runtime.world_size - 1:
            signal.raise_signal(signal.SIGINT)


def resumed(runtime: Runtime, folder: Path) -> str:
    """Ctrl-C on one rank at step 13 of 30, then the rest; says how the first part ended."""
    settings = {"max_steps": 30, "batch_size": 16, "accumulate": 2, "out_dir": str(folder)}
    ended = "not interrupted"
    try:
        fit(InterruptedOnLastRank(), float_stream(), runtime, **settings)
    except KeyboardInterrupt:
        ended = "interrupted"
    fit(Dropout(), float_stream(), runtime, **settings)
    return ended


def error_of(task: Any, runtime: Runtime) -> str:
    try:
        fit(task, weighted(47), runtime)
    except ValueError as error:
        return str(error)
    return "no error"


def main(out: Path) -> None:
    runtime = Runtime.fabric(accelerator="cpu")
    results: dict[str, Any] = {"rank": runtime.rank, "world_size": runtime.world_size}
    for accumulate, n in ((1, 47), (3, 47), (2, 27)):
        results[f"exact-{accumulate}-{n}"] = exact(runtime, accumulate, n)
    scheduled = Scheduled()
    fit(scheduled, weighted(47), runtime, max_steps=100, accumulate=2)
    results["asked"] = scheduled.asked
    results["stopped"] = fit(Linear(), weighted(47), runtime, (StopOnRank1(),)).step
    fit(Dropout(), float_stream(), runtime, max_steps=12, batch_size=16, out_dir=str(out / "short"))
    settings = {"max_steps": 30, "batch_size": 16, "accumulate": 2, "out_dir": str(out / "straight")}
    fit(Dropout(), float_stream(), runtime, **settings)
    results["ended"] = resumed(runtime, out / "resumed")
    results["around"] = error_of(Around(), runtime)
    plain = Runtime("cpu")
    results["plain"] = error_of(Linear(), plain)
    fused = Fused()
    fit(fused, float_stream(), plain)
    results["updates"] = fused.updates
    results["gathered"] = gather(runtime.rank)
    results["is_main"] = is_main()
    torch.save(results, out / f"rank{runtime.rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
    main(Path(sys.argv[1]))
