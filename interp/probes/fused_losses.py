"""The two costly losses of a batch with their gradients written out, for training.

`interp.probes.losses` is the definition. Each function here gives its values, straight from the words of a batch
(`SentenceBatch`): sentences are padded in buckets of similar length only, and the gradients pass over the pairs of
words once, in place, where autograd keeps and revisits a matrix of pairs for every operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from interp.probes.losses import EPS, sentence_weights

BUCKETS = 3  # of sentences by length: more of them pad less, and cost more calls


def structural_distance_loss(
    z: Float[Tensor, "p W k"], tree_distances: Float[Tensor, " Q"], lengths: Int[Tensor, " b"]
) -> Float[Tensor, " p"]:
    """As `interp.probes.losses.structural_distance_loss`.

    Args:
        z: the words of sentences in ascending order of their lengths.
        tree_distances: the n^2 of each sentence, one sentence after the other.
    """
    return _DistanceLoss.apply(z, tree_distances, lengths)


def angular_loss(
    z: Float[Tensor, "p W k"], heads: Int[Tensor, " W"], types: Int[Tensor, " W"]
) -> Float[Tensor, " p"]:
    """As `interp.probes.losses.angular_loss` of the edges z[heads] - z.

    Args:
        heads: of each word the place of its head, its own at the roots, which have no edge.
        types: number of the type of the edge above each word, -1 at the roots.
    """
    return _AngularLoss.apply(z, heads, types)


class _DistanceLoss(torch.autograd.Function):
    """With s_ij = w_ij sign(|z_i - z_j|^2 - d_ij), dL/dz_i = 4 (sum_j s_ij) z_i - 4 sum_j s_ij z_j."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, tree_distances: Tensor, lengths: Tensor) -> Tensor:
        p, _, k = ctx.shape = z.shape
        loss, kept = z.new_zeros(p), []
        for places, cells, weights in _buckets(lengths):
            places, weights = places.to(z.device), weights.to(z)
            count, n = places.shape
            words = z.index_select(1, places.flatten())
            own = words.square().sum(-1).view(p, count, n)
            gaps = (own.unsqueeze(-1) + own.unsqueeze(-2)).sub_(tree_distances[cells.to(z.device)])
            rows = words.view(-1, n, k)
            # Small products are fast with both factors as they lie in memory.
            gaps.view(-1, n, n).baddbmm_(rows, rows.transpose(1, 2).contiguous(), alpha=-2)
            gaps.diagonal(dim1=2, dim2=3).zero_()  # a word's distance from itself, but for rounding
            loss += gaps.abs().view(p, -1) @ weights.flatten()
            signs = gaps.sign_().mul_(weights)
            # With -sum_j s_ij on the diagonal one product is the whole gradient.
            signs.diagonal(dim1=2, dim2=3).copy_(signs.sum(-1).neg_())
            kept += [places.flatten(), signs.view(-1, n, n), rows]
        ctx.save_for_backward(*kept)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        out = grad.new_zeros(ctx.shape)
        kept = ctx.saved_tensors
        for places, signs, rows in zip(kept[::3], kept[1::3], kept[2::3], strict=True):
            part = torch.bmm(signs, rows).view(len(out), -1, ctx.shape[2])
            out.index_add_(1, places, part.mul_(-4 * grad[:, None, None]))
        return out, None, None


def _buckets(lengths: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Sentences of similar length, padded to the longest of them.

    For each bucket the places of its words [s n], where the distances of their pairs stand [s n n], and the weights of
    the pairs [s n n], 0 at padding.
    """
    squares = lengths.square()
    first, cell = lengths.cumsum(0) - lengths, squares.cumsum(0) - squares
    each = sentence_weights(lengths, torch.float64) / squares
    for part in torch.arange(len(lengths)).tensor_split(BUCKETS):
        if not len(part) or (n := int(lengths[part].max())) < 2:
            continue
        own, column = lengths[part, None], torch.arange(n)
        mask = column < own
        both = mask.unsqueeze(2) & mask.unsqueeze(1)
        cells = (cell[part, None] + column * own).unsqueeze(2) + column
        yield (
            torch.where(mask, first[part, None] + column, 0),
            torch.where(both, cells, 0),
            both * each[part, None, None],
        )


class _AngularLoss(torch.autograd.Function):
    """dL/du_a = 4 (u_a G - S_type(a)) / m^2, G = U^T U; through the norm, its part across u_a divided by |e_a|."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, heads: Tensor, types: Tensor) -> Tensor:
        edges = z.index_select(1, heads).sub_(z)
        norms = torch.linalg.vector_norm(edges, dim=-1, keepdim=True).clamp_min_(EPS)
        unit = edges.div_(norms)  # 0 at the roots
        one_hot = functional.one_hot(types + 1)[:, 1:].to(unit)
        m = max(int((types >= 0).sum()), 1)
        gram, sums = unit.transpose(1, 2) @ unit, one_hot.T @ unit
        ctx.save_for_backward(unit, norms, one_hot, gram, sums, heads)
        ctx.edges = m
        same = one_hot.sum(0).square().sum()
        return (gram.square().sum((1, 2)) - 2 * sums.square().sum((1, 2)) + same) / m**2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        unit, norms, one_hot, gram, sums, heads = ctx.saved_tensors
        out = (one_hot @ sums).baddbmm_(unit, gram, beta=-1)
        along = (out * unit).sum(-1, keepdim=True)
        out.addcmul_(unit, along, value=-1).mul_(4 * grad[:, None, None] / ctx.edges**2 / norms)
        return out.neg().index_add_(1, heads, out), None, None
