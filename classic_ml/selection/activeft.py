"""ActiveFT: prototypes that are trained to lie near the rows and far from each other, and the rows nearest to them.

Xie et al. 2023, "Active Finetuning: Exploiting Annotation Budget in the Pretraining-Finetuning Paradigm", CVPR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from classic_ml.random_state import RandomState, as_generator
from classic_ml.selection.baselines import nearest_untaken
from classic_ml.selection.distances import as_matrix, standardized
from classic_ml.selection.herding import check_budget
from interp.core.device import RngBundle
from interp.core.runtime import Runtime
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput, OptimizerSpec, StepContext
from interp.core.trainer import Trainer, TrainerConfig

TEMPERATURE, LEARNING_RATE, STEPS = 0.07, 1e-3, 300
_LARGEST_PRODUCT = 2**26  # cosines in memory at once


class Prototypes(nn.Module):
    """Unit vectors theta (m, d)."""

    def __init__(self, start: Float[Tensor, "m d"]) -> None:
        super().__init__()
        self.theta = nn.Parameter(start.clone())

    def forward(self, rows: Float[Tensor, "n d"]) -> tuple[Tensor, Tensor]:
        """Sum over rows of the largest cosine with a prototype, and the prototypes' mean log-sum-exp of the cosines
        with each other, both over the temperature."""
        nearest = (rows @ self.theta.T / TEMPERATURE).max(1).values.sum()
        if len(self.theta) == 1:
            return nearest, torch.zeros_like(nearest)
        itself = torch.eye(len(self.theta), dtype=torch.bool, device=self.theta.device)
        among = (self.theta @ self.theta.T / TEMPERATURE).masked_fill(itself, -torch.inf)
        return nearest, among.logsumexp(1).mean()


class ActiveFTTask:
    """A `LossTask`: repulsion between prototypes less attraction to rows, a mean over rows; Adam at 1e-3."""

    def __init__(self, prototypes: Prototypes) -> None:
        self.prototypes = prototypes

    def modules(self) -> dict[str, nn.Module]:
        return {"prototypes": self.prototypes}

    def loss(self, batch: Float[Tensor, "n d"], ctx: StepContext) -> LossOutput:
        attraction, repulsion = ctx.modules["prototypes"](batch)
        return LossOutput(len(batch) * repulsion - attraction, len(batch))

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec:
        return OptimizerSpec(torch.optim.Adam(self.prototypes.parameters(), lr=LEARNING_RATE))

    def after_step(self, ctx: StepContext) -> None:
        with torch.no_grad():
            theta = self.prototypes.theta
            theta.copy_(torch.nn.functional.normalize(theta, dim=1))


def select_activeft(
    X: Any,
    n_samples: int,
    *,
    random_state: RandomState = None,
    device: str | torch.device = "auto",
    progress: bool = False,
) -> Int[np.ndarray, " m"]:
    """Optimise m prototypes to be near the rows and far from each other, then take for each the nearest row left.

    Cosine similarities, temperature 0.07, Adam at 1e-3 for 300 steps over all rows, float32, started from random rows.
    Source: Xie et al. 2023, Section 3.
    """
    rows = standardized(as_matrix(X).astype(np.float64, copy=False), "l2")
    check_budget(n_samples, len(rows))
    start = as_generator(random_state).choice(len(rows), n_samples, replace=False)
    runtime = Runtime(device)
    features = torch.from_numpy(rows.astype(np.float32)).to(runtime.device)
    prototypes = Prototypes(features[torch.from_numpy(start)])
    config = TrainerConfig(
        max_steps=STEPS,
        batch_size=len(rows),
        accumulate=max(1, -(-len(rows) * n_samples // _LARGEST_PRODUCT)),
        log_every=STEPS,
        progress=progress,
    )
    generators = (
        RngBundle.capture()
    )  # the Trainer seeds the global ones, which a selection must leave as they are
    try:
        Trainer(config, runtime).fit(ActiveFTTask(prototypes), ArrayStream(features, shuffle=False))
    finally:
        generators.restore()
    return nearest_untaken(torch.from_numpy(rows), prototypes.theta.detach().cpu().double())
