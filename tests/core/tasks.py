"""Small tasks that the tests of the core train. None has to do with language models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from interp.core.device import make_generator
from interp.core.runtime import Runtime
from interp.core.schedules import Schedule
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput, OptimizerSpec, StepContext
from interp.core.trainer import Trainer, TrainerConfig

CLOCK = ("seconds", "samples_per_second")


def without_clock(rows: Any) -> list[dict[str, Any]]:
    """Rows of a history but for what the clock says."""
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in rows]


def regression(n: int = 60, d: int = 4, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """x [n d] and y [n 1] in float64, linear up to noise."""
    generator = make_generator(7, "regression")
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    weight = torch.arange(1, d + 1, dtype=torch.float64)[:, None]
    return x, x @ weight + noise * torch.randn(n, 1, generator=generator, dtype=torch.float64)


class Linear:
    """Least squares without an intercept; a third column of the batch, where there is one, masks rows."""

    def __init__(self, d: int = 4, lr: float = 0.1, dtype: torch.dtype = torch.float64) -> None:
        self.model = nn.Linear(d, 1, bias=False, dtype=dtype)
        nn.init.zeros_(self.model.weight)
        self.lr = lr

    def modules(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    def loss(self, batch: Any, ctx: StepContext) -> LossOutput:
        x, y, *rest = batch
        errors = (ctx.modules["model"](x) - y).square().sum(-1)
        mask = rest[0].to(errors.dtype) if rest else torch.ones_like(errors)
        total, count = (errors * mask).sum(), mask.sum()
        return LossOutput(total, count, {"rmse2": (total.detach(), count), "rows": float(len(x))})

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec:
        return OptimizerSpec(torch.optim.SGD(self.model.parameters(), lr=self.lr))


class Dropout:
    """A small network with everything that a resume can get wrong: dropout, Adam, a schedule, a counter of its own."""

    def __init__(self, seed: int = 0, lr: float = 1e-2) -> None:
        torch.manual_seed(seed)
        self.net = nn.Sequential(
            nn.Linear(4, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 1)
        )
        self.lr = lr
        self.seen = 0
        self.noise_sum = 0.0

    def modules(self) -> dict[str, nn.Module]:
        return {"net": self.net}

    def config(self) -> dict[str, Any]:
        return {"lr": self.lr}

    def loss(self, batch: Any, ctx: StepContext) -> LossOutput:
        x, y = batch
        return LossOutput(
            (ctx.modules["net"](x) - y).square().sum(), len(x), {"weight": self.net[0].weight[0, 0].item()}
        )

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec:
        schedule = Schedule(max_steps, warmup_steps=3, decay="cosine", decay_steps=max_steps // 2)
        return OptimizerSpec(torch.optim.AdamW(self.net.parameters(), lr=self.lr), schedule)

    def after_step(self, ctx: StepContext) -> None:
        self.seen += 1
        self.noise_sum += torch.rand((), generator=ctx.generator).item() + torch.rand(()).item()

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "noise_sum": self.noise_sum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen, self.noise_sum = state["seen"], state["noise_sum"]


class Fused:
    """A task with its own update: least squares by momentum, the momentum held outside any optimiser."""

    def __init__(self, d: int = 4) -> None:
        self.model = nn.Linear(d, 1, bias=False)
        nn.init.zeros_(self.model.weight)
        self.momentum = torch.zeros(1, d)
        self.updates = 0

    def modules(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    @torch.no_grad()
    def update(self, batch: Any, ctx: StepContext) -> dict[str, float | Tensor | str]:
        x, y = batch
        error = self.model(x) - y
        self.momentum = 0.9 * self.momentum + 2 * error.T @ x / len(x)
        self.model.weight -= 0.02 * (self.momentum + 0.1 * torch.randn(self.momentum.shape))
        self.updates += 1
        return {"route": "plain", "loss": error.square().mean(), "updates": self.updates}

    def state_dict(self) -> dict[str, Any]:
        return {"momentum": self.momentum, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.momentum, self.updates = state["momentum"], state["updates"]


def float_stream(n: int = 60, seed: int = 3) -> ArrayStream:
    """Shuffled rows of `regression` in float32."""
    x, y = regression(n)
    return ArrayStream((x.float(), y.float()), seed=seed)


def quiet(**changes: Any) -> TrainerConfig:
    """Ten steps, every one of them logged, no bar."""
    return TrainerConfig(**{"max_steps": 10, "progress": False, "log_every": 1, **changes})


def fit(
    task: Any, stream: Any, callbacks: Any = (), valid: Any = None, resume: Any = "auto", **changes: Any
) -> Trainer:
    """A finished trainer, on the CPU."""
    config = quiet(**changes)
    trainer = Trainer(config, Runtime("cpu", config.precision), callbacks)
    trainer.fit(task, stream, valid, resume)
    return trainer
