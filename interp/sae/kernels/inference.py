"""Sparse codes and reconstructions through the same kernels as training: no n x F array ever exists.

Each function takes the encoder's input ``xc`` [n d] (already centred where the dictionary centres it) and
returns ``(token_ptr, latents, values)``: entries in (token, latent) order, every value positive.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.sae.kernels.backend import Backend
from interp.sae.kernels.dispatch import load_backend, sparse_backend_for
from interp.sae.kernels.lists import CodeParams, GatedParams, LossOptions, OpenGates


class TokenCodes(NamedTuple):
    """Codes by token: token t owns the entries ``token_ptr[t]:token_ptr[t + 1]``, latents ascending."""

    token_ptr: Int[Tensor, " n+1"]  # int64
    latents: Int[Tensor, " z"]  # int32
    values: Float[Tensor, " z"]


@torch.no_grad()
def encode_gated(params: GatedParams, xc: Float[Tensor, "n d"]) -> TokenCodes:
    """``f = 1[pi > 0] ReLU(mu)``, where positive."""
    gates = _backend(xc).compact(xc, params.W_gate, -params.b_gate)
    latents = gates.latents.long()
    q = gates.values[gates.order]
    if params.W_mag is not None:
        q = _products(xc, params.W_mag, gates)
    m = 1 if params.r_mag is None else params.r_mag.exp()[latents]
    return _positive(gates, m * q + params.b_mag[latents])


@torch.no_grad()
def encode_jumprelu(
    W_enc: Float[Tensor, "F d"],
    b_enc: Float[Tensor, " F"],
    xc: Float[Tensor, "n d"],
    threshold: Float[Tensor, " F"] | None = None,
) -> TokenCodes:
    """``f = z 1[z > max(threshold, 0)]`` with ``z = xc W_enc^T + b_enc``; without a threshold, ReLU."""
    limit = torch.zeros_like(b_enc) if threshold is None else threshold.clamp_min(0)
    # Rounding of p + b may differ from that of threshold - b: list a hair too much, then decide on z itself.
    slack = 2 * torch.finfo(b_enc.dtype).eps * (limit.abs() + b_enc.abs()) if threshold is not None else 0
    gates = _backend(xc).compact(xc, W_enc, limit - b_enc - slack)
    latents = gates.latents.long()
    z = gates.values[gates.order] + b_enc[latents]
    return _positive(gates, torch.where(z > limit[latents], z, 0))


@torch.no_grad()
def encode_selected(params: CodeParams, xc: Float[Tensor, "n d"], options: LossOptions) -> TokenCodes:
    """What a selection keeps of each token (see `rules.TopK`)."""
    gates = _backend(xc).listed(params, xc, options)
    z = gates.values[gates.order] + params.b_enc[gates.latents.long()]
    return TokenCodes(gates.token_ptr, gates.latents, z)


@torch.no_grad()
def decode(
    codes: TokenCodes, W_dec: Float[Tensor, "F d"], b_dec: Float[Tensor, " d"]
) -> Float[Tensor, "n d"]:
    """``codes @ W_dec + b_dec``."""
    return _backend(W_dec).decode(*codes, W_dec, b_dec)


def _backend(tensor: Tensor) -> Backend:
    return load_backend(sparse_backend_for(tensor.device, tensor.dtype, tensor.shape[-1]) or "reference")


def _products(xc: Tensor, weight: Tensor, gates: OpenGates) -> Tensor:
    """``<xc_t, weight_i>`` at the open gates, in token order, a block of rows at a time."""
    tokens = gates.tokens[gates.order].long()
    parts = zip(tokens.split(8192), gates.latents.long().split(8192), strict=True)
    return torch.cat([(xc[t] * weight[i]).sum(1) for t, i in parts])


def _positive(gates: OpenGates, values: Tensor) -> TokenCodes:
    keep = values > 0
    before = torch.cat([gates.token_ptr.new_zeros(1), keep.cumsum(0)])
    return TokenCodes(before[gates.token_ptr], gates.latents[keep], values[keep])
