"""BatchTopK SAE: in training the k n largest latents of a batch of n tokens, later those above one threshold.

Bussmann, Leask and Nanda 2024 (arXiv 2412.06410).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.architectures.topk import AuxKLoss
from interp.sae.dictionary import DictionaryConfig
from interp.sae.foreign import Foreign, ForeignForm, ForeignValue
from interp.sae.kernels.dead import AuxK
from interp.sae.kernels.inference import TokenCodes, encode_jumprelu
from interp.sae.kernels.lists import Losses, LossOptions
from interp.sae.kernels.rules import BatchTopK
from interp.sae.metadata import SAEMetadata
from interp.sae.one_code import OneCode
from interp.sae.registry import register_architecture


def whole_k(cfg: BatchTopKConfig) -> bool:
    """Whether a batch's tokens have a whole number of latents each, and latents compete by z."""
    return float(cfg.k).is_integer() and not cfg.rescale_by_decoder_norm


def _measured(theta: float) -> float:
    if theta <= 0:
        raise ValueError(
            f"its threshold is {theta:g}: training ended before it was measured, and without it a token's code "
            "would depend on its batch"
        )
    return theta


# What other libraries keep of a training by batches. SAELens reads it as a checkpoint only, and dictionaries for use as
# jumprelu.
SAELENS_VALUES = (
    ForeignValue("k", "k"),
    ForeignValue("rescale_by_decoder_norm", "rescale_acts_by_decoder_norm", required=False),
    ForeignValue("theta", "topk_threshold", torch.float64, to_ours=_measured),
)
DICTIONARY_LEARNING_VALUES = (
    ForeignValue("k", "k", required=False, to_theirs=int),
    ForeignValue("k", "k", torch.int32, to_theirs=int),
    ForeignValue("theta", "threshold", torch.float32, to_ours=_measured),
)

_KEPT = 0.999  # of the threshold's running average, a step


@dataclass(frozen=True)
class BatchTopKConfig(DictionaryConfig):
    """Shapes and form of a BatchTopK SAE.

    Attributes:
        k: latents per token, on average over a batch; may be a fraction.
        rescale_by_decoder_norm: choose by ``z_i |d_i|``, with free decoder rows, as `TopKConfig`.
    """

    k: float = 32.0
    rescale_by_decoder_norm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.k <= self.d_sae:
            raise ValueError(f"k = {self.k} must lie between 0 and the d_sae = {self.d_sae} latents")


@register_architecture
class BatchTopKSAE(OneCode):
    """``f = ReLU(z)`` where it is among a batch's largest (training) or above `theta` (whenever it is used).

    A selection over the batch would make a token's code depend on its neighbours. So training keeps an average
    of the smallest value that was selected, and that is the threshold of every latent.
    """

    architecture = "batchtopk"
    config_class = BatchTopKConfig
    loss_class = AuxKLoss
    foreign: ClassVar[Foreign] = {
        "saelens": (
            ForeignForm(
                "batchtopk",
                {"W_enc*": "W_enc", "b_enc": "b_enc", "W_dec": "W_dec", "b_dec": "b_dec"},
                values=SAELENS_VALUES,
                written=False,
            ),
        ),
        "dictionary_learning": (
            ForeignForm(
                "BatchTopKSAE",
                {"W_enc": "encoder.weight", "b_enc": "encoder.bias", "W_dec*": "decoder.weight"}
                | {"b_dec": "b_dec"},
                fixed={"apply_b_dec_to_input": True},
                values=DICTIONARY_LEARNING_VALUES,
                when=whole_k,
            ),
        ),
    }
    cfg: BatchTopKConfig
    theta_sum: Tensor
    theta_weight: Tensor

    def __init__(
        self, cfg: BatchTopKConfig, *, seed: int | None = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(cfg, seed=seed, device=device)
        for name in ("theta_sum", "theta_weight"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64, device=device))

    @property
    def theta(self) -> float:
        """The threshold, in the units that the selection is by.

        Raises ValueError before training has set it.
        """
        if not float(self.theta_weight) > 0:
            raise ValueError("theta isn't set yet: train beyond the warm-up, before which it isn't measured")
        return float(self.theta_sum / self.theta_weight)

    @torch.no_grad()
    def set_theta_(self, theta: float) -> None:
        """Take a threshold that is known."""
        if not 0 <= theta < float("inf"):
            raise ValueError(f"theta = {theta} must be a number, and not negative")
        self.theta_sum.fill_(theta)
        self.theta_weight.fill_(1.0)

    @torch.no_grad()
    def after_step_(self, losses: Losses, *, warmed_up: bool) -> None:
        """Average the smallest selected value, without a bias to the start."""
        if warmed_up and bool(torch.isfinite(losses.smallest)):
            self.theta_sum.mul_(_KEPT).add_((1 - _KEPT) * losses.smallest)
            self.theta_weight.mul_(_KEPT).add_(1 - _KEPT)

    def thresholds(self) -> Float[Tensor, " F"]:
        """`theta` for each pre-activation."""
        theta = torch.full_like(self.b_enc, self.theta)
        return theta / self.decoder_norms() if self.cfg.rescale_by_decoder_norm else theta

    def code(self, xc: Float[Tensor, "n d"]) -> Float[Tensor, "n F"]:
        z = self.pre_activations(xc)
        return torch.where(z > self.thresholds().detach(), z, 0)

    @torch.no_grad()
    def sparse_code(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        return encode_jumprelu(self.W_enc, self.b_enc, xc, self.thresholds())

    @classmethod
    def recipe(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """As a TopK SAE's."""
        return {"beta1": 0.9, "grad_clip": 1.0}

    def unit_norm(self, loss: AuxKLoss) -> bool:
        return not self.cfg.rescale_by_decoder_norm

    def loss_options(self, loss: AuxKLoss) -> LossOptions:
        return LossOptions(
            sparsity="none",
            mse_reduction=loss.mse_reduction,
            center_input=self.cfg.apply_b_dec_to_input,
            rule=BatchTopK(self.cfg.k, by_norm=self.cfg.rescale_by_decoder_norm),
        )

    def dead_term(self, loss: AuxKLoss) -> AuxK | None:
        return loss.term(self.cfg.d_in)

    @property
    def trained_l0(self) -> float:
        return self.cfg.k

    @torch.no_grad()
    def fold_activation_scale_(self, c: float, *, into: str = "biases") -> None:
        """As every dictionary's; theta is divided by c where biases are, and where it is in units of ``z |d|``."""
        super().fold_activation_scale_(c, into=into)
        if into == "biases" or self.cfg.rescale_by_decoder_norm:
            self.theta_sum.div_(c)

    @torch.no_grad()
    def scale_output_(self, factor: float) -> None:
        """As every dictionary's; theta follows where it is in units of ``z |d|``."""
        super().scale_output_(factor)
        if self.cfg.rescale_by_decoder_norm:
            self.theta_sum.mul_(factor)

    @torch.no_grad()
    def fold_decoder_norm_(self) -> None:
        """As every dictionary's, where selection is by ``z |d|``; else theta would be another for each latent."""
        if not self.cfg.rescale_by_decoder_norm:
            raise ValueError(
                "rescale_by_decoder_norm = False: each latent would need a threshold; use to_jumprelu()"
            )
        super().fold_decoder_norm_()

    def save_pretrained(self, folder: str | os.PathLike[str], metadata: SAEMetadata | None = None) -> Path:
        """As every dictionary's. Raises ValueError before theta is set."""
        _ = self.theta
        return super().save_pretrained(folder, metadata)
