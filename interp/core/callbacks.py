"""What may happen between steps: early stopping and keeping the best weights. Their state resumes with the run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.files import atomic_write
from interp.core.messages import one_of
from interp.core.tensor_files import write_tensors

if TYPE_CHECKING:
    from interp.core.trainer import Trainer


class Callback:
    """Called in list order, between steps; `trainer.stop(reason)` ends the run after this step."""

    def on_log(self, trainer: Trainer, step: int, metrics: dict[str, float]) -> None:
        """After a step whose metrics are logged."""

    def on_evaluate(self, trainer: Trainer, step: int, metrics: dict[str, float]) -> None:
        """After an evaluation on the validation stream; names start with `valid_`."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""


class _Monitor(Callback):
    """Remembers the best value of one evaluated metric."""

    def __init__(self, monitor: str = "valid_loss", mode: str = "min", min_delta: float = 0.0) -> None:
        one_of("mode", mode, ("min", "max"))
        self.monitor, self.mode, self.min_delta = monitor, mode, min_delta
        self.best = math.inf if mode == "min" else -math.inf

    def improved(self, metrics: dict[str, float]) -> bool:
        if self.monitor not in metrics:
            raise ValueError(f"monitor = {self.monitor!r} was not measured; measured: {', '.join(metrics)}")
        value = metrics[self.monitor]
        gain = self.best - value if self.mode == "min" else value - self.best
        if gain > self.min_delta:
            self.best = value
            return True
        return False

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = state["best"]


class EarlyStopping(_Monitor):
    """Stop when `monitor` has not improved by more than `min_delta` in `patience` evaluations in a row."""

    def __init__(
        self, monitor: str = "valid_loss", *, patience: int = 3, mode: str = "min", min_delta: float = 0.0
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if patience < 1:
            raise ValueError(f"patience = {patience} must be at least 1")
        self.patience, self.waited = patience, 0

    def on_evaluate(self, trainer: Trainer, step: int, metrics: dict[str, float]) -> None:
        self.waited = 0 if self.improved(metrics) else self.waited + 1
        if self.waited >= self.patience:
            trainer.stop(
                f"{self.monitor} has not improved in {self.patience} evaluations (best {self.best:.6g})"
            )

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.waited = state["waited"]


class KeepBest(_Monitor):
    """Write the weights of the best evaluation to `path` (one safetensors file)."""

    def __init__(self, path: str | Path, monitor: str = "valid_loss", *, mode: str = "min") -> None:
        super().__init__(monitor, mode)
        self.path = Path(path)

    def on_evaluate(self, trainer: Trainer, step: int, metrics: dict[str, float]) -> None:
        if self.improved(metrics) and trainer.runtime.rank == 0:
            about = json.dumps({"step": step, self.monitor: self.best})
            with atomic_write(self.path) as temporary:
                write_tensors(temporary, trainer.weights(), {"best": about})
