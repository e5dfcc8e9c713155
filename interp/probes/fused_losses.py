"""The two costly losses with their gradients written out, for training: a third of the time autograd takes.

`interp.probes.losses` is the definition. Each function here gives its values, and gradients that pass over the
pairs of words once, in place, where autograd keeps and revisits a matrix of pairs for every operation.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from interp.probes.losses import EPS, pair_weights


def structural_distance_loss(
    z: Float[Tensor, "*p b n k"], tree_distances: Float[Tensor, "b n n"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, "*p"]:
    """As `interp.probes.losses.structural_distance_loss`."""
    return _DistanceLoss.apply(z, tree_distances, mask)


def angular_loss(edge_vectors: Float[Tensor, "*p m k"], edge_types: Int[Tensor, " m"]) -> Float[Tensor, "*p"]:
    """As `interp.probes.losses.angular_loss`."""
    return _AngularLoss.apply(edge_vectors, edge_types)


class _DistanceLoss(torch.autograd.Function):
    """With s_ij = w_ij sign(|z_i - z_j|^2 - d_ij), dL/dz_i = 4 (sum_j s_ij) z_i - 4 sum_j s_ij z_j."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, tree_distances: Tensor, mask: Tensor) -> Tensor:
        weights = pair_weights(mask, z.dtype)
        squares = z.square().sum(-1)
        gaps = (z @ z.transpose(-1, -2)).mul_(-2)
        gaps.add_(squares.unsqueeze(-1)).add_(squares.unsqueeze(-2)).clamp_min_(0).sub_(tree_distances)
        loss = torch.einsum("...bij,bij->...", gaps.abs(), weights)
        ctx.save_for_backward(z, gaps.sign_().mul_(weights))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        z, signs = ctx.saved_tensors
        out = signs @ z
        out.neg_().addcmul_(z, signs.sum(-1, keepdim=True)).mul_(4 * grad[..., None, None, None])
        return out, None, None


class _AngularLoss(torch.autograd.Function):
    """dL/du_a = 4 (u_a G - S_type(a)) / m^2, G = U^T U; through the norm, its part across u_a divided by |e_a|."""

    @staticmethod
    def forward(ctx: Any, edges: Tensor, types: Tensor) -> Tensor:
        m = len(types)
        if m == 0:
            ctx.save_for_backward(edges)
            return edges.sum((-1, -2))
        norms = edges.norm(dim=-1, keepdim=True).clamp_min_(EPS)
        unit = edges / norms
        one_hot = functional.one_hot(types).to(unit)
        gram, sums = unit.transpose(-1, -2) @ unit, one_hot.T @ unit
        ctx.save_for_backward(unit, norms, one_hot, gram, sums)
        same = one_hot.sum(0).square().sum()
        return (gram.square().sum((-1, -2)) - 2 * sums.square().sum((-1, -2)) + same) / m**2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        if len(ctx.saved_tensors) == 1:
            return torch.zeros_like(ctx.saved_tensors[0]), None
        unit, norms, one_hot, gram, sums = ctx.saved_tensors
        out = unit @ gram
        out.sub_(one_hot @ sums)
        along = torch.einsum("...mk,...mk->...m", out, unit).unsqueeze(-1)
        out.addcmul_(unit, along, value=-1).div_(norms).mul_(4 * grad[..., None, None] / len(one_hot) ** 2)
        return out, None
