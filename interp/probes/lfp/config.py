"""Settings of the pipeline, grouped by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from interp.core.messages import at_least, one_of
from interp.probes.lfp.divergence import ORDERS
from interp.probes.lfp.tuning import PreferenceTuning, RewardTuning


@dataclass(frozen=True)
class LayerChoice:
    """Which layers to look at: the `k` that moved most ("highest") or least ("lowest"), by `relative` change or not."""

    k: int = 5
    how: str = "highest"
    relative: bool = False

    def __post_init__(self) -> None:
        at_least("k", self.k, 1)
        one_of("how", self.how, ORDERS)


@dataclass(frozen=True)
class DictionarySettings:
    """Of the SAEs, see `train_feedback_saes`; they have `expansion` times as many latents as dimensions."""

    expansion: float = 1.0
    l1_coefficient: float = 1e-3
    steps: int = 2000
    batch_size: int = 512
    tokens: int | None = 100_000
    context_size: int = 256

    def __post_init__(self) -> None:
        if not self.expansion > 0:
            raise ValueError(f"expansion = {self.expansion} must be positive")
        if not self.l1_coefficient >= 0:
            raise ValueError(f"l1_coefficient = {self.l1_coefficient} must not be negative")
        for name in ("steps", "batch_size", "context_size"):
            at_least(name, getattr(self, name), 1)


@dataclass(frozen=True)
class ProbeSettings:
    """Of the probe and its controls, see `feedback_controls`."""

    alpha: float = 1.0
    n_folds: int = 5
    n_draws: int = 10
    n_bootstrap: int = 1000

    def __post_init__(self) -> None:
        if not self.alpha >= 0:
            raise ValueError(f"alpha = {self.alpha} must not be negative")
        for name, low in (("n_folds", 2), ("n_draws", 1), ("n_bootstrap", 1)):
            at_least(name, getattr(self, name), low)


@dataclass(frozen=True)
class AblationSettings:
    """How many of the probe's top features to silence, beside how many random sets; texts per evaluation prompt."""

    n_features: int = 10
    n_random: int = 5
    samples: int = 2

    def __post_init__(self) -> None:
        for name in ("n_features", "n_random", "samples"):
            at_least(name, getattr(self, name), 1)


@dataclass(frozen=True)
class DescriptionSettings:
    """How many of the probe's top features to describe, by how many contexts, and what the judge sees.

    Attributes:
        n_texts, max_length: texts looked through, tokens read of each.
        n_each: active and quiet texts per question to the judge.
        threshold: predicted feedback from which an input counts as high, in units of the true one.
    """

    n_features: int = 20
    n_top: int = 20
    n_texts: int = 1000
    max_length: int = 64
    n_each: int = 10
    threshold: float = 3.0

    def __post_init__(self) -> None:
        for name in ("n_features", "n_top", "n_texts", "max_length", "n_each"):
            at_least(name, getattr(self, name), 1)


@dataclass(frozen=True)
class LFPConfig:
    """Settings of a run, by stage; the kind of `tuning` says whether it is by reward (RLOO) or by pairs (DPO)."""

    tuning: RewardTuning | PreferenceTuning = field(default_factory=RewardTuning)
    layers: LayerChoice = field(default_factory=LayerChoice)
    dictionaries: DictionarySettings = field(default_factory=DictionarySettings)
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    ablation: AblationSettings = field(default_factory=AblationSettings)
    description: DescriptionSettings = field(default_factory=DescriptionSettings)
    seed: int = 0

    @classmethod
    def for_pairs(cls, by_pairs: bool) -> LFPConfig:
        """Defaults for tuning by preference pairs, or else by reward."""
        return cls(tuning=PreferenceTuning() if by_pairs else RewardTuning())


def with_options(config: LFPConfig, *, seed: int | None = None, **groups: Mapping[str, Any]) -> LFPConfig:
    """The settings with some replaced, by group; None keeps what there is."""
    changed: dict[str, Any] = {} if seed is None else {"seed": seed}
    for group, values in groups.items():
        given = {name: value for name, value in values.items() if value is not None}
        changed[group] = replace(getattr(config, group), **given)
    return replace(config, **changed)
