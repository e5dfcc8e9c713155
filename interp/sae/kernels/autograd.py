"""The list form as a differentiable loss, for optimisers and constraints of one's own."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels.backend import Backend
from interp.sae.kernels.dispatch import load_backend
from interp.sae.kernels.lists import CodeParams, GatedParams, Losses, LossOptions


def sparse_loss(
    params: GatedParams | CodeParams,
    x: Float[Tensor, "n d"],
    l1: float,
    options: LossOptions,
    *,
    backend: str,
    target: Float[Tensor, "n e"] | None = None,
) -> tuple[Tensor, Losses]:
    """The total loss, differentiable in the parameters, and its parts; equals :func:`dense.loss`.

    Args:
        backend: ``"reference"``, ``"cpu"`` or ``"triton"``.

    Raises:
        ValueError: x requires a gradient: activations are data here.
    """
    if x.requires_grad:
        raise ValueError("x requires grad; the list form differentiates parameters only: pass x.detach()")
    parts: list[Losses] = []
    total = _SparseLoss.apply(load_backend(backend), x, target, l1, options, type(params), parts, *params)
    return total, parts[0]


class _SparseLoss(torch.autograd.Function):
    """Losses and gradients come out of the same pass, so they are computed together, forward."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        backend: Backend,
        x: Tensor,
        target: Tensor | None,
        l1: float,
        options: LossOptions,
        kind: type[GatedParams] | type[CodeParams],
        parts: list[Losses],
        *params: Tensor | None,
    ) -> Tensor:
        losses, grads = backend.gradients(kind(*params), x, l1, options, target=target)  # type: ignore[arg-type]
        parts.append(losses)
        ctx.save_for_backward(*grads)
        total = losses.reconstruction + l1 * losses.sparsity + losses.auxiliary
        return total.to(x.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grads = (None if grad is None else grad_total * grad for grad in ctx.saved_tensors)
        return None, None, None, None, None, None, None, *grads
