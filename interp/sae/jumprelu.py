"""JumpReLU SAE for inference: a latent fires where its pre-activation exceeds its threshold.

Rajamanoharan et al. 2024b, arXiv 2407.14435; the form a Gated SAE converts to, and that of Gemma Scope.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.dictionary import Dictionary, DictionaryConfig
from interp.sae.kernels.inference import TokenCodes, encode_jumprelu


@dataclass(frozen=True)
class JumpReLUConfig(DictionaryConfig):
    """Shapes and form of a JumpReLU SAE."""


class JumpReLUSAE(Dictionary):
    """``f = z 1[z > threshold]`` with ``z = x W_enc^T + b_enc``, and no negative code.

    Thresholds are non-negative. Parameters are zeros until loaded.
    """

    architecture = "jumprelu"
    config_class = JumpReLUConfig
    encoder_matrices = ("W_enc",)
    latent_vectors = ("b_enc", "threshold")
    cfg: JumpReLUConfig

    def __init__(
        self, cfg: JumpReLUConfig, *, seed: int | None = None, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(cfg)
        if seed is not None:
            raise ValueError("seed: a JumpReLU SAE has no initialisation of its own; load or convert weights")
        self.W_enc = self._parameter(cfg.d_sae, cfg.d_in, device=device)
        self.W_dec = self._parameter(cfg.d_sae, cfg.d_in, device=device)
        self.b_enc = self._parameter(cfg.d_sae, device=device)
        self.threshold = self._parameter(cfg.d_sae, device=device)
        self.b_dec = self._parameter(cfg.d_in, device=device)

    def _encode_latents(self, xc: Float[Tensor, "n d"], latents: slice) -> Float[Tensor, "n k"]:
        z = xc @ self.W_enc[latents].T + self.b_enc[latents]
        return torch.where(z > self.threshold[latents].clamp_min(0), z, 0)

    def _encode_by_kernel(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        return encode_jumprelu(self.W_enc, self.b_enc, xc, self.threshold)

    def to_jumprelu(self) -> JumpReLUSAE:
        """Itself."""
        return self
