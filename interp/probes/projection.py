"""Words into the spaces of many probes, with the gradient written out.

Every probe costs its own rank's columns, not those of the widest one; the probes of a layer share one product, so that
its activations are read once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Columns:
    """Where a probe's own columns stand in the product of its layer, and how many there are."""

    slot: int
    first: int
    rank: int

    @property
    def own(self) -> slice:
        return slice(self.first, self.first + self.rank)


def columns_of(slots: Sequence[int], ranks: Sequence[int]) -> tuple[Columns, ...]:
    """The columns of every probe; the probes of a layer stand side by side.

    Args:
        slots: [P] which layer each probe reads, as its place in the activations.
        ranks: [P].
    """
    used: dict[int, int] = {}
    out = []
    for slot, rank in zip(slots, ranks, strict=True):
        out.append(Columns(slot, used.get(slot, 0), rank))
        used[slot] = used.get(slot, 0) + rank
    return tuple(out)


def project(
    x: Float[Tensor, "L N d"],
    weight: Float[Tensor, "P d k"],
    mean: Float[Tensor, "P d"],
    scale: Float[Tensor, "P d"],
    columns: Sequence[Columns],
) -> Float[Tensor, "P N k"]:
    """((x - mean) / scale) B of every probe; 0 in the columns beyond its rank. Only `weight` gets a gradient."""
    return _Project.apply(x, weight, mean, scale, columns)


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, mean: Tensor, scale: Tensor, columns: Sequence[Columns]
    ) -> Tensor:
        ctx.save_for_backward(x, mean, scale)
        ctx.columns, ctx.shape = columns, weight.shape
        width = max(c.first + c.rank for c in columns)
        maps, shifts = x.new_zeros(len(x), x.shape[2], width), x.new_zeros(len(x), 1, width)
        for p, c in enumerate(columns):
            part = maps[c.slot, :, c.own]
            torch.div(weight[p, :, : c.rank], scale[p].unsqueeze(-1), out=part)
            shifts[c.slot, 0, c.own] = mean[p] @ part
        # Centred in the small space: N k numbers instead of N d.
        together = torch.baddbmm(shifts, x, maps, beta=-1)
        return together if _in_order(columns, weight) else _apart(together, columns, weight.shape[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, mean, scale = ctx.saved_tensors
        out = grad.new_zeros(ctx.shape)
        if not _in_order(ctx.columns, out):
            together = x.new_zeros(len(x), x.shape[1], max(c.first + c.rank for c in ctx.columns))
            for p, c in enumerate(ctx.columns):
                together[c.slot, :, c.own] = grad[p, :, : c.rank]
            grad = together
        sums, products = grad.sum(1), torch.bmm(grad.transpose(1, 2), x)  # faster than with x transposed
        for p, c in enumerate(ctx.columns):
            part = products[c.slot, c.own].addr_(sums[c.slot, c.own], mean[p], alpha=-1)
            torch.div(part.T, scale[p].unsqueeze(-1), out=out[p, :, : c.rank])
        return None, out, None, None, None


def _in_order(columns: Sequence[Columns], weight: Tensor) -> bool:
    """Whether there is one probe a layer, all of one rank: the product is the result as it stands."""
    k = weight.shape[2]
    return all((c.slot, c.first, c.rank) == (p, 0, k) for p, c in enumerate(columns))


def _apart(together: Tensor, columns: Sequence[Columns], k: int) -> Tensor:
    z = together.new_zeros(len(columns), together.shape[1], k)
    for p, c in enumerate(columns):
        z[p, :, : c.rank] = together[c.slot, :, c.own]
    return z
