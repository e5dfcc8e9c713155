"""Gated SAE: a gate decides which latents fire, a magnitude path how strongly.

Rajamanoharan et al. 2024, "Improving Dictionary Learning with Gated Sparse Autoencoders", arXiv 2404.16014v2.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.messages import one_of, warn_once
from interp.sae.architectures.jumprelu import JumpReLUConfig, JumpReLUSAE
from interp.sae.dictionary import Dictionary, DictionaryConfig
from interp.sae.foreign import Foreign, ForeignForm
from interp.sae.init import random_directions
from interp.sae.kernels.inference import TokenCodes, encode_gated
from interp.sae.kernels.lists import REDUCTIONS, WEIGHTED, GatedParams, LossOptions
from interp.sae.registry import register_architecture

_LARGEST_R = 10.0  # |r_mag|: a guard against exp overflowing, far from what training reaches
_GATES_AT_ONCE = 2**22

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GatedSAEConfig(DictionaryConfig):
    """Shapes and form of a Gated SAE.

    Attributes:
        tied: magnitudes use the gate's directions, rescaled by exp(r_mag); otherwise their own ``W_mag``.
        use_r_mag: whether that rescaling is there (r_mag = 0 without it).
    """

    tied: bool = True
    use_r_mag: bool = True


@dataclass(frozen=True)
class GatedLoss:
    """``mean_n |x_hat - x|^2 + l1 sum_i ReLU(pi_ni) + |x_tilde - x|^2`` (equations 8 to 10).

    ``x_tilde = ReLU(pi) W_dec + b_dec`` is the auxiliary reconstruction from the gates, with the decoder a constant.
    Nothing passes through the gate's step.

    Attributes:
        l1_coefficient: weight of the sparsity, in units of the squared error as it is reduced, of activations scaled
            as the run's `normalization` says. The paper's values belong to the mean: multiply them by d for the sum.
        sparsity: ``"l1"`` for decoders of unit norm; ``"ri_l1"`` weighs latent i by ``|d_i|``.
        freeze_decoder: whether the decoder is a constant in the auxiliary reconstruction and, under ``"ri_l1"``, in
            the norm.
        detach_centering: stop the sparsity and auxiliary gradients that reach ``b_dec`` through ``x - b_dec``. The
            paper's text says they are stopped, its pseudo-code (the default) lets them pass; stationary points are
            the same.
        mse_reduction: squared errors summed over the d dimensions (``"sum"``) or averaged (``"mean"``).
    """

    l1_coefficient: float = 3.0
    sparsity: str = "l1"
    freeze_decoder: bool = True
    detach_centering: bool = False
    mse_reduction: str = "sum"

    def __post_init__(self) -> None:
        one_of("sparsity", self.sparsity, WEIGHTED)
        one_of("mse_reduction", self.mse_reduction, REDUCTIONS)
        if self.l1_coefficient < 0:
            raise ValueError(f"l1_coefficient = {self.l1_coefficient} must not be negative")

    @property
    def weight(self) -> float:
        return self.l1_coefficient


@register_architecture
class GatedSAE(Dictionary):
    """``x_hat = f W_dec + b_dec`` with ``f = 1[pi > 0] ReLU(mu)``.

    With ``xc = x - b_dec``: gate ``pi = xc W_gate^T + b_gate`` (strictly positive: open), magnitude
    ``mu = exp(r_mag) * (xc W_gate^T) + b_mag``.

    Args:
        cfg: shapes and form.
        seed: of the initial directions: decoder rows random with unit norm, ``W_gate = W_dec``, all else 0.
            None leaves zeros, for weights that are loaded.
        device: of the parameters.
    """

    architecture = "gated"
    config_class = GatedSAEConfig
    loss_class = GatedLoss
    encoder_matrices = ("W_gate", "W_mag")
    latent_vectors = ("b_gate", "b_mag")
    foreign: ClassVar[Foreign] = {
        "saelens": (
            ForeignForm(
                "gated",
                {"W_gate*": "W_enc", "W_dec": "W_dec", "b_dec": "b_dec"}
                | {name: name for name in ("b_gate", "b_mag", "r_mag")},
                fixed={"tied": True},
            ),
        ),
        "dictionary_learning": (
            ForeignForm(
                "GatedAutoEncoder",
                {"W_gate": "encoder.weight", "W_dec*": "decoder.weight", "b_dec": "decoder_bias"}
                | {"b_gate": "gate_bias", "b_mag": "mag_bias", "r_mag": "r_mag"},
                fixed={"tied": True, "apply_b_dec_to_input": True},
            ),
        ),
    }
    cfg: GatedSAEConfig

    def __init__(
        self, cfg: GatedSAEConfig, *, seed: int | None = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(cfg)
        d, n_latents = cfg.d_in, cfg.d_sae
        self.W_gate = self._parameter(n_latents, d, device=device)
        self.W_dec = self._parameter(n_latents, d, device=device)
        self.b_gate = self._parameter(n_latents, device=device)
        self.b_mag = self._parameter(n_latents, device=device)
        self.b_dec = self._parameter(d, device=device)
        self.r_mag: nn.Parameter | None
        self.W_mag: nn.Parameter | None
        self.register_parameter("r_mag", self._parameter(n_latents, device=device) if cfg.use_r_mag else None)
        self.register_parameter("W_mag", None if cfg.tied else self._parameter(n_latents, d, device=device))
        if seed is not None:
            directions = random_directions(n_latents, d, seed=seed, double=cfg.dtype == "float64")
            with torch.no_grad():
                for matrix in (self.W_gate, self.W_dec, self.W_mag):
                    if matrix is not None:
                        matrix.copy_(directions)

    def code(self, xc: Float[Tensor, "n d"]) -> Float[Tensor, "n F"]:
        p = xc @ self.W_gate.T
        q = p if self.W_mag is None else xc @ self.W_mag.T
        mu = (q if self.r_mag is None else self.r_mag.exp() * q) + self.b_mag
        return torch.where(p + self.b_gate > 0, torch.relu(mu), 0)

    def sparse_code(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        return encode_gated(self.params(), xc)

    @classmethod
    def recipe(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The paper's resampling, where decoder rows have unit norm."""
        return {} if given.get("sparsity") == "ri_l1" else {"resample_at": (0.2, 0.35, 0.5)}

    def params(self) -> GatedParams:
        """The parameters under the names the kernels use."""
        return GatedParams(
            W_gate=self.W_gate,
            W_dec=self.W_dec,
            b_gate=self.b_gate,
            b_mag=self.b_mag,
            b_dec=self.b_dec,
            r_mag=self.r_mag,
            W_mag=self.W_mag,
        )

    def loss_options(self, loss: GatedLoss) -> LossOptions:
        return LossOptions(
            sparsity=loss.sparsity,
            freeze_decoder=loss.freeze_decoder,
            detach_centering=loss.detach_centering,
            mse_reduction=loss.mse_reduction,
            center_input=self.cfg.apply_b_dec_to_input,
        )

    def unit_norm(self, loss: GatedLoss) -> bool:
        return loss.sparsity == "l1"

    @torch.no_grad()
    def after_many_steps_(self) -> None:
        """Keep |r_mag| below 10; nothing in a healthy run comes near."""
        if self.r_mag is not None and bool((self.r_mag.abs() > _LARGEST_R).any()):
            self.r_mag.clamp_(-_LARGEST_R, _LARGEST_R)
            warn_once(_log, "r_mag", "r_mag left [-10, 10] and was clamped: lower the learning rate")

    @torch.no_grad()
    def open_gates(self, x: Float[Tensor, "n d"]) -> int:
        """Open gates on some rows, whether or not the magnitude lets the latent fire."""
        xc = self._encoder_input(x.to(self.W_gate.device, self.W_gate.dtype))
        tile = max(64, _GATES_AT_ONCE // max(len(x), 1))
        pairs = zip(self.W_gate.split(tile), self.b_gate.split(tile), strict=True)
        return sum(int((xc @ W.T + b > 0).sum()) for W, b in pairs)

    @torch.no_grad()
    def set_centring_(self, centred: bool) -> None:
        """As every dictionary's: ``W (x - b_dec) + b = W x + (b - W b_dec)``."""
        if centred == self.cfg.apply_b_dec_to_input:
            return
        sign = 1.0 if centred else -1.0
        scale = torch.ones_like(self.b_mag) if self.r_mag is None else self.r_mag.exp()
        W_mag = self.W_gate if self.W_mag is None else self.W_mag
        self.b_gate.add_((self.W_gate @ self.b_dec) * sign)
        self.b_mag.add_((scale * (W_mag @ self.b_dec)) * sign)
        self.cfg = replace(self.cfg, apply_b_dec_to_input=centred)

    @torch.no_grad()
    def to_jumprelu(self) -> JumpReLUSAE:
        """The same function as a JumpReLU SAE (appendix E): the gate is open iff mu > theta.

        ``theta = b_mag - exp(r_mag) b_gate``; where it is negative the ReLU decides, so it is clipped at 0.

        Raises:
            ValueError: the magnitudes have directions of their own (``tied=False``).
        """
        if self.W_mag is not None:
            raise ValueError("tied = False: a Gated SAE with its own W_mag has no JumpReLU form")
        cfg = JumpReLUConfig(
            d_in=self.cfg.d_in,
            d_sae=self.cfg.d_sae,
            apply_b_dec_to_input=self.cfg.apply_b_dec_to_input,
            dtype=self.cfg.dtype,
        )
        scale = torch.ones_like(self.b_mag) if self.r_mag is None else self.r_mag.exp()
        sae = JumpReLUSAE(cfg, device=self.W_dec.device)
        sae.W_enc.copy_(scale[:, None] * self.W_gate)
        sae.b_enc.copy_(self.b_mag)
        sae.threshold.copy_((self.b_mag - scale * self.b_gate).clamp_min(0))
        sae.W_dec.copy_(self.W_dec)
        sae.b_dec.copy_(self.b_dec)
        sae.metadata = self.metadata
        return sae
