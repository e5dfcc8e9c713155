"""Gated SAE: a gate decides which latents fire, a magnitude path how strongly.

Rajamanoharan et al. 2024, "Improving Dictionary Learning with Gated Sparse Autoencoders", arXiv 2404.16014v2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.sae.dictionary import Dictionary, DictionaryConfig, SAELoss
from interp.sae.init import random_directions
from interp.sae.jumprelu import JumpReLUConfig, JumpReLUSAE
from interp.sae.kernels.inference import TokenCodes, encode_gated
from interp.sae.kernels.lists import GatedParams, LossOptions


@dataclass(frozen=True)
class GatedSAEConfig(DictionaryConfig):
    """Shapes and form of a Gated SAE.

    Attributes:
        tied: magnitudes use the gate's directions, rescaled by exp(r_mag); otherwise their own ``W_mag``.
        use_r_mag: whether that rescaling is there (r_mag = 0 without it).
    """

    tied: bool = True
    use_r_mag: bool = True


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
    encoder_matrices = ("W_gate", "W_mag")
    latent_vectors = ("b_gate", "b_mag")
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

    def _encode_latents(self, xc: Float[Tensor, "n d"], latents: slice) -> Float[Tensor, "n k"]:
        p = xc @ self.W_gate[latents].T
        q = p if self.W_mag is None else xc @ self.W_mag[latents].T
        mu = (q if self.r_mag is None else self.r_mag[latents].exp() * q) + self.b_mag[latents]
        return torch.where(p + self.b_gate[latents] > 0, torch.relu(mu), 0)

    def _encode_by_kernel(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        return encode_gated(self.params(), xc)

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

    def loss(  # type: ignore[override]
        self,
        x: Float[Tensor, "n d"],
        l1_coefficient: float,
        *,
        sparsity: str = "l1",
        freeze_decoder: bool = True,
        detach_centering: bool = False,
        mse_reduction: str = "sum",
        backend: str = "dense",
    ) -> SAELoss:
        """``mean_n |x_hat - x|^2 + l1 sum_i ReLU(pi_ni) + |x_tilde - x|^2`` (equations 8 to 10).

        ``x_tilde = ReLU(pi) W_dec + b_dec`` is the auxiliary reconstruction from the gates, with the decoder
        a constant. Nothing passes through the gate's step.

        Args:
            l1_coefficient: weight of the sparsity, in units of the summed squared error.
            sparsity: ``"l1"`` for decoders of unit norm; ``"ri_l1"`` weighs latent i by ``|d_i|``.
            freeze_decoder: whether the decoder is a constant in the auxiliary reconstruction and, under
                ``"ri_l1"``, in the norm.
            detach_centering: stop the sparsity and auxiliary gradients that reach ``b_dec`` through
                ``x - b_dec``. The paper's text says they are stopped, its pseudo-code (the default) lets
                them pass; stationary points are the same.
            mse_reduction: squared errors summed over the d dimensions (``"sum"``) or averaged (``"mean"``).
            backend: ``"dense"``, or the list of open gates by ``"reference"``, ``"cpu"`` or ``"triton"``.
        """
        options = LossOptions(
            sparsity=sparsity,
            freeze_decoder=freeze_decoder,
            detach_centering=detach_centering,
            mse_reduction=mse_reduction,
            center_input=self.cfg.apply_b_dec_to_input,
        )
        return self._loss(self.params(), x, l1_coefficient, options, backend)

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
