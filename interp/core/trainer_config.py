"""How long a run is, how much it takes at a time, how precisely, and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from interp.core.device import PRECISIONS
from interp.core.messages import one_of

# What may differ between a run and its continuation, because it changes no number of the training.
FREE_TO_CHANGE = frozenset(
    {
        "max_steps",
        "max_epochs",
        "compile",
        "eval_every",
        "checkpoint_every",
        "keep_last",
        "log_every",
        "progress",
        "out_dir",
    }
)


@dataclass(frozen=True)
class TrainerConfig:
    """Settings of a `Trainer`. Raises ValueError naming the field.

    Attributes:
        max_steps, max_epochs: the length; exactly one of them.
        batch_size: samples per optimiser step, over all ranks and micro-batches.
        accumulate: micro-batches per step.
        grad_clip: the largest norm of the gradient of all parameters together.
        precision: "32"; "bf16" and "fp16" compute under autocast and keep float32 weights and optimiser state
            (fp16 on CUDA only); "64" makes modules and floating-point batches float64.
        compile: compile the modules in place, with torch's default backend or the one named.
        seed: of dropout and whatever else draws from global generators; the order of the data has its own seed.
        deterministic: refuse operations that have no deterministic implementation.
        eval_every, checkpoint_every: in steps, and at the end. Without `checkpoint_every`, at the end only.
        keep_last: how many checkpoints stay.
        log_every: steps between rows of the history; the last step is always logged.
        progress: show a bar, on the first rank.
        out_dir: the folder of checkpoints and metrics.jsonl; None keeps nothing on disk.
    """

    max_steps: int | None = None
    max_epochs: int | None = None
    batch_size: int = 32
    accumulate: int = 1
    grad_clip: float | None = None
    precision: str = "32"
    compile: bool | str = False
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
                "give exactly one of max_steps and max_epochs, got "
                f"max_steps = {self.max_steps} and max_epochs = {self.max_epochs}"
            )
        one_of("precision", self.precision, PRECISIONS)
        for name in ("batch_size", "accumulate", "keep_last", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)} must be at least 1")
        for name in ("max_steps", "max_epochs", "eval_every", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} = {value} must be at least 1 (or None)")
        if self.grad_clip is not None and not self.grad_clip > 0:
            raise ValueError(f"grad_clip = {self.grad_clip} must be positive (or None)")
        if self.seed < 0:
            raise ValueError(f"seed = {self.seed} must not be negative")
