"""What a method gives the Trainer, and what the Trainer gives the method."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from interp.core.device import make_generator
from interp.core.runtime import Runtime


@dataclass(frozen=True)
class StepContext:
    """Where in the run a step is, and where it runs."""

    step: int  # counts from 0; the step being taken
    max_steps: int
    seed: int
    runtime: Runtime
    modules: dict[
        str, nn.Module
    ]  # as set up by the runtime: call these in a forward pass over several devices

    @property
    def device(self) -> torch.device:
        return self.runtime.device

    @functools.cached_property
    def generator(self) -> torch.Generator:
        """A generator that is a function of (seed, step, rank) alone, on the CPU."""
        return make_generator(self.seed, "step", self.step, self.runtime.rank)


@dataclass(frozen=True)
class LossOutput:
    """A loss as (sum, count), so that means are exact under accumulation, masks and ranks.

    `metrics` are (sum, count) pairs too, or plain numbers, which are averaged over micro-batches.
    """

    sum: Tensor
    count: Tensor | float
    metrics: dict[str, tuple[Any, Any] | float | Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimiser and the multiplier of its learning rates as a function of the step."""

    optimizer: torch.optim.Optimizer
    schedule: Callable[[int], float] | None = None


@runtime_checkable
class LossTask(Protocol):
    """A task trained by autograd: the Trainer owns backward, accumulation, clipping and the optimiser.

    Optional: `after_step(ctx)`; `state_dict()` / `load_state_dict(state)` for whatever else must resume (tensors,
    numbers, strings); `config() -> dict`, compared on resume.
    """

    def modules(self) -> dict[str, nn.Module]: ...

    def loss(self, batch: Any, ctx: StepContext) -> LossOutput: ...

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec: ...


@runtime_checkable
class UpdateTask(Protocol):
    """A task that takes the whole step itself (a fused kernel). Optional members as in `LossTask`."""

    def modules(self) -> dict[str, nn.Module]: ...

    def update(self, batch: Any, ctx: StepContext) -> dict[str, float | Tensor]: ...
