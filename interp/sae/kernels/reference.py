"""The sparse step in plain torch: the definition that every compiled backend is held to.

A gate is open for few (token, latent) pairs, and outside them every code, cotangent and gradient is exactly
zero. So one dense product finds the open gates, tile by tile, and the rest walks their list:

* ``compact``                 pre-activations of a tile of latents -> list of those above a threshold
* ``*_token_pass``            per token: reconstructions, losses, and the cotangents of its open gates
* ``*_latent_pass``           per latent: gradients of its rows and biases
* ``gradients``, ``update``   the whole step without and with the optimiser
* ``decode``                  reconstruction from a list, for inference

Source: Rajamanoharan et al. 2024 (arXiv 2404.16014), appendix G for the loss; closed-form gradients derived.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels.backend import SMALLEST_NORM, FusedAdam, Params
from interp.sae.kernels.lists import (
    GatedGrads,
    GatedParams,
    GatedTokenPass,
    Losses,
    LossOptions,
    OpenGates,
    StandardGrads,
    StandardParams,
    StandardTokenPass,
)

_ENTRIES_AT_ONCE = 8192  # rows of width d gathered at a time: bounds memory, not results


def center(x: Float[Tensor, "n d"], b_dec: Float[Tensor, " d"], options: LossOptions) -> Float[Tensor, "n d"]:
    """The encoder's input ``x - b_dec``, or ``x`` itself where the input isn't centred."""
    return x - b_dec if options.center_input else x


def compact(
    xc: Float[Tensor, "n d"],
    weight: Float[Tensor, "F d"],
    threshold: Float[Tensor, " F"],
    *,
    tile: int = 1024,
) -> OpenGates:
    """List the pairs with ``xc . w_i > threshold_i``, strictly; n x F exists one tile at a time."""
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for start in range(0, weight.shape[0], tile):
        pre = weight[start : start + tile] @ xc.T
        latents, tokens = torch.nonzero(pre > threshold[start : start + tile, None], as_tuple=True)
        parts.append((latents + start, tokens, pre[latents, tokens]))
    latents, tokens, values = (torch.cat(part) for part in zip(*parts, strict=True))
    return index_by_token(latents, tokens, values, n_tokens=xc.shape[0], n_latents=weight.shape[0])


def index_by_token(
    latents: Tensor, tokens: Tensor, values: Tensor, *, n_tokens: int, n_latents: int
) -> OpenGates:
    """Complete a list sorted by (latent, token) with its index by token."""
    order = torch.sort(tokens, stable=True).indices
    return OpenGates(
        latent_ptr=_pointers(latents, n_latents),
        tokens=tokens.int(),
        values=values,
        token_ptr=_pointers(tokens, n_tokens),
        latents=latents[order].int(),
        order=order,
    )


def _pointers(sorted_or_not: Tensor, length: int) -> Tensor:
    counts = torch.bincount(sorted_or_not, minlength=length)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def gated_token_pass(
    params: GatedParams, x: Float[Tensor, "n d"], gates: OpenGates, l1: float, options: LossOptions
) -> tuple[Losses, GatedTokenPass]:
    """Reconstructions, losses and the cotangents of each open gate.

    ``beta = 1[f > 0] <G_n, d_i>`` and ``alpha = <G~_n, d_i> + l1/n`` (times ``|d_i|`` under ri_l1), where
    ``G = 2 (x_hat - x) / n`` and ``G~ = 2 (x_tilde - x) / n`` (both over d for the mean reduction).
    """
    n, d = x.shape
    latents, tokens = gates.latent_of_entry(), gates.tokens.long()
    a = gates.values + params.b_gate[latents]
    mu = (
        magnitude_scale(params)[latents] * magnitude_products(params, x, gates, options)
        + params.b_mag[latents]
    )
    f = mu.clamp_min(0)
    residual = params.b_dec - x
    auxiliary = residual.clone()
    for part in _chunks(len(gates)):
        rows = params.W_dec[latents[part]]
        residual.index_add_(0, tokens[part], f[part, None] * rows)
        auxiliary.index_add_(0, tokens[part], a[part, None] * rows)
    scale = options.error_scale(n, d)
    G, G_aux = 2 * scale * residual, 2 * scale * auxiliary
    weight = params.W_dec.norm(dim=1) if options.sparsity == "ri_l1" else torch.ones_like(params.b_gate)
    alpha, beta = torch.empty_like(a), torch.empty_like(a)
    for part in _chunks(len(gates)):
        rows = params.W_dec[latents[part]]
        beta[part] = (G[tokens[part]] * rows).sum(1) * (f[part] > 0)
        alpha[part] = (G_aux[tokens[part]] * rows).sum(1) + l1 / n * weight[latents[part]]
    losses = Losses(
        reconstruction=scale * residual.double().pow(2).sum(),
        sparsity=(a.double() * weight[latents]).sum() / max(n, 1),
        auxiliary=scale * auxiliary.double().pow(2).sum(),
        l0=(f > 0).sum().double() / max(n, 1),
        open_gates=torch.as_tensor(len(gates) / max(n, 1), dtype=torch.float64, device=x.device),
        fired=torch.bincount(latents[f > 0], minlength=gates.n_latents),
    )
    return losses, GatedTokenPass(f=f, a=a, alpha=alpha, beta=beta, G=G, G_aux=G_aux)


def magnitude_scale(params: GatedParams) -> Float[Tensor, " F"]:
    """``exp(r_mag)``, or ones."""
    return torch.ones_like(params.b_mag) if params.r_mag is None else params.r_mag.exp()


def magnitude_products(
    params: GatedParams, x: Float[Tensor, "n d"], gates: OpenGates, options: LossOptions
) -> Float[Tensor, " z"]:
    """``q``: the gate's own product when tied, else ``xc . W_mag_i`` at the open gates only."""
    if params.W_mag is None:
        return gates.values
    xc, latents, tokens = center(x, params.b_dec, options), gates.latent_of_entry(), gates.tokens.long()
    q = torch.empty_like(gates.values)
    for part in _chunks(len(gates)):
        q[part] = (xc[tokens[part]] * params.W_mag[latents[part]]).sum(1)
    return q


def gated_latent_pass(
    params: GatedParams,
    x: Float[Tensor, "n d"],
    gates: OpenGates,
    token_pass: GatedTokenPass,
    l1: float,
    options: LossOptions,
) -> GatedGrads:
    """Gradients of every parameter from the list.

    With ``m = exp(r_mag)``: ``dW_gate_i = sum (alpha + m beta) xc`` (untied: ``sum alpha xc`` and
    ``dW_mag_i = sum m beta xc``), ``dW_dec_i = sum f G``, ``db_gate = sum alpha``, ``db_mag = sum beta``,
    ``dr_mag = m sum beta q``, ``db_dec = sum_n G - W_gate^T s`` with ``s_i = sum (alpha + m beta)``.
    The auxiliary term reaches ``db_dec`` through the centring only.
    """
    f, a, alpha, beta, G, G_aux = token_pass
    n = max(x.shape[0], 1)
    latents = gates.latent_of_entry()
    xc = center(x, params.b_dec, options)
    m = magnitude_scale(params)
    m_beta = m[latents] * beta
    tied = params.W_mag is None

    W_gate = _sum_rows(gates, alpha + m_beta if tied else alpha, xc)
    W_dec = _sum_rows(gates, f, G)
    b_dec = G.sum(0)
    if not options.freeze_decoder:
        W_dec += _sum_rows(gates, a, G_aux)
        b_dec = b_dec + G_aux.sum(0)
        if options.sparsity == "ri_l1":
            norms = params.W_dec.norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
            W_dec += (l1 / n * _sum(gates, a) / norms)[:, None] * params.W_dec

    b_gate, b_mag = _sum(gates, alpha), _sum(gates, beta)
    if options.center_input:
        through_gate = torch.zeros_like(b_gate) if options.detach_centering else b_gate
        through_magnitude = m * b_mag
        if params.W_mag is None:
            b_dec = b_dec - params.W_gate.T @ (through_gate + through_magnitude)
        else:
            b_dec = b_dec - params.W_gate.T @ through_gate - params.W_mag.T @ through_magnitude
    r_mag = None
    if params.r_mag is not None:
        r_mag = m * _sum(gates, beta * magnitude_products(params, x, gates, options))
    W_mag = None if tied else _sum_rows(gates, m_beta, xc)
    return GatedGrads(W_gate, W_dec, b_gate, b_mag, b_dec, r_mag, W_mag)


def standard_token_pass(
    params: StandardParams, x: Float[Tensor, "n d"], gates: OpenGates, l1: float, options: LossOptions
) -> tuple[Losses, StandardTokenPass]:
    """As :func:`gated_token_pass` with one code: ``f = xc . w_i + b_enc_i``, ``beta = <G_n, d_i> + l1/n``."""
    n, d = x.shape
    latents, tokens = gates.latent_of_entry(), gates.tokens.long()
    f = gates.values + params.b_enc[latents]
    residual = params.b_dec - x
    for part in _chunks(len(gates)):
        residual.index_add_(0, tokens[part], f[part, None] * params.W_dec[latents[part]])
    scale = options.error_scale(n, d)
    G = 2 * scale * residual
    weight = params.W_dec.norm(dim=1) if options.sparsity == "ri_l1" else torch.ones_like(params.b_enc)
    beta = torch.empty_like(f)
    for part in _chunks(len(gates)):
        dots = (G[tokens[part]] * params.W_dec[latents[part]]).sum(1)
        beta[part] = dots + l1 / n * weight[latents[part]]
    count = torch.as_tensor(len(gates) / max(n, 1), dtype=torch.float64, device=x.device)
    losses = Losses(
        reconstruction=scale * residual.double().pow(2).sum(),
        sparsity=(f.double() * weight[latents]).sum() / max(n, 1),
        auxiliary=torch.zeros((), dtype=torch.float64, device=x.device),
        l0=count,
        open_gates=count,
        fired=gates.hits(),
    )
    return losses, StandardTokenPass(f=f, beta=beta, G=G)


def standard_latent_pass(
    params: StandardParams,
    x: Float[Tensor, "n d"],
    gates: OpenGates,
    token_pass: StandardTokenPass,
    l1: float,
    options: LossOptions,
) -> StandardGrads:
    """``dW_enc_i = sum beta xc``, ``dW_dec_i = sum f G`` (+ ``l1/n sum f d_i/|d_i|`` under ri_l1)."""
    n = max(x.shape[0], 1)
    f, beta, G = token_pass
    W_enc = _sum_rows(gates, beta, center(x, params.b_dec, options))
    W_dec = _sum_rows(gates, f, G)
    if options.sparsity == "ri_l1":
        norms = params.W_dec.norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
        W_dec += (l1 / n * _sum(gates, f) / norms)[:, None] * params.W_dec
    b_enc, b_dec = _sum(gates, beta), G.sum(0)
    if options.center_input:
        b_dec = b_dec - params.W_enc.T @ b_enc
    return StandardGrads(W_enc, W_dec, b_enc, b_dec)


@torch.no_grad()
def gradients(
    params: Params, x: Float[Tensor, "n d"], l1: float, options: LossOptions
) -> tuple[Losses, GatedGrads | StandardGrads]:
    """Losses and gradients by the list form; nothing is changed."""
    return _run(params, x, l1, options)[1:]


@torch.no_grad()
def update(
    params: Params, x: Float[Tensor, "n d"], l1: float, options: LossOptions, adam: FusedAdam
) -> Losses:
    """A whole training step in place: the rows of latents with an open gate move, and ``b_dec``."""
    gates, losses, grads = _run(params, x, l1, options)
    touched = torch.nonzero(gates.hits())[:, 0]
    for name, parameter in params._asdict().items():
        if parameter is None:
            continue
        rows = slice(None) if name == "b_dec" else touched
        constrained = adam.unit_norm and name == "W_dec"
        v, last_step = getattr(adam.v, name), getattr(adam.last_step, name)
        _adam_rows(parameter, getattr(grads, name), v, last_step, rows, adam, unit_norm=constrained)
    return losses


def decode(
    token_ptr: Tensor,
    latents: Tensor,
    values: Tensor,
    W_dec: Float[Tensor, "F d"],
    b_dec: Float[Tensor, " d"],
) -> Float[Tensor, "n d"]:
    """``sum over a token's entries of value * W_dec[latent] + b_dec``."""
    out = b_dec.repeat(token_ptr.shape[0] - 1, 1)
    tokens = torch.repeat_interleave(torch.arange(out.shape[0], device=out.device), token_ptr.diff())
    for part in _chunks(latents.shape[0]):
        out.index_add_(0, tokens[part], values[part, None] * W_dec[latents[part].long()])
    return out


def _run(params: Params, x: Tensor, l1: float, options: LossOptions) -> tuple[OpenGates, Losses, Any]:
    with torch.autocast(x.device.type, enabled=False):
        xc = center(x, params.b_dec, options)
        if isinstance(params, GatedParams):
            gates = compact(xc, params.W_gate, -params.b_gate)
            losses, passed = gated_token_pass(params, x, gates, l1, options)
            return gates, losses, gated_latent_pass(params, x, gates, passed, l1, options)
        gates = compact(xc, params.W_enc, -params.b_enc)
        losses, one_code = standard_token_pass(params, x, gates, l1, options)
        return gates, losses, standard_latent_pass(params, x, gates, one_code, l1, options)


def _adam_rows(
    parameter: Tensor,
    grad: Tensor,
    v: Tensor,
    last_step: Tensor,
    rows: Tensor | slice,
    adam: FusedAdam,
    *,
    unit_norm: bool,
) -> None:
    old, g = parameter[rows], grad[rows]
    if unit_norm:
        g = g - (g * old).sum(1, keepdim=True) * old
    decay = (adam.beta2 ** (adam.step - last_step[rows]).double()).to(v.dtype)
    v[rows] = v[rows] * (decay[:, None] if v.dim() == 2 else decay) + (1 - adam.beta2) * g * g
    last_step[rows] = adam.step
    new = old - adam.lr * g / ((v[rows] / (1 - adam.beta2**adam.step)).sqrt() + adam.eps)
    if unit_norm:
        norms = new.norm(dim=1, keepdim=True)
        new = torch.where(norms < SMALLEST_NORM, old, new / norms)
    parameter[rows] = new


def _sum_rows(gates: OpenGates, coefficients: Tensor, rows: Float[Tensor, "n d"]) -> Float[Tensor, "F d"]:
    """``out_i = sum over the open gates (n, i) of coefficient * rows_n``."""
    out = rows.new_zeros(gates.n_latents, rows.shape[1])
    latents, tokens = gates.latent_of_entry(), gates.tokens.long()
    for part in _chunks(len(gates)):
        out.index_add_(0, latents[part], coefficients[part, None] * rows[tokens[part]])
    return out


def _sum(gates: OpenGates, coefficients: Tensor) -> Float[Tensor, " F"]:
    return coefficients.new_zeros(gates.n_latents).index_add_(0, gates.latent_of_entry(), coefficients)


def _chunks(length: int) -> Iterator[slice]:
    return (slice(start, start + _ENTRIES_AT_ONCE) for start in range(0, length, _ENTRIES_AT_ONCE))
