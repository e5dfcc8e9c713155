"""The sparse step on a GPU: encode and compact, token pass, latent pass, with or without the optimiser.

Float32 parameters; the encoder product in the precision that torch would use. See
:mod:`interp.sae.kernels.reference` for the definition of what is computed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels.backend import FusedAdam, Params
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
from interp.sae.kernels.reference import center, magnitude_scale
from interp.sae.kernels.triton.encode import compact
from interp.sae.kernels.triton.latents import RowTerms, row_gradients, update_rows
from interp.sae.kernels.triton.launch import check_in_place
from interp.sae.kernels.triton.tokens import (
    gated_token_pass,
    latent_sums,
    magnitude_products,
    standard_token_pass,
)
from interp.sae.kernels.triton.vectors import pulled, update_entries


class Gradients(NamedTuple):
    """Gradients by parameter name: the matrices' as terms still to be summed, the vectors' as they are."""

    matrices: dict[str, RowTerms]
    vectors: dict[str, Tensor]


@torch.no_grad()
def gradients(
    params: Params, x: Float[Tensor, "n d"], l1: float, options: LossOptions
) -> tuple[Losses, GatedGrads | CodeGrads]:
    """Losses and gradients; nothing is changed."""
    gates, losses, grads = _walk(params, x, l1, options)
    kind = GatedGrads if isinstance(params, GatedParams) else CodeGrads
    return losses, _collect(kind, params, gates, grads)


@torch.no_grad()
def update(
    params: Params, x: Float[Tensor, "n d"], l1: float, options: LossOptions, adam: FusedAdam
) -> Losses:
    """A whole training step in place; gradients never become F x d tensors."""
    for tensors in (params, adam.v, adam.last_step):
        check_in_place(tensors)
    gates, losses, grads = _walk(params, x, l1, options)
    for name, terms in grads.matrices.items():
        update_rows(gates, terms, getattr(params, name), name, adam)
    hits = gates.hits()
    for name, grad in grads.vectors.items():
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
def standard_latent_pass(
    params: CodeParams,
    x: Float[Tensor, "n d"],
    gates: OpenGates,
    token_pass: CodeTokenPass,
    l1: float,
    options: LossOptions,
) -> CodeGrads:
    """Gradients of every parameter from the list, as the reference's."""
    return _collect(CodeGrads, params, gates, _standard(params, x, gates, token_pass, l1, options))


def _walk(params: Params, x: Tensor, l1: float, options: LossOptions) -> tuple[OpenGates, Losses, Gradients]:
    xc = center(x, params.b_dec, options)
    if isinstance(params, GatedParams):
        gates = compact(xc, params.W_gate, -params.b_gate)
        losses, passed = gated_token_pass(params, x, gates, l1, options)
        return gates, losses, _gated(params, x, gates, passed, l1, options)
    gates = compact(xc, params.W_enc, -params.b_enc)
    losses, one_code = standard_token_pass(params, x, gates, l1, options)
    return gates, losses, _standard(params, x, gates, one_code, l1, options)


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
            decoder = decoder._replace(radial=_radial(params, sums[3], x, l1))
    matrices["W_dec"] = decoder

    if options.center_input:
        through_gate = torch.zeros_like(sums[0]) if options.detach_centering else sums[0]
        if params.W_mag is None:
            b_dec = b_dec - pulled(through_gate + m * sums[1], params.W_gate)
        else:
            b_dec = b_dec - pulled(through_gate, params.W_gate) - pulled(m * sums[1], params.W_mag)
    return Gradients(matrices, vectors | {"b_dec": b_dec})


def _standard(
    params: CodeParams,
    x: Tensor,
    gates: OpenGates,
    passed: CodeTokenPass,
    l1: float,
    options: LossOptions,
) -> Gradients:
    f, beta, G = passed
    sums = latent_sums(gates, [beta, f])
    decoder, b_dec = RowTerms(f, G), G.sum(0)
    if options.sparsity == "ri_l1":
        decoder = decoder._replace(radial=_radial(params, sums[1], x, l1))
    if options.center_input:
        b_dec = b_dec - pulled(sums[0], params.W_enc)
    encoder = RowTerms(beta, center(x, params.b_dec, options))
    return Gradients({"W_enc": encoder, "W_dec": decoder}, {"b_enc": sums[0], "b_dec": b_dec})


def _radial(params: Params, code_sums: Tensor, x: Tensor, l1: float) -> Tensor:
    """What multiplies ``d_i`` in its own gradient: the norm factor of ri_l1."""
    norms = params.W_dec.norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
    return l1 / max(x.shape[0], 1) * code_sums / norms


def _collect(kind: Any, params: Params, gates: OpenGates, grads: Gradients) -> Any:
    found = dict(grads.vectors)
    for name, terms in grads.matrices.items():
        found[name] = row_gradients(gates, terms, getattr(params, name))
    return kind(**{name: found.get(name) for name in kind._fields})
