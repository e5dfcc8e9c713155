"""Terms of the loss that revive dead latents: AuxK, and a pull on closed pre-activations.

Only the dead rows take part, densely and a run of tokens at a time, on any device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.messages import one_of
from interp.sae.kernels.lists import CodeParams, LossOptions
from interp.sae.kernels.rules import largest

NORMALIZATIONS = ("residual", "input", "none")
_NUMBERS_AT_ONCE = 2**22  # of the tokens x dead latents tiles


class RowGrads(NamedTuple):
    """A loss, and gradients of the rows of some latents."""

    loss: Tensor
    W_enc: Float[Tensor, "k d"]
    W_dec: Float[Tensor, "k e"] | None
    b_enc: Float[Tensor, " k"]
    threshold: Float[Tensor, " k"] | None
    b_dec: Float[Tensor, " e"] | None


@dataclass(frozen=True)
class AuxK:
    """``coefficient |f_aux W_dec - E|^2``: dead latents reconstruct the residual E = x - x_hat (a constant).

    f_aux holds each token's `k` largest pre-activations of dead latents, after ReLU; the decoder's bias has no part
    in it (Gao et al. 2024, arXiv 2406.04093).

    Attributes:
        k: how many; fewer where fewer are dead.
        coefficient: the weight, alpha.
        normalization: the squared error is divided by the batch's variance of E (``"residual"``), by that of what is
            reconstructed and by k over the number of dead ones, where that is above 1 (``"input"``), or only by the
            latter (``"none"``).
    """

    k: int
    coefficient: float = 1 / 32
    normalization: str = "residual"

    def __post_init__(self) -> None:
        one_of("auxk_normalization", self.normalization, NORMALIZATIONS)

    def weight(self, residual: Tensor, target: Tensor, n_dead: int, scale: float) -> float:
        """What multiplies the squared error, summed over everything."""
        if self.normalization == "none":
            return self.coefficient * scale * min(n_dead / self.k, 1.0)
        of, share = (
            (residual, 1.0) if self.normalization == "residual" else (target, min(n_dead / self.k, 1.0))
        )
        variance = float((of - of.mean(0)).double().pow(2).sum())
        return self.coefficient * share / variance if variance > 0 else 0.0


@dataclass(frozen=True)
class PreActivations:
    """``coefficient mean_n sum_i ReLU(threshold_i - z_i) |d_i|`` over dead latents (Anthropic, January 2025)."""

    coefficient: float = 3e-6


@dataclass(frozen=True)
class DeadLatents:
    """The latents that count as dead in a step, and what revives them."""

    latents: Int[Tensor, " k"]
    term: AuxK | PreActivations

    def __len__(self) -> int:
        return len(self.latents)

    def loss(
        self,
        params: CodeParams,
        x: Float[Tensor, "n d"],
        target: Float[Tensor, "n e"],
        residual: Float[Tensor, "n e"],
        options: LossOptions,
    ) -> Tensor:
        """The term, differentiable in the parameters: the definition."""
        xc = x - params.b_dec if options.center_input else x
        rows = self.latents
        z = xc @ params.W_enc[rows].T + params.b_enc[rows]
        if isinstance(self.term, PreActivations):
            assert params.threshold is not None
            norms = options.norms(params.W_dec[rows])
            return (
                self.term.coefficient
                * (torch.relu(params.threshold[rows] - z) * norms).sum()
                / max(len(x), 1)
            )
        f = torch.where(largest(z.detach(), self.term.k), torch.relu(z), 0)
        weight = self.term.weight(residual, target, len(rows), options.error_scale(*residual.shape))
        return weight * (f @ params.W_dec[rows] - residual).pow(2).sum()

    @torch.no_grad()
    def gradients(
        self,
        params: CodeParams,
        x: Float[Tensor, "n d"],
        target: Float[Tensor, "n e"],
        residual: Float[Tensor, "n e"],
        options: LossOptions,
    ) -> RowGrads:
        """The term and its gradients, in closed form."""
        rows, n = self.latents, max(len(x), 1)
        W_enc, W_dec, b_enc = params.W_enc[rows], params.W_dec[rows], params.b_enc[rows]
        grad_enc, grad_dec, grad_b = torch.zeros_like(W_enc), torch.zeros_like(W_dec), torch.zeros_like(b_enc)
        total = torch.zeros((), dtype=torch.float64, device=x.device)
        grad_theta = None
        if isinstance(self.term, PreActivations):
            assert params.threshold is not None
            theta, norms = params.threshold[rows], options.norms(W_dec)
            short = torch.zeros_like(b_enc)
            for part in self._tokens(n):
                xc = x[part] - params.b_dec if options.center_input else x[part]
                gap = theta - (xc @ W_enc.T + b_enc)
                below = (gap > 0).to(x.dtype)
                short += (gap * below).sum(0)
                grad_enc -= below.T @ xc
                grad_b -= below.sum(0)
            weight = self.term.coefficient / n
            total = weight * (short * norms).double().sum()
            scale = weight * norms
            grad_dec = options.norm_gradient(weight * short, W_dec)
            grad_enc, grad_b = scale[:, None] * grad_enc, scale * grad_b
            grad_theta = -grad_b
        else:
            weight = self.term.weight(residual, target, len(rows), options.error_scale(*residual.shape))
            for part in self._tokens(n):
                xc = x[part] - params.b_dec if options.center_input else x[part]
                z = xc @ W_enc.T + b_enc
                f = torch.where(largest(z, self.term.k), z, 0).clamp_min_(0)
                G = f @ W_dec - residual[part]
                total += weight * G.double().pow(2).sum()
                G *= 2 * weight
                beta = (G @ W_dec.T).mul_(f > 0)
                grad_enc += beta.T @ xc
                grad_dec += f.T @ G
                grad_b += beta.sum(0)
        grad_b_dec = -(W_enc.T @ grad_b) if options.center_input else None
        return RowGrads(total, grad_enc, grad_dec, grad_b, grad_theta, grad_b_dec)

    def _tokens(self, n: int) -> Iterator[slice]:
        size = max(1, _NUMBERS_AT_ONCE // max(len(self.latents), 1))
        return (slice(at, at + size) for at in range(0, n, size))


def add_to(grads: dict[str, Tensor], rows: Int[Tensor, " k"], extra: RowGrads) -> None:
    """Add the gradients of some rows to those of all, in place."""
    for name in ("W_enc", "W_dec", "b_enc", "threshold"):
        mine = getattr(extra, name)
        if mine is not None:
            grads[name].index_add_(0, rows, mine)
    if extra.b_dec is not None:
        grads["b_dec"] += extra.b_dec
