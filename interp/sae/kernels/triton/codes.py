"""One code's token pass: one program per token walks the decoder rows of its entries, twice, prefix by prefix.

The first walk adds up the reconstructions, each prefix going on where the last one ended; residuals are then
summed from the last prefix down; the second walk takes the dot products of the same rows with them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from interp.sae.kernels.lists import (
    OF_THE_JUMP,
    CodeParams,
    CodeTokenPass,
    Losses,
    LossOptions,
    OpenGates,
)
from interp.sae.kernels.reference import count_weight, jump_cotangents, prefix_of_entries
from interp.sae.kernels.rules import BatchTopK, Prefixes, TopK, Window
from interp.sae.kernels.triton.launch import check, gather_blocks, on_device_of
from interp.sae.kernels.triton.tokens import latent_sums


def code_token_pass(
    params: CodeParams,
    x: Float[Tensor, "n d"],
    gates: OpenGates,
    l1: float,
    options: LossOptions,
    target: Float[Tensor, "n e"] | None = None,
) -> tuple[Losses, CodeTokenPass]:
    """Reconstructions by prefix, losses and the cotangents of each listed entry, as the reference's."""
    y, rule, prefixes = x if target is None else target, options.rule, options.prefixes
    check(code_pass, x, y, *params)
    if params.W_skip is not None:
        y = y - x @ params.W_skip.T
    n, per_token = len(x), l1 / max(len(x), 1)
    latents = gates.latent_of_entry()
    z = gates.values + params.b_enc[latents]
    theta = None if params.threshold is None else params.threshold[latents]
    is_open = torch.ones_like(z, dtype=torch.bool) if theta is None else z > theta
    f = torch.where(is_open, z, 0) if isinstance(rule, Window) else z
    norms = options.norms(params.W_dec)
    weight = norms if options.sparsity == "ri_l1" else torch.full_like(norms, options.sparsity == "l1")
    walk = _walk(f, gates, prefixes)
    beta, G, errors = _run(params, y, walk, f, per_token * weight, options)

    open_gates = is_open.sum().double() / max(n, 1)
    sparsity = (f.double() * weight[latents]).sum() / max(n, 1)
    if options.sparsity == "tanh":
        c, u = options.sparsity_parameter, torch.tanh(options.sparsity_parameter * f * norms[latents])
        beta = beta + per_token * c * norms[latents] * (1 - u * u)
        sparsity = u.double().sum() / max(n, 1)
    elif options.sparsity in OF_THE_JUMP:
        sparsity = open_gates
        if options.sparsity == "quadratic":
            sparsity = (open_gates / options.sparsity_parameter - 1).pow(2)
    through_theta, fired = None, gates.hits()
    if isinstance(rule, Window):
        assert theta is not None
        per_open = count_weight(float(open_gates), n, l1, options)
        beta, through_theta = jump_cotangents(z, beta, theta, per_open, rule)
        fired = latent_sums(gates, [(f != 0).float()])[0].long()
    smallest = torch.full_like(sparsity, torch.inf)
    if isinstance(rule, TopK | BatchTopK) and len(gates):
        smallest = (z * norms[latents] if rule.by_norm else z).abs().min().double()
    losses = Losses(
        reconstruction=errors @ errors.new_tensor(prefixes.weights if prefixes else (1.0,)),
        sparsity=sparsity,
        auxiliary=torch.zeros_like(sparsity),
        l0=fired.sum().double() / max(n, 1),
        open_gates=open_gates,
        fired=fired,
        error=errors[prefixes.main if prefixes else 0],
        smallest=smallest,
    )
    return losses, CodeTokenPass(f=f, beta=beta, theta=through_theta, G=G, rows=walk.rows)


class _Walk(NamedTuple):
    """Each token's entries, prefix by prefix: prefix g of token t adds the entries ``ptr[t P + g : t P + g + 1]``."""

    ptr: Int[Tensor, " n*P+1"]  # int64
    latents: Int[Tensor, " z"]  # int32
    order: Int[Tensor, " z"]  # int64, where an entry's values stand in the list
    rows: Int[Tensor, " z"]  # int32, t P + g of each entry of the list


def _walk(f: Float[Tensor, " z"], gates: OpenGates, prefixes: Prefixes | None) -> _Walk:
    if prefixes is None or len(prefixes.ends) == 1:
        return _Walk(gates.token_ptr, gates.latents, gates.order, gates.tokens)
    prefix, P = prefix_of_entries(f, gates, prefixes)
    rows = (gates.tokens * P + prefix).int()
    latents, order = gates.latents, gates.order
    if prefixes.by == "rank":
        by_prefix = torch.sort(rows[order], stable=True).indices
        latents, order = latents[by_prefix], order[by_prefix]
    every = torch.arange(gates.n_tokens * P + 1, dtype=rows.dtype, device=rows.device)
    return _Walk(torch.searchsorted(rows[order], every), latents, order, rows)


def _run(
    params: CodeParams,
    y: Float[Tensor, "n e"],
    walk: _Walk,
    f: Float[Tensor, " z"],
    pull: Float[Tensor, " F"],
    options: LossOptions,
) -> tuple[Float[Tensor, " z"], Float[Tensor, "n*P e"], Float[Tensor, " P"]]:
    """Launch the kernel; return beta without the jumps' share, G, and the squared error of each prefix."""
    (n, e), weights = y.shape, options.prefixes.weights if options.prefixes else (1.0,)
    P, blocks, scale = len(weights), gather_blocks(e), options.error_scale(n, e)
    beta, G = torch.empty_like(f), y.new_empty(n * P, e)
    errors = y.new_zeros(triton.cdiv(e, blocks["BLOCK_D"]), P, n)
    with on_device_of(y):
        code_pass[(n,)](
            y.contiguous(),
            params.b_dec.contiguous(),
            params.W_dec.contiguous(),
            pull,
            y.new_tensor(weights),
            walk.ptr,
            walk.latents,
            walk.order,
            f,
            beta,
            G,
            errors,
            n,
            e,
            2 * scale,
            PREFIXES=P,
            **blocks,
        )
    return beta, G, scale * errors.double().sum((0, 2))


@triton.jit
def code_pass(
    y, b_dec, W_dec, pull, weights, ptr, latents, order, f, beta, G, errors, n, e, twice,
    PREFIXES: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """``pull_i`` is what the sparsity term adds to a cotangent, ``twice`` is 2/n (over e for the mean)."""
    t = tl.program_id(0).to(tl.int64)
    for left in range(0, e, BLOCK_D):
        cols = left + tl.arange(0, BLOCK_D)
        inside = cols < e
        residual = tl.load(b_dec + cols, mask=inside, other=0.0) - tl.load(
            y + t * e + cols, mask=inside, other=0.0
        )
        for g in range(0, PREFIXES):
            end = tl.load(ptr + t * PREFIXES + g + 1)
            for q in range(tl.load(ptr + t * PREFIXES + g), end, BLOCK_Q):
                entries = q + tl.arange(0, BLOCK_Q)
                valid = entries < end
                i = tl.load(latents + entries, mask=valid, other=0).to(tl.int64)
                z = tl.load(order + entries, mask=valid, other=0)
                rows = tl.load(
                    W_dec + i[:, None] * e + cols[None, :], mask=valid[:, None] & inside[None, :], other=0.0
                )
                residual += tl.sum(tl.load(f + z, mask=valid, other=0.0)[:, None] * rows, axis=0)
            tl.store(errors + (left // BLOCK_D * PREFIXES + g) * n + t, tl.sum(residual * residual, axis=0))
            share = twice * tl.load(weights + g) * residual
            tl.store(G + (t * PREFIXES + g) * e + cols, share, mask=inside)
        if PREFIXES > 1:
            # What is read here and in the second walk, other threads of this program have just written.
            tl.debug_barrier()
            total = tl.zeros((BLOCK_D,), tl.float32)
            for later in range(0, PREFIXES):
                at = G + (t * PREFIXES + PREFIXES - 1 - later) * e + cols
                total += tl.load(at, mask=inside, other=0.0)
                tl.store(at, total, mask=inside)
    tl.debug_barrier()
    for g in range(0, PREFIXES):
        end = tl.load(ptr + t * PREFIXES + g + 1)
        for q in range(tl.load(ptr + t * PREFIXES + g), end, BLOCK_Q):
            entries = q + tl.arange(0, BLOCK_Q)
            valid = entries < end
            i = tl.load(latents + entries, mask=valid, other=0).to(tl.int64)
            z = tl.load(order + entries, mask=valid, other=0)
            dots = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
            for left in range(0, e, BLOCK_D):
                cols = left + tl.arange(0, BLOCK_D)
                inside = cols < e
                rows = tl.load(
                    W_dec + i[:, None] * e + cols[None, :], mask=valid[:, None] & inside[None, :], other=0.0
                )
                own = tl.load(G + (t * PREFIXES + g) * e + cols, mask=inside, other=0.0)
                dots += rows * own[None, :]
            sparsity = tl.load(pull + i, mask=valid, other=0.0)
            tl.store(beta + z, tl.sum(dots, axis=1) + sparsity, mask=valid)
