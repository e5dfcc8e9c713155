"""Settings of tuning on feedback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from interp.core.messages import at_least


@dataclass(frozen=True)
class FeedbackTuning:
    """What both kinds of tuning share; the defaults suit a model of some hundred million parameters on two cores.

    Attributes:
        steps: of the optimiser (AdamW, all parameters, float32).
        batch_size: texts (RLOO) or pairs (DPO) a step.
        lr, schedule, warmup_steps: learning rate and its course.
        beta: strength of the pull to the base model.
        max_kl: the run stops when the KL to the base passes this many nats per token written; None: no bound.
        max_new_tokens, temperature: of sampled texts.
        max_grad_norm: longer gradients are shortened to it.
        eval_samples: texts per evaluation prompt, before and after.
        checkpoint_every: steps between checkpoints, with an `out` folder; 0: none.
    """

    steps: int = 40
    batch_size: int = 16
    lr: float = 5e-5
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    beta: float = 0.05
    max_kl: float | None = 1.0
    max_new_tokens: int = 12
    temperature: float = 1.0
    max_grad_norm: float = 1.0
    eval_samples: int = 2
    checkpoint_every: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "max_new_tokens", "eval_samples"):
            at_least(name, getattr(self, name), 1)
        for name in ("warmup_steps", "checkpoint_every", "seed"):
            at_least(name, getattr(self, name), 0)
        for name in ("lr", "temperature", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} = {getattr(self, name)} must be positive")
        if not self.beta > 0:
            raise ValueError(
                f"beta = {self.beta} must be positive: without a pull to the base no KL is measured"
            )
        if self.max_kl is not None and not self.max_kl > 0:
            raise ValueError(f"max_kl = {self.max_kl} must be positive, or None for no bound")


@dataclass(frozen=True)
class RewardTuning(FeedbackTuning):
    """Settings of RLOO.

    Attributes:
        samples_per_prompt: texts for each prompt of a step, each judged against the mean of the others; divides
            `batch_size`.
    """

    samples_per_prompt: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("samples_per_prompt", self.samples_per_prompt, 2)
        if self.batch_size % self.samples_per_prompt:
            raise ValueError(
                f"samples_per_prompt = {self.samples_per_prompt} must divide batch_size = {self.batch_size}"
            )


@dataclass(frozen=True)
class PreferenceTuning(FeedbackTuning):
    """Settings of DPO.

    Attributes:
        max_length: longer prompts with answers are cut, in tokens.
        measure_every: steps between measurements of KL and length (and reward) by sampling; the KL bound is looked
            at then.
    """

    steps: int = 100
    batch_size: int = 8
    lr: float = 3e-5
    beta: float = 0.1
    max_length: int = 256
    measure_every: int = 25

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("max_length", self.max_length, 2)
        at_least("measure_every", self.measure_every, 1)
