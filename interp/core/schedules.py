"""Multipliers over a run: warm-up, decay and restarts, as pure functions of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from interp.core.messages import one_of


@dataclass(frozen=True)
class Schedule:
    """A multiplier of the step, for learning rates and loss coefficients alike.

    Warm-up goes from `warmup_from` to 1 over `warmup_steps` (step t has the value at (t + 1) / warmup_steps), decay
    from 1 to `final` over the last `decay_steps` (`final` is the value at `total_steps`, which no step has). After
    every step in `restarts` the multiplier drops to `restart_from` and returns by a cosine over `restart_steps` (the
    recipe of arXiv:2404.16014 after resampling dead latents).
    """

    total_steps: int
    warmup_steps: int = 0
    warmup_from: float = 0.0
    warmup_shape: str = "linear"
    decay: str = "none"
    decay_steps: int = 0
    final: float = 0.0
    restarts: tuple[int, ...] = ()
    restart_steps: int = 0
    restart_from: float = 0.1

    def __post_init__(self) -> None:
        one_of("warmup_shape", self.warmup_shape, ("linear", "cosine"))
        one_of("decay", self.decay, ("none", "linear", "cosine"))
        if self.total_steps < 1:
            raise ValueError(f"total_steps = {self.total_steps} must be at least 1")
        for name in ("warmup_steps", "decay_steps", "restart_steps"):
            value = getattr(self, name)
            if not 0 <= value <= self.total_steps:
                raise ValueError(f"{name} = {value} must lie between 0 and total_steps = {self.total_steps}")
        if self.restarts and not self.restart_steps:
            raise ValueError(f"restarts = {self.restarts} need restart_steps of at least 1")

    def __call__(self, step: int) -> float:
        value = 1.0
        if step < self.warmup_steps:
            value *= _rise(self.warmup_from, (step + 1) / self.warmup_steps, self.warmup_shape)
        last = max((r for r in self.restarts if r < step), default=None)
        if last is not None and step - last <= self.restart_steps:
            value *= _rise(self.restart_from, (step - last) / self.restart_steps, "cosine")
        left = max(0, self.total_steps - step)
        if self.decay != "none" and left <= self.decay_steps:
            value *= _rise(self.final, left / self.decay_steps, self.decay)
        return value


def _rise(start: float, fraction: float, shape: str) -> float:
    """From `start` at 0 to 1 at 1."""
    if shape == "cosine":
        fraction = (1 - math.cos(math.pi * fraction)) / 2
    return start + (1 - start) * fraction
