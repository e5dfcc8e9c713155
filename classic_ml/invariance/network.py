"""The paper's experiment: a two-layer network learns a Boolean function with and without random permutations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from classic_ml.invariance.boolean import BooleanProblem
from interp.core.device import RngBundle, make_generator, seed_everything
from interp.core.runtime import Runtime
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput, OptimizerSpec, StepContext
from interp.core.trainer import Trainer, TrainerConfig

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

HIDDEN, BATCH, LEARNING_RATE = 512, 64, 1e-3


class DrawStream:
    """Rows drawn with replacement; a batch is a function of (seed, samples served). An epoch is as many as the rows."""

    def __init__(self, X: Tensor, y: Tensor, seed: int = 0) -> None:
        self.X, self.y, self.seed = X, y, seed
        self._samples = 0

    def __len__(self) -> int:
        return len(self.X)

    @property
    def epoch(self) -> int:
        return self._samples // len(self)

    @property
    def samples(self) -> int:
        return self._samples

    def next_batch(self, size: int, rank: int = 0, world: int = 1) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(self), (size,), generator=make_generator(self.seed, "draw", self._samples))
        self._samples += size
        return self.X[rows[rank::world]], self.y[rows[rank::world]]

    def state_dict(self) -> dict[str, Any]:
        return {"samples": self._samples, "seed": self.seed, "rows": len(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another stood; ValueError where that drew other rows."""
        for name, here in (("seed", self.seed), ("rows", len(self))):
            if state[name] != here:
                raise ValueError(
                    f"{name} = {here} of this stream, but the saved one had {name} = {state[name]}"
                )
        self._samples = state["samples"]


class BooleanTask:
    """A `LossTask`: hinge loss max(0, 1 - y f(x)) of a network on rows, permuted anew each time when `augment`.

    Evaluation never permutes. The permutations of a step are a function of (seed, step).
    """

    def __init__(self, problem: BooleanProblem, network: nn.Module, augment: bool) -> None:
        self.problem, self.network, self.augment = problem, network, augment

    def modules(self) -> dict[str, nn.Module]:
        return {"network": self.network}

    def loss(self, batch: tuple[Float[Tensor, "n d"], Float[Tensor, " n"]], ctx: StepContext) -> LossOutput:
        network, (X, y) = ctx.modules["network"], batch
        if self.augment and network.training:
            X = self.problem.permute(X, ctx.generator)
        margins = y * network(X)[:, 0]
        right = (margins.detach() > 0).sum()
        return LossOutput((1 - margins).clamp_min(0).sum(), len(y), {"accuracy": (right, len(y))})

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec:
        return OptimizerSpec(torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE, fused=True))

    def config(self) -> dict[str, Any]:
        return {**asdict(self.problem), "augment": self.augment}


@dataclass(frozen=True)
class BooleanRun:
    """One training: its accuracies at the end, and the test accuracy by step."""

    problem: str
    augment: bool
    seed: int
    train_accuracy: float
    test_accuracy: float
    curve: list[tuple[int, float]]


def train_boolean(
    problem: BooleanProblem,
    n_train: int,
    *,
    augment: bool,
    steps: int,
    n_test: int = 1000,
    seed: int = 0,
    eval_every: int | None = None,
    out_dir: str | None = None,
    device: str = "auto",
) -> BooleanRun:
    """Train Linear(d, 512)-ReLU-Linear(512, 1) by Adam at 1e-3 on batches of 64 rows drawn with replacement.

    Data, initial weights and draws are functions of the seed, the same with and without `augment`; global generators
    are left as they were.

    Args:
        eval_every: steps between points of the curve; None for the end only.
        out_dir: keeps checkpoints there, and goes on from them.
    """
    X, y = problem.sample(n_train, make_generator(seed, "train"))
    test = problem.sample(n_test, make_generator(seed, "test"))
    generators = RngBundle.capture()
    try:
        seed_everything(seed)
        network = nn.Sequential(nn.Linear(problem.n_bits, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))
        config = TrainerConfig(
            max_steps=steps,
            batch_size=BATCH,
            seed=seed,
            log_every=steps,
            eval_every=eval_every or steps,
            progress=False,
            out_dir=out_dir,
        )
        trainer, task = Trainer(config, Runtime(device)), BooleanTask(problem, network, augment)
        history = trainer.fit(task, DrawStream(X, y, seed), valid=ArrayStream(test, shuffle=False))
        on_train = trainer.evaluate(task, ArrayStream((X, y), shuffle=False))
    finally:
        generators.restore()
    curve = [(row["step"], row["valid_accuracy"]) for row in history.rows if "valid_accuracy" in row]
    return BooleanRun(str(problem), augment, seed, on_train["accuracy"], curve[-1][1], curve)


@dataclass
class AugmentationComparison:
    """Runs with and without permutations, seed by seed."""

    runs: list[BooleanRun] = field(default_factory=list)

    def to_frame(self) -> pd.DataFrame:
        """A row per run."""
        import pandas as pd

        return pd.DataFrame([asdict(run) for run in self.runs]).drop(columns="curve")

    def accuracies(self, augment: bool) -> list[float]:
        """Test accuracies, seed by seed."""
        return [run.test_accuracy for run in self.runs if run.augment == augment]

    def __str__(self) -> str:
        return self.to_frame().to_string(float_format="{:.3f}".format, index=False)

    def plot(self) -> Figure:
        """Test accuracy by step."""
        from classic_ml.invariance.plots import plot_runs

        return plot_runs(self.runs)


def compare_augmentation(
    problem: BooleanProblem, n_train: int, *, steps: int, seeds: Sequence[int] = (0, 1, 2), **options: Any
) -> AugmentationComparison:
    """`train_boolean` with and without permutations for every seed; `options` go there."""
    return AugmentationComparison(
        [
            train_boolean(problem, n_train, augment=augment, steps=steps, seed=seed, **options)
            for augment in (True, False)
            for seed in seeds
        ]
    )
