"""Crosscoders: one sparse code of the same tokens' activations at several layers, or of several models.

Lindsey et al. 2024, "Sparse Crosscoders for Cross-Layer Features and Model Diffing"; with BatchTopK: Minder et al. 2025
(arXiv 2504.02922). A crosscoder is a dictionary on the concatenated activations, each site at a scale of its own, whose
penalty and selection see the sum of a latent's decoder norms over sites. (The norm of the concatenation would make it
cheap to share a latent, and hide exclusive ones.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.messages import one_of
from interp.sae.architectures.batchtopk import BatchTopKConfig, BatchTopKSAE
from interp.sae.architectures.standard import StandardLoss, StandardSAE, StandardSAEConfig
from interp.sae.dictionary import DictionaryConfig
from interp.sae.kernels.lists import LossOptions
from interp.sae.one_code import OneCode
from interp.sae.registry import register_architecture


@dataclass(frozen=True)
class CrosscoderForm(DictionaryConfig):
    """What a crosscoder's configuration has besides its code's.

    Attributes:
        blocks: widths of the sites, which add up to d_in. Empty: one site.
    """

    apply_b_dec_to_input: bool = False
    blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "blocks", tuple(self.blocks) or (self.d_in,))
        if sum(self.blocks) != self.d_in or min(self.blocks) < 1:
            raise ValueError(f"blocks = {self.blocks} must be positive and add up to d_in = {self.d_in}")
        if self.apply_b_dec_to_input:
            raise ValueError("apply_b_dec_to_input = True: a crosscoder's input isn't centred; leave it out")


class Crosscoding(OneCode):
    """``x_hat^l = f W_dec^l + b_dec^l`` with one f, of ``z = sum_l W_enc^l x^l + b_enc``.

    It stands before an architecture with one code among a class's bases. The sites' rows stand side by side, in one
    x [n, sum of widths].

    Attributes:
        scales: [L] by what each site's activations are multiplied before norms are compared: 1 in training, on scaled
            activations; when the scales are folded, they go here, so that norms stay what they were.
    """

    resamples = False
    sites = "several"
    cfg: Any
    scales: Float[Tensor, " L"]

    def __init__(
        self, cfg: DictionaryConfig, *, seed: int | None = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(cfg, seed=seed, device=device)
        self.register_buffer("scales", torch.ones(len(self.cfg.blocks), dtype=torch.float64, device=device))

    @classmethod
    def shape(cls, widths: tuple[int, ...]) -> dict[str, Any]:
        return {"d_in": sum(widths), "blocks": tuple(widths)}

    @property
    def widths(self) -> tuple[int, ...]:
        return self.cfg.blocks  # type: ignore[no-any-return]

    def split(self, x: Float[Tensor, "... d"]) -> tuple[Float[Tensor, "... _"], ...]:
        """The sites' columns of rows (or of an encoder or decoder)."""
        return x.split(self.cfg.blocks, dim=-1)

    def site_norms(self) -> Float[Tensor, "F L"]:
        """``|d_i^l|``, the norm of each latent's decoder row at each site, on the scale of training."""
        norms = torch.stack([part.norm(dim=1) for part in self.split(self.W_dec)], dim=1)
        return norms * self.scales.to(norms.dtype)

    def decoder_norms(self) -> Float[Tensor, " F"]:
        """``sum_l |d_i^l|``."""
        return self.site_norms().sum(1)

    def column_scales(self) -> Float[Tensor, " d"]:
        widths = torch.tensor(self.cfg.blocks, device=self.scales.device)
        return self.scales.repeat_interleave(widths)

    @classmethod
    def recipe(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The code's; biases make up for the mean of x, which isn't centred: half of the tokens open a latent."""
        return {**super().recipe(given), "apply_b_dec_to_input": False, "start_fire_rate": 0.5}

    def unit_norm(self, loss: Any) -> bool:
        return False

    def loss_options(self, loss: Any) -> LossOptions:
        if bool((self.scales != 1).any()):
            raise ValueError(
                "the activation scales of this crosscoder are folded in: train one that takes scaled activations"
            )
        options = super().loss_options(loss)
        assert options is not None
        return replace(options, blocks=self.cfg.blocks)

    @torch.no_grad()
    def fold_activation_scales_(self, scales: tuple[float, ...]) -> None:
        """Make a crosscoder trained on ``c_l x^l`` take x itself; codes keep their values."""
        if len(scales) != len(self.cfg.blocks) or not all(0 < c < float("inf") for c in scales):
            raise ValueError(
                f"scales = {scales} must be {len(self.cfg.blocks)} positive numbers, one for each site"
            )
        self.scales.mul_(torch.tensor(scales, dtype=torch.float64))
        for part, c in zip(self.split(self.W_enc), scales, strict=True):
            part.mul_(c)
        for tensor in (self.W_dec, self.b_dec):
            for part, c in zip(self.split(tensor), scales, strict=True):
                part.div_(c)
        self.metadata = replace(
            self.metadata,
            activation_scale=scales[0],
            activation_scales=tuple(scales),
            activation_scale_folded=True,
        )

    def fold_activation_scale_(self, c: float, *, into: str = "weights") -> None:
        """One scale of all sites."""
        one_of("into", into, ("weights",))
        self.fold_activation_scales_((c,) * len(self.cfg.blocks))


@dataclass(frozen=True)
class CrosscoderConfig(CrosscoderForm, StandardSAEConfig):
    """A standard SAE's fields and a crosscoder's."""

    decoder_norm: float = 0.1


@dataclass(frozen=True)
class CrosscoderLoss(StandardLoss):
    """``sum_l mean_n |x_hat^l - x^l|^2 + l1 sum_i f_ni sum_l |d_i^l|``, which is `StandardLoss` by norms."""

    sparsity: str = "ri_l1"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sparsity != "ri_l1":
            raise ValueError(
                f"sparsity = {self.sparsity!r}: a crosscoder's free rows would hide it; use 'ri_l1'"
            )


@register_architecture
class Crosscoder(Crosscoding, StandardSAE):
    """``f = ReLU(z)`` under the penalty ``sum_i f_i sum_l |d_i^l|``."""

    architecture = "crosscoder"
    config_class = CrosscoderConfig
    loss_class = CrosscoderLoss

    @classmethod
    def recipe(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        return super().recipe({**given, "sparsity": "ri_l1"})


@dataclass(frozen=True)
class BatchTopKCrosscoderConfig(CrosscoderForm, BatchTopKConfig):
    """A BatchTopK code's fields and a crosscoder's."""

    rescale_by_decoder_norm: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rescale_by_decoder_norm:
            raise ValueError("rescale_by_decoder_norm = False: a crosscoder's rows are free; leave it out")


@register_architecture
class BatchTopKCrosscoder(Crosscoding, BatchTopKSAE):
    """Of a batch the k n largest ``f_i sum_l |d_i^l|``, without a penalty."""

    architecture = "batchtopk_crosscoder"
    config_class = BatchTopKCrosscoderConfig
