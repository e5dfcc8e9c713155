"""Bregman losses on label embeddings, for networks trained in torch: their expected minimiser is the mean p V."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from classic_ml.surrogates.embedding import PolytopeEmbedding
from interp.core.messages import one_of


class BregmanLoss(nn.Module):
    """L(u, y) = D_G(v_y, u) = G(v_y) - G(u) - <grad G(u), v_y - u>.

    In this order of arguments u = p V minimises E_p L(u, Y) for every strictly convex G (the other order's minimiser
    is the mean of grad G). L is convex in u for the squared norm, and in theta = grad G(u) for every G; in u it need
    not be convex for other G.

    Args:
        embedding: gives v_y.
        generator: G, strictly convex and twice differentiable, a torch function [... d] -> [...].
        reduction: "mean" over the batch, or "none" for [n].
    """

    def __init__(
        self,
        embedding: PolytopeEmbedding,
        generator: Callable[[Tensor], Tensor],
        *,
        reduction: Literal["mean", "none"] = "mean",
    ) -> None:
        super().__init__()
        one_of("reduction", reduction, ("mean", "none"))
        self.embedding, self.generator, self.reduction = embedding, generator, reduction

    def forward(self, u: Float[Tensor, "n d"], y: Int[Tensor, " n"]) -> Tensor:
        """The loss of reports u for class numbers y.  Raises ValueError where u is not (n, d)."""
        v = self._vertices_of(u, y)
        with torch.enable_grad():
            at = u if u.requires_grad else u.detach().requires_grad_()
            slope = torch.autograd.grad(self.generator(at).sum(), at, create_graph=u.requires_grad)[0]
        return self._reduced(self.generator(v) - self.generator(u) - (slope * (v - u)).sum(-1))

    def _vertices_of(self, u: Tensor, y: Tensor) -> Tensor:
        if u.shape != (len(y), self.embedding.dimension):
            raise ValueError(
                f"u has shape {tuple(u.shape)}; {len(y)} labels and {self.embedding!r} need "
                f"({len(y)}, {self.embedding.dimension})"
            )
        return torch.from_numpy(self.embedding.transform(y.cpu().numpy())).to(u)

    def _reduced(self, losses: Tensor) -> Tensor:
        return losses.mean() if self.reduction == "mean" else losses


class SquaredLoss(BregmanLoss):
    """|u - v_y|^2 / 2, the loss of G(u) = |u|^2 / 2."""

    def __init__(self, embedding: PolytopeEmbedding, *, reduction: Literal["mean", "none"] = "mean") -> None:
        super().__init__(embedding, half_square, reduction=reduction)

    def forward(self, u: Float[Tensor, "n d"], y: Int[Tensor, " n"]) -> Tensor:
        return self._reduced(half_square(u - self._vertices_of(u, y)))


def half_square(u: Float[Tensor, "... d"]) -> Float[Tensor, ...]:
    """|u|^2 / 2."""
    return u.square().sum(-1) / 2
