"""The sparse step on a CPU: torch for the one dense product, compiled loops for everything after the gate.

Float32 and float64. See :mod:`interp.sae.kernels.reference` for the definition of what is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels import cpu_loops
from interp.sae.kernels.backend import FusedAdam, Params
from interp.sae.kernels.cpu_list import as_array, compact
from interp.sae.kernels.cpu_plan import Plan, make_plan
from interp.sae.kernels.lists import GatedGrads, GatedParams, Losses, LossOptions, StandardGrads
from interp.sae.kernels.threads import equal_work, run_pieces

__all__ = ["compact", "decode", "gradients", "update"]


def gradients(
    params: Params, x: Float[Tensor, "n d"], l1: float, options: LossOptions
) -> tuple[Losses, GatedGrads | StandardGrads]:
    """Losses and gradients; nothing is changed."""
    plan: Plan = make_plan(params, x, l1, options)
    grads, b_dec = dict(plan.vectors), plan.b_dec
    for name, job in plan.matrices.items():
        out, pulled = np.zeros_like(job.W), job.room_for_pull()
        run_pieces(cpu_loops.row_gradients, *plan.hits, *job.inputs(), pulled, out, plan.cuts)
        grads[name] = out
        b_dec = b_dec - pulled.sum(0)
    grads["b_dec"] = b_dec
    kind: Any = GatedGrads if isinstance(params, GatedParams) else StandardGrads
    tensors = {name: torch.from_numpy(grad.astype(plan.dtype, copy=False)) for name, grad in grads.items()}
    return plan.losses, kind(*(tensors.get(name) for name in kind._fields))


def update(
    params: Params, x: Float[Tensor, "n d"], l1: float, options: LossOptions, adam: FusedAdam
) -> Losses:
    """A whole training step in place; a row's gradient lives in cache until Adam has used it."""
    plan: Plan = make_plan(params, x, l1, options)
    correction = (1 - adam.beta2**adam.step) ** -0.5
    numbers = np.array([adam.lr, 1 - adam.beta2, adam.eps, correction], plan.dtype)
    b_dec = plan.b_dec
    for name, job in plan.matrices.items():
        _check_in_place(name, getattr(params, name))
        pulled = job.room_for_pull()
        v, last_step = as_array(getattr(adam.v, name)), as_array(getattr(adam.last_step, name))
        how = (v, last_step, numbers, adam.beta2, adam.step, adam.unit_norm and name == "W_dec")
        run_pieces(cpu_loops.update_rows, *plan.hits, *job.inputs(), pulled, *how, plan.cuts)
        b_dec = b_dec - pulled.sum(0)
    every_entry = np.arange(len(b_dec) + 1)
    for name, grad in [*plan.vectors.items(), ("b_dec", b_dec)]:
        pointers = every_entry if name == "b_dec" else plan.hits[0]
        entries, grad = as_array(getattr(params, name)), grad.astype(plan.dtype)
        v, last_step = as_array(getattr(adam.v, name)), as_array(getattr(adam.last_step, name))
        cpu_loops.update_entries(pointers, grad, entries, v, last_step, numbers, adam.beta2, adam.step)
    return plan.losses


def _check_in_place(name: str, parameter: Tensor) -> None:
    if not parameter.is_contiguous():
        raise ValueError(f"{name} isn't contiguous, and is updated in place: store it as [F d], row by row")


def decode(
    token_ptr: Tensor,
    latents: Tensor,
    values: Tensor,
    W_dec: Float[Tensor, "F d"],
    b_dec: Float[Tensor, " d"],
) -> Float[Tensor, "n d"]:
    """``sum over a token's entries of value * W_dec[latent] + b_dec``."""
    out = torch.empty(token_ptr.shape[0] - 1, W_dec.shape[1], dtype=W_dec.dtype)
    pointers = as_array(token_ptr)
    entries = (pointers, as_array(latents.int()), as_array(values))
    run_pieces(
        cpu_loops.decode_tokens,
        *entries,
        as_array(W_dec),
        as_array(b_dec),
        out.numpy(),
        equal_work(pointers),
    )
    return out
