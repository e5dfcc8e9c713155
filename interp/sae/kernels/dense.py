"""The losses by dense products, differentiable: what every other form must equal."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.sae.kernels.dead import DeadLatents
from interp.sae.kernels.lists import CodeParams, GatedParams, Losses, LossOptions
from interp.sae.kernels.rules import Prefixes, Threshold, Window, largest, selected


def loss(
    params: GatedParams | CodeParams,
    x: Float[Tensor, "n d"],
    l1: float,
    options: LossOptions,
    *,
    target: Float[Tensor, "n e"] | None = None,
    dead: DeadLatents | None = None,
) -> tuple[Tensor, Losses]:
    """The differentiable total loss, and its parts detached.

    Args:
        l1: weight of the sparsity.
        target: what is to be reconstructed, where it isn't x.
        dead: latents that have been silent, and the term that revives them.
    """
    if isinstance(params, GatedParams):
        return gated_loss(params, x, l1, options)
    return code_loss(params, x, l1, options, target=target, dead=dead)


def gated_loss(
    params: GatedParams, x: Float[Tensor, "n d"], l1: float, options: LossOptions
) -> tuple[Tensor, Losses]:
    """``mean_n |x_hat - x|^2 + l1 sum ReLU(pi) + |x_tilde - x|^2`` with one encoder product."""
    n, d = x.shape
    xc = x - params.b_dec if options.center_input else x
    p = xc @ params.W_gate.T
    q = p if params.W_mag is None else xc @ params.W_mag.T
    gate_input = p
    if options.detach_centering and options.center_input:
        # The same numbers with b_dec's share of the gradient taken out: p + W (b - b.detach()).
        gate_input = p + (params.W_gate.detach() @ (params.b_dec - params.b_dec.detach()))
    a = torch.relu(gate_input + params.b_gate)
    is_open = a > 0
    mu = (q if params.r_mag is None else params.r_mag.exp() * q) + params.b_mag
    f = torch.where(is_open, torch.relu(mu), 0)

    W_aux, b_aux = params.W_dec, params.b_dec
    if options.freeze_decoder:
        W_aux, b_aux = W_aux.detach(), b_aux.detach()
    scale = options.error_scale(n, d)
    reconstruction = scale * (f @ params.W_dec + params.b_dec - x).pow(2).sum()
    auxiliary = scale * (a @ W_aux + b_aux - x).pow(2).sum()
    sparsity = _sparsity(a, W_aux, options)
    return reconstruction + l1 * sparsity + auxiliary, _losses(
        reconstruction, sparsity, auxiliary, f > 0, is_open
    )


def code_loss(
    params: CodeParams,
    x: Float[Tensor, "n d"],
    l1: float,
    options: LossOptions,
    *,
    target: Float[Tensor, "n e"] | None = None,
    dead: DeadLatents | None = None,
) -> tuple[Tensor, Losses]:
    """``sum_g w_g mean_n |x_hat_g - y|^2 + l1 sparsity + auxiliary`` with any rule; see `LossOptions`."""
    y = x if target is None else target
    n, e = y.shape
    xc = x - params.b_dec if options.center_input else x
    z = xc @ params.W_enc.T + params.b_enc
    f, is_open, smallest = kept_codes(z, params, options)
    scale = options.error_scale(n, e)
    base = params.b_dec - y if params.W_skip is None else params.b_dec - y + x @ params.W_skip.T
    errors, residuals = [], []
    prefixes = options.prefixes or Prefixes((params.W_dec.shape[0],), (1.0,))
    for end in prefixes.ends:
        part = f[:, :end] @ params.W_dec[:end] if prefixes.by == "latent" else _first(f, end) @ params.W_dec
        residuals.append(part + base)
        errors.append(scale * residuals[-1].pow(2).sum())
    reconstruction = sum(w * error for w, error in zip(prefixes.weights, errors, strict=True))
    sparsity = code_sparsity(z, f, params, options)
    auxiliary = torch.zeros_like(sparsity)
    if dead is not None and len(dead):
        auxiliary = dead.loss(params, x, y, -residuals[prefixes.main].detach(), options)
    fired = f != 0
    parts = _losses(reconstruction, sparsity, auxiliary, fired, is_open, errors[prefixes.main], smallest)
    return reconstruction + l1 * sparsity + auxiliary, parts


def kept_codes(
    z: Float[Tensor, "n F"], params: CodeParams, options: LossOptions
) -> tuple[Float[Tensor, "n F"], Bool[Tensor, "n F"], Tensor]:
    """The code of a batch's pre-activations, what is open, and the smallest score that a selection kept."""
    rule, infinite = options.rule, z.new_tensor(torch.inf)
    if isinstance(rule, Threshold):
        f = torch.relu(z)
        return f, f > 0, infinite
    if isinstance(rule, Window):
        assert params.threshold is not None
        f = _Jump.apply(z, params.threshold, rule.bandwidth, rule.ste_to_input)
        return f, z > params.threshold, infinite
    score = z.detach() * options.norms(params.W_dec.detach()) if rule.by_norm else z.detach()
    kept = selected(score, rule)
    f = torch.where(kept, z if getattr(rule, "absolute", False) else torch.relu(z), 0)
    positive = score[kept & (f != 0)].abs()
    return f, kept & (f != 0), positive.min() if positive.numel() else infinite


def _first(f: Float[Tensor, "n F"], count: int) -> Float[Tensor, "n F"]:
    """Each token's `count` largest codes (in magnitude), the others 0."""
    return torch.where(largest(f.detach().abs(), count), f, 0)


def code_sparsity(
    z: Float[Tensor, "n F"], f: Float[Tensor, "n F"], params: CodeParams, options: LossOptions
) -> Tensor:
    """The sparsity term before its weight; see `LossOptions`."""
    n = max(z.shape[0], 1)
    if options.sparsity == "none":
        return f.new_zeros(())
    if options.sparsity == "tanh":
        return torch.tanh(options.sparsity_parameter * f * options.norms(params.W_dec)).sum() / n
    if options.sparsity in ("l0", "quadratic"):
        assert isinstance(options.rule, Window)
        assert params.threshold is not None
        l0 = _Step.apply(z, params.threshold, options.rule.bandwidth, options.rule.ste_to_input).sum() / n
        return l0 if options.sparsity == "l0" else (l0 / options.sparsity_parameter - 1).pow(2)
    per_token = f @ options.norms(params.W_dec) if options.sparsity == "ri_l1" else f.sum(1)
    return per_token.sum() / n


class _Jump(torch.autograd.Function):
    """``z 1[z > theta]``, with the window's derivative by theta; see `Window`."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, theta: Tensor, bandwidth: float, to_input: bool) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(z, theta)
        ctx.bandwidth, ctx.to_input = bandwidth, to_input
        return torch.where(z > theta, z, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        z, theta = ctx.saved_tensors
        window = grad * ((z - theta).abs() < ctx.bandwidth / 2) * (theta / ctx.bandwidth)
        passed = grad * (z > theta)
        return (passed + window if ctx.to_input else passed), -window.sum(0), None, None


class _Step(torch.autograd.Function):
    """``1[z > theta]``, with the window's derivative by theta."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, theta: Tensor, bandwidth: float, to_input: bool) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(z, theta)
        ctx.bandwidth, ctx.to_input = bandwidth, to_input
        return (z > theta).to(z.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        z, theta = ctx.saved_tensors
        window = grad * ((z - theta).abs() < ctx.bandwidth / 2) / ctx.bandwidth
        return (window if ctx.to_input else None), -window.sum(0), None, None


def _sparsity(codes: Float[Tensor, "n F"], W_dec: Float[Tensor, "F d"], options: LossOptions) -> Tensor:
    per_token = codes @ W_dec.norm(dim=1) if options.sparsity == "ri_l1" else codes.sum(1)
    return per_token.sum() / max(codes.shape[0], 1)


def _losses(
    reconstruction: Tensor,
    sparsity: Tensor,
    auxiliary: Tensor,
    fired: Tensor,
    is_open: Tensor,
    error: Tensor | None = None,
    smallest: Tensor | None = None,
) -> Losses:
    n = max(fired.shape[0], 1)
    hits = fired.sum(0)
    return Losses(
        reconstruction=reconstruction.detach().double(),
        sparsity=sparsity.detach().double(),
        auxiliary=auxiliary.detach().double(),
        l0=hits.sum().double() / n,
        open_gates=is_open.sum().double() / n,
        fired=hits,
        error=(reconstruction if error is None else error).detach().double(),
        smallest=torch.full((), torch.inf, dtype=torch.float64, device=hits.device)
        if smallest is None
        else smallest.detach().double(),
    )
