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
from interp.sae.kernels.backend import WHOLE, FusedAdam, Grads, Params, WalkedAdam
from interp.sae.kernels.cpu_list import as_array, compact, listed
from interp.sae.kernels.cpu_plan import Plan, make_plan
from interp.sae.kernels.dead import DeadLatents, add_to
from interp.sae.kernels.lists import CodeGrads, CodeParams, GatedGrads, GatedParams, Losses, LossOptions
from interp.sae.kernels.reference import main_residual, walk_whole
from interp.sae.kernels.threads import PIECES, equal_work, run_pieces

__all__ = ["compact", "decode", "gradients", "listed", "update"]

_ROWS_AT_ONCE = 2**22  # numbers in the residuals of all prefixes of the tokens that are taken together


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

    Of a code with many `Prefixes` the tokens are taken in runs, so that their residuals never outgrow the batch's
    pre-activations; a token's selection by rank doesn't look at the others.
    """
    n, by_rank = len(x), options.prefixes is not None and options.prefixes.by == "rank"
    width = params.W_dec.shape[1] * (len(options.prefixes.ends) if options.prefixes else 1)
    size = max(1, _ROWS_AT_ONCE // width) if by_rank else n
    parts = []
    for at in range(0, max(n, 1), max(size, 1)):
        run = slice(at, at + size)
        some = _one_run(params, x[run], l1, options, None if target is None else target[run], guess)
        parts.append((len(x[run]) / max(n, 1), *some))
    losses, tensors, residuals = _together(parts)
    if dead is not None and len(dead):
        assert isinstance(params, CodeParams)
        extra = dead.gradients(params, x, x if target is None else target, torch.cat(residuals), options)
        add_to(tensors, dead.latents, extra)
        losses = losses._replace(auxiliary=extra.loss)
    kind: Any = GatedGrads if isinstance(params, GatedParams) else CodeGrads
    return losses, kind(*(tensors.get(name) for name in kind._fields))


def _one_run(
    params: Params, x: Tensor, l1: float, options: LossOptions, target: Tensor | None, guess: float
) -> tuple[Losses, dict[str, Tensor], Tensor]:
    """Losses, gradients by name, and what the (main) reconstruction lacks."""
    plan: Plan = make_plan(params, x, l1, options, target, guess)
    grads, b_dec = dict(plan.vectors), plan.b_dec
    for name, job in plan.matrices.items():
        out, pulled = np.zeros_like(job.W), job.room_for_pull()
        run_pieces(cpu_loops.row_gradients, plan.latent_ptr, *job.inputs(), pulled, out, plan.cuts)
        grads[name] = out
        if len(job.pull):
            b_dec = b_dec - pulled.sum(0)
    grads["b_dec"] = b_dec
    if plan.W_skip is not None:
        grads["W_skip"] = plan.W_skip
    tensors = {name: torch.from_numpy(grad.astype(plan.dtype, copy=False)) for name, grad in grads.items()}
    return plan.losses, tensors, main_residual(torch.from_numpy(plan.G), options, len(x))


def _together(
    parts: list[tuple[float, Losses, dict[str, Tensor], Tensor]],
) -> tuple[Losses, dict[str, Tensor], list[Tensor]]:
    """The losses and gradients of a batch from those of its runs, each a mean over its share of the tokens."""
    residuals = [residual for *_, residual in parts]
    if len(parts) == 1:
        return parts[0][1], parts[0][2], residuals
    every = [losses for _, losses, *_ in parts]
    means = {
        name: torch.stack([share * getattr(losses, name) for share, losses, *_ in parts]).sum()
        for name in ("reconstruction", "sparsity", "auxiliary", "l0", "open_gates", "error")
    }
    fired, smallest = (
        torch.stack([one.fired for one in every]).sum(0),
        torch.stack([one.smallest for one in every]).min(),
    )
    tensors = {name: grad.mul_(parts[0][0]) for name, grad in parts[0][2].items()}
    for share, _, more, _ in parts[1:]:
        for name, grad in more.items():
            tensors[name].add_(grad, alpha=share)
    return Losses(**means, fired=fired, smallest=smallest), tensors, residuals


def update(
    params: Params,
    x: Float[Tensor, "n d"],
    l1: float,
    options: LossOptions,
    adam: FusedAdam | WalkedAdam,
    *,
    target: Float[Tensor, "n e"] | None = None,
    dead: DeadLatents | None = None,
    guess: float = 0.0,
) -> Losses:
    """A whole training step in place.

    With `FusedAdam` a row's gradient lives in cache until Adam has used it; with `WalkedAdam`, prefixes by rank, or
    dead latents to revive, gradients are laid down first and all rows walked once.
    """
    for name, parameter in params._asdict().items():
        if parameter is not None:
            _check_in_place(name, parameter)
    by_rank = options.prefixes is not None and options.prefixes.by == "rank"
    if isinstance(adam, WalkedAdam) or by_rank or (dead is not None and len(dead)):
        losses, grads = gradients(params, x, l1, options, target=target, dead=dead, guess=guess)
        walk(params, grads, adam)
        return losses
    plan: Plan = make_plan(params, x, l1, options, target, guess)
    correction = (1 - adam.beta2**adam.step) ** -0.5
    numbers = np.array([adam.lr, 1 - adam.beta2, adam.eps, correction], plan.dtype)
    b_dec = plan.b_dec
    for name, job in plan.matrices.items():
        pulled = job.room_for_pull()
        v, last_step = as_array(getattr(adam.v, name)), as_array(getattr(adam.last_step, name))
        how = (v, last_step, numbers, adam.beta2, adam.step, adam.unit_norm and name == "W_dec")
        run_pieces(cpu_loops.update_rows, plan.latent_ptr, *job.inputs(), pulled, *how, plan.cuts)
        if len(job.pull):
            b_dec = b_dec - pulled.sum(0)
    every_entry = np.arange(len(b_dec) + 1)
    for name, grad in [*plan.vectors.items(), ("b_dec", b_dec)]:
        pointers = every_entry if name == "b_dec" else plan.latent_ptr
        entries, grad = as_array(getattr(params, name)), grad.astype(plan.dtype)
        v, last_step = as_array(getattr(adam.v, name)), as_array(getattr(adam.last_step, name))
        cpu_loops.update_entries(pointers, grad, entries, v, last_step, numbers, adam.beta2, adam.step)
    if plan.W_skip is not None:
        walk_whole("W_skip", params, torch.from_numpy(plan.W_skip), adam, 1.0)
    return plan.losses


def walk(params: Params, grads: Grads, adam: FusedAdam | WalkedAdam) -> None:
    """Clipping, projection, Adam and the unit norm on all rows, each read once; changes the gradients."""
    there = {name: grad for name, grad in grads._asdict().items() if grad is not None}
    pieces = {name: np.linspace(0, len(grad), PIECES + 1).astype(np.int64) for name, grad in there.items()}
    factor = 1.0
    if isinstance(adam, WalkedAdam) and adam.max_norm is not None:
        squares = np.zeros((len(there), PIECES))
        for out, (name, grad) in zip(squares, there.items(), strict=True):
            run_pieces(cpu_loops.squares_of_rows, as_array(grad.view(len(grad), -1)), out, pieces[name])
        factor = min(1.0, adam.max_norm / (float(squares.sum()) ** 0.5 + 1e-6))  # as torch clips
    beta1 = adam.beta1 if isinstance(adam, WalkedAdam) else 0.0
    m = adam.m if isinstance(adam, WalkedAdam) else None
    for name, grad in there.items():
        parameter = getattr(params, name)
        if name in WHOLE or grad.dim() == 1:
            walk_whole(name, params, grad, adam, factor)
            continue
        correction, unbiased = (1 - adam.beta2**adam.step) ** -0.5, 1 / (1 - beta1**adam.step)
        numbers = [adam.lr, 1 - beta1, 1 - adam.beta2, adam.eps, correction, unbiased]
        rows, v = as_array(parameter), as_array(getattr(adam.v, name))
        moment = np.empty((0, rows.shape[1]), rows.dtype) if m is None else as_array(getattr(m, name))
        steps = np.empty(0, np.int64) if adam.last_step is None else as_array(getattr(adam.last_step, name))
        how = (np.array(numbers, rows.dtype), adam.beta2, adam.step, rows.dtype.type(factor))
        constrained = adam.unit_norm and name == "W_dec"
        run_pieces(
            cpu_loops.walk_rows, as_array(grad), rows, moment, v, steps, *how, constrained, pieces[name]
        )


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
