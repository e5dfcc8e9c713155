"""Random problems for the kernels, and an independent dense formula of each loss."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from interp.sae.kernels.lists import CodeParams, GatedParams, Losses, LossOptions

L1 = 0.7

GATED_VARIANTS = [
    (tied, r_mag, LossOptions(sparsity, freeze, detach, reduction, centre))
    for tied, r_mag, sparsity, freeze, detach, reduction, centre in itertools.product(
        (True, False),
        (True, False),
        ("l1", "ri_l1"),
        (True, False),
        (False, True),
        ("sum", "mean"),
        (True, False),
    )
]
STANDARD_VARIANTS = [
    LossOptions(sparsity=sparsity, mse_reduction=reduction, center_input=centre)
    for sparsity, reduction, centre in itertools.product(("l1", "ri_l1"), ("sum", "mean"), (True, False))
]


def gated_params(
    d: int,
    F: int,
    *,
    tied: bool = True,
    r_mag: bool = True,
    shift: float = -1.0,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> GatedParams:
    """Random parameters; a lower `shift` of the gate biases closes more gates."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype).requires_grad_()

    return GatedParams(
        W_gate=normal(F, d),
        W_dec=normal(F, d),
        b_gate=(normal(F).detach() + shift).requires_grad_(),
        b_mag=normal(F),
        b_dec=normal(d),
        r_mag=(0.3 * normal(F).detach()).requires_grad_() if r_mag else None,
        W_mag=None if tied else normal(F, d),
    )


def standard_params(
    d: int, F: int, *, shift: float = -1.0, dtype: torch.dtype = torch.float64, seed: int = 0
) -> CodeParams:
    """Random parameters of a ReLU SAE."""
    gated = gated_params(d, F, shift=shift, dtype=dtype, seed=seed)
    return CodeParams(gated.W_gate, gated.W_dec, gated.b_gate, gated.b_dec)


def batch(n: int, d: int, *, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    """Random activations."""
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def dense_total(params: GatedParams | CodeParams, x: Tensor, l1: float, options: LossOptions) -> Tensor:
    """The loss by its definition, for autograd."""

    def error(x_hat: Tensor) -> Tensor:
        squared = (x_hat - x).pow(2)
        return squared.mean() if options.mse_reduction == "mean" else squared.sum(1).mean()

    xc = x - params.b_dec if options.center_input else x
    if isinstance(params, CodeParams):
        f = torch.relu(xc @ params.W_enc.T + params.b_enc)
        weight = params.W_dec.norm(dim=1) if options.sparsity == "ri_l1" else 1.0
        return error(f @ params.W_dec + params.b_dec) + l1 * (f * weight).sum(1).mean()

    xc_gate = x - params.b_dec.detach() if options.center_input and options.detach_centering else xc
    pi = xc_gate @ params.W_gate.T + params.b_gate
    W_mag = params.W_gate if params.W_mag is None else params.W_mag
    scale = 1.0 if params.r_mag is None else params.r_mag.exp()
    f = (pi > 0) * torch.relu(scale * (xc @ W_mag.T) + params.b_mag)
    a = torch.relu(pi)
    W_aux, b_aux = params.W_dec, params.b_dec
    if options.freeze_decoder:
        W_aux, b_aux = W_aux.detach(), b_aux.detach()
    weight = W_aux.norm(dim=1) if options.sparsity == "ri_l1" else 1.0
    main = error(f @ params.W_dec + params.b_dec)
    return main + l1 * (a * weight).sum(1).mean() + error(a @ W_aux + b_aux)


def dense_gradients(
    params: GatedParams | CodeParams, x: Tensor, options: LossOptions
) -> tuple[Tensor, list[Tensor]]:
    """Total loss and autograd's gradients of the parameters that exist."""
    total = dense_total(params, x, L1, options)
    trained = [p for p in params if p is not None]
    return total.detach(), list(torch.autograd.grad(total, trained))


def total_of(losses: Losses) -> float:
    """The total of a backend's losses."""
    return float(losses.reconstruction + L1 * losses.sparsity + losses.auxiliary)


def relative_difference(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> float:
    """Largest difference between paired tensors, each relative to its own largest entry."""
    kept = ((t.detach() for t in side if t is not None) for side in (a, b))
    pairs = zip(*kept, strict=True)
    return max(float((u - v).abs().max() / v.abs().max().clamp_min(1e-30)) for u, v in pairs if v.numel())
