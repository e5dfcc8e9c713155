"""What a method gives the Trainer, and what the Trainer gives the method."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from interp.core.device import make_generator
from interp.core.runtime import Runtime


@dataclass(frozen=True)
class StepContext:
    """Where in the run a step is, and where it runs.

    Attributes:
        step: counts from 0; the step being taken.
        max_steps: the length of the run.
        modules: the task's modules as the runtime set them up. A forward pass goes through these, not through the
            task's own: over several devices that is what exchanges the gradients.
    """

    step: int
    max_steps: int
    seed: int
    runtime: Runtime
    modules: dict[str, nn.Module]

    @property
    def device(self) -> torch.device:
        return self.runtime.device

    @property
    def precision(self) -> str:
        return self.runtime.precision

    @functools.cached_property
    def generator(self) -> torch.Generator:
        """A generator that is a function of (seed, step, rank) alone, on the CPU."""
        return make_generator(self.seed, "step", self.step, self.runtime.rank)


@dataclass(frozen=True)
class LossOutput:
    """A loss as (sum, count), so that means are exact under accumulation, masks and ranks.

    Attributes:
        sum: the sum over the samples (tokens, pairs ...) that count; a scalar with a gradient, 0 for no samples.
        count: how many they are.
        metrics: (sum, count) pairs too, or plain numbers, taken as means over the same `count`. Detached tensors or
            floats.
    """

    sum: Tensor
    count: Tensor | float
    metrics: dict[str, tuple[Any, Any] | float | Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimiser and the multiplier of its learning rates as a function of the step (counted from 0)."""

    optimizer: torch.optim.Optimizer
    schedule: Callable[[int], float] | None = None


class LossTask(Protocol):
    """A task trained by autograd: the Trainer owns backward, accumulation, clipping and the optimiser.

    Optional members: `after_step(ctx)`; `state_dict()` and `load_state_dict(state)` for whatever else must resume
    (tensors, numbers, strings; tensors come back on the CPU); `config() -> dict`, compared on resume.
    """

    def modules(self) -> dict[str, nn.Module]: ...

    def loss(self, batch: Any, ctx: StepContext) -> LossOutput: ...

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec: ...


class UpdateTask(Protocol):
    """A task that takes the whole step itself, as a fused kernel does. Optional members as in `LossTask`.

    The numbers (and words) that `update` returns are logged as they are; with several ranks, rank 0's. Those whose
    names end in "loss" must be finite. A `loss` method, where there is one, serves evaluation.
    """

    def modules(self) -> dict[str, nn.Module]: ...

    def update(self, batch: Any, ctx: StepContext) -> Mapping[str, float | Tensor | str]: ...
