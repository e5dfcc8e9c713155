"""What architectures with one code share: an encoder, of whose pre-activations a rule keeps some, and a decoder."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.sae.dictionary import Dictionary, DictionaryConfig
from interp.sae.init import random_directions
from interp.sae.kernels.inference import TokenCodes, encode_jumprelu
from interp.sae.kernels.lists import CodeParams
from interp.sae.registry import architecture


class OneCode(Dictionary):
    """``x_hat = f W_dec + b_dec``, f being some of ``z = (x - b_dec) W_enc^T + b_enc``; here all that are positive.

    Args:
        cfg: shapes and form; a `decoder_norm` in it is that of the initial rows, else they have unit norm.
        seed: of the initial directions: decoder rows random, ``W_enc = W_dec``, biases 0. None leaves zeros.
        device: of the parameters.
    """

    encoder_matrices = ("W_enc",)
    latent_vectors = ("b_enc",)
    jumprelu_form: ClassVar[str] = "jumprelu"  # the architecture that `to_jumprelu` makes

    def __init__(
        self, cfg: DictionaryConfig, *, seed: int | None = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(cfg)
        self.W_enc = self._parameter(cfg.d_sae, cfg.d_in, device=device)
        self.W_dec = self._parameter(cfg.d_sae, cfg.d_out, device=device)
        self.b_enc = self._parameter(cfg.d_sae, device=device)
        self.b_dec = self._parameter(cfg.d_out, device=device)
        if seed is not None:
            norm = getattr(cfg, "decoder_norm", 1.0)
            directions = random_directions(
                cfg.d_sae, cfg.d_in, seed=seed, norm=norm, double=cfg.dtype == "float64"
            )
            with torch.no_grad():
                self.W_enc.copy_(directions)
                self._start_decoder_(directions)

    def _start_decoder_(self, directions: Float[Tensor, "F d"]) -> None:
        self.W_dec.copy_(directions)

    W_enc: nn.Parameter
    b_enc: nn.Parameter

    def pre_activations(self, xc: Float[Tensor, "n d"]) -> Float[Tensor, "n F"]:
        """z, from the input as the encoder takes it."""
        return xc @ self.W_enc.T + self.b_enc

    def code(self, xc: Float[Tensor, "n d"]) -> Float[Tensor, "n F"]:
        return torch.relu(self.pre_activations(xc))

    def sparse_code(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        return encode_jumprelu(self.W_enc, self.b_enc, xc)

    def thresholds(self) -> Float[Tensor, " F"]:
        """What each pre-activation has to exceed to fire."""
        return torch.zeros_like(self.b_enc)

    @torch.no_grad()
    def to_jumprelu(self) -> Dictionary:
        """The same function as a JumpReLU dictionary."""
        kind: Any = architecture(self.jumprelu_form)
        shared = {f.name for f in fields(kind.config_class)} & {f.name for f in fields(self.cfg)}
        form = {name: getattr(self.cfg, name) for name in shared}
        other: Dictionary = kind(kind.config_class(**form), seed=None, device=self.W_dec.device)
        for name, parameter in other.named_parameters():
            parameter.copy_(self.thresholds() if name == "threshold" else self.get_parameter(name))
        other.metadata = self.metadata
        return other

    def params(self) -> CodeParams:
        return CodeParams(W_enc=self.W_enc, W_dec=self.W_dec, b_enc=self.b_enc, b_dec=self.b_dec)

    @torch.no_grad()
    def set_centring_(self, centred: bool) -> None:
        """As every dictionary's: ``W (x - b_dec) + b = W x + (b - W b_dec)``."""
        if centred != self.cfg.apply_b_dec_to_input:
            self.b_enc.add_((self.W_enc @ self.b_dec) * (1.0 if centred else -1.0))
            self.cfg = replace(self.cfg, apply_b_dec_to_input=centred)
