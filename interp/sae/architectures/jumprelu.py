"""JumpReLU SAE: a latent fires where its pre-activation exceeds its threshold.

Rajamanoharan et al. 2024b, arXiv 2407.14435; the form a Gated SAE converts to, and that of Gemma Scope.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.core.messages import one_of
from interp.sae.dictionary import DictionaryConfig
from interp.sae.foreign import Foreign, ForeignForm
from interp.sae.kernels.dead import PreActivations
from interp.sae.kernels.inference import TokenCodes, encode_jumprelu
from interp.sae.kernels.lists import OF_THE_JUMP, REDUCTIONS, CodeParams, Losses, LossOptions
from interp.sae.kernels.rules import Window
from interp.sae.one_code import OneCode
from interp.sae.registry import register_architecture

_THEIRS = {
    "W_enc*": "W_enc",
    "W_dec": "W_dec",
    **{name: name for name in ("b_enc", "b_dec", "threshold")},
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JumpReLUConfig(DictionaryConfig):
    """Shapes and form of a JumpReLU SAE."""


@dataclass(frozen=True)
class JumpReLULoss:
    """``mean_n |x_hat - x|^2 + l0_coefficient sparsity``, trained through a window around each threshold.

    Attributes:
        l0_coefficient: weight of the sparsity, in units of the squared error as it is reduced.
        penalty: ``"l0"``: the mean number of open latents. ``"quadratic"``: (that / target_l0 - 1)^2. ``"tanh"``:
            ``sum tanh(tanh_scale f |d_i|)`` (Anthropic, January 2025).
        bandwidth: of the window, in units of the scaled activations' pre-activations. The paper's 0.001 is for
            ``normalization="rms"``; with ``"mean_norm"`` pre-activations are sqrt(d) times as large.
        ste_to_input: pass the window's derivative to the pre-activation, too.
        target_l0, tanh_scale: see `penalty`.
        pre_activation_coefficient: of the pull on closed pre-activations of dead latents.
        mse_reduction: squared errors summed over the d dimensions (``"sum"``) or averaged (``"mean"``).
    """

    l0_coefficient: float = 1.0
    penalty: str = "l0"
    bandwidth: float = 0.1
    ste_to_input: bool = False
    target_l0: float = 50.0
    tanh_scale: float = 4.0
    pre_activation_coefficient: float = 0.0
    mse_reduction: str = "sum"

    def __post_init__(self) -> None:
        one_of("penalty", self.penalty, OF_THE_JUMP)
        one_of("mse_reduction", self.mse_reduction, REDUCTIONS)
        for name in ("l0_coefficient", "pre_activation_coefficient"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)} must not be negative")
        for name in ("bandwidth", "target_l0", "tanh_scale"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} = {getattr(self, name)} must be positive")

    @property
    def weight(self) -> float:
        return self.l0_coefficient


@register_architecture
class JumpReLUSAE(OneCode):
    """``f = z 1[z > threshold]`` with ``z = x W_enc^T + b_enc``, and no negative code.

    Thresholds are non-negative. They are trained directly, not by their logarithm, which Adam hardly moves.

    Args:
        cfg: shapes and form.
        seed: of the initial directions; `start_threshold` is then every threshold. None leaves zeros, for weights
            that are loaded or converted.
        device: of the parameters.
    """

    architecture = "jumprelu"
    config_class = JumpReLUConfig
    loss_class = JumpReLULoss
    latent_vectors = ("b_enc", "threshold")
    foreign: ClassVar[Foreign] = {
        "saelens": (ForeignForm("jumprelu", _THEIRS),),
        "dictionary_learning": (
            ForeignForm("JumpReluAutoEncoder", _THEIRS, fixed={"apply_b_dec_to_input": False}),
        ),
        "gemma_scope": (ForeignForm("jump_relu", _THEIRS, fixed={"apply_b_dec_to_input": False}),),
    }
    cfg: JumpReLUConfig
    threshold: nn.Parameter

    start_threshold = 0.05

    def __init__(
        self, cfg: JumpReLUConfig, *, seed: int | None = None, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(cfg, seed=seed, device=device)
        self.threshold = self._parameter(cfg.d_sae, device=device)
        if seed is not None:
            with torch.no_grad():
                self.threshold.fill_(self.start_threshold)

    def code(self, xc: Float[Tensor, "n d"]) -> Float[Tensor, "n F"]:
        z = self.pre_activations(xc)
        return torch.where(z > self.threshold.clamp_min(0), z, 0)

    def sparse_code(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        return encode_jumprelu(self.W_enc, self.b_enc, xc, self.threshold)

    @classmethod
    def recipe(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The input is not centred (as in the paper); latents start where a twentieth of the tokens opens them."""
        return {"apply_b_dec_to_input": False, "start_fire_rate": 0.03}

    def params(self) -> CodeParams:
        return super().params()._replace(threshold=self.threshold)

    def loss_options(self, loss: JumpReLULoss) -> LossOptions:
        parameter = {"quadratic": loss.target_l0, "tanh": loss.tanh_scale}.get(loss.penalty, 1.0)
        return LossOptions(
            sparsity=loss.penalty,
            mse_reduction=loss.mse_reduction,
            center_input=self.cfg.apply_b_dec_to_input,
            rule=Window(loss.bandwidth, loss.ste_to_input),
            sparsity_parameter=parameter,
        )

    def dead_term(self, loss: JumpReLULoss) -> PreActivations | None:
        c = loss.pre_activation_coefficient
        return PreActivations(c) if c > 0 else None

    @torch.no_grad()
    def open_above_(self, latents: Int[Tensor, " k"], products: Float[Tensor, " k"]) -> None:
        self.threshold[latents] = self.start_threshold
        self.b_enc[latents] = self.start_threshold - products

    @torch.no_grad()
    def after_step_(self, losses: Losses, *, warmed_up: bool) -> None:
        """Thresholds stay at or above 0: a lower one would let negative codes through."""
        self.threshold.clamp_min_(0)

    def to_jumprelu(self) -> JumpReLUSAE:
        """Itself."""
        return self
