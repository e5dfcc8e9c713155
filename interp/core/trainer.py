"""The training loop that every method shares: steps, accumulation, precision, logging, checkpoints, exact resume."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from interp.core.callbacks import Callback
from interp.core.checkpoint import (
    Checkpoint,
    latest_checkpoint,
    load_checkpoint,
    remove_leftovers,
    save_checkpoint,
)
from interp.core.config import to_dict
from interp.core.device import RngBundle, environment, seed_everything
from interp.core.history import History
from interp.core.messages import one_of
from interp.core.progress import progress
from interp.core.runtime import Runtime
from interp.core.stream import DataStream
from interp.core.task import LossOutput, LossTask, OptimizerSpec, StepContext, UpdateTask
from interp.core.tracking import Tracker

logger = logging.getLogger(__name__)

# What may change between a run and its continuation: everything else must be the same.
FREE_TO_CHANGE = {
    "max_steps",
    "max_epochs",
    "checkpoint_every",
    "keep_last",
    "log_every",
    "progress",
    "out_dir",
}


@dataclass(frozen=True)
class TrainerConfig:
    """How long, how much at a time, how precisely, and what is kept.

    batch_size counts samples over all ranks and micro-batches. `checkpoint_every=None` with an `out_dir` saves at the
    end only. Raises ValueError naming the field.
    """

    max_steps: int | None = None
    max_epochs: int | None = None
    batch_size: int = 32
    accumulate: int = 1
    grad_clip: float | None = None
    precision: str = "32"
    compile: bool = False
    seed: int = 0
    deterministic: bool = False
    eval_every: int | None = None
    checkpoint_every: int | None = None
    keep_last: int = 2
    log_every: int = 10
    progress: bool = True
    out_dir: str | None = None

    def __post_init__(self) -> None:
        if (self.max_steps is None) == (self.max_epochs is None):
            raise ValueError(
                f"give exactly one of max_steps and max_epochs, got {self.max_steps} and {self.max_epochs}"
            )
        one_of("precision", self.precision, ("32", "bf16", "fp16", "64"))
        for name in ("max_steps", "max_epochs", "batch_size", "accumulate", "eval_every", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} = {value} must be at least 1")
        for name in ("keep_last", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)} must be at least 1")


class Trainer:
    """Runs a task over a stream.

        history = Trainer(TrainerConfig(max_steps=1000, out_dir="run")).fit(task, stream)

    A run with an `out_dir` continues from its newest checkpoint and ends with the bits that an uninterrupted run has.
    The first Ctrl-C (or SIGTERM) finishes the step, saves and stops.
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
        self.callbacks = list(callbacks)
        self.tracker = tracker or Tracker(config.out_dir if self.runtime.rank == 0 else None)
        self.step = 0
        self.skipped_steps = 0
        self.history = History()
        self._stop_reason: str | None = None
        self._signal: int | None = None
        self._modules: dict[str, nn.Module] = {}
        self._set_up: dict[str, nn.Module] = {}
        self._optimizer: OptimizerSpec | None = None
        self._base_lrs: list[float] = []

    def stop(self, reason: str) -> None:
        """End the run after the step in progress."""
        self._stop_reason = reason

    def weights(self) -> dict[str, Tensor]:
        """The task's weights under `<module>.<parameter>`, copied."""
        return {
            f"{name}.{key}": tensor.detach().cpu().clone()
            for name, module in self._modules.items()
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

        Args:
            valid: a finite stream, evaluated whole every `eval_every` steps (LossTask only).
            resume: "auto" continues from the newest checkpoint in `out_dir`, a path from that one, None starts anew.

        Raises:
            ValueError: settings that don't fit the task, a checkpoint of another configuration or a damaged one.
            FloatingPointError: a loss that is NaN or infinite; names the step and the last checkpoint.
            KeyboardInterrupt: after the first Ctrl-C, when the run is saved.
        """
        self._prepare(task)
        max_steps = self._max_steps(stream)
        self._configure(task, max_steps)
        checkpoint = self._find(resume)
        if checkpoint is not None:
            self._restore(task, stream, checkpoint)
        elif self.config.out_dir is not None and self.runtime.rank == 0:
            History().rewrite(self.config.out_dir)
        saved_at = self.step if checkpoint is not None else -1
        with self._signals(), self._bar(max_steps) as bar:
            if checkpoint is not None:
                RngBundle(checkpoint.state["rng"]).restore()
            while self.step < max_steps and self._stop_reason is None:
                self._one_step(task, stream, max_steps, bar)
                if valid is not None and self._due(self.config.eval_every, max_steps):
                    self._evaluate_and_log(task, valid, max_steps)
                if self._due(self.config.checkpoint_every, max_steps) or self._interrupted():
                    saved_at = self._save(task, stream)
                if self._signal is not None:
                    break
            if saved_at != self.step:
                self._save(task, stream)
        if self._stop_reason is not None:
            logger.info("stopped at step %d: %s", self.step, self._stop_reason)
        self._raise_signal()
        return self.history

    def evaluate(self, task: LossTask, stream: DataStream) -> dict[str, float]:
        """Exact means of the loss and of the task's metrics over one epoch of a finite stream."""
        if not self._modules:
            self._prepare(task)
        start = stream.epoch
        sums: dict[str, Tensor] = {}
        for module in self._modules.values():
            module.eval()
        with torch.no_grad(), self.runtime.autocast():
            while stream.epoch == start:
                batch = stream.next_batch(self.config.batch_size, self.runtime.rank, self.runtime.world_size)
                if len_of(batch):
                    output = task.loss(_to(batch, self.runtime.device), self._context(1))
                    _add(sums, output)
        for module in self._modules.values():
            module.train()
        return self._means(sums)

    # -- one step ----------------------------------------------------------------------------------------------

    def _one_step(self, task: Any, stream: DataStream, max_steps: int, bar: Any) -> None:
        batch = stream.next_batch(self.config.batch_size, self.runtime.rank, self.runtime.world_size)
        batch = _to(batch, self.runtime.device)
        ctx = self._context(max_steps)
        values = task.update(batch, ctx) if self._optimizer is None else self._autograd_step(task, batch, ctx)
        if hasattr(task, "after_step"):
            task.after_step(ctx)
        self.step += 1
        bar.update(1)
        if self.step % self.config.log_every == 0 or self.step == max_steps:
            self._log(self._numbers(values), stream, bar)

    def _autograd_step(self, task: LossTask, batch: Any, ctx: StepContext) -> dict[str, Any]:
        assert self._optimizer is not None
        optimizer, schedule = self._optimizer.optimizer, self._optimizer.schedule
        scale = schedule(self.step) if schedule is not None else 1.0
        for group, base in zip(optimizer.param_groups, self._base_lrs, strict=True):
            group["lr"] = base * scale
        sums: dict[str, Tensor] = {}
        parts = _split(batch, self.config.accumulate)
        nominal = (
            self.config.batch_size / self.runtime.world_size
        )  # keeps sums in range before the exact division
        main = next(iter(self._set_up.values()))
        for i, part in enumerate(parts):
            with self.runtime.no_sync(main, last=i == len(parts) - 1):
                with self.runtime.autocast():
                    output = task.loss(part, ctx)
                self.runtime.backward(output.sum / nominal)
            _add(sums, output)
        count = self.runtime.all_reduce(sums["loss/count"].clone())
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._finish_gradients(parameters, nominal * self.runtime.world_size / float(count))
        values = {"loss": sums["loss/sum"] / sums["loss/count"], "lr": optimizer.param_groups[0]["lr"]}
        if not self._step_optimizer(optimizer, parameters):
            self.skipped_steps += 1
        optimizer.zero_grad(set_to_none=True)
        for key, value in sums.items():
            name, kind = key.rsplit("/", 1)
            if kind == "sum" and name != "loss":
                values[name] = value / sums[f"{name}/count"]
        return values

    def _finish_gradients(self, parameters: list[Tensor], factor: float) -> None:
        if self.runtime.scaler is not None:
            self.runtime.scaler.unscale_(self._optimizer.optimizer)  # type: ignore[union-attr]
        if factor != 1.0:
            torch._foreach_mul_([p.grad for p in parameters], factor)

    def _step_optimizer(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> bool:
        """Clip and step; False when fp16 scaling had to skip the step."""
        if self.config.grad_clip is not None:
            nn.utils.clip_grad_norm_(parameters, self.config.grad_clip)
        scaler = self.runtime.scaler
        if scaler is None:
            optimizer.step()
            return True
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale() >= before

    def _log(self, values: dict[str, float], stream: DataStream, bar: Any) -> None:
        bad = [name for name, value in values.items() if name.endswith("loss") and not math.isfinite(value)]
        if bad:
            folder = self.config.out_dir
            last = latest_checkpoint(folder) if folder is not None else None
            raise FloatingPointError(
                f"{bad[0]} is {values[bad[0]]} at step {self.step}; last good checkpoint: {last}. Lower the learning "
                "rate, clip gradients, or check the data"
            )
        row = {**values, "samples": stream.samples}
        self.history.rows.append({"step": self.step, **row})
        self.tracker.log(row, self.step)
        for callback in self.callbacks:
            callback.on_log(self, self.step, values)
        shown = {k: f"{v:.4g}" for k, v in values.items() if k in ("loss", "l0", "fvu")}
        bar.set_postfix(shown, refresh=False)

    def _numbers(self, values: dict[str, Any]) -> dict[str, float]:
        return {k: float(v) if not isinstance(v, str) else v for k, v in values.items()}  # type: ignore[misc]

    def _evaluate_and_log(self, task: Any, valid: DataStream, max_steps: int) -> None:
        rng = RngBundle.capture()
        metrics = {f"valid_{name}": value for name, value in self.evaluate(task, valid).items()}
        rng.restore()
        self.history.rows.append({"step": self.step, **metrics})
        self.tracker.log(metrics, self.step)
        for callback in self.callbacks:
            callback.on_evaluate(self, self.step, metrics)

    def _means(self, sums: dict[str, Tensor]) -> dict[str, float]:
        reduced = {key: float(self.runtime.all_reduce(value)) for key, value in sums.items()}
        names = [key.removesuffix("/sum") for key in reduced if key.endswith("/sum")]
        return {name: reduced[f"{name}/sum"] / reduced[f"{name}/count"] for name in names}

    # -- set-up ------------------------------------------------------------------------------------------------

    def _prepare(self, task: LossTask | UpdateTask) -> None:
        seed_everything(self.config.seed)
        if self.config.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        self._modules = task.modules()
        if not self._modules:
            raise ValueError("task.modules() is empty; name at least one nn.Module to train and save")
        if self.config.compile:
            for module in self._modules.values():
                module.compile()
        self._set_up = {name: self.runtime.setup(module) for name, module in self._modules.items()}

    def _configure(self, task: LossTask | UpdateTask, max_steps: int) -> None:
        if isinstance(task, UpdateTask):
            for name, neutral in (("accumulate", 1), ("grad_clip", None)):
                if getattr(self.config, name) != neutral:
                    raise ValueError(
                        f"{name} = {getattr(self.config, name)}: this task takes its own steps and can't be split; "
                        f"set {name}={neutral}"
                    )
            return
        self._optimizer = task.configure_optimizers(max_steps)
        self._base_lrs = [group["lr"] for group in self._optimizer.optimizer.param_groups]
        seed_everything(self.config.seed + self.runtime.rank)  # same weights on all ranks, different dropout

    def _max_steps(self, stream: DataStream) -> int:
        if self.config.max_steps is not None:
            return self.config.max_steps
        try:
            length = len(stream)  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError("max_epochs needs a stream with a length; give max_steps instead") from error
        return int(self.config.max_epochs or 0) * math.ceil(length / self.config.batch_size)

    def _context(self, max_steps: int) -> StepContext:
        return StepContext(self.step, max_steps, self.config.seed, self.runtime, self._set_up)

    @contextmanager
    def _bar(self, max_steps: int) -> Iterator[Any]:
        enabled = "auto" if self.config.progress else False
        with progress(total=max_steps, desc="train", unit="step", enabled=enabled) as bar:  # type: ignore[arg-type]
            bar.update(self.step)
            yield bar

    def _due(self, every: int | None, max_steps: int) -> bool:
        return every is not None and (self.step % every == 0 or self.step == max_steps)

    # -- saving and resuming -----------------------------------------------------------------------------------

    def _fixed_config(self, task: Any) -> dict[str, Any]:
        own = {k: v for k, v in to_dict(self.config).items() if k not in FREE_TO_CHANGE}
        return {"trainer": own, "task": task.config() if hasattr(task, "config") else {}}

    def _save(self, task: Any, stream: DataStream) -> int:
        if self.config.out_dir is None:
            return self.step
        if self.runtime.rank == 0:
            state = {
                "optimizer": self._optimizer.optimizer.state_dict() if self._optimizer else {},
                "scaler": self.runtime.scaler.state_dict() if self.runtime.scaler else {},
                "task": task.state_dict() if hasattr(task, "state_dict") else {},
                "stream": stream.state_dict(),
                "callbacks": [callback.state_dict() for callback in self.callbacks],
                "skipped_steps": self.skipped_steps,
                "rng": RngBundle.capture().state,
            }
            meta = {"config": self._fixed_config(task), "environment": environment(), "time": time.time()}
            save_checkpoint(
                self.config.out_dir,
                self.step,
                weights=self.weights(),
                state=state,
                meta=meta,
                keep_last=self.config.keep_last,
            )
        self.runtime.barrier()
        return self.step

    def _find(self, resume: str | os.PathLike[str] | None) -> Checkpoint | None:
        if resume is None:
            return None
        if resume != "auto":
            return load_checkpoint(resume)
        if self.config.out_dir is None:
            return None
        if self.runtime.rank == 0:
            remove_leftovers(self.config.out_dir)
        newest = latest_checkpoint(self.config.out_dir)
        return load_checkpoint(newest) if newest is not None else None

    def _restore(self, task: Any, stream: DataStream, checkpoint: Checkpoint) -> None:
        differing = _difference(checkpoint.meta["config"], self._fixed_config(task))
        if differing is not None:
            name, saved, asked = differing
            raise ValueError(
                f"{checkpoint.path} was made with {name} = {saved!r}, this run asks for {asked!r}; use the same value, "
                "another out_dir, or resume=None to start anew"
            )
        for name, module in self._modules.items():
            own = {
                key.removeprefix(f"{name}."): value
                for key, value in checkpoint.weights.items()
                if key.startswith(f"{name}.")
            }
            module.load_state_dict(own)
        state = checkpoint.state
        if self._optimizer is not None:
            self._optimizer.optimizer.load_state_dict(state["optimizer"])
        if self.runtime.scaler is not None:
            self.runtime.scaler.load_state_dict(state["scaler"])
        if hasattr(task, "load_state_dict"):
            task.load_state_dict(state["task"])
        stream.load_state_dict(state["stream"])
        for callback, saved in zip(self.callbacks, state["callbacks"], strict=True):
            callback.load_state_dict(saved)
        self.skipped_steps = state["skipped_steps"]
        self.step = checkpoint.step
        if self.config.out_dir is not None:
            self.history = History.read(self.config.out_dir, until=self.step)
            if self.runtime.rank == 0:
                self.history.rewrite(self.config.out_dir)
        logger.info("continuing from step %d (%s)", self.step, checkpoint.path)

    # -- interrupts --------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM only asks to stop; a second one acts as usual."""
        self._signal = None
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = {kind: signal.getsignal(kind) for kind in kinds}

        def ask(number: int, frame: Any) -> None:
            self._signal = number
            for kind, handler in before.items():
                signal.signal(kind, handler)
            logger.warning("finishing step %d, then saving (once more to stop at once)", self.step)

        for kind in kinds:
            signal.signal(kind, ask)
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def _interrupted(self) -> bool:
        """Whether any rank was asked to stop."""
        if self.runtime.world_size == 1:
            return self._signal is not None
        asked = torch.tensor(float(self._signal or 0), device=self.runtime.device)
        if float(self.runtime.all_reduce(asked)) > 0 and self._signal is None:
            self._signal = int(signal.SIGTERM)
        return self._signal is not None

    def _raise_signal(self) -> None:
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signal == signal.SIGTERM:
            raise SystemExit(0)


# -- batches ---------------------------------------------------------------------------------------------------


def _to(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, dict):
        return {name: part.to(device, non_blocking=True) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(part.to(device, non_blocking=True) for part in batch)
    return batch.to(device)


def len_of(batch: Any) -> int:
    """Rows of a batch: of its first tensor where it is a tuple or a mapping."""
    if isinstance(batch, dict):
        return len(next(iter(batch.values())))
    return len(batch[0]) if isinstance(batch, tuple) else len(batch)


def _split(batch: Any, parts: int) -> list[Any]:
    """`parts` micro-batches of near-equal size, none empty."""
    if parts == 1:
        return [batch]
    parts = min(parts, max(1, len_of(batch)))
    if isinstance(batch, Tensor):
        return list(batch.tensor_split(parts))
    if isinstance(batch, dict):
        pieces = {name: part.tensor_split(parts) for name, part in batch.items()}
        return [{name: piece[i] for name, piece in pieces.items()} for i in range(parts)]
    return list(zip(*(part.tensor_split(parts) for part in batch), strict=True))


def _add(sums: dict[str, Tensor], output: LossOutput) -> None:
    """Accumulate (sum, count) pairs in float64."""
    pairs = {"loss": (output.sum, output.count)}
    for name, value in output.metrics.items():
        pairs[name] = value if isinstance(value, tuple) else (value, 1.0)  # type: ignore[assignment]
    for name, pair in pairs.items():
        for kind, value in zip(("sum", "count"), pair, strict=True):
            number = torch.as_tensor(value).detach().to(torch.float64)
            key = f"{name}/{kind}"
            sums[key] = sums[key] + number if key in sums else number


def _difference(saved: Any, asked: Any, where: str = "") -> tuple[str, Any, Any] | None:
    """The first field in which two nested configurations differ."""
    if isinstance(saved, dict) and isinstance(asked, dict):
        for key in [*saved, *(k for k in asked if k not in saved)]:
            found = _difference(saved.get(key), asked.get(key), f"{where}.{key}" if where else key)
            if found is not None:
                return found
        return None
    same = saved == asked or (isinstance(saved, list) and isinstance(asked, tuple) and saved == list(asked))
    return None if same else (where, saved, asked)
