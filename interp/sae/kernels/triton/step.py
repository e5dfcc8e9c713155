"""The sparse step on a GPU: encode and compact, token pass, latent pass, with or without the optimiser.

Float32 parameters; the encoder product in the precision that torch would use. See
:mod:`interp.sae.kernels.reference` for the definition of what is computed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels.backend import FusedAdam, Grads, Params, WalkedAdam
from interp.sae.kernels.dead import DeadLatents, add_to
from interp.sae.kernels.lists import (
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
from interp.sae.kernels.reference import (
    center,
    magnitude_scale,
    main_residual,
    radial_of_entries,
    walk_whole,
)
from interp.sae.kernels.triton.codes import code_token_pass
from interp.sae.kernels.triton.encode import compact
from interp.sae.kernels.triton.latents import RowTerms, row_gradients, update_rows
from interp.sae.kernels.triton.launch import check_in_place
from interp.sae.kernels.triton.select import listed
from interp.sae.kernels.triton.tokens import gated_token_pass, latent_sums, magnitude_products
from interp.sae.kernels.triton.vectors import pulled, update_entries
from interp.sae.kernels.triton.walk import walk


class Gradients(NamedTuple):
    """Gradients by parameter name: the matrices' as terms still to be summed, the vectors' as they are."""

    matrices: dict[str, RowTerms]
    vectors: dict[str, Tensor]


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
) -> tuple[Losses, Grads]:
    """Losses and gradients; nothing is changed."""
    gates, losses, terms, G = _terms(params, x, l1, options, target, guess)
    grads: Grads = _collect(
        GatedGrads if isinstance(params, GatedParams) else CodeGrads, params, gates, terms
    )
    if dead is not None and len(dead):
        assert isinstance(params, CodeParams)
        with torch.autocast(x.device.type, enabled=False):
            residual = main_residual(G, options, len(x))
            extra = dead.gradients(params, x, x if target is None else target, residual, options)
            add_to(grads._asdict(), dead.latents, extra)
        losses = losses._replace(auxiliary=extra.loss)
    return losses, grads


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
    """A whole training step in place.

    With `FusedAdam` gradients never become F x d tensors; with `WalkedAdam`, or where dead latents are revived, they
    are laid down first and all rows walked once.
    """
    for tensors in (params, adam.v, adam.last_step, getattr(adam, "m", None)):
        if tensors is not None:
            check_in_place(tensors)
    if isinstance(adam, WalkedAdam) or (dead is not None and len(dead)):
        losses, grads = gradients(params, x, l1, options, target=target, dead=dead, guess=guess)
        walk(params, grads, adam)
        return losses
    gates, losses, found, _ = _terms(params, x, l1, options, target, guess)
    for name, terms in found.matrices.items():
        update_rows(gates, terms, getattr(params, name), name, adam)
    hits = gates.hits()
    for name, grad in found.vectors.items():
        if name == "W_skip":
            walk_whole(name, params, grad, adam, 1.0)
        else:
            update_entries(getattr(params, name), grad, None if name == "b_dec" else hits, name, adam)
    return losses


@torch.no_grad()
def gated_latent_pass(
    params: GatedParams,
    x: Float[Tensor, "n d"],
    gates: OpenGates,
    token_pass: GatedTokenPass,
    l1: float,
    options: LossOptions,
) -> GatedGrads:
    """Gradients of every parameter from the list, as the reference's."""
    return _collect(GatedGrads, params, gates, _gated(params, x, gates, token_pass, l1, options))


@torch.no_grad()
def code_latent_pass(
    params: CodeParams,
    x: Float[Tensor, "n d"],
    gates: OpenGates,
    token_pass: CodeTokenPass,
    l1: float,
    options: LossOptions,
) -> CodeGrads:
    """Gradients of every parameter from the list, as the reference's."""
    return _collect(CodeGrads, params, gates, _code(params, x, gates, token_pass, l1, options))


def _terms(
    params: Params, x: Tensor, l1: float, options: LossOptions, target: Tensor | None, guess: float
) -> tuple[OpenGates, Losses, Gradients, Tensor]:
    """The list, the losses, what is left to sum, and the residuals' gradients G."""
    xc = center(x, params.b_dec, options)
    if isinstance(params, GatedParams):
        gates = compact(xc, params.W_gate, -params.b_gate)
        losses, passed = gated_token_pass(params, x, gates, l1, options)
        return gates, losses, _gated(params, x, gates, passed, l1, options), passed.G
    gates = listed(params, xc, options, guess=guess)
    with torch.autocast(x.device.type, enabled=False):
        losses, one_code = code_token_pass(params, x, gates, l1, options, target)
        return gates, losses, _code(params, x, gates, one_code, l1, options), one_code.G


def _gated(
    params: GatedParams,
    x: Tensor,
    gates: OpenGates,
    passed: GatedTokenPass,
    l1: float,
    options: LossOptions,
) -> Gradients:
    f, a, alpha, beta, G, G_aux = passed
    xc, m = center(x, params.b_dec, options), magnitude_scale(params)
    m_beta = m[gates.latent_of_entry()] * beta
    tied, unfrozen = params.W_mag is None, not options.freeze_decoder
    sums = latent_sums(gates, [alpha, beta, beta * magnitude_products(params, x, gates, options), a])
    vectors = {"b_gate": sums[0], "b_mag": sums[1]}
    if params.r_mag is not None:
        vectors["r_mag"] = m * sums[2]

    matrices = {"W_gate": RowTerms(alpha + m_beta if tied else alpha, xc)}
    if params.W_mag is not None:
        matrices["W_mag"] = RowTerms(m_beta, xc)
    decoder, b_dec = RowTerms(f, G), G.sum(0)
    if unfrozen:
        decoder, b_dec = decoder._replace(weight2=a, rows2=G_aux), b_dec + G_aux.sum(0)
        if options.sparsity == "ri_l1":
            decoder = decoder._replace(radial=_radial(l1 / max(len(x), 1) * sums[3], params, options))
    matrices["W_dec"] = decoder

    if options.center_input:
        through_gate = torch.zeros_like(sums[0]) if options.detach_centering else sums[0]
        if params.W_mag is None:
            b_dec = b_dec - pulled(through_gate + m * sums[1], params.W_gate)
        else:
            b_dec = b_dec - pulled(through_gate, params.W_gate) - pulled(m * sums[1], params.W_mag)
    return Gradients(matrices, vectors | {"b_dec": b_dec})


def _code(
    params: CodeParams,
    x: Tensor,
    gates: OpenGates,
    passed: CodeTokenPass,
    l1: float,
    options: LossOptions,
) -> Gradients:
    f, beta, theta, G, rows = passed
    through_norm = radial_of_entries(f, params, gates, options)
    by_entry = {"b_enc": beta, "threshold": theta, "norm": through_norm}
    columns = {name: column for name, column in by_entry.items() if column is not None}
    vectors = dict(zip(columns, latent_sums(gates, list(columns.values())), strict=True))
    decoder = RowTerms(f, G, which=None if len(G) == len(x) else rows.int())
    if through_norm is not None:
        radial = _radial(l1 / max(len(x), 1) * vectors.pop("norm"), params, options)
        decoder = decoder._replace(radial=radial, block=_block_of_column(options, x.device))
    whole = G[:: max(len(G) // max(len(x), 1), 1)]
    b_dec = whole.sum(0)
    if options.center_input:
        b_dec = b_dec - pulled(vectors["b_enc"], params.W_enc)
    if params.W_skip is not None:
        vectors["W_skip"] = whole.T @ x
    encoder = RowTerms(beta, center(x, params.b_dec, options))
    return Gradients({"W_enc": encoder, "W_dec": decoder}, vectors | {"b_dec": b_dec})


def _radial(weight: Tensor, params: Params, options: LossOptions) -> Tensor:
    """What multiplies a decoder row's blocks in its own gradient, [F, blocks]: the norm's derivative."""
    parts = params.W_dec.split(options.blocks or params.W_dec.shape[1], dim=1)
    tiny = torch.finfo(weight.dtype).tiny
    return torch.stack([weight / part.norm(dim=1).clamp_min(tiny) for part in parts], dim=1)


def _block_of_column(options: LossOptions, device: torch.device) -> Tensor | None:
    if len(options.blocks) < 2:
        return None
    widths = torch.tensor(options.blocks, device=device)
    return torch.repeat_interleave(torch.arange(len(widths), dtype=torch.int32, device=device), widths)


def _collect(kind: Any, params: Params, gates: OpenGates, grads: Gradients) -> Any:
    found = dict(grads.vectors)
    for name, terms in grads.matrices.items():
        found[name] = row_gradients(gates, terms, getattr(params, name))
    return kind(**{name: found.get(name) for name in kind._fields})
