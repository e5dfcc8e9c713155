"""Gradients by dense products, tile by tile: the way to step while many gates are open.

The closed-form gradients need seven products of size n x d x F where autograd takes eight, everything
element-wise happens on a tile in cache, and one n x F array is kept (the pre-activations) where autograd keeps
about eight. Any device and floating dtype; plain torch. Under autocast only the products are narrow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels import dense
from interp.sae.kernels.backend import Grads, Params
from interp.sae.kernels.dead import DeadLatents
from interp.sae.kernels.lists import (
    WEIGHTED,
    CodeGrads,
    CodeParams,
    GatedGrads,
    GatedParams,
    Losses,
    LossOptions,
)
from interp.sae.kernels.precision import product_dtype
from interp.sae.kernels.reference import center, magnitude_scale
from interp.sae.kernels.rules import Threshold
from interp.sae.kernels.threads import map_threads

# Numbers in a tile. On a CPU it stays in cache between its element-wise operations.
_CPU_TILE_SIZE, _GPU_TILE_SIZE = 2**19, 2**26


@torch.no_grad()
def gradients(
    params: Params,
    x: Float[Tensor, "n d"],
    l1: float,
    options: LossOptions,
    *,
    target: Float[Tensor, "n e"] | None = None,
    dead: DeadLatents | None = None,
    guess: float = 0.0,
) -> tuple[Losses, Grads]:
    """Losses and gradients; nothing is changed.

    Gated SAEs and one ReLU code by closed forms; whatever selects otherwise by autograd on the definition.
    """
    narrow = product_dtype(x.device, x.dtype)
    with torch.autocast(x.device.type, enabled=False):
        if isinstance(params, GatedParams):
            return _gated(params, x, l1, options, narrow)
        plain = (
            isinstance(options.rule, Threshold) and options.prefixes is None and options.sparsity in WEIGHTED
        )
        if plain and target is None and dead is None and params.W_skip is None and not options.blocks:
            return _standard(params, x, l1, options, narrow)
        return _by_autograd(params, x, l1, options, target, dead)


def _by_autograd(
    params: CodeParams,
    x: Tensor,
    l1: float,
    options: LossOptions,
    target: Tensor | None,
    dead: DeadLatents | None,
) -> tuple[Losses, CodeGrads]:
    own = CodeParams(*(None if p is None else p.detach().requires_grad_() for p in params))  # type: ignore[arg-type]
    with torch.enable_grad():
        total, losses = dense.loss(own, x, l1, options, target=target, dead=dead)
        there = {name: p for name, p in own._asdict().items() if p is not None}
        found = torch.autograd.grad(total, list(there.values()), allow_unused=True, materialize_grads=True)
    return losses, CodeGrads(**dict(zip(there, found, strict=True)))


def _gated(
    params: GatedParams, x: Tensor, l1: float, options: LossOptions, narrow: torch.dtype
) -> tuple[Losses, GatedGrads]:
    W_gate, W_dec, b_gate, b_mag, b_dec, r_mag, W_mag = params
    n, d = x.shape
    F = W_dec.shape[0]
    xc, scale, m = center(x, b_dec, options), options.error_scale(n, d), magnitude_scale(params)
    p = _encode(W_gate, xc, narrow)
    q = p if W_mag is None else _encode(W_mag, xc, narrow)

    def codes(latents: slice, tokens: slice) -> tuple[Tensor, Tensor]:
        a = (p[latents, tokens] + b_gate[latents, None]).clamp_min_(0)
        f = (q[latents, tokens] * m[latents, None]).add_(b_mag[latents, None]).clamp_min_(0)
        return a, f.mul_(a > 0)

    decoder = W_dec.to(narrow)
    G, G_aux = torch.empty_like(x), torch.empty_like(x)
    everything = slice(None)

    def reconstruct(tokens: slice) -> None:
        a, f = codes(everything, tokens)
        G[tokens] = _multiply(f.T, decoder).add_(b_dec - x[tokens])
        G_aux[tokens] = _multiply(a.T, decoder).add_(b_dec - x[tokens])

    _for_tiles(reconstruct, n, F, x)
    errors = scale * G.double().pow(2).sum(), scale * G_aux.double().pow(2).sum()
    G *= 2 * scale
    G_aux *= 2 * scale
    inputs, residual, aux_residual = xc.to(narrow), G.to(narrow), G_aux.to(narrow)

    norms = W_dec.norm(dim=1) if options.sparsity == "ri_l1" else torch.ones_like(b_gate)
    pull = l1 / n * norms
    grad_gate, grad_dec = torch.empty_like(W_gate), torch.empty_like(W_dec)
    grad_mag = None if W_mag is None else torch.empty_like(W_mag)
    sum_a, sum_alpha, sum_beta, sum_beta_q = (torch.empty_like(b_gate) for _ in range(4))
    fired = torch.empty(F, dtype=torch.int64, device=x.device)
    opened = torch.empty_like(fired)

    def collect(latents: slice) -> None:
        a, f = codes(latents, everything)
        is_open, positive = a > 0, f > 0
        beta = _multiply(W_dec[latents], residual.T).mul_(positive)
        alpha = _multiply(W_dec[latents], aux_residual.T).add_(pull[latents, None]).mul_(is_open)
        m_beta = beta * m[latents, None]
        if grad_mag is None:
            grad_gate[latents] = _multiply(m_beta.add_(alpha), inputs)
        else:
            grad_gate[latents] = _multiply(alpha, inputs)
            grad_mag[latents] = _multiply(m_beta, inputs)
        grad_dec[latents] = _multiply(f, residual)
        if not options.freeze_decoder:
            grad_dec[latents] += _multiply(a, aux_residual)
        opened[latents], fired[latents] = is_open.sum(1), positive.sum(1)
        sum_a[latents], sum_alpha[latents], sum_beta[latents] = a.sum(1), alpha.sum(1), beta.sum(1)
        sum_beta_q[latents] = beta.mul_(q[latents]).sum(1)

    _for_tiles(collect, F, n, x)
    if options.sparsity == "ri_l1" and not options.freeze_decoder:
        grad_dec += (l1 / n * sum_a / norms.clamp_min(torch.finfo(x.dtype).tiny))[:, None] * W_dec
    grad_b_dec = G.sum(0) if options.freeze_decoder else G.sum(0) + G_aux.sum(0)
    if options.center_input:
        through_gate = torch.zeros_like(sum_alpha) if options.detach_centering else sum_alpha
        if W_mag is None:
            grad_b_dec -= W_gate.T @ (through_gate + m * sum_beta)
        else:
            grad_b_dec -= W_gate.T @ through_gate + W_mag.T @ (m * sum_beta)
    losses = Losses(
        errors[0],
        (sum_a * norms).double().sum() / n,
        errors[1],
        *_per_token(fired, opened, n),
        fired,
        error=errors[0],
        smallest=torch.full_like(errors[0], torch.inf),
    )
    grad_r = None if r_mag is None else m * sum_beta_q
    return losses, GatedGrads(grad_gate, grad_dec, sum_alpha, sum_beta, grad_b_dec, grad_r, grad_mag)


def _standard(
    params: CodeParams, x: Tensor, l1: float, options: LossOptions, narrow: torch.dtype
) -> tuple[Losses, CodeGrads]:
    W_enc, W_dec, b_enc, b_dec = params[:4]
    n, d = x.shape
    F = W_dec.shape[0]
    xc, scale = center(x, b_dec, options), options.error_scale(n, d)
    f = _encode(W_enc, xc, narrow)

    decoder, G = W_dec.to(narrow), torch.empty_like(x)

    def reconstruct(tokens: slice) -> None:
        codes = f[:, tokens].add_(b_enc[:, None]).clamp_min_(0)
        G[tokens] = _multiply(codes.T, decoder).add_(b_dec - x[tokens])

    _for_tiles(reconstruct, n, F, x)
    error = scale * G.double().pow(2).sum()
    G *= 2 * scale
    inputs, residual = xc.to(narrow), G.to(narrow)

    norms = W_dec.norm(dim=1) if options.sparsity == "ri_l1" else torch.ones_like(b_enc)
    pull = l1 / n * norms
    grad_enc, grad_dec = torch.empty_like(W_enc), torch.empty_like(W_dec)
    sum_f, sum_beta = torch.empty_like(b_enc), torch.empty_like(b_enc)
    fired = torch.empty(F, dtype=torch.int64, device=x.device)

    def collect(latents: slice) -> None:
        positive = f[latents] > 0
        beta = _multiply(W_dec[latents], residual.T).add_(pull[latents, None]).mul_(positive)
        grad_enc[latents] = _multiply(beta, inputs)
        grad_dec[latents] = _multiply(f[latents], residual)
        fired[latents] = positive.sum(1)
        sum_f[latents], sum_beta[latents] = f[latents].sum(1), beta.sum(1)

    _for_tiles(collect, F, n, x)
    if options.sparsity == "ri_l1":
        grad_dec += (l1 / n * sum_f / norms.clamp_min(torch.finfo(x.dtype).tiny))[:, None] * W_dec
    grad_b_dec = G.sum(0)
    if options.center_input:
        grad_b_dec -= W_enc.T @ sum_beta
    zero = torch.zeros_like(error)
    sparsity = (sum_f * norms).double().sum() / n
    smallest = torch.full_like(error, torch.inf)
    losses = Losses(
        error, sparsity, zero, *_per_token(fired, fired, n), fired, error=error, smallest=smallest
    )
    return losses, CodeGrads(grad_enc, grad_dec, sum_beta, grad_b_dec)


def _encode(
    weight: Float[Tensor, "F d"], xc: Float[Tensor, "n d"], narrow: torch.dtype
) -> Float[Tensor, "F n"]:
    out = xc.new_empty(weight.shape[0], xc.shape[0])
    inputs = xc.to(narrow).T

    def encode(latents: slice) -> None:
        out[latents] = _multiply(weight[latents], inputs)

    _for_tiles(encode, weight.shape[0], xc.shape[0], xc)
    return out


def _per_token(fired: Tensor, opened: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return fired.sum().double() / n, opened.sum().double() / n


def _multiply(left: Tensor, right: Tensor) -> Tensor:
    """The product in the precision of the right operand, returned in that of the left."""
    return (left.to(right.dtype) @ right).to(left.dtype)


def _for_tiles(work: Callable[[slice], Any], length: int, across: int, like: Tensor) -> None:
    """``work(slice)`` over pieces of ``range(length)`` such that a piece times `across` is a tile."""
    on_cpu = like.device.type == "cpu"
    size = max(64, (_CPU_TILE_SIZE if on_cpu else _GPU_TILE_SIZE) // max(across, 1))
    tiles = [slice(at, min(at + size, length)) for at in range(0, length, size)]
    if on_cpu:
        map_threads(torch.no_grad()(work), tiles)
    else:
        for tile in tiles:
            work(tile)
