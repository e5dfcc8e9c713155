"""From a batch to what the latent pass has to sum: list of open gates, token pass, and sums per latent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels import cpu_loops
from interp.sae.kernels.cpu_list import as_array, compact
from interp.sae.kernels.lists import GatedParams, Losses, LossOptions, OpenGates, StandardParams
from interp.sae.kernels.threads import PIECES, equal_work, run_pieces


@dataclass(frozen=True)
class RowJob:
    """One matrix's gradient: ``sum weight rows (+ sum weight2 rows2) (+ radial_i W_i)``, and ``W^T pull``."""

    W: np.ndarray
    weight: np.ndarray
    rows: np.ndarray
    pull: np.ndarray
    weight2: np.ndarray
    rows2: np.ndarray
    radial: np.ndarray

    def inputs(self) -> tuple[np.ndarray, ...]:
        """In the order the compiled loops take them."""
        return self.weight, self.rows, self.weight2, self.rows2, self.radial, self.W, self.pull

    def room_for_pull(self) -> np.ndarray:
        """Where each piece of work adds up its share of ``W^T pull``."""
        return np.zeros((PIECES, self.W.shape[1]), self.W.dtype)


@dataclass(frozen=True)
class Plan:
    """Everything known after the token pass; ``matrices`` is left to sum, ``vectors`` are done.

    b_dec is its gradient through the decoder only: the centring's share, ``-W^T pull``, comes with the rows.
    """

    losses: Losses
    hits: tuple[np.ndarray, np.ndarray]  # latent_ptr, tokens
    cuts: np.ndarray
    matrices: dict[str, RowJob]
    vectors: dict[str, np.ndarray]
    b_dec: np.ndarray
    dtype: np.dtype


def make_plan(
    params: GatedParams | StandardParams, x: Float[Tensor, "n d"], l1: float, options: LossOptions
) -> Plan:
    """Find the open gates and run the token pass.

    Raises:
        TypeError: x is neither float32 nor float64.
    """
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"x is {x.dtype}; the CPU kernels take float32 or float64")
    x = x.contiguous()
    xc = torch.from_numpy(as_array(x) - as_array(params.b_dec)) if options.center_input else x
    if isinstance(params, GatedParams):
        return _plan_gated(params, x, xc, l1, options)
    return _plan_standard(params, x, xc, l1, options)


def _plan_gated(params: GatedParams, x: Tensor, xc: Tensor, l1: float, options: LossOptions) -> Plan:
    n, d = x.shape
    gates = compact(xc, params.W_gate, -params.b_gate)
    latent_ptr, tokens, p, token_ptr, latents, order = _list_arrays(gates)
    by_token, token_cuts, cuts = (token_ptr, latents, order), equal_work(token_ptr), equal_work(latent_ptr)
    centred, W_dec = as_array(xc), as_array(params.W_dec)
    b_gate, b_mag = as_array(params.b_gate), as_array(params.b_mag)
    dtype, nothing, no_rows = p.dtype, np.empty(0, p.dtype), np.empty((0, d), p.dtype)
    m = np.ones_like(b_mag) if params.r_mag is None else np.exp(as_array(params.r_mag))
    q, tied = p, params.W_mag is None
    if params.W_mag is not None:
        q, W_mag = np.empty_like(p), as_array(params.W_mag)
        run_pieces(cpu_loops.products_at, centred, W_mag, *by_token, q, token_cuts)

    norms = _norms(params.W_dec, options)
    per_token, scale = l1 / max(n, 1), options.error_scale(n, d)
    f, a, alpha, beta = (np.empty_like(p) for _ in range(4))
    G, G_aux = np.empty((n, d), dtype), no_rows if options.freeze_decoder else np.empty((n, d), dtype)
    errors, G_sums = np.zeros((n, 2)), np.zeros((PIECES, 2, d), dtype)
    given = (as_array(x), as_array(params.b_dec), W_dec, b_gate, b_mag, m, (per_token * norms).astype(dtype))
    made = (f, a, alpha, beta, G, G_aux, errors, G_sums)
    run_pieces(cpu_loops.gated_tokens, *given, *by_token, p, q, scale, *made, token_cuts)

    encoder, magnitude = np.empty_like(p), nothing if tied else np.empty_like(p)
    sums, fired = np.empty((4, len(m))), np.empty(len(m), np.int64)
    listed = (latent_ptr, f, a, alpha, beta, q, m, tied, encoder, magnitude, sums, fired)
    run_pieces(cpu_loops.gated_sums, *listed, cuts)
    sum_a, sum_alpha, sum_beta, sum_beta_q = sums

    through_gate = np.zeros_like(sum_alpha) if options.detach_centering else sum_alpha
    through_magnitude = m * sum_beta
    pull = (through_gate + through_magnitude if tied else through_gate).astype(dtype)
    if not options.center_input:
        pull = nothing
    radial = nothing
    if options.sparsity == "ri_l1" and not options.freeze_decoder:
        radial = _radial(per_token, sum_a, norms, dtype)
    W_gate = as_array(params.W_gate)
    matrices = {
        "W_gate": RowJob(W_gate, encoder, centred, pull, nothing, no_rows, nothing),
        "W_dec": RowJob(W_dec, f, G, nothing, a, G_aux, radial),
    }
    if params.W_mag is not None:
        pull = through_magnitude.astype(dtype) if options.center_input else nothing
        matrices["W_mag"] = RowJob(W_mag, magnitude, centred, pull, nothing, no_rows, nothing)
    vectors = {"b_gate": sum_alpha, "b_mag": sum_beta}
    if params.r_mag is not None:
        vectors["r_mag"] = m * sum_beta_q
    b_dec = G_sums[:, 0].sum(0) if options.freeze_decoder else G_sums.sum((0, 1))
    losses = _losses(scale, errors, float(norms @ sum_a), len(p), fired)
    return Plan(losses, (latent_ptr, tokens), cuts, matrices, vectors, b_dec, dtype)


def _plan_standard(params: StandardParams, x: Tensor, xc: Tensor, l1: float, options: LossOptions) -> Plan:
    n, d = x.shape
    gates = compact(xc, params.W_enc, -params.b_enc)
    latent_ptr, tokens, p, token_ptr, latents, order = _list_arrays(gates)
    token_cuts, cuts = equal_work(token_ptr), equal_work(latent_ptr)
    W_dec, b_enc = as_array(params.W_dec), as_array(params.b_enc)
    dtype, nothing, no_rows = p.dtype, np.empty(0, p.dtype), np.empty((0, d), p.dtype)

    norms = _norms(params.W_dec, options)
    per_token, scale = l1 / max(n, 1), options.error_scale(n, d)
    f, beta, G = np.empty_like(p), np.empty_like(p), np.empty((n, d), dtype)
    errors, G_sums = np.zeros((n, 2)), np.zeros((PIECES, 2, d), dtype)
    given = (as_array(x), as_array(params.b_dec), W_dec, b_enc, (per_token * norms).astype(dtype))
    made = (token_ptr, latents, order, p, scale, f, beta, G, errors, G_sums)
    run_pieces(cpu_loops.standard_tokens, *given, *made, token_cuts)

    sums = np.empty((2, len(b_enc)))
    run_pieces(cpu_loops.standard_sums, latent_ptr, f, beta, sums, cuts)
    sum_f, sum_beta = sums

    radial = _radial(per_token, sum_f, norms, dtype) if options.sparsity == "ri_l1" else nothing
    pull = sum_beta.astype(dtype) if options.center_input else nothing
    matrices = {
        "W_enc": RowJob(as_array(params.W_enc), beta, as_array(xc), pull, nothing, no_rows, nothing),
        "W_dec": RowJob(W_dec, f, G, nothing, nothing, no_rows, radial),
    }
    losses = _losses(scale, errors, float(norms @ sum_f), len(p), np.diff(latent_ptr))
    vectors, b_dec = {"b_enc": sum_beta}, G_sums[:, 0].sum(0)
    return Plan(losses, (latent_ptr, tokens), cuts, matrices, vectors, b_dec, dtype)


def _norms(W_dec: Tensor, options: LossOptions) -> np.ndarray:
    """What the sparsity term multiplies each latent by."""
    rows = as_array(W_dec)
    return np.linalg.norm(rows, axis=1) if options.sparsity == "ri_l1" else np.ones(len(rows), rows.dtype)


def _radial(per_token: float, total: np.ndarray, norms: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The norm's gradient: ``d (l1/n sum_n a |d_i|) / d d_i = radial_i d_i``."""
    return (per_token * total / np.maximum(norms, np.finfo(dtype).tiny)).astype(dtype)


def _losses(scale: float, errors: np.ndarray, sparsity: float, n_open: int, fired: np.ndarray) -> Losses:
    n = max(errors.shape[0], 1)
    reconstruction, auxiliary = scale * errors.sum(0)
    numbers = [float(reconstruction), sparsity / n, float(auxiliary), float(fired.sum()) / n, n_open / n]
    first, second, third, l0, open_gates = torch.tensor(numbers, dtype=torch.float64)
    return Losses(first, second, third, l0, open_gates, torch.from_numpy(fired))


def _list_arrays(gates: OpenGates) -> tuple[np.ndarray, ...]:
    fields = (gates.latent_ptr, gates.tokens, gates.values, gates.token_ptr, gates.latents, gates.order)
    return tuple(field.numpy() for field in fields)
