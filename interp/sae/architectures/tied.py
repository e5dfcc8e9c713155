"""Tied SAE: one matrix, its rows normalised in the forward pass, both reads and writes.

Marks et al. 2024, "Interpreting Learned Feedback Patterns in Large Language Models" (arXiv 2310.08164), after
Cunningham et al. 2023 (arXiv 2309.08600).  The untied form is a `StandardSAE` whose input isn't centred.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.device import make_generator
from interp.core.messages import one_of
from interp.sae.architectures.jumprelu import JumpReLUSAE
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.dictionary import SMALLEST_NORM, Dictionary, DictionaryConfig
from interp.sae.kernels.inference import TokenCodes, encode_jumprelu
from interp.sae.kernels.lists import REDUCTIONS, CodeGrads, CodeParams, LossOptions
from interp.sae.registry import register_architecture


@dataclass(frozen=True)
class TiedSAEConfig(DictionaryConfig):
    """Shapes of a tied SAE, whose input is not centred."""

    apply_b_dec_to_input: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.apply_b_dec_to_input:
            raise ValueError("apply_b_dec_to_input = True: a tied SAE encodes its input as it is")


@dataclass(frozen=True)
class TiedLoss:
    """``mean_n |x_hat - x|^2 / d + l1 mean_n sum_i f_ni``, the loss of the paper.

    Attributes:
        l1_coefficient: weight of the sparsity, in units of the squared error as it is reduced.
        mse_reduction: squared errors averaged over the d dimensions (``"mean"``) or summed (``"sum"``).
    """

    l1_coefficient: float = 1e-3
    mse_reduction: str = "mean"

    def __post_init__(self) -> None:
        one_of("mse_reduction", self.mse_reduction, REDUCTIONS)
        if self.l1_coefficient < 0:
            raise ValueError(f"l1_coefficient = {self.l1_coefficient} must not be negative")

    @property
    def weight(self) -> float:
        return self.l1_coefficient


@register_architecture
class TiedSAE(Dictionary):
    """``f = ReLU(W~ x + b_enc)`` and ``x_hat = f W~ + b_dec``, W~ being W with rows of unit length.

    `W_dec` is W~, computed from the parameter `W` whenever it is asked for, so that gradients pass through the
    normalisation.

    Args:
        cfg: shapes.
        seed: of W, uniform between the bounds of Glorot and Bengio 2010 (Xavier); biases are 0. None leaves zeros.
        device: of the parameters.
    """

    architecture = "tied"
    config_class = TiedSAEConfig
    loss_class = TiedLoss
    resamples = False
    encoder_matrices = ("W",)
    latent_vectors = ("b_enc",)
    cfg: TiedSAEConfig

    def __init__(
        self, cfg: TiedSAEConfig, *, seed: int | None = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(cfg)
        self.W = self._parameter(cfg.d_sae, cfg.d_in, device=device)
        self.b_enc = self._parameter(cfg.d_sae, device=device)
        self.b_dec = self._parameter(cfg.d_in, device=device)
        if seed is not None:
            drawn = torch.rand(cfg.d_sae, cfg.d_in, generator=make_generator(seed, "directions"))
            with torch.no_grad():
                self.W.copy_((2 * drawn - 1) * math.sqrt(6 / (cfg.d_sae + cfg.d_in)))

    @property
    def W_dec(self) -> Float[Tensor, "F d"]:  # type: ignore[override]
        """The rows of W at unit length; a row shorter than 1e-12 stays as short."""
        return self.W / self.W.norm(dim=1, keepdim=True).clamp_min(SMALLEST_NORM)

    def code(self, xc: Float[Tensor, "n d"]) -> Float[Tensor, "n F"]:
        return torch.relu(xc @ self.W_dec.T + self.b_enc)

    def sparse_code(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        return encode_jumprelu(self.W_dec, self.b_enc, xc)

    def params(self) -> CodeParams:
        """The equal standard SAE's parameters, under the names the kernels use."""
        rows = self.W_dec
        return CodeParams(W_enc=rows, W_dec=rows, b_enc=self.b_enc, b_dec=self.b_dec)

    @torch.no_grad()
    def set_gradients_(self, grads: CodeGrads) -> None:  # type: ignore[override]
        """Take the gradients of `params` back to the own parameters.

        With g the sum of what both uses of a row w~ = w / |w| receive, w receives (g - (g . w~) w~) / |w|.
        """
        norms = self.W.norm(dim=1, keepdim=True).clamp_min(SMALLEST_NORM)
        rows, g = self.W / norms, grads.W_enc + grads.W_dec
        self.W.grad = (g - (g * rows).sum(1, keepdim=True) * rows) / norms
        self.b_enc.grad, self.b_dec.grad = grads.b_enc, grads.b_dec

    def loss_options(self, loss: TiedLoss) -> LossOptions:
        return LossOptions(mse_reduction=loss.mse_reduction, center_input=False)

    def unit_norm(self, loss: TiedLoss) -> bool:
        return False  # rows are normalised in the forward pass

    @torch.no_grad()
    def fold_activation_scale_(self, c: float, *, into: str = "biases") -> None:
        """As every dictionary's, into the biases; ValueError for ``"weights"``: rows of unit length have no scale."""
        if into == "weights":
            raise ValueError('into = "weights": a tied SAE has rows of unit length, fold into "biases"')
        super().fold_activation_scale_(c, into=into)

    @torch.no_grad()
    def to_standard(self) -> StandardSAE:
        """The same function as a standard SAE whose input isn't centred."""
        cfg = StandardSAEConfig(self.cfg.d_in, self.cfg.d_sae, False, self.cfg.dtype)
        sae = StandardSAE(cfg, seed=None, device=self.W.device)
        for name in ("W_enc", "W_dec"):
            getattr(sae, name).copy_(self.W_dec)
        sae.b_enc.copy_(self.b_enc)
        sae.b_dec.copy_(self.b_dec)
        sae.metadata = self.metadata
        return sae

    def as_foreign(self, format: str) -> Dictionary:
        """As every dictionary's, of the equal standard SAE."""
        return self.to_standard().as_foreign(format)

    def to_jumprelu(self) -> JumpReLUSAE:
        """The same function as a JumpReLU SAE with thresholds 0."""
        return self.to_standard().to_jumprelu()
