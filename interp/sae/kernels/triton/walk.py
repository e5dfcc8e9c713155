"""Adam with a first moment, clipping, or both: gradients are laid down, then one program per row uses each up."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from interp.sae.kernels.backend import SMALLEST_NORM, WHOLE, FusedAdam, Grads, Params, WalkedAdam
from interp.sae.kernels.reference import walk_whole
from interp.sae.kernels.triton.latents import adam_numbers, adam_step
from interp.sae.kernels.triton.launch import check, on_device_of, whole_row_blocks


def walk(params: Params, grads: Grads, adam: FusedAdam | WalkedAdam) -> None:
    """Clipping, projection, Adam and the unit norm on all rows, each read once; vectors by plain torch."""
    there = {name: grad for name, grad in grads._asdict().items() if grad is not None}
    factor = _clip_factor(list(there.values()), adam)
    for name, grad in there.items():
        if name in WHOLE or grad.dim() == 1:
            walk_whole(name, params, grad, adam, factor)
        else:
            _walk_matrix(name, params, grad, adam, factor)


def _clip_factor(grads: list[Tensor], adam: FusedAdam | WalkedAdam) -> float:
    if not isinstance(adam, WalkedAdam) or adam.max_norm is None:
        return 1.0
    squares = [torch.linalg.vector_norm(g.view(len(g), -1), dim=1).double().pow(2).sum() for g in grads]
    return min(1.0, adam.max_norm / (float(torch.stack(squares).sum()) ** 0.5 + 1e-6))  # as torch clips


def _walk_matrix(
    name: str, params: Params, grad: Tensor, adam: FusedAdam | WalkedAdam, factor: float
) -> None:
    W, v = getattr(params, name), getattr(adam.v, name)
    m = last_step = None
    beta1 = 0.0
    if isinstance(adam, WalkedAdam) and adam.m is not None:
        m, beta1 = getattr(adam.m, name), adam.beta1
    else:
        last_step = getattr(adam.last_step, name)
    check(walk_rows, grad, W, v, m)
    with on_device_of(W):
        walk_rows[(len(W),)](
            grad,
            W,
            m,
            v,
            last_step,
            W.shape[1],
            factor,
            1 - beta1,
            adam.beta2,
            1 / (1 - beta1**adam.step),
            **adam_numbers(adam),
            UNIT_NORM=adam.unit_norm and name == "W_dec",
            SMALLEST_NORM=SMALLEST_NORM,
            **{key: size for key, size in whole_row_blocks(W.shape[1]).items() if key != "BLOCK_Q"},
        )


@triton.jit(do_not_specialize=["factor", "step"])
def walk_rows(
    grads, W, m, v, last_step, d, factor, new, keep, unbiased,
    lr, fresh, eps, correction, log2_beta2: tl.float64, step,
    UNIT_NORM: tl.constexpr, SMALLEST_NORM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Adam on one row, its gradient times ``factor``; where ``m`` is None, rows without a gradient stay."""
    i = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_D)
    inside, at = cols < d, i * d + cols
    grad = tl.load(grads + at, mask=inside, other=0.0)
    if m is None:  # noqa: SIM102 (in a kernel "and" evaluates both sides)
        if tl.sum((grad != 0).to(tl.int32), axis=0) == 0:
            return
    row = tl.load(W + at, mask=inside, other=0.0)
    moment = tl.load(v + at, mask=inside, other=0.0)
    grad *= factor
    if UNIT_NORM:
        grad -= tl.sum(grad * row, axis=0) * row
    if m is None:
        missed = step - tl.load(last_step + i)
        after, moment = adam_step(row, grad, moment, missed, lr, fresh, eps, correction, log2_beta2)
        tl.store(last_step + i, step)
    else:
        mean = tl.load(m + at, mask=inside, other=0.0)
        mean += new * (grad - mean)
        moment = keep * moment + fresh * grad * grad
        after = row - lr * unbiased * mean / (tl.sqrt_rn(moment) * correction + eps)
        tl.store(m + at, mean, mask=inside)
    if UNIT_NORM:
        norm = tl.sqrt_rn(tl.sum(tl.where(inside, after * after, 0.0), axis=0))
        after = tl.where(norm < SMALLEST_NORM, row, after / norm)
    tl.store(W + at, after, mask=inside)
    tl.store(v + at, moment, mask=inside)
