"""The sparse step in plain torch: the definition that every compiled backend is held to.

A gate is open for few (token, latent) pairs, and outside them every code, cotangent and gradient is exactly
zero. So one dense product finds the open gates, tile by tile, and the rest walks their list:

* ``compact``                 pre-activations of a tile of latents -> list of those above a threshold
* ``*_token_pass``            per token: reconstructions, losses, and the cotangents of its open gates
* ``*_latent_pass``           per latent: gradients of its rows and biases
* ``gradients``, ``update``   the whole step without and with the optimiser
* ``decode``                  reconstruction from a list, for inference

Source: Rajamanoharan et al. 2024 (arXiv 2404.16014), appendix G for the loss; closed-form gradients derived.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels.backend import SMALLEST_NORM, WHOLE, FusedAdam, Grads, Params, WalkedAdam
from interp.sae.kernels.dead import DeadLatents, add_to
from interp.sae.kernels.lists import (
    OF_THE_JUMP,
    CodeGrads,
    CodeParams,
    CodeTokenPass,
    GatedGrads,
    GatedParams,
    GatedTokenPass,
    Losses,
    LossOptions,
    OpenGates,
)
from interp.sae.kernels.rules import BatchTopK, Prefixes, TopK, Window, selected

_ENTRIES_AT_ONCE = 8192  # rows of width d gathered at a time: bounds memory, not results


def center(x: Float[Tensor, "n d"], b_dec: Float[Tensor, " d"], options: LossOptions) -> Float[Tensor, "n d"]:
    """The encoder's input ``x - b_dec``, or ``x`` itself where the input isn't centred."""
    return x - b_dec if options.center_input else x


def compact(
    xc: Float[Tensor, "n d"],
    weight: Float[Tensor, "F d"],
    threshold: Float[Tensor, " F"],
    *,
    tile: int = 1024,
) -> OpenGates:
    """List the pairs with ``xc . w_i > threshold_i``, strictly; n x F exists one tile at a time."""
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for start in range(0, weight.shape[0], tile):
        pre = weight[start : start + tile] @ xc.T
        latents, tokens = torch.nonzero(pre > threshold[start : start + tile, None], as_tuple=True)
        parts.append((latents + start, tokens, pre[latents, tokens]))
    latents, tokens, values = (torch.cat(part) for part in zip(*parts, strict=True))
    return index_by_token(latents, tokens, values, n_tokens=xc.shape[0], n_latents=weight.shape[0])


def index_by_token(
    latents: Tensor, tokens: Tensor, values: Tensor, *, n_tokens: int, n_latents: int
) -> OpenGates:
    """Complete a list sorted by (latent, token) with its index by token."""
    order = torch.sort(tokens, stable=True).indices
    return OpenGates(
        latent_ptr=_pointers(latents, n_latents),
        tokens=tokens.int(),
        values=values,
        token_ptr=_pointers(tokens, n_tokens),
        latents=latents[order].int(),
        order=order,
    )


def _pointers(sorted_or_not: Tensor, length: int) -> Tensor:
    counts = torch.bincount(sorted_or_not, minlength=length)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def gated_token_pass(
    params: GatedParams, x: Float[Tensor, "n d"], gates: OpenGates, l1: float, options: LossOptions
) -> tuple[Losses, GatedTokenPass]:
    """Reconstructions, losses and the cotangents of each open gate.

    ``beta = 1[f > 0] <G_n, d_i>`` and ``alpha = <G~_n, d_i> + l1/n`` (times ``|d_i|`` under ri_l1), where
    ``G = 2 (x_hat - x) / n`` and ``G~ = 2 (x_tilde - x) / n`` (both over d for the mean reduction).
    """
    n, d = x.shape
    latents, tokens = gates.latent_of_entry(), gates.tokens.long()
    a = gates.values + params.b_gate[latents]
    mu = (
        magnitude_scale(params)[latents] * magnitude_products(params, x, gates, options)
        + params.b_mag[latents]
    )
    f = mu.clamp_min(0)
    residual = params.b_dec - x
    auxiliary = residual.clone()
    for part in _chunks(len(gates)):
        rows = params.W_dec[latents[part]]
        residual.index_add_(0, tokens[part], f[part, None] * rows)
        auxiliary.index_add_(0, tokens[part], a[part, None] * rows)
    scale = options.error_scale(n, d)
    G, G_aux = 2 * scale * residual, 2 * scale * auxiliary
    weight = params.W_dec.norm(dim=1) if options.sparsity == "ri_l1" else torch.ones_like(params.b_gate)
    alpha, beta = torch.empty_like(a), torch.empty_like(a)
    for part in _chunks(len(gates)):
        rows = params.W_dec[latents[part]]
        beta[part] = (G[tokens[part]] * rows).sum(1) * (f[part] > 0)
        alpha[part] = (G_aux[tokens[part]] * rows).sum(1) + l1 / n * weight[latents[part]]
    losses = Losses(
        reconstruction=scale * residual.double().pow(2).sum(),
        sparsity=(a.double() * weight[latents]).sum() / max(n, 1),
        auxiliary=scale * auxiliary.double().pow(2).sum(),
        l0=(f > 0).sum().double() / max(n, 1),
        open_gates=torch.as_tensor(len(gates) / max(n, 1), dtype=torch.float64, device=x.device),
        fired=torch.bincount(latents[f > 0], minlength=gates.n_latents),
        error=scale * residual.double().pow(2).sum(),
        smallest=torch.full((), torch.inf, dtype=torch.float64, device=x.device),
    )
    return losses, GatedTokenPass(f=f, a=a, alpha=alpha, beta=beta, G=G, G_aux=G_aux)


def magnitude_scale(params: GatedParams) -> Float[Tensor, " F"]:
    """``exp(r_mag)``, or ones."""
    return torch.ones_like(params.b_mag) if params.r_mag is None else params.r_mag.exp()


def magnitude_products(
    params: GatedParams, x: Float[Tensor, "n d"], gates: OpenGates, options: LossOptions
) -> Float[Tensor, " z"]:
    """``q``: the gate's own product when tied, else ``xc . W_mag_i`` at the open gates only."""
    if params.W_mag is None:
        return gates.values
    xc, latents, tokens = center(x, params.b_dec, options), gates.latent_of_entry(), gates.tokens.long()
    q = torch.empty_like(gates.values)
    for part in _chunks(len(gates)):
        q[part] = (xc[tokens[part]] * params.W_mag[latents[part]]).sum(1)
    return q


def gated_latent_pass(
    params: GatedParams,
    x: Float[Tensor, "n d"],
    gates: OpenGates,
    token_pass: GatedTokenPass,
    l1: float,
    options: LossOptions,
) -> GatedGrads:
    """Gradients of every parameter from the list.

    With ``m = exp(r_mag)``: ``dW_gate_i = sum (alpha + m beta) xc`` (untied: ``sum alpha xc`` and
    ``dW_mag_i = sum m beta xc``), ``dW_dec_i = sum f G``, ``db_gate = sum alpha``, ``db_mag = sum beta``,
    ``dr_mag = m sum beta q``, ``db_dec = sum_n G - W_gate^T s`` with ``s_i = sum (alpha + m beta)``.
    The auxiliary term reaches ``db_dec`` through the centring only.
    """
    f, a, alpha, beta, G, G_aux = token_pass
    n = max(x.shape[0], 1)
    latents = gates.latent_of_entry()
    xc = center(x, params.b_dec, options)
    m = magnitude_scale(params)
    m_beta = m[latents] * beta
    tied = params.W_mag is None

    W_gate = _sum_rows(gates, alpha + m_beta if tied else alpha, xc)
    W_dec = _sum_rows(gates, f, G)
    b_dec = G.sum(0)
    if not options.freeze_decoder:
        W_dec += _sum_rows(gates, a, G_aux)
        b_dec = b_dec + G_aux.sum(0)
        if options.sparsity == "ri_l1":
            norms = params.W_dec.norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
            W_dec += (l1 / n * _sum(gates, a) / norms)[:, None] * params.W_dec

    b_gate, b_mag = _sum(gates, alpha), _sum(gates, beta)
    if options.center_input:
        through_gate = torch.zeros_like(b_gate) if options.detach_centering else b_gate
        through_magnitude = m * b_mag
        if params.W_mag is None:
            b_dec = b_dec - params.W_gate.T @ (through_gate + through_magnitude)
        else:
            b_dec = b_dec - params.W_gate.T @ through_gate - params.W_mag.T @ through_magnitude
    r_mag = None
    if params.r_mag is not None:
        r_mag = m * _sum(gates, beta * magnitude_products(params, x, gates, options))
    W_mag = None if tied else _sum_rows(gates, m_beta, xc)
    return GatedGrads(W_gate, W_dec, b_gate, b_mag, b_dec, r_mag, W_mag)


def listed(
    params: CodeParams, xc: Float[Tensor, "n d"], options: LossOptions, *, guess: float = 0.0
) -> OpenGates:
    """The entries that have a code or a gradient by the rule; of a `Window` those inside it, too."""
    rule, zero = options.rule, torch.zeros_like(params.b_enc)
    if isinstance(rule, Window):
        return compact(xc, params.W_enc, window_start(params, rule) - params.b_enc)
    if not isinstance(rule, TopK | BatchTopK):
        return compact(xc, params.W_enc, zero - params.b_enc)
    products = params.W_enc @ xc.T
    z = (products + params.b_enc[:, None]).T
    score = z * options.norms(params.W_dec) if rule.by_norm else z
    signed = getattr(rule, "absolute", False)
    kept = (selected(score, rule) & ((z != 0) if signed else (z > 0))).T
    latents, tokens = torch.nonzero(kept, as_tuple=True)
    values = products[latents, tokens]
    return index_by_token(latents, tokens, values, n_tokens=xc.shape[0], n_latents=params.W_enc.shape[0])


def window_start(params: CodeParams, rule: Window) -> Float[Tensor, " F"]:
    """Where the window around each threshold begins."""
    assert params.threshold is not None
    return params.threshold - rule.bandwidth / 2


def jump_cotangents(
    z: Float[Tensor, " z"],
    through_code: Float[Tensor, " z"],
    theta: Float[Tensor, " z"],
    per_open: float,
    rule: Window,
) -> tuple[Float[Tensor, " z"], Float[Tensor, " z"]]:
    """dL/dz and dL/dthreshold of each listed entry of a JumpReLU.

    Args:
        through_code: dL/df.
        per_open: dL / d(number of open entries).
    """
    window = (z - theta).abs() < rule.bandwidth / 2
    jump = window * (theta * through_code + per_open) / rule.bandwidth
    beta = (z > theta) * through_code
    return (beta + jump if rule.ste_to_input else beta), -jump


def count_weight(l0: float, n: int, l1: float, options: LossOptions) -> float:
    """dL / d(number of open entries) of the sparsity term, l0 being their mean number per token."""
    if options.sparsity == "l0":
        return l1 / max(n, 1)
    if options.sparsity == "quadratic":
        return l1 / max(n, 1) * 2 * (l0 / options.sparsity_parameter - 1) / options.sparsity_parameter
    return 0.0


def prefix_of_entries(
    f: Float[Tensor, " z"], gates: OpenGates, prefixes: Prefixes | None
) -> tuple[Tensor, int]:
    """The first of the P prefixes that each listed entry belongs to, and P."""
    latents = gates.latent_of_entry()
    if prefixes is None:
        return torch.zeros_like(latents), 1
    ends = torch.tensor(prefixes.ends, device=f.device)
    place = latents
    if prefixes.by == "rank":
        in_token = gates.order  # by token, latents ascending: the first of equals stays first
        in_token = in_token[torch.sort(f[in_token].abs(), stable=True, descending=True).indices]
        in_token = in_token[torch.sort(gates.tokens[in_token], stable=True).indices]
        before = torch.repeat_interleave(gates.token_ptr[:-1], gates.token_ptr.diff(), output_size=len(gates))
        place = torch.empty_like(in_token)
        place[in_token] = torch.arange(len(gates), device=f.device) - before
    return torch.bucketize(place, ends, right=True), len(prefixes.ends)


def code_token_pass(
    params: CodeParams,
    x: Float[Tensor, "n d"],
    gates: OpenGates,
    l1: float,
    options: LossOptions,
    target: Float[Tensor, "n e"] | None = None,
) -> tuple[Losses, CodeTokenPass]:
    """Reconstructions by prefix, losses, and the cotangents of each listed entry.

    With residuals ``r_g = x_hat_g - y`` of the prefixes g: an entry of prefix g receives
    ``<G_g, d_i>``, ``G_g = 2/n sum_{h >= g} w_h r_h``, and its decoder row ``f G_g``.
    """
    y = x if target is None else target
    n, e = y.shape
    latents, tokens = gates.latent_of_entry(), gates.tokens.long()
    z = gates.values + params.b_enc[latents]
    theta = None if params.threshold is None else params.threshold[latents]
    f = z
    if isinstance(options.rule, Window):
        assert theta is not None
        f = torch.where(z > theta, z, 0)
    prefix, count = prefix_of_entries(f, gates, options.prefixes)
    rows = tokens * count + prefix
    weights = y.new_tensor(options.prefixes.weights if options.prefixes else (1.0,))
    main = options.prefixes.main if options.prefixes else 0

    residual = y.new_zeros(n * count, e)
    for part in _chunks(len(gates)):
        residual.index_add_(0, rows[part], f[part, None] * params.W_dec[latents[part]])
    base = params.b_dec - y
    if params.W_skip is not None:
        base = base + x @ params.W_skip.T
    residual = residual.view(n, count, e).cumsum(1) + base[:, None]
    scale = options.error_scale(n, e)
    errors = scale * residual.double().pow(2).sum((0, 2))
    G = (2 * scale * weights[:, None] * residual).flip(1).cumsum(1).flip(1).reshape(n * count, e)

    dots = torch.empty_like(f)
    for part in _chunks(len(gates)):
        dots[part] = (G[rows[part]] * params.W_dec[latents[part]]).sum(1)
    norms = options.norms(params.W_dec)
    is_open = torch.ones_like(f, dtype=torch.bool) if theta is None else z > theta
    open_gates = is_open.sum().double() / max(n, 1)
    sparsity = torch.zeros((), dtype=torch.float64, device=x.device)
    if options.sparsity in ("l1", "ri_l1"):
        weight = norms[latents] if options.sparsity == "ri_l1" else torch.ones_like(f)
        dots = dots + l1 / max(n, 1) * weight
        sparsity = (f.double() * weight).sum() / max(n, 1)
    elif options.sparsity == "tanh":
        c, u = options.sparsity_parameter, torch.tanh(options.sparsity_parameter * f * norms[latents])
        dots = dots + l1 / max(n, 1) * c * norms[latents] * (1 - u * u)
        sparsity = u.double().sum() / max(n, 1)
    elif options.sparsity in OF_THE_JUMP:
        target_l0 = options.sparsity_parameter
        sparsity = open_gates if options.sparsity == "l0" else (open_gates / target_l0 - 1).pow(2)
    beta, through_theta = dots, None
    if isinstance(options.rule, Window):
        assert theta is not None
        per_open = count_weight(float(open_gates), n, l1, options)
        beta, through_theta = jump_cotangents(z, dots, theta, per_open, options.rule)
    fired = f != 0
    score = (z * norms[latents] if getattr(options.rule, "by_norm", False) else z).abs()
    selects = isinstance(options.rule, TopK | BatchTopK) and len(gates) > 0
    losses = Losses(
        reconstruction=(errors * weights).sum(),
        sparsity=sparsity,
        auxiliary=torch.zeros((), dtype=torch.float64, device=x.device),
        l0=fired.sum().double() / max(n, 1),
        open_gates=open_gates,
        fired=torch.bincount(latents[fired], minlength=gates.n_latents),
        error=errors[main],
        smallest=score.min().double() if selects else torch.full_like(sparsity, torch.inf),
    )
    return losses, CodeTokenPass(f=f, beta=beta, theta=through_theta, G=G, rows=rows)


def main_residual(G: Float[Tensor, "n*P e"], options: LossOptions, n_tokens: int) -> Float[Tensor, "n e"]:
    """``y - x_hat`` of the main prefix, out of the token pass's G."""
    prefixes, scale = options.prefixes or Prefixes((1,), (1.0,)), options.error_scale(n_tokens, G.shape[1])
    by_prefix = G.view(n_tokens, len(prefixes.ends), G.shape[1])
    main = prefixes.main % len(prefixes.ends)
    own = by_prefix[:, main]
    if main + 1 < len(prefixes.ends):
        own = own - by_prefix[:, main + 1]
    return own / (-2 * scale * prefixes.weights[main])


def radial_weights(
    f: Float[Tensor, " z"], params: CodeParams, gates: OpenGates, l1: float, options: LossOptions
) -> Float[Tensor, " F"] | None:
    """dL/d|d_i| through the sparsity term, where it has a norm in it."""
    by_entry = radial_of_entries(f, params, gates, options)
    return None if by_entry is None else l1 / max(gates.n_tokens, 1) * _sum(gates, by_entry)


def radial_of_entries(
    f: Float[Tensor, " z"], params: CodeParams, gates: OpenGates, options: LossOptions
) -> Float[Tensor, " z"] | None:
    """Each listed entry's derivative of the sparsity term, before its weight, by ``|d_i|``; None: there is none."""
    if options.sparsity == "ri_l1":
        return f
    if options.sparsity == "tanh":
        c, norms = options.sparsity_parameter, options.norms(params.W_dec)[gates.latent_of_entry()]
        return c * f * (1 - torch.tanh(c * f * norms).pow(2))
    return None


def code_latent_pass(
    params: CodeParams,
    x: Float[Tensor, "n d"],
    gates: OpenGates,
    token_pass: CodeTokenPass,
    l1: float,
    options: LossOptions,
) -> CodeGrads:
    """``dW_enc_i = sum beta xc``, ``dW_dec_i = sum f G_g`` (and what the norm in the sparsity term adds)."""
    f, beta, theta, G, rows = token_pass
    W_enc = _sum_rows(gates, beta, center(x, params.b_dec, options))
    W_dec = _sum_rows(gates, f, G, rows)
    radial = radial_weights(f, params, gates, l1, options)
    if radial is not None:
        W_dec += options.norm_gradient(radial, params.W_dec)
    whole = G[:: max(G.shape[0] // max(x.shape[0], 1), 1)]
    b_enc, b_dec = _sum(gates, beta), whole.sum(0)
    if options.center_input:
        b_dec = b_dec - params.W_enc.T @ b_enc
    threshold = None if theta is None else _sum(gates, theta)
    W_skip = None if params.W_skip is None else whole.T @ x
    return CodeGrads(W_enc, W_dec, b_enc, b_dec, threshold, W_skip)


@torch.no_grad()
def gradients(
    params: Params,
    x: Float[Tensor, "n d"],
    l1: float,
    options: LossOptions,
    *,
    target: Float[Tensor, "n e"] | None = None,
    dead: DeadLatents | None = None,
    guess: float = 0.0,
) -> tuple[Losses, GatedGrads | CodeGrads]:
    """Losses and gradients by the list form; nothing is changed."""
    return _run(params, x, l1, options, target, dead)[1:]


@torch.no_grad()
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
    """A whole training step in place: the rows of latents with an open gate move, and ``b_dec``; see `FusedAdam`."""
    _, losses, grads = _run(params, x, l1, options, target, dead)
    walk(params, grads, adam)
    return losses


def walk(params: Params, grads: Grads, adam: FusedAdam | WalkedAdam) -> None:
    """Clipping, projection, Adam and the unit norm on every parameter, in place."""
    there = {name: grad for name, grad in grads._asdict().items() if grad is not None}
    factor = 1.0
    if isinstance(adam, WalkedAdam) and adam.max_norm is not None:
        total = sum(float(grad.double().pow(2).sum()) for grad in there.values()) ** 0.5
        factor = min(1.0, adam.max_norm / (total + 1e-6))  # as torch clips
    for name, grad in there.items():
        walk_whole(name, params, grad, adam, factor)


@torch.no_grad()
def walk_whole(name: str, params: Params, grad: Tensor, adam: FusedAdam | WalkedAdam, factor: float) -> None:
    """Adam on one parameter. With ``beta1 = 0`` rows (entries, of a vector) without a gradient stay."""
    parameter, grad = getattr(params, name), grad * factor
    unit_norm = adam.unit_norm and name == "W_dec"
    v = getattr(adam.v, name)
    if isinstance(adam, WalkedAdam) and adam.m is not None:
        m = getattr(adam.m, name)
        if unit_norm:
            grad = grad - (grad * parameter).sum(1, keepdim=True) * parameter
        m.lerp_(grad, 1 - adam.beta1)
        v.mul_(adam.beta2).addcmul_(grad, grad, value=1 - adam.beta2)
        denominator = v.sqrt().div_((1 - adam.beta2**adam.step) ** 0.5).add_(adam.eps)
        new = parameter - adam.lr / (1 - adam.beta1**adam.step) * m / denominator
        parameter.copy_(_unit(new, parameter) if unit_norm else new)
        return
    rows: Tensor | slice = slice(None)
    if name not in WHOLE:
        rows = torch.nonzero(grad if grad.dim() == 1 else (grad != 0).any(1))[:, 0]
    assert adam.last_step is not None
    _adam_rows(parameter, grad, v, getattr(adam.last_step, name), rows, adam, unit_norm=unit_norm)


def _unit(new: Float[Tensor, "k d"], old: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
    norms = new.norm(dim=1, keepdim=True)
    return torch.where(norms < SMALLEST_NORM, old, new / norms)


def decode(
    token_ptr: Tensor,
    latents: Tensor,
    values: Tensor,
    W_dec: Float[Tensor, "F d"],
    b_dec: Float[Tensor, " d"],
) -> Float[Tensor, "n d"]:
    """``sum over a token's entries of value * W_dec[latent] + b_dec``."""
    out = b_dec.repeat(token_ptr.shape[0] - 1, 1)
    tokens = torch.repeat_interleave(torch.arange(out.shape[0], device=out.device), token_ptr.diff())
    for part in _chunks(latents.shape[0]):
        out.index_add_(0, tokens[part], values[part, None] * W_dec[latents[part].long()])
    return out


def _run(
    params: Params,
    x: Tensor,
    l1: float,
    options: LossOptions,
    target: Tensor | None,
    dead: DeadLatents | None,
) -> tuple[OpenGates, Losses, Any]:
    with torch.autocast(x.device.type, enabled=False):
        xc = center(x, params.b_dec, options)
        if isinstance(params, GatedParams):
            gates = compact(xc, params.W_gate, -params.b_gate)
            losses, passed = gated_token_pass(params, x, gates, l1, options)
            return gates, losses, gated_latent_pass(params, x, gates, passed, l1, options)
        gates = listed(params, xc, options)
        losses, one_code = code_token_pass(params, x, gates, l1, options, target)
        grads = code_latent_pass(params, x, gates, one_code, l1, options)
        if dead is not None and len(dead):
            y = x if target is None else target
            extra = dead.gradients(params, x, y, main_residual(one_code.G, options, len(x)), options)
            add_to(grads._asdict(), dead.latents, extra)
            losses = losses._replace(auxiliary=extra.loss)
        return gates, losses, grads


def _adam_rows(
    parameter: Tensor,
    grad: Tensor,
    v: Tensor,
    last_step: Tensor,
    rows: Tensor | slice,
    adam: FusedAdam | WalkedAdam,
    *,
    unit_norm: bool,
) -> None:
    old, g = parameter[rows], grad[rows]
    if unit_norm:
        g = g - (g * old).sum(1, keepdim=True) * old
    decay = (adam.beta2 ** (adam.step - last_step[rows]).double()).to(v.dtype)
    v[rows] = v[rows] * (decay[:, None] if v.dim() == 2 else decay) + (1 - adam.beta2) * g * g
    last_step[rows] = adam.step
    new = old - adam.lr * g / ((v[rows] / (1 - adam.beta2**adam.step)).sqrt() + adam.eps)
    parameter[rows] = _unit(new, old) if unit_norm else new


def _sum_rows(
    gates: OpenGates, coefficients: Tensor, rows: Float[Tensor, "m d"], which: Tensor | None = None
) -> Float[Tensor, "F d"]:
    """``out_i = sum over the open gates (n, i) of coefficient * rows_n``; `which` row, where it isn't the token's."""
    out = rows.new_zeros(gates.n_latents, rows.shape[1])
    latents, tokens = gates.latent_of_entry(), gates.tokens.long() if which is None else which
    for part in _chunks(len(gates)):
        out.index_add_(0, latents[part], coefficients[part, None] * rows[tokens[part]])
    return out


def _sum(gates: OpenGates, coefficients: Tensor) -> Float[Tensor, " F"]:
    return coefficients.new_zeros(gates.n_latents).index_add_(0, gates.latent_of_entry(), coefficients)


def _chunks(length: int) -> Iterator[slice]:
    return (slice(start, start + _ENTRIES_AT_ONCE) for start in range(0, length, _ENTRIES_AT_ONCE))
