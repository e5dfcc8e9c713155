"""How dictionaries are trained, grouped by what is configured; lengths are shares of the run.

Field names are unique over all groups, so that a flat mapping of them (the command line's flags, a sweep's
parameters) says the same: see :func:`configure`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.core.config import from_dict
from interp.core.messages import at_least, nearest, one_of
from interp.sae.dictionary import Dictionary
from interp.sae.init import B_DEC_INITS
from interp.sae.registry import architecture, architectures

NORMALIZATIONS = ("mean_norm", "rms", "none")
# Fields of a dictionary's configuration that the data and the run decide.
FROM_DATA = ("d_in", "d_out", "blocks", "dtype")


@dataclass(frozen=True)
class StartConfig:
    """Where training begins, besides the random directions.

    Attributes:
        b_dec_init: ``"mean"``, ``"geometric_median"`` or ``"zero"``.
        start_fire_rate: share of tokens on which each latent fires at first: its biases are set to a quantile of a
            sample. None: biases of zero, which open about half of all latents.
    """

    b_dec_init: str = "mean"
    start_fire_rate: float | None = None

    def __post_init__(self) -> None:
        one_of("b_dec_init", self.b_dec_init, B_DEC_INITS)
        if self.start_fire_rate is not None and not 0 < self.start_fire_rate < 1:
            raise ValueError(f"start_fire_rate = {self.start_fire_rate} must lie between 0 and 1")


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam. With ``beta1 = 0`` (the Gated SAE recipe) and no clipping a step may touch few rows only.

    Attributes:
        lr: peak learning rate.
        beta1, beta2, eps: of Adam.
        grad_clip: largest global norm of the gradient; None: as it is.
    """

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
        resample_at: after which shares of the run; the recipes of gated and standard SAEs of unit norm say
            (0.2, 0.35, 0.5). At most 0.75: revived latents need time to settle.
        dead_window: a latent is dead when it didn't fire on the tokens of this last share of the run.
        resample_rows: rows from which the new directions are drawn.
        init_fire_rate: share of tokens on which a revived latent fires at first. None: its biases start at 0,
            as in the recipe's source, which opens its gate on about half of them: the reconstruction breaks
            down for hundreds of steps, and L0 stays high for thousands.
    """

    resample_at: tuple[float, ...] = ()
    dead_window: float = 1 / 24
    resample_rows: int = 32_768
    init_fire_rate: float | None = 0.05

    def __post_init__(self) -> None:
        for share in self.resample_at:
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
    """One dictionary's training.

    Attributes:
        architecture: a registered name.
        form: the fields of its `config_class`, but for those that the data and the run decide.
        loss: its `loss_class`.
    """

    architecture: str
    form: dict[str, Any]
    loss: Any
    start: StartConfig = field(default_factory=StartConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    resampling: ResamplingConfig = field(default_factory=ResamplingConfig)

    def __post_init__(self) -> None:
        self.kind.config_class(d_in=1, **self.form)
        if self.resampling.resample_at and not self.kind.resamples:
            raise ValueError(
                f"resample_at = {self.resampling.resample_at}: dead latents of a {self.architecture} SAE aren't "
                "resampled, leave it out"
            )

    @property
    def kind(self) -> type[Dictionary]:
        """The architecture's class."""
        return architecture(self.architecture)

    @property
    def d_sae(self) -> int:
        """Number of latents."""
        return int(self.form["d_sae"])

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, where: str = "") -> SAETrainConfig:
        """What `to_dict` made; see `interp.core.config.from_dict`, which calls this."""
        given = dict(mapping)
        missing = [name for name in ("architecture", "form", "loss") if name not in given]
        if missing:
            raise ValueError(f"missing key '{where and where + '.'}{missing[0]}' for {cls.__name__}")
        kind = _trainable(given["architecture"])
        prefix = f"{where}." if where else ""
        shape = {"d_in": 1, **given.pop("form")}
        form = from_dict(kind.config_class, shape, where=f"{prefix}form")
        loss = from_dict(_loss_class(kind), given.pop("loss"), where=f"{prefix}loss")
        groups = {
            name: from_dict(group, given.pop(name, {}), where=f"{prefix}{name}")  # type: ignore[arg-type]
            for name, group in _SHARED.items()
        }
        given.pop("architecture")
        if given:
            raise ValueError(f"unknown key '{prefix}{next(iter(given))}' for {cls.__name__}")
        return cls(kind.architecture, _form_of(form), loss, **groups)  # type: ignore[arg-type]


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


_SHARED = {
    "start": StartConfig,
    "optimizer": OptimizerConfig,
    "schedule": ScheduleConfig,
    "resampling": ResamplingConfig,
}
RUN_FIELDS = tuple(f.name for f in dataclasses.fields(RunConfig))


def option_groups(name: str) -> dict[str, type[Any]]:
    """The groups of options of an architecture's training: group -> the dataclass whose fields they are."""
    kind = _trainable(name)
    return {"form": kind.config_class, "loss": _loss_class(kind), **_SHARED}


def configure(arguments: Mapping[str, Any]) -> SAETrainConfig:
    """A dictionary's configuration from a flat mapping of field names.

        configure({"architecture": "gated", "d_sae": 9216, "l1_coefficient": 3.0, "lr": 1e-3})

    What isn't given comes from the architecture's recipe, then from the fields' defaults. Raises ValueError naming
    an unknown field and the nearest known one.
    """
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
    kind = _trainable(given.pop("architecture", "gated"))
    groups = option_groups(kind.architecture)
    owner = {
        f.name: group
        for group, cls in groups.items()
        for f in dataclasses.fields(cls)
        if f.name not in FROM_DATA
    }
    for name in given:
        if name not in owner:
            hint = "it is the same for all dictionaries on one stream; " if name in RUN_FIELDS else ""
            known = (*owner, "architecture")
            raise ValueError(
                f"unknown training option {name!r} of a {kind.architecture} SAE; {hint}{nearest(name, known)}"
            )
    grouped: dict[str, dict[str, Any]] = {group: {} for group in groups}
    for name, value in {"d_sae": 4608, **kind.recipe(given), **given}.items():
        if not (value is None and name in _LEFT_OPEN):
            grouped[owner[name]][name] = value
    form = kind.config_class(d_in=1, **grouped.pop("form"))
    rest = {group: cls(**grouped[group]) for group, cls in groups.items() if group != "form"}
    return SAETrainConfig(kind.architecture, _form_of(form), **rest)


_LEFT_OPEN = ("apply_b_dec_to_input", "resample_at")  # None says: as the recipe has it


def _form_of(config: Any) -> dict[str, Any]:
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    return {name: value for name, value in values.items() if name not in FROM_DATA}


def _trainable(name: str) -> type[Dictionary]:
    one_of("architecture", name, architectures(trained=True))
    return architecture(name)


def _loss_class(kind: type[Dictionary]) -> type[Any]:
    assert kind.loss_class is not None
    return kind.loss_class
