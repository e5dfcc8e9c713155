"""What a step needs besides the rows: Adam on one number per latent (or per dimension), and ``W^T s``."""

from __future__ import annotations

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from interp.sae.kernels.backend import FusedAdam
from interp.sae.kernels.triton.latents import adam_numbers, adam_step
from interp.sae.kernels.triton.launch import check, on_device_of

ROWS, BLOCK_R, WIDTH = 256, 8, 512  # of W: summed by one program, in flight, columns
BLOCK = 256


def pulled(s: Float[Tensor, " F"], W: Float[Tensor, "F d"]) -> Float[Tensor, " d"]:
    """``W^T s``, in a fixed order, without reading the rows where s is zero."""
    check(pull_rows, s, W)
    n_latents, d = W.shape
    partial = W.new_empty(triton.cdiv(n_latents, ROWS), d)
    with on_device_of(W):
        pull_rows[(partial.shape[0], triton.cdiv(d, WIDTH))](
            s.contiguous(), W.contiguous(), partial, n_latents, d, ROWS=ROWS, BLOCK_R=BLOCK_R, BLOCK_D=WIDTH
        )
    return partial.sum(0)


def update_entries(
    parameter: Float[Tensor, " m"],
    grad: Float[Tensor, " m"],
    hits: Int[Tensor, " m"] | None,
    name: str,
    adam: FusedAdam,
) -> None:
    """Adam in place on the entries of latents with an open gate; on all of them where ``hits`` is None."""
    check(adam_entries, parameter, grad)
    length = parameter.shape[0]
    v, last_step = getattr(adam.v, name), getattr(adam.last_step, name)
    with on_device_of(parameter):
        adam_entries[(triton.cdiv(length, BLOCK),)](
            parameter, grad.contiguous(), v, last_step, hits, length, **adam_numbers(adam), BLOCK=BLOCK
        )


@triton.jit
def pull_rows(
    s, W, partial, n_latents, d, ROWS: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """One piece of the width, summed over ``ROWS`` latents."""
    block = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    inside = cols < d
    total = tl.zeros((BLOCK_D,), tl.float32)
    for r in range(0, ROWS, BLOCK_R):
        i = block * ROWS + r + tl.arange(0, BLOCK_R)
        weight = tl.load(s + i, mask=i < n_latents, other=0.0)
        rows = tl.load(
            W + i[:, None] * d + cols[None, :], mask=(weight != 0)[:, None] & inside[None, :], other=0.0
        )
        total += tl.sum(weight[:, None] * rows, axis=0)
    tl.store(partial + block * d + cols, total, mask=inside)


@triton.jit(do_not_specialize=["step"])
def adam_entries(
    parameter, grad, v, last_step, hits, length,
    lr, fresh, eps, correction, log2_beta2: tl.float64, step, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adam with beta1 = 0 on a vector."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    moves = at < length
    if hits is not None:
        moves = moves & (tl.load(hits + at, mask=at < length, other=0) > 0)
    old, g = tl.load(parameter + at, mask=moves, other=0.0), tl.load(grad + at, mask=moves, other=0.0)
    moment = tl.load(v + at, mask=moves, other=0.0)
    missed = step - tl.load(last_step + at, mask=moves, other=0)
    new, moment = adam_step(old, g, moment, missed, lr, fresh, eps, correction, log2_beta2)
    tl.store(parameter + at, new, mask=moves)
    tl.store(v + at, moment, mask=moves)
    tl.store(last_step + at, tl.zeros((BLOCK,), tl.int64) + step, mask=moves)
