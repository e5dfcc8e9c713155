"""The latent pass: one program per latent sums its gradient row and, in a fused step, updates the row at once.

A row's gradient then never reaches memory. Latents with more than ``CHUNK`` open gates are summed in chunks
by many programs first; their own program adds the chunks. Every sum's order is fixed by the list.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from interp.sae.kernels.backend import SMALLEST_NORM, FusedAdam, WalkedAdam
from interp.sae.kernels.lists import OpenGates
from interp.sae.kernels.triton.launch import check, on_device_of, whole_row_blocks

CHUNK = 4096  # open gates of one latent that one program sums by itself


class RowTerms(NamedTuple):
    """Terms of a gradient row: ``sum weight * rows[token] (+ sum weight2 * rows2[token]) (+ radial * W_i)``.

    which: the row of each entry, where it isn't its token's. block: the column of `radial` that multiplies each
    column of W_i, where it has several.
    """

    weight: Float[Tensor, " z"]
    rows: Float[Tensor, "m d"]
    weight2: Float[Tensor, " z"] | None = None
    rows2: Float[Tensor, "m d"] | None = None
    radial: Float[Tensor, "F B"] | None = None
    which: Int[Tensor, " z"] | None = None  # int32
    block: Int[Tensor, " d"] | None = None  # int32


def row_gradients(gates: OpenGates, terms: RowTerms, W: Float[Tensor, "F d"]) -> Float[Tensor, "F d"]:
    """Gradient of every row of W; zero where a latent has no open gate."""
    W = W.contiguous()
    out = torch.zeros_like(W)
    _launch(gates, terms, W, out, None, None)
    return out


def update_rows(
    gates: OpenGates, terms: RowTerms, W: Float[Tensor, "F d"], name: str, adam: FusedAdam
) -> None:
    """Adam (and the unit norm, for ``W_dec``) on the rows of latents with an open gate, in place."""
    _launch(gates, terms, W, None, name, adam)


def _launch(
    gates: OpenGates,
    terms: RowTerms,
    W: Tensor,
    out: Tensor | None,
    name: str | None,
    adam: FusedAdam | None,
) -> None:
    floats, which = terms[:5], gates.tokens if terms.which is None else terms.which
    check(latent_rows, W, *floats)
    d = W.shape[1]
    v = last_step = None
    numbers = {"lr": 0.0, "fresh": 0.0, "eps": 0.0, "correction": 0.0, "log2_beta2": 0.0, "step": 0}
    if adam is not None and name is not None:
        v, last_step = getattr(adam.v, name), getattr(adam.last_step, name)
        numbers = adam_numbers(adam)
    pointers = [None if term is None else term.contiguous() for term in floats]
    blocks = 1 if terms.radial is None else terms.radial.shape[1]
    with on_device_of(W):
        chunk_ptr, partial = _sum_chunks(gates, which, pointers[:4], d)
        latent_rows[(gates.n_latents,)](
            gates.latent_ptr,
            which,
            *pointers,
            terms.block,
            chunk_ptr,
            partial,
            W,
            out,
            v,
            last_step,
            d,
            **numbers,
            FUSED=adam is not None,
            UNIT_NORM=adam is not None and adam.unit_norm and name == "W_dec",
            BLOCKS=blocks,
            CHUNK=CHUNK,
            SMALLEST_NORM=SMALLEST_NORM,
            **whole_row_blocks(d),
        )


def adam_numbers(adam: FusedAdam | WalkedAdam) -> dict[str, float | int]:
    """The scalars that a kernel needs to take Adam's step."""
    return {
        "lr": adam.lr,
        "fresh": 1 - adam.beta2,
        "eps": adam.eps,
        "correction": (1 - adam.beta2**adam.step) ** -0.5,
        "log2_beta2": math.log2(adam.beta2) if adam.beta2 > 0 else -math.inf,
        "step": adam.step,
    }


def _sum_chunks(
    gates: OpenGates, which: Tensor, terms: list[Tensor | None], d: int
) -> tuple[Tensor | None, Tensor | None]:
    """First stage for latents with many open gates: sums of chunks of their entries.

    Returns the chunks' range per latent and their sums, or nothing where no latent needs it (a batch of at
    most ``CHUNK`` tokens cannot).
    """
    if gates.n_tokens <= CHUNK:
        return None, None
    hits = gates.hits()
    chunks = torch.where(hits > CHUNK, (hits + CHUNK - 1) // CHUNK, 0)
    ends = chunks.cumsum(0)
    count = int(ends[-1])
    if count == 0:
        return None, None
    chunk_ptr = torch.cat([ends.new_zeros(1), ends])
    latents = torch.repeat_interleave(chunks, output_size=count)
    begins = (
        gates.latent_ptr[latents] + (torch.arange(count, device=hits.device) - chunk_ptr[latents]) * CHUNK
    )
    ends = torch.minimum(begins + CHUNK, gates.latent_ptr[latents + 1])
    partial = torch.empty(count, d, dtype=torch.float32, device=hits.device)
    chunk_rows[(count,)](begins, ends, which, *terms, partial, d, **whole_row_blocks(d))
    return chunk_ptr, partial


@triton.jit
def add_rows(total, weight, rows, tokens, begin, end, cols, inside, d, BLOCK_Q: tl.constexpr):
    """``total + sum over entries begin..end of weight * rows[token]``, in order."""
    for q in range(begin, end, BLOCK_Q):
        entries = q + tl.arange(0, BLOCK_Q)
        valid = entries < end
        t = tl.load(tokens + entries, mask=valid, other=0).to(tl.int64)
        w = tl.load(weight + entries, mask=valid, other=0.0)
        block = tl.load(
            rows + t[:, None] * d + cols[None, :], mask=valid[:, None] & inside[None, :], other=0.0
        )
        total += tl.sum(w[:, None] * block, axis=0)
    return total


@triton.jit
def chunk_rows(
    begins, ends, tokens, weight, rows, weight2, rows2, partial, d,
    BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The sum of one chunk of a latent's entries."""
    c = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_D)
    inside = cols < d
    begin, end = tl.load(begins + c), tl.load(ends + c)
    total = tl.zeros((BLOCK_D,), tl.float32)
    total = add_rows(total, weight, rows, tokens, begin, end, cols, inside, d, BLOCK_Q)
    if weight2 is not None:
        total = add_rows(total, weight2, rows2, tokens, begin, end, cols, inside, d, BLOCK_Q)
    tl.store(partial + c * d + cols, total, mask=inside)


@triton.jit
def adam_step(old, grad, v, missed, lr, fresh, eps, correction, log2_beta2):
    """Adam with beta1 = 0 after ``missed`` steps (this one included): new values and second moments."""
    decay = tl.exp2(missed.to(tl.float64) * log2_beta2).to(tl.float32)
    v = decay * v + fresh * grad * grad
    return old - lr * grad / (tl.sqrt_rn(v) * correction + eps), v


@triton.jit(do_not_specialize=["step"])
def latent_rows(
    latent_ptr, tokens, weight, rows, weight2, rows2, radial, block, chunk_ptr, partial, W, out, v, last_step, d,
    lr, fresh, eps, correction, log2_beta2: tl.float64, step,
    FUSED: tl.constexpr, UNIT_NORM: tl.constexpr, BLOCKS: tl.constexpr, CHUNK: tl.constexpr,
    SMALLEST_NORM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The gradient row of one latent, stored in ``out`` or used up by Adam."""
    i = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(latent_ptr + i), tl.load(latent_ptr + i + 1)
    if begin == end:
        return
    cols = tl.arange(0, BLOCK_D)
    inside = cols < d
    # Asked for before the gathers, so that all of them are under way together.
    row = tl.load(W + i * d + cols, mask=inside, other=0.0)
    grad = tl.zeros((BLOCK_D,), tl.float32)
    if chunk_ptr is not None and end - begin > CHUNK:
        for c in range(tl.load(chunk_ptr + i), tl.load(chunk_ptr + i + 1)):
            grad += tl.load(partial + c * d + cols, mask=inside, other=0.0)
    else:
        grad = add_rows(grad, weight, rows, tokens, begin, end, cols, inside, d, BLOCK_Q)
        if weight2 is not None:
            grad = add_rows(grad, weight2, rows2, tokens, begin, end, cols, inside, d, BLOCK_Q)
    if radial is not None:
        if block is None:
            grad += tl.load(radial + i) * row
        else:
            grad += tl.load(radial + i * BLOCKS + tl.load(block + cols, mask=inside, other=0)) * row
    if FUSED:
        if UNIT_NORM:
            grad -= tl.sum(grad * row, axis=0) * row
        moment = tl.load(v + i * d + cols, mask=inside, other=0.0)
        missed = step - tl.load(last_step + i)
        new, moment = adam_step(row, grad, moment, missed, lr, fresh, eps, correction, log2_beta2)
        if UNIT_NORM:
            norm = tl.sqrt_rn(tl.sum(tl.where(inside, new * new, 0.0), axis=0))
            new = tl.where(norm < SMALLEST_NORM, row, new / norm)
        tl.store(W + i * d + cols, new, mask=inside)
        tl.store(v + i * d + cols, moment, mask=inside)
        tl.store(last_step + i, step)
    else:
        tl.store(out + i * d + cols, grad, mask=inside)
