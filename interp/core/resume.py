"""What of a run is saved, and how a run goes on from it with the bits that an uninterrupted one has."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core import distributed
from interp.core.checkpoint import (
    META,
    Checkpoint,
    latest_checkpoint,
    load_checkpoint,
    load_latest,
    remove_after,
    save_checkpoint,
)
from interp.core.config import to_dict
from interp.core.device import RngBundle, derive_seed, seed_everything
from interp.core.history import History
from interp.core.identity import Identity
from interp.core.stream import DataStream
from interp.core.trainer_config import FREE_TO_CHANGE

if TYPE_CHECKING:
    from interp.core.trainer import Trainer

logger = logging.getLogger(__name__)


def save(trainer: Trainer, task: Any, stream: DataStream) -> None:
    """Write a checkpoint of everything; all ranks must call it."""
    generators = distributed.gather(RngBundle.capture().state)
    if trainer.runtime.rank == 0:
        state = {
            "optimizer": trainer.optimizer.optimizer.state_dict() if trainer.optimizer else {},
            "scaler": trainer.runtime.scaler.state_dict() if trainer.runtime.scaler else {},
            "task": task.state_dict() if hasattr(task, "state_dict") else {},
            "stream": stream.state_dict(),
            "callbacks": [[type(c).__name__, c.state_dict()] for c in trainer.callbacks],
            "skipped_steps": trainer.skipped_steps,
            "seconds": trainer.seconds,
            "stop_reason": trainer.stop_reason,
            "generators": generators,
            "history": trainer.history.tally(),
        }
        meta = {
            "config": _fixed_config(trainer, task),
            "max_steps": trainer.max_steps,
            "world_size": trainer.runtime.world_size,
            "environment": trainer.environment,
            "time": time.time(),
        }
        assert trainer.config.out_dir is not None
        save_checkpoint(
            trainer.config.out_dir,
            trainer.step,
            weights=trainer.weights(),
            state=state,
            meta=meta,
            keep_last=trainer.config.keep_last,
        )
    trainer.runtime.barrier()


def find(trainer: Trainer, resume: str | os.PathLike[str] | None) -> Checkpoint | None:
    """The checkpoint that `resume` means. Where it means none, those in the run's folder are removed."""
    checkpoint = None
    if resume == "auto":
        out_dir = trainer.config.out_dir
        checkpoint = load_latest(out_dir) if out_dir is not None else None
    elif resume is not None:
        path = Path(resume)
        inside = None if (path / META).exists() else latest_checkpoint(path)
        checkpoint = load_checkpoint(inside or path)
    trainer.runtime.barrier()
    if checkpoint is None:
        _remove_replaced(trainer, after=-1)
    return checkpoint


def _remove_replaced(trainer: Trainer, after: int) -> None:
    """Remove the checkpoints of the run's folder past a step, for this run writes its own."""
    if trainer.config.out_dir is not None and trainer.runtime.rank == 0:
        removed = remove_after(trainer.config.out_dir, after)
        if removed:
            logger.warning("removed the checkpoints that this run replaces: %s", ", ".join(map(str, removed)))


def restore(trainer: Trainer, task: Any, stream: DataStream, checkpoint: Checkpoint) -> None:
    """Put everything back but the global generators (`restore_generators`, just before the first batch).

    Later checkpoints in the run's folder go when all of it fitted, not before.
    """
    _compare(_fixed_config(trainer, task), checkpoint)
    for name, module in trainer.modules.items():
        prefix = f"{name}."
        own = {k.removeprefix(prefix): v for k, v in checkpoint.weights.items() if k.startswith(prefix)}
        module.load_state_dict(own)
    state = checkpoint.state
    if trainer.optimizer is not None:
        trainer.optimizer.optimizer.load_state_dict(state["optimizer"])
    if trainer.runtime.scaler is not None:
        trainer.runtime.scaler.load_state_dict(state["scaler"])
    if hasattr(task, "load_state_dict"):
        task.load_state_dict(state["task"])
    stream.load_state_dict(state["stream"])
    names = [name for name, _ in state["callbacks"]]
    if names != [type(callback).__name__ for callback in trainer.callbacks]:
        raise ValueError(
            f"{checkpoint.path} was made with callbacks {names}; give the same ones in the same order"
        )
    for callback, (_, saved) in zip(trainer.callbacks, state["callbacks"], strict=True):
        callback.load_state_dict(saved)
    trainer.step, trainer.seconds = checkpoint.step, state["seconds"]
    trainer.skipped_steps, trainer.stop_reason = state["skipped_steps"], state["stop_reason"]
    if trainer.tracker.folder is not None:
        trainer.history = History.read(trainer.tracker.folder, until=trainer.step)
        trainer.history.check(state["history"], trainer.tracker.folder)
    _remove_replaced(trainer, after=checkpoint.step)
    if checkpoint.meta["max_steps"] != trainer.max_steps:
        logger.warning(
            "max_steps was %s and is now %s: what is scheduled over the whole run changes from here on",
            checkpoint.meta["max_steps"],
            trainer.max_steps,
        )
    finished = trainer.max_steps is not None and trainer.step >= trainer.max_steps
    message = "finished already at step %d (%s)" if finished else "going on from step %d (%s)"
    logger.info(message, trainer.step, checkpoint.path)


def restore_generators(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """The global generators of this rank, as they were."""
    saved = checkpoint.state["generators"]
    rank, world = trainer.runtime.rank, trainer.runtime.world_size
    if len(saved) == world:
        RngBundle(saved[rank]).restore()
        return
    logger.warning(
        "%s was made by %d processes, this run has %d: it goes on, but not bit for bit",
        checkpoint.path,
        len(saved),
        world,
    )
    seed_everything(derive_seed(trainer.config.seed, "resumed", trainer.step, rank))


def _fixed_config(trainer: Trainer, task: Any) -> dict[str, Any]:
    """What must not change between a run and its continuation, as JSON gives it back."""
    own = {name: value for name, value in to_dict(trainer.config).items() if name not in FREE_TO_CHANGE}
    return json.loads(json.dumps({"trainer": own, "task": task.config() if hasattr(task, "config") else {}}))


def _compare(asked: dict[str, Any], checkpoint: Checkpoint) -> None:
    Identity("run", asked).check(
        Identity("run", checkpoint.meta["config"]),
        checkpoint.path,
        "use the same settings, another folder, or start anew (resume=None, --no-resume)",
    )
