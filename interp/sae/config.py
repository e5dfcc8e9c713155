"""How dictionaries are trained, grouped by what is configured; lengths are shares of the run.

Field names are unique over all groups, so that a flat mapping of them (the command line's flags, a sweep's
parameters) says the same: see :func:`configure`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.core.messages import at_least, nearest, one_of
from interp.sae.init import B_DEC_INITS

ARCHITECTURES = ("gated", "standard", "tied")
NORMALIZATIONS = ("mean_norm", "rms", "none")


@dataclass(frozen=True)
class FormConfig:
    """What is trained.

    Attributes:
        architecture: ``"gated"``, ``"standard"`` or ``"tied"``.
        d_sae: number of latents, F.
        tied, use_r_mag: of a Gated SAE, see `GatedSAEConfig`.
        apply_b_dec_to_input: None: yes, but for a tied SAE and for a standard one with norm-weighted sparsity.
        b_dec_init: ``"mean"``, ``"geometric_median"`` or ``"zero"``.
    """

    architecture: str = "gated"
    d_sae: int = 4608
    tied: bool = True
    use_r_mag: bool = True
    apply_b_dec_to_input: bool | None = None
    b_dec_init: str = "mean"

    def __post_init__(self) -> None:
        one_of("architecture", self.architecture, ARCHITECTURES)
        one_of("b_dec_init", self.b_dec_init, B_DEC_INITS)
        at_least("d_sae", self.d_sae, 1)


@dataclass(frozen=True)
class LossConfig:
    """The loss; see `GatedSAE.loss`, `StandardSAE.loss` and `TiedSAE.loss`.

    `l1_coefficient` weighs the sparsity against the squared error *summed* over dimensions, of activations
    scaled as `normalization` says. The Gated SAE paper's values belong to the mean: multiply them by d.
    """

    l1_coefficient: float = 3.0
    sparsity: str = "l1"
    freeze_decoder: bool = True
    detach_centering: bool = False
    mse_reduction: str = "sum"

    def __post_init__(self) -> None:
        one_of("sparsity", self.sparsity, ("l1", "ri_l1"))
        one_of("mse_reduction", self.mse_reduction, ("sum", "mean"))
        if self.l1_coefficient < 0:
            raise ValueError(f"l1_coefficient = {self.l1_coefficient} must not be negative")


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam. With ``beta1 = 0`` (the Gated SAE recipe) and no clipping a step may touch few rows only."""

    lr: float = 1e-3
    beta1: float = 0.0
    beta2: float = 0.999
    eps: float = 1e-8
    grad_clip: float | None = None

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"lr = {self.lr} must be positive")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)} must lie in [0, 1)")


@dataclass(frozen=True)
class ScheduleConfig:
    """Warm-ups and decay, as shares of the run.

    Attributes:
        l1_warmup: the sparsity weight grows linearly from 0.
        lr_warmup, lr_warmup_from, lr_warmup_shape: the learning rate grows from this share of its peak,
            ``"linear"`` or by a ``"cosine"``.
        lr_decay: the learning rate falls linearly to 0 over this last share.
        lr_restart: after resampling it drops to `lr_warmup_from` and returns by a cosine over this share.
    """

    l1_warmup: float = 0.125
    lr_warmup: float = 0.125
    lr_warmup_from: float = 0.1
    lr_warmup_shape: str = "cosine"
    lr_decay: float = 0.2
    lr_restart: float = 0.02

    def __post_init__(self) -> None:
        one_of("lr_warmup_shape", self.lr_warmup_shape, ("linear", "cosine"))
        for name in ("l1_warmup", "lr_warmup", "lr_warmup_from", "lr_decay", "lr_restart"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} = {getattr(self, name)} is a share: it must lie in [0, 1]")


@dataclass(frozen=True)
class ResamplingConfig:
    """Dead latents and what is done about them; see `interp.sae.resampling`.

    Attributes:
        resample_at: after which shares of the run. None: (0.2, 0.35, 0.5), and never under norm-weighted
            sparsity, where the decoder is free, nor of a tied SAE, whose recipe has none. At most 0.75: revived
            latents need time to settle.
        dead_window: a latent is dead when it didn't fire on the tokens of this last share of the run.
        resample_rows: rows from which the new directions are drawn.
        init_fire_rate: share of tokens on which a revived latent fires at first. None: its biases start at 0,
            as in the recipe's source, which opens its gate on about half of them: the reconstruction breaks
            down for hundreds of steps, and L0 stays high for thousands.
    """

    resample_at: tuple[float, ...] | None = None
    dead_window: float = 1 / 24
    resample_rows: int = 32_768
    init_fire_rate: float | None = 0.05

    def __post_init__(self) -> None:
        for share in self.resample_at or ():
            if not 0 < share <= 0.75:
                raise ValueError(
                    f"resample_at = {self.resample_at}: shares of the run in (0, 0.75]; later ones leave "
                    "revived latents no time to settle"
                )
        if not 0 < self.dead_window <= 1:
            raise ValueError(f"dead_window = {self.dead_window} is a share: it must lie in (0, 1]")
        at_least("resample_rows", self.resample_rows, 1)
        if self.init_fire_rate is not None and not 0 < self.init_fire_rate < 1:
            raise ValueError(f"init_fire_rate = {self.init_fire_rate} must lie between 0 and 1")


@dataclass(frozen=True)
class SAETrainConfig:
    """One dictionary's training."""

    form: FormConfig = field(default_factory=FormConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    resampling: ResamplingConfig = field(default_factory=ResamplingConfig)

    def __post_init__(self) -> None:
        if self.form.architecture != "tied":
            return
        if self.loss.sparsity != "l1":
            raise ValueError(
                f"sparsity = {self.loss.sparsity!r}: a tied SAE has rows of unit length, give 'l1'"
            )
        if self.resampling.resample_at:
            raise ValueError(
                f"resample_at = {self.resampling.resample_at}: dead latents of a tied SAE aren't resampled, leave "
                "it out"
            )

    @property
    def resample_at(self) -> tuple[float, ...]:
        """Shares of the run after which dead latents are resampled."""
        if self.resampling.resample_at is not None:
            return self.resampling.resample_at
        resampled = self.loss.sparsity == "l1" and self.form.architecture != "tied"
        return (0.2, 0.35, 0.5) if resampled else ()


@dataclass(frozen=True)
class RunConfig:
    """What all dictionaries that are trained on one stream share.

    Attributes:
        steps, batch_size: optimiser steps of so many tokens.
        normalization: activations are multiplied by one number, such that ``"mean_norm"``: their mean norm is
            sqrt(d); ``"rms"``: their mean squared norm is 1; ``"none"``: as they are.
        normalization_rows: rows from which that number (and the initial b_dec) is estimated.
        max_norm_multiple: of a store, rows whose norm is above this many times the median are left out: an
            attention sink that stands off position 0 weighs as much as 10^4 ordinary tokens. None: keep all.
        precision: ``"32"``, or ``"bf16"`` for dense products in bfloat16 with float32 parameters and state.
        backend: of the training step, see `make_step`.
        seed: of the initial weights, the data order and resampling.
        check_every: steps between two looks for NaN in a batch.
    """

    steps: int = 3000
    batch_size: int = 1024
    normalization: str = "mean_norm"
    normalization_rows: int = 131_072
    max_norm_multiple: float | None = 10.0
    precision: str = "32"
    backend: str = "auto"
    seed: int = 0
    check_every: int = 100

    def __post_init__(self) -> None:
        one_of("normalization", self.normalization, NORMALIZATIONS)
        one_of("precision", self.precision, ("32", "bf16", "64"))
        for name in ("steps", "batch_size", "normalization_rows", "check_every"):
            at_least(name, getattr(self, name), 1)


_GROUPS = {f.name: f.default_factory for f in dataclasses.fields(SAETrainConfig)}
_GROUP_OF = {f.name: group for group, cls in _GROUPS.items() for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
RUN_FIELDS = tuple(f.name for f in dataclasses.fields(RunConfig))


def configure(arguments: Mapping[str, Any]) -> SAETrainConfig:
    """A dictionary's configuration from a flat mapping of field names.

        configure({"architecture": "gated", "d_sae": 9216, "l1_coefficient": 3.0, "lr": 1e-3})

    Raises ValueError naming an unknown field and the nearest known one.
    """
    grouped: dict[str, dict[str, Any]] = {group: {} for group in _GROUPS}
    for name, value in arguments.items():
        if name not in _GROUP_OF:
            hint = "it is the same for all dictionaries on one stream; " if name in RUN_FIELDS else ""
            raise ValueError(f"unknown training option {name!r}; {hint}{nearest(name, _GROUP_OF)}")
        grouped[_GROUP_OF[name]][name] = tuple(value) if isinstance(value, list) else value
    return SAETrainConfig(**{group: _GROUPS[group](**given) for group, given in grouped.items()})  # type: ignore[operator]
