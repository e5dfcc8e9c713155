"""The training loop that every method shares: steps, accumulation, precision, logging, checkpoints, exact resume."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import time
from collections.abc import Iterator, Sequence, Sized
from typing import Any, cast

import torch
from torch import Tensor, nn

from interp.core import resume as resuming
from interp.core.batches import move, rows_of, split
from interp.core.callbacks import Callback
from interp.core.checkpoint import latest_checkpoint
from interp.core.config import to_dict
from interp.core.device import RngBundle, derive_seed, deterministic_algorithms, environment, seed_everything
from interp.core.history import History
from interp.core.interrupts import Interrupts
from interp.core.lock import RunLock
from interp.core.means import Means, number
from interp.core.progress import progress
from interp.core.runtime import Runtime
from interp.core.stream import DataStream
from interp.core.task import LossOutput, LossTask, OptimizerSpec, StepContext, UpdateTask
from interp.core.tracking import Tracker
from interp.core.trainer_config import TrainerConfig

__all__ = ["Trainer", "TrainerConfig"]

logger = logging.getLogger(__name__)


class Trainer:
    """Runs a task over a stream.

        history = Trainer(TrainerConfig(max_steps=1000, out_dir="run")).fit(task, stream)

    A run with an `out_dir` goes on from its newest checkpoint and ends with the bits that an uninterrupted run has.
    The first Ctrl-C (or SIGTERM) finishes the step, saves and stops.

    Attributes:
        step: optimiser steps taken.
        modules: the task's modules by name.
        optimizer: what the task configured; None for a task with its own `update`.
        history: the logged rows.
        seconds: spent in the run so far.
        skipped_steps: left out because fp16 gradients overflowed.
        stop_reason: why the run ended before `max_steps`, or None.
    """

    def __init__(
        self,
        config: TrainerConfig,
        runtime: Runtime | None = None,
        callbacks: Sequence[Callback] = (),
        tracker: Tracker | None = None,
    ) -> None:
        self.config = config
        self.runtime = runtime or Runtime("auto", config.precision)
        if self.runtime.precision != config.precision:
            raise ValueError(
                f"precision = {config.precision!r} in the config, {self.runtime.precision!r} in the runtime; "
                "give both the same"
            )
        self.callbacks = list(callbacks)
        folder = config.out_dir if self.runtime.rank == 0 else None
        self.tracker = tracker or Tracker(folder, config=to_dict(config))
        self.modules: dict[str, nn.Module] = {}
        self._wrapped: dict[str, nn.Module] = {}
        self.environment = environment() if config.out_dir is not None else {}
        self._reset()

    def _reset(self) -> None:
        self.step = self.skipped_steps = 0
        self.max_steps = self.config.max_steps or 1
        self.seconds = 0.0
        self.history = History()
        self.optimizer: OptimizerSpec | None = None
        self.stop_reason: str | None = None
        self._base_lrs: list[float] = []
        self._exchange_checked = not self.runtime.exchanges_gradients or self.runtime.world_size == 1

    def stop(self, reason: str) -> None:
        """End the run after the step in progress. A run that was stopped stays so when it is resumed."""
        self.stop_reason = reason

    def weights(self) -> dict[str, Tensor]:
        """The task's weights under `<module>.<parameter>`, copied to the CPU."""
        return {
            f"{name}.{key}": tensor.detach().cpu().clone()
            for name, module in self.modules.items()
            for key, tensor in module.state_dict().items()
        }

    def fit(
        self,
        task: LossTask | UpdateTask,
        stream: DataStream,
        valid: DataStream | None = None,
        resume: str | os.PathLike[str] | None = "auto",
    ) -> History:
        """Train `task` on `stream`; returns the logged rows.

        Seeds the global generators, which dropout draws from.

        Args:
            valid: a finite stream, evaluated whole every `eval_every` steps and at the end; the task needs `loss`.
            resume: "auto" goes on from the newest checkpoint in `out_dir`, a path from that checkpoint (or the newest
                in that folder), None starts anew and removes the checkpoints in `out_dir`.

        Raises:
            ValueError: settings that don't fit the task, a checkpoint of another configuration or a damaged one;
                `out_dir` is in use by another run.
            FloatingPointError: a loss that is NaN or infinite; names the step and the last checkpoint.
            KeyboardInterrupt: after the first Ctrl-C, when the run is saved.
        """
        self._reset()
        self._check(task, valid)
        seed_everything(self.config.seed)
        with self._lock(), deterministic_algorithms(self.config.deterministic):
            self._set_up(task)
            self.max_steps = self._steps(stream)
            if not hasattr(task, "update"):
                self.optimizer = cast(LossTask, task).configure_optimizers(self.max_steps)
                self._base_lrs = [group["lr"] for group in self.optimizer.optimizer.param_groups]
            seed_everything(derive_seed(self.config.seed, "rank", self.runtime.rank))
            checkpoint = resuming.find(self, resume)
            if checkpoint is not None:
                resuming.restore(self, task, stream, checkpoint)
            if self.tracker.folder is not None:
                self.history.rewrite(self.tracker.folder)
            with Interrupts() as interrupts, self._bar() as bar:
                if checkpoint is not None:
                    resuming.restore_generators(self, checkpoint)
                self._run(task, stream, valid, interrupts, bar)
        if self.stop_reason is not None:
            logger.info("stopped at step %d: %s", self.step, self.stop_reason)
        interrupts.act()
        return self.history

    def evaluate(self, task: LossTask, stream: DataStream) -> dict[str, float]:
        """Exact means of the loss and of the task's metrics over one epoch of a finite stream.

        The stream is put back where it was, so that every evaluation adds in the same order.

        Raises ValueError for a stream without an end, or one that stands inside an epoch.
        """
        inside = stream.samples % _length(stream, "evaluation")
        if inside:
            raise ValueError(f"the stream stands {inside} samples into an epoch; give a new one")
        self._set_up(task)
        before, epoch, means = stream.state_dict(), stream.epoch, Means()
        training = [part for module in self.modules.values() for part in module.modules() if part.training]
        for module in self.modules.values():
            module.eval()
        with torch.no_grad(), self.runtime.autocast():
            while stream.epoch == epoch:
                means.add([task.loss(self._next(stream), self._context())])
        for part in training:
            part.training = True
        stream.load_state_dict(before)
        return means.reduce(self.runtime)

    # -- the loop ----------------------------------------------------------------------------------------------

    def _run(
        self, task: Any, stream: DataStream, valid: DataStream | None, interrupts: Interrupts, bar: Any
    ) -> None:
        after_step = getattr(task, "after_step", None)
        started = time.perf_counter() - self.seconds
        logged = (self.seconds, stream.samples)
        leaving = self.stop_reason is not None
        while self.step < self.max_steps and not leaving:
            batch, ctx = self._next(stream), self._context()
            taken = task.update(batch, ctx) if self.optimizer is None else self._take_step(task, batch, ctx)
            if after_step is not None:
                after_step(ctx)
            self.step += 1
            bar.update(1)
            log, save = self._due(self.config.log_every), self._due(self.config.checkpoint_every)
            row: dict[str, Any] = {}
            if log:
                row = self._measure(taken)
                self.seconds = time.perf_counter() - started
                rate = (stream.samples - logged[1]) / max(self.seconds - logged[0], 1e-9)
                logged = (self.seconds, stream.samples)
                for callback in self.callbacks:
                    callback.on_log(self, self.step, row)
                self._show(bar, row)
                row |= {"seconds": self.seconds, "samples": stream.samples, "samples_per_second": rate}
            if valid is not None and self._due(self.config.eval_every):
                row |= self._validate(task, valid)
            if row:
                self.tracker.log(self.history.add(self.step, row), self.step)
            leaving = self._agree_to_leave(interrupts)
            if (save or leaving) and not log:
                self._measure(taken)  # nothing that isn't finite is saved
            if (save or leaving) and self.config.out_dir is not None:
                self.seconds = time.perf_counter() - started
                resuming.save(self, task, stream)

    def _due(self, every: int | None) -> bool:
        return self.step == self.max_steps or (every is not None and self.step % every == 0)

    def _next(self, stream: DataStream) -> Any:
        batch = stream.next_batch(self.config.batch_size, self.runtime.rank, self.runtime.world_size)
        if self.runtime.world_size == 1 and rows_of(batch) == 0:
            raise ValueError(f"the stream gave an empty batch after {stream.samples} samples")
        return move(batch, self.runtime.device, double=self.config.precision == "64")

    def _context(self) -> StepContext:
        return StepContext(self.step, self.max_steps, self.config.seed, self.runtime, self._wrapped)

    def _agree_to_leave(self, interrupts: Interrupts) -> bool:
        """Whether any rank got a signal or asked to stop; afterwards all ranks know it."""
        if self.runtime.world_size > 1:
            kinds = (signal.SIGINT, signal.SIGTERM)
            asked = [interrupts.received == kind for kind in kinds] + [self.stop_reason is not None]
            flags = torch.tensor(asked, dtype=torch.float32, device=self.runtime.device)
            *signals, stop = self.runtime.all_reduce(flags).tolist()
            interrupts.received = next((k for k, n in zip(kinds, signals, strict=True) if n), None)
            if stop and self.stop_reason is None:
                self.stop_reason = "another rank asked to stop"
        return interrupts.received is not None or self.stop_reason is not None

    # -- one step ----------------------------------------------------------------------------------------------

    def _take_step(
        self, task: LossTask, batch: Any, ctx: StepContext
    ) -> tuple[list[LossOutput], dict[str, Any]]:
        """Forward, backward and the optimiser's step; returns the losses and what else there is to log.

        The gradient is that of (sum of losses) / (sum of counts) over all micro-batches and ranks, whatever their
        sizes.
        """
        assert self.optimizer is not None
        optimizer, schedule = self.optimizer.optimizer, self.optimizer.schedule
        if schedule is not None:
            scale = schedule(self.step)
            for group, base in zip(optimizer.param_groups, self._base_lrs, strict=True):
                group["lr"] = base * scale
        parts = split(batch, self.config.accumulate)
        world = self.runtime.world_size
        # The count of several parts is known after the last of them: until then a constant stands for it, which
        # keeps the gradients in range.
        nominal = None if len(parts) == 1 == world else self.config.batch_size / world
        outputs: list[LossOutput] = []
        for i, part in enumerate(parts, start=1):
            with self._exchange(last=i == len(parts)):
                with self.runtime.autocast():
                    output = task.loss(part, ctx)
                self.runtime.backward(output.sum / (output.count if nominal is None else nominal))
            outputs.append(output)
        count = self._total_count(outputs)
        if self.runtime.device.type == "cpu":  # looking is free there; elsewhere it makes the device wait
            self._check_losses(outputs, count)
        logged = {"lr": optimizer.param_groups[0]["lr"]}
        if nominal is not None or self.config.grad_clip is not None:
            trained = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            if nominal is not None:
                self._check_exchange(trained)
                torch._foreach_mul_([p.grad for p in trained], nominal * world / count)
            if self.config.grad_clip is not None:
                logged["grad_norm"] = self._clip(optimizer, trained, self.config.grad_clip)
        self._step_optimizer(optimizer)
        for group in optimizer.param_groups:  # what zero_grad does, at a tenth of its cost for small models
            for parameter in group["params"]:
                parameter.grad = None
        return outputs, logged

    def _exchange(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Gradients are exchanged on the last micro-batch only."""
        if last or not self.runtime.exchanges_gradients:
            return contextlib.nullcontext()
        stack = contextlib.ExitStack()
        for module in self._wrapped.values():
            stack.enter_context(self.runtime.no_sync(module))
        return stack

    def _total_count(self, outputs: list[LossOutput]) -> Any:
        """Over micro-batches and ranks: a number on the CPU, a tensor where that would make the device wait."""
        count: Any = outputs[0].count if len(outputs) == 1 else sum(output.count for output in outputs)
        if self.runtime.world_size > 1:
            count = torch.as_tensor(count).to(self.runtime.device, torch.float64, copy=True)
            count = self.runtime.all_reduce(count)
        return number(count) if self.runtime.device.type == "cpu" else count

    def _check_losses(self, outputs: list[LossOutput], count: float) -> None:
        if count == 0:
            raise ValueError(f"the loss counted nothing in step {self.step + 1}: is everything masked?")
        for output in outputs:
            total = number(output.sum)
            if not math.isfinite(total):
                raise self._not_finite("loss", total, self.step + 1)

    def _check_exchange(self, parameters: list[Tensor]) -> None:
        """Once: a forward pass around the wrapped modules would leave every rank with gradients of its own."""
        if self._exchange_checked:
            return
        self._exchange_checked = True
        size = sum(float(p.grad.double().abs().sum()) for p in parameters if p.grad is not None)
        moments = torch.tensor([size, size**2], dtype=torch.float64, device=self.runtime.device)
        mean, square = (self.runtime.all_reduce(moments) / self.runtime.world_size).tolist()
        if square - mean**2 > 1e-8 * square:
            raise ValueError(
                "the gradients differ between ranks: call ctx.modules[...] in loss(), not the modules themselves"
            )

    def _clip(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor], largest: float) -> Tensor:
        scaler = self.runtime.scaler
        if scaler is not None:
            scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(parameters, largest)
        if scaler is None and norm.device.type == "cpu" and not math.isfinite(norm.item()):
            names = (
                f"{m}.{n}"
                for m, module in self.modules.items()
                for n, p in module.named_parameters()
                if _bad(p)
            )
            raise self._not_finite(
                f"the gradient of {next(names, 'a parameter')}", float(norm), self.step + 1
            )
        return norm

    def _step_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        scaler = self.runtime.scaler
        if scaler is None:
            optimizer.step()
            return
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        self.skipped_steps += scaler.get_scale() < before

    # -- numbers -----------------------------------------------------------------------------------------------

    def _measure(self, taken: Any) -> dict[str, Any]:
        """The step's numbers, as Python floats, and words of a fused task; all ranks must call it."""
        numbers: dict[str, Any]
        if self.optimizer is None:
            numbers = {
                name: value if isinstance(value, str) else number(value) for name, value in taken.items()
            }
        else:
            outputs, logged = taken
            means = Means()
            means.add(outputs)
            numbers = means.reduce(self.runtime) | {name: number(value) for name, value in logged.items()}
        if self.runtime.scaler is not None:
            numbers["skipped_steps"] = self.skipped_steps
        self._check_finite(numbers)
        return numbers

    def _validate(self, task: Any, valid: DataStream) -> dict[str, float]:
        generators = RngBundle.capture()
        metrics = {f"valid_{name}": value for name, value in self.evaluate(task, valid).items()}
        generators.restore()
        self._check_finite(metrics)
        for callback in self.callbacks:
            callback.on_evaluate(self, self.step, metrics)
        return metrics

    def _check_finite(self, numbers: dict[str, Any]) -> None:
        for name, value in numbers.items():
            if name.endswith("loss") and not math.isfinite(value):
                raise self._not_finite(name, value, self.step)

    def _not_finite(self, name: str, value: float, step: int) -> FloatingPointError:
        folder = self.config.out_dir
        last = latest_checkpoint(folder) if folder is not None else None
        return FloatingPointError(
            f"{name} is {value} at step {step}; last good checkpoint: {last}. Lower the learning rate, clip the "
            "gradients or look at the data"
        )

    def _show(self, bar: Any, numbers: dict[str, Any]) -> None:
        if self.config.progress:
            shown = [(name, value) for name, value in numbers.items() if not isinstance(value, str)][:3]
            bar.set_postfix({name: f"{value:.4g}" for name, value in shown}, refresh=False)

    # -- set-up ------------------------------------------------------------------------------------------------

    def _check(self, task: Any, valid: DataStream | None) -> None:
        if hasattr(task, "update"):
            for name, neutral in (("accumulate", 1), ("grad_clip", None)):
                if getattr(self.config, name) != neutral:
                    raise ValueError(
                        f"{name} = {getattr(self.config, name)}: this task takes its own steps and can't be split; "
                        f"set {name}={neutral}"
                    )
        elif not (hasattr(task, "loss") and hasattr(task, "configure_optimizers")):
            raise TypeError(
                f"task of type {type(task).__name__} needs loss and configure_optimizers, or update"
            )
        elif self.runtime.world_size > 1 and not self.runtime.exchanges_gradients:
            raise ValueError(
                f"{self.runtime.world_size} processes, but this runtime exchanges no gradients; pass "
                "runtime=Runtime.fabric(), or start one process"
            )
        if valid is not None and not hasattr(task, "loss"):
            raise TypeError(f"valid needs a task with loss(batch, ctx), which {type(task).__name__} lacks")
        if valid is None and self.config.eval_every is not None:
            raise ValueError(
                f"eval_every = {self.config.eval_every}, but there is no valid stream to evaluate on"
            )

    def _set_up(self, task: LossTask | UpdateTask) -> None:
        modules = task.modules()
        if not modules:
            raise ValueError("task.modules() is empty; name at least one nn.Module to train and save")
        if modules == self.modules:
            return
        self.modules = dict(modules)
        if self.config.compile:
            backend = self.config.compile if isinstance(self.config.compile, str) else "inductor"
            for module in modules.values():
                module.compile(backend=backend)
        self._wrapped = {name: self.runtime.setup(module) for name, module in modules.items()}

    def _lock(self) -> contextlib.AbstractContextManager[Any]:
        """The run's folder has one writer."""
        if self.config.out_dir is None or self.runtime.rank > 0:
            return contextlib.nullcontext()
        return RunLock(self.config.out_dir, "training")

    def _steps(self, stream: DataStream) -> int:
        if self.config.max_steps is not None:
            return self.config.max_steps
        return int(self.config.max_epochs or 0) * math.ceil(
            _length(stream, "max_epochs") / self.config.batch_size
        )

    @contextlib.contextmanager
    def _bar(self) -> Iterator[Any]:
        enabled: Any = "auto" if self.config.progress else False
        with progress(total=self.max_steps, desc="train", unit="step", enabled=enabled) as bar:
            bar.update(self.step)
            yield bar


def _length(stream: DataStream, needed_by: str) -> int:
    if not isinstance(stream, Sized):
        raise ValueError(f"{needed_by} needs a stream with a length, {type(stream).__name__} has none")
    return len(stream)


def _bad(parameter: nn.Parameter) -> bool:
    """Whether its gradient has a NaN or an infinity."""
    return parameter.grad is not None and not bool(parameter.grad.isfinite().all())
