"""The losses by dense products, differentiable: what every other form must equal."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels.lists import GatedParams, Losses, LossOptions, StandardParams


def loss(
    params: GatedParams | StandardParams, x: Float[Tensor, "n d"], l1: float, options: LossOptions
) -> tuple[Tensor, Losses]:
    """The differentiable total loss, and its parts detached."""
    if isinstance(params, GatedParams):
        return gated_loss(params, x, l1, options)
    return standard_loss(params, x, l1, options)


def gated_loss(
    params: GatedParams, x: Float[Tensor, "n d"], l1: float, options: LossOptions
) -> tuple[Tensor, Losses]:
    """``mean_n |x_hat - x|^2 + l1 sum ReLU(pi) + |x_tilde - x|^2`` with one encoder product."""
    n, d = x.shape
    xc = x - params.b_dec if options.center_input else x
    p = xc @ params.W_gate.T
    q = p if params.W_mag is None else xc @ params.W_mag.T
    gate_input = p
    if options.detach_centering and options.center_input:
        # The same numbers with b_dec's share of the gradient taken out: p + W (b - b.detach()).
        gate_input = p + (params.W_gate.detach() @ (params.b_dec - params.b_dec.detach()))
    a = torch.relu(gate_input + params.b_gate)
    is_open = a > 0
    mu = (q if params.r_mag is None else params.r_mag.exp() * q) + params.b_mag
    f = torch.where(is_open, torch.relu(mu), 0)

    W_aux, b_aux = params.W_dec, params.b_dec
    if options.freeze_decoder:
        W_aux, b_aux = W_aux.detach(), b_aux.detach()
    scale = options.error_scale(n, d)
    reconstruction = scale * (f @ params.W_dec + params.b_dec - x).pow(2).sum()
    auxiliary = scale * (a @ W_aux + b_aux - x).pow(2).sum()
    sparsity = _sparsity(a, W_aux, options)
    return reconstruction + l1 * sparsity + auxiliary, _losses(
        reconstruction, sparsity, auxiliary, f > 0, is_open
    )


def standard_loss(
    params: StandardParams, x: Float[Tensor, "n d"], l1: float, options: LossOptions
) -> tuple[Tensor, Losses]:
    """``mean_n |x_hat - x|^2 + l1 sum f`` (``f |d_i|`` under ri_l1)."""
    n, d = x.shape
    xc = x - params.b_dec if options.center_input else x
    f = torch.relu(xc @ params.W_enc.T + params.b_enc)
    reconstruction = options.error_scale(n, d) * (f @ params.W_dec + params.b_dec - x).pow(2).sum()
    sparsity = _sparsity(f, params.W_dec, options)
    return reconstruction + l1 * sparsity, _losses(
        reconstruction, sparsity, torch.zeros_like(sparsity), f > 0, f > 0
    )


def _sparsity(codes: Float[Tensor, "n F"], W_dec: Float[Tensor, "F d"], options: LossOptions) -> Tensor:
    per_token = codes @ W_dec.norm(dim=1) if options.sparsity == "ri_l1" else codes.sum(1)
    return per_token.sum() / max(codes.shape[0], 1)


def _losses(
    reconstruction: Tensor, sparsity: Tensor, auxiliary: Tensor, fired: Tensor, is_open: Tensor
) -> Losses:
    n = max(fired.shape[0], 1)
    hits = fired.sum(0)
    return Losses(
        reconstruction=reconstruction.detach().double(),
        sparsity=sparsity.detach().double(),
        auxiliary=auxiliary.detach().double(),
        l0=hits.sum().double() / n,
        open_gates=is_open.sum().double() / n,
        fired=hits,
    )
