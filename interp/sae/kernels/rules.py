"""Selection rules: which pre-activations of a batch become a code, and how much of it reconstructs at once.

A rule is all that the list kernels have to know of an architecture with one code. Ties are broken by the lowest
latent first (of a batch: the lowest latent, then the first token), so that every backend selects the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.messages import at_least, one_of


@dataclass(frozen=True)
class Threshold:
    """``f = ReLU(z)``."""


@dataclass(frozen=True)
class Window:
    """``f = z 1[z > threshold_i]``, trained through a window of this width around each threshold.

    Rajamanoharan et al. 2024b (arXiv 2407.14435): with ``K = 1[|z - threshold| < bandwidth / 2]``, a code's derivative
    by its threshold is ``-threshold / bandwidth K``, a count's ``-1 / bandwidth K``. `ste_to_input` passes the same,
    with the other sign, to z.
    """

    bandwidth: float
    ste_to_input: bool = False

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise ValueError(f"bandwidth = {self.bandwidth} must be positive")


@dataclass(frozen=True)
class TopK:
    """Each token's k largest, then ReLU. `absolute`: the k largest magnitudes, with their signs.

    `by_norm`: largest of ``z_i |d_i|``.
    """

    k: int
    by_norm: bool = False
    absolute: bool = False

    def __post_init__(self) -> None:
        at_least("k", self.k, 1)


@dataclass(frozen=True)
class BatchTopK:
    """Of ReLU(z) over the whole batch of n tokens the round(k n) largest (of ``z_i |d_i|`` where `by_norm`)."""

    k: float
    by_norm: bool = False

    def __post_init__(self) -> None:
        if not self.k > 0:
            raise ValueError(f"k = {self.k} must be positive")

    def count(self, n_tokens: int) -> int:
        """How many entries a batch keeps at most."""
        return max(1, round(self.k * n_tokens))


Rule = Threshold | Window | TopK | BatchTopK


@dataclass(frozen=True)
class Prefixes:
    """Growing parts of a code, each of which reconstructs by itself: ``sum_g weights_g |x_hat_g - x|^2``.

    Attributes:
        ends: ascending; part g holds the latents below ``ends[g]`` (by ``"latent"``), or each token's ``ends[g]``
            largest codes (by ``"rank"``). The last must hold all.
        weights: of their squared errors.
        main: which of them is the reconstruction that is reported.
    """

    ends: tuple[int, ...]
    weights: tuple[float, ...]
    by: str = "latent"
    main: int = -1

    def __post_init__(self) -> None:
        one_of("by", self.by, ("latent", "rank"))
        ascending = all(a < b for a, b in zip((0, *self.ends), self.ends, strict=False))
        if not self.ends or not ascending or len(self.ends) != len(self.weights):
            raise ValueError(
                f"ends = {self.ends}, weights = {self.weights}: as many weights as ends, which ascend from 1"
            )


def largest(z: Float[Tensor, "... F"], k: int) -> Bool[Tensor, "... F"]:
    """Marks the k largest of the last dimension, the first of equals; all of it where there are no more than k."""
    if k >= z.shape[-1]:
        return torch.ones_like(z, dtype=torch.bool)
    least = z.topk(k, dim=-1).values[..., -1:]
    above, equal = z > least, z == least
    room = k - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= room))


def selected(score: Float[Tensor, "n F"], rule: TopK | BatchTopK) -> Bool[Tensor, "n F"]:
    """The entries that a rule keeps, by their scores; of a batch only positive ones."""
    if isinstance(rule, TopK):
        return largest(score.abs() if rule.absolute else score, rule.k)
    by_latent = score.clamp_min(0).T
    kept = largest(by_latent.reshape(-1), rule.count(score.shape[0])).view_as(by_latent)
    return kept.T & (score > 0)
