"""Standard L1 SAE, in its two common forms.

* Unit norm (Bricken et al. 2023, "Towards Monosemanticity"; the Gated SAE paper's baseline): the input is
  centred by ``b_dec``, decoder rows have unit norm, the penalty is ``sum f``.
* Norm-weighted (Anthropic, April 2024 update): the input isn't centred, rows are free, the penalty is
  ``sum f |d_i|``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.dictionary import Dictionary, DictionaryConfig, SAELoss
from interp.sae.init import random_directions
from interp.sae.jumprelu import JumpReLUConfig, JumpReLUSAE
from interp.sae.kernels.inference import TokenCodes, encode_jumprelu
from interp.sae.kernels.lists import LossOptions, StandardParams


@dataclass(frozen=True)
class StandardSAEConfig(DictionaryConfig):
    """Shapes and form of a standard SAE.

    Attributes:
        decoder_norm: of the initial decoder rows; the encoder starts equal to the decoder.
    """

    decoder_norm: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder_norm <= 0:
            raise ValueError(f"decoder_norm = {self.decoder_norm} must be positive")

    @classmethod
    def norm_weighted(cls, d_in: int, d_sae: int, *, dtype: str = "float32") -> StandardSAEConfig:
        """The form that is trained with ``sparsity="ri_l1"``: input not centred, rows start at norm 0.1."""
        return cls(d_in, d_sae, apply_b_dec_to_input=False, dtype=dtype, decoder_norm=0.1)


class StandardSAE(Dictionary):
    """``x_hat = f W_dec + b_dec`` with ``f = ReLU((x - b_dec) W_enc^T + b_enc)``.

    Args:
        cfg: shapes and form.
        seed: of the initial directions: decoder rows random, ``W_enc = W_dec``, biases 0. None leaves zeros.
        device: of the parameters.
    """

    architecture = "standard"
    config_class = StandardSAEConfig
    encoder_matrices = ("W_enc",)
    latent_vectors = ("b_enc",)
    cfg: StandardSAEConfig

    def __init__(
        self, cfg: StandardSAEConfig, *, seed: int | None = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(cfg)
        self.W_enc = self._parameter(cfg.d_sae, cfg.d_in, device=device)
        self.W_dec = self._parameter(cfg.d_sae, cfg.d_in, device=device)
        self.b_enc = self._parameter(cfg.d_sae, device=device)
        self.b_dec = self._parameter(cfg.d_in, device=device)
        if seed is not None:
            directions = random_directions(
                cfg.d_sae, cfg.d_in, seed=seed, norm=cfg.decoder_norm, double=cfg.dtype == "float64"
            )
            with torch.no_grad():
                self.W_dec.copy_(directions)
                self.W_enc.copy_(directions)

    def _encode_latents(self, xc: Float[Tensor, "n d"], latents: slice) -> Float[Tensor, "n k"]:
        return torch.relu(xc @ self.W_enc[latents].T + self.b_enc[latents])

    def _encode_by_kernel(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        return encode_jumprelu(self.W_enc, self.b_enc, xc)

    def params(self) -> StandardParams:
        """The parameters under the names the kernels use."""
        return StandardParams(W_enc=self.W_enc, W_dec=self.W_dec, b_enc=self.b_enc, b_dec=self.b_dec)

    def loss(  # type: ignore[override]
        self,
        x: Float[Tensor, "n d"],
        l1_coefficient: float,
        *,
        sparsity: str = "l1",
        mse_reduction: str = "sum",
        backend: str = "dense",
    ) -> SAELoss:
        """``mean_n |x_hat - x|^2 + l1 sum_i f_ni`` (``f_ni |d_i|`` under ``sparsity="ri_l1"``).

        Args:
            l1_coefficient: weight of the sparsity, in units of the summed squared error.
            sparsity: ``"l1"`` is for decoders kept at unit norm: free rows would grow and hide the penalty.
            mse_reduction: squared errors summed over the d dimensions (``"sum"``) or averaged (``"mean"``).
            backend: as for `GatedSAE.loss`.
        """
        options = LossOptions(
            sparsity=sparsity, mse_reduction=mse_reduction, center_input=self.cfg.apply_b_dec_to_input
        )
        return self._loss(self.params(), x, l1_coefficient, options, backend)

    @torch.no_grad()
    def to_jumprelu(self) -> JumpReLUSAE:
        """The same function as a JumpReLU SAE with thresholds 0."""
        cfg = JumpReLUConfig(
            d_in=self.cfg.d_in,
            d_sae=self.cfg.d_sae,
            apply_b_dec_to_input=self.cfg.apply_b_dec_to_input,
            dtype=self.cfg.dtype,
        )
        sae = JumpReLUSAE(cfg, device=self.W_dec.device)
        for name in ("W_enc", "b_enc", "W_dec", "b_dec"):
            getattr(sae, name).copy_(getattr(self, name))
        sae.metadata = self.metadata
        return sae
