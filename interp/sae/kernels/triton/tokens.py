"""The gated token pass: one program per token walks the decoder rows of its open gates, twice.

The first walk sums both reconstructions (each row is gathered once for the two), the second takes the dot
products of both residuals with the same rows. Widths of any size are walked piece by piece.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels.lists import (
    GatedParams,
    GatedTokenPass,
    Losses,
    LossOptions,
    OpenGates,
)
from interp.sae.kernels.reference import center, magnitude_scale
from interp.sae.kernels.triton.launch import check, gather_blocks, on_device_of


def gated_token_pass(
    params: GatedParams, x: Float[Tensor, "n d"], gates: OpenGates, l1: float, options: LossOptions
) -> tuple[Losses, GatedTokenPass]:
    """Reconstructions, losses and the cotangents of each open gate, as the reference's."""
    check(token_pass, x, *params)
    x, (n, d) = x.contiguous(), x.shape
    latents = gates.latent_of_entry()
    q = magnitude_products(params, x, gates, options)
    f = (magnitude_scale(params)[latents] * q + params.b_mag[latents]).clamp_min_(0)
    a = gates.values + params.b_gate[latents]
    alpha, beta = torch.empty_like(a), torch.empty_like(a)
    G, G_aux = torch.empty_like(x), torch.empty_like(x)
    weight = latent_weights(params, options)
    errors = torch.zeros(2, n, dtype=torch.float32, device=x.device)
    with on_device_of(x):
        token_pass[(n,)](
            x,
            params.b_dec.contiguous(),
            params.W_dec.contiguous(),
            l1 / max(n, 1) * weight,
            gates.token_ptr,
            gates.latents,
            gates.order,
            f,
            a,
            alpha,
            beta,
            G,
            G_aux,
            errors,
            n,
            d,
            2 * options.error_scale(n, d),
            **gather_blocks(d),
        )
    main, auxiliary = options.error_scale(n, d) * errors.double().sum(1)
    losses = Losses(
        reconstruction=main,
        sparsity=(a.double() * weight[latents]).sum() / max(n, 1),
        auxiliary=auxiliary,
        l0=(f > 0).sum().double() / max(n, 1),
        open_gates=torch.as_tensor(len(gates) / max(n, 1), dtype=torch.float64, device=x.device),
        fired=latent_sums(gates, [(f > 0).float()])[0].long(),
        error=main,
        smallest=torch.full_like(main, torch.inf),
    )
    return losses, GatedTokenPass(f=f, a=a, alpha=alpha, beta=beta, G=G, G_aux=G_aux)


def latent_weights(params: GatedParams, options: LossOptions) -> Float[Tensor, " F"]:
    """The sparsity term's weight of each latent: ``|d_i|`` under ri_l1, else 1."""
    if options.sparsity == "ri_l1":
        return params.W_dec.norm(dim=1)
    return params.W_dec.new_ones(params.W_dec.shape[0])


def magnitude_products(
    params: GatedParams, x: Float[Tensor, "n d"], gates: OpenGates, options: LossOptions
) -> Float[Tensor, " z"]:
    """``q``: the gate's own product when tied, else ``xc . W_mag_i`` at the open gates only."""
    if params.W_mag is None:
        return gates.values
    xc, W_mag = center(x, params.b_dec, options).contiguous(), params.W_mag.contiguous()
    q, d = torch.empty_like(gates.values), x.shape[1]
    blocks = gather_blocks(d)
    latents = gates.latent_of_entry().int()
    with on_device_of(x):
        grid = (triton.cdiv(len(gates), blocks["BLOCK_Q"]),)
        products_at[grid](xc, W_mag, gates.tokens, latents, q, len(gates), d, **blocks)
    return q


def latent_sums(gates: OpenGates, columns: list[Float[Tensor, " z"]]) -> Float[Tensor, "c F"]:
    """Sums of several per-gate arrays over each latent's open gates, in the list's order."""
    stacked = torch.stack(columns)
    check(sum_by_latent, stacked[:, :0])
    out = stacked.new_empty(len(columns), gates.n_latents)
    with on_device_of(stacked):
        sum_by_latent[(gates.n_latents,)](
            gates.latent_ptr,
            stacked,
            out,
            len(gates),
            gates.n_latents,
            COLUMNS=len(columns),
            BLOCK_C=triton.next_power_of_2(len(columns)),
            BLOCK_Q=32,
            num_warps=1,
        )
    return out


def decode(
    token_ptr: Tensor,
    latents: Tensor,
    values: Tensor,
    W_dec: Float[Tensor, "F d"],
    b_dec: Float[Tensor, " d"],
) -> Float[Tensor, "n d"]:
    """``sum over a token's entries of value * W_dec[latent] + b_dec``, entries in token order."""
    check(decode_tokens, values, W_dec, b_dec)
    n, d = token_ptr.shape[0] - 1, W_dec.shape[1]
    out = W_dec.new_empty(n, d)
    blocks = gather_blocks(d)
    with on_device_of(W_dec):
        decode_tokens[(n, triton.cdiv(d, blocks["BLOCK_D"]))](
            token_ptr, latents, values.contiguous(), W_dec.contiguous(), b_dec.contiguous(), out, d, **blocks
        )
    return out


@triton.jit
def token_pass(
    x, b_dec, W_dec, pull, token_ptr, latents, order, f, a, alpha, beta, G, G_aux, errors, n, d, twice,
    BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """``pull_i`` is what the sparsity term adds to a cotangent, ``twice`` is 2/n (over d for the mean)."""
    t = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(token_ptr + t), tl.load(token_ptr + t + 1)
    main_error, aux_error = 0.0, 0.0
    for left in range(0, d, BLOCK_D):
        cols = left + tl.arange(0, BLOCK_D)
        inside = cols < d
        main = tl.load(b_dec + cols, mask=inside, other=0.0) - tl.load(
            x + t * d + cols, mask=inside, other=0.0
        )
        aux = main
        for q in range(begin, end, BLOCK_Q):
            entries = q + tl.arange(0, BLOCK_Q)
            valid = entries < end
            i = tl.load(latents + entries, mask=valid, other=0).to(tl.int64)
            z = tl.load(order + entries, mask=valid, other=0)
            rows = tl.load(
                W_dec + i[:, None] * d + cols[None, :], mask=valid[:, None] & inside[None, :], other=0.0
            )
            main += tl.sum(tl.load(f + z, mask=valid, other=0.0)[:, None] * rows, axis=0)
            aux += tl.sum(tl.load(a + z, mask=valid, other=0.0)[:, None] * rows, axis=0)
        main_error += tl.sum(main * main, axis=0)
        tl.store(G + t * d + cols, twice * main, mask=inside)
        aux_error += tl.sum(aux * aux, axis=0)
        tl.store(G_aux + t * d + cols, twice * aux, mask=inside)
    tl.store(errors + t, main_error)
    tl.store(errors + n + t, aux_error)
    # The second walk reads what other threads of this program have just written.
    tl.debug_barrier()
    for q in range(begin, end, BLOCK_Q):
        entries = q + tl.arange(0, BLOCK_Q)
        valid = entries < end
        i = tl.load(latents + entries, mask=valid, other=0).to(tl.int64)
        z = tl.load(order + entries, mask=valid, other=0)
        main_dots = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
        aux_dots = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
        for left in range(0, d, BLOCK_D):
            cols = left + tl.arange(0, BLOCK_D)
            inside = cols < d
            rows = tl.load(
                W_dec + i[:, None] * d + cols[None, :], mask=valid[:, None] & inside[None, :], other=0.0
            )
            main_dots += rows * tl.load(G + t * d + cols, mask=inside, other=0.0)[None, :]
            aux_dots += rows * tl.load(G_aux + t * d + cols, mask=inside, other=0.0)[None, :]
        dots = tl.sum(main_dots, axis=1)
        sparsity = tl.load(pull + i, mask=valid, other=0.0)
        positive = tl.load(f + z, mask=valid, other=0.0) > 0
        tl.store(beta + z, tl.where(positive, dots, 0.0), mask=valid)
        tl.store(alpha + z, tl.sum(aux_dots, axis=1) + sparsity, mask=valid)


@triton.jit
def products_at(
    x, weight, tokens, latents, out, length, d, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """``<x_token, weight_latent>`` of each listed pair."""
    entries = tl.program_id(0).to(tl.int64) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    valid = entries < length
    t = tl.load(tokens + entries, mask=valid, other=0).to(tl.int64)
    i = tl.load(latents + entries, mask=valid, other=0).to(tl.int64)
    total = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for left in range(0, d, BLOCK_D):
        cols = left + tl.arange(0, BLOCK_D)
        mask = valid[:, None] & (cols < d)[None, :]
        total += tl.load(x + t[:, None] * d + cols[None, :], mask=mask, other=0.0) * tl.load(
            weight + i[:, None] * d + cols[None, :], mask=mask, other=0.0
        )
    tl.store(out + entries, tl.sum(total, axis=1), mask=valid)


@triton.jit
def decode_tokens(
    token_ptr, latents, values, W_dec, b_dec, out, d, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """One piece of one token's reconstruction."""
    t = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    inside = cols < d
    end = tl.load(token_ptr + t + 1)
    total = tl.load(b_dec + cols, mask=inside, other=0.0)
    for q in range(tl.load(token_ptr + t), end, BLOCK_Q):
        entries = q + tl.arange(0, BLOCK_Q)
        valid = entries < end
        i = tl.load(latents + entries, mask=valid, other=0).to(tl.int64)
        rows = tl.load(
            W_dec + i[:, None] * d + cols[None, :], mask=valid[:, None] & inside[None, :], other=0.0
        )
        total += tl.sum(tl.load(values + entries, mask=valid, other=0.0)[:, None] * rows, axis=0)
    tl.store(out + t * d + cols, total, mask=inside)


@triton.jit
def sum_by_latent(
    latent_ptr, columns, out, length, n_latents,
    COLUMNS: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_Q: tl.constexpr,
):  # fmt: skip
    """All columns' sums over one latent's entries."""
    i = tl.program_id(0).to(tl.int64)
    end = tl.load(latent_ptr + i + 1)
    column = tl.arange(0, BLOCK_C)
    exists = column < COLUMNS
    total = tl.zeros((BLOCK_C, BLOCK_Q), tl.float32)
    for q in range(tl.load(latent_ptr + i), end, BLOCK_Q):
        entries = q + tl.arange(0, BLOCK_Q)
        mask = exists[:, None] & (entries < end)[None, :]
        total += tl.load(
            columns + column.to(tl.int64)[:, None] * length + entries[None, :], mask=mask, other=0.0
        )
    tl.store(out + column * n_latents + i, tl.sum(total, axis=1), mask=exists)
