"""The sparse step on a CPU: torch for the one dense product, compiled loops for everything after the gate.

Float32 and float64. Results don't depend on the number of threads. See :mod:`reference` for the definition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels import cpu_latents, cpu_tokens
from interp.sae.kernels.backend import FusedAdam, P
from interp.sae.kernels.cpu_scan import BLOCK, count_open, fill_open, index_by_token
from interp.sae.kernels.lists import (
    GatedGrads,
    GatedParams,
    Losses,
    LossOptions,
    OpenGates,
    StandardGrads,
    StandardParams,
)
from interp.sae.kernels.threads import PIECES, run_pieces

# A tile of the product (in numbers) stays in the last-level cache until it has been scanned.
_TILE_SIZE = 2**20
_GATES_PER_TOKEN = 64  # first guess of the list's length; it grows


def compact(
    xc: Float[Tensor, "n d"], weight: Float[Tensor, "F d"], threshold: Float[Tensor, " F"]
) -> OpenGates:
    """List the pairs with ``xc . w_i > threshold_i``, strictly, tile by tile."""
    n, F = xc.shape[0], weight.shape[0]
    tile = max(16, min(F, _TILE_SIZE // max(n, 1)))
    pre = torch.empty(tile, n, dtype=xc.dtype)
    limits = _array(threshold)
    blocks = np.empty((tile, n // BLOCK), np.uint8)
    latent_ptr = np.zeros(F + 1, np.int64)
    tokens = np.empty(_GATES_PER_TOKEN * n, np.int32)
    values = np.empty(_GATES_PER_TOKEN * n, limits.dtype)
    counts = np.empty(F, np.int64)
    for start in range(0, F, tile):
        rows = min(tile, F - start)
        torch.mm(weight[start : start + rows], xc.T, out=pre[:rows])
        seen = pre.numpy()
        run_pieces(rows, lambda a, b: count_open(seen, limits, start, blocks, counts, a, b))  # noqa: B023
        ends = latent_ptr[start + 1 : start + rows + 1]
        np.cumsum(counts[start : start + rows], out=ends)
        ends += latent_ptr[start]
        if ends[-1] > tokens.shape[0]:
            tokens, values = _grown(tokens, int(ends[-1])), _grown(values, int(ends[-1]))
        run_pieces(
            rows,
            lambda a, b: fill_open(seen, limits, start, blocks, latent_ptr, tokens, values, a, b),  # noqa: B023
        )
    total = int(latent_ptr[-1])
    tokens, values = tokens[:total], values[:total]
    token_ptr = np.empty(n + 1, np.int64)
    latents, order = np.empty(total, np.int32), np.empty(total, np.int64)
    index_by_token(latent_ptr, tokens, token_ptr, latents, order)
    return OpenGates(*(torch.from_numpy(a) for a in (latent_ptr, tokens, values, token_ptr, latents, order)))


def decode(
    token_ptr: Tensor,
    latents: Tensor,
    values: Tensor,
    W_dec: Float[Tensor, "F d"],
    b_dec: Float[Tensor, " d"],
) -> Float[Tensor, "n d"]:
    """``sum over a token's entries of value * W_dec[latent] + b_dec``."""
    out = torch.empty(token_ptr.shape[0] - 1, W_dec.shape[1], dtype=W_dec.dtype)
    pointers = _array(token_ptr)
    arrays = (pointers, _array(latents.int()), _array(values), _array(W_dec), _array(b_dec), out.numpy())
    cuts = _equal_work(pointers)
    run_pieces(len(cuts) - 1, lambda a, b: cpu_tokens.decode_tokens(*arrays, cuts, a, b))
    return out


def gradients(
    params: P, x: Float[Tensor, "n d"], l1: float, options: LossOptions
) -> tuple[Losses, GatedGrads | StandardGrads]:
    """Losses and gradients; nothing is changed."""
    plan = _plan(params, x, l1, options)
    latent_ptr, tokens, cuts = plan.latent_ptr, plan.tokens, plan.latent_cuts
    grads: dict[str, np.ndarray] = dict(plan.vectors)
    b_dec = plan.b_dec
    for name, job in plan.matrices.items():
        grads[name] = np.zeros_like(job.W)
        pulled = job.room_for_pull()
        arrays = (latent_ptr, tokens, *job.inputs(), pulled, grads[name])
        run_pieces(PIECES, lambda a, b: cpu_latents.row_gradients(*arrays, cuts, a, b))  # noqa: B023
        b_dec = b_dec - pulled.sum(0)
    grads["b_dec"] = b_dec
    kind = GatedGrads if isinstance(params, GatedParams) else StandardGrads
    tensors = {name: torch.from_numpy(grads[name].astype(plan.dtype)) for name in grads}
    return plan.losses, kind(**{name: tensors.get(name) for name in kind._fields})


def update(params: P, x: Float[Tensor, "n d"], l1: float, options: LossOptions, adam: FusedAdam) -> Losses:
    """A whole training step in place; a row's gradient lives in cache until Adam has used it."""
    plan = _plan(params, x, l1, options)
    latent_ptr, tokens, cuts = plan.latent_ptr, plan.tokens, plan.latent_cuts
    correction = (1 - adam.beta2**adam.step) ** -0.5
    numbers = np.array([adam.lr, 1 - adam.beta2, adam.eps, correction], plan.dtype)
    b_dec = plan.b_dec
    for name, job in plan.matrices.items():
        pulled = job.room_for_pull()
        v, last_step = _array(getattr(adam.v, name)), _array(getattr(adam.last_step, name))
        unit_norm = adam.unit_norm and name == "W_dec"
        arrays = (latent_ptr, tokens, *job.inputs(), pulled, v, last_step, numbers, adam.beta2, adam.step)
        run_pieces(PIECES, lambda a, b: cpu_latents.update_rows(*arrays, unit_norm, cuts, a, b))  # noqa: B023
        b_dec = b_dec - pulled.sum(0)
    every_entry = np.arange(b_dec.shape[0] + 1)
    for name, grad in [*plan.vectors.items(), ("b_dec", b_dec)]:
        pointers = every_entry if name == "b_dec" else latent_ptr
        state = _array(getattr(adam.v, name)), _array(getattr(adam.last_step, name))
        entries = (pointers, grad.astype(plan.dtype), _array(getattr(params, name)), *state)
        cpu_latents.update_entries(*entries, numbers, adam.beta2, adam.step)
    return plan.losses


@dataclass(frozen=True)
class _RowJob:
    """One matrix's gradient: ``sum weight rows (+ sum weight2 rows2) (+ radial_i W_i)``, and ``W^T pull``."""

    W: np.ndarray
    weight: np.ndarray
    rows: np.ndarray
    pull: np.ndarray
    weight2: np.ndarray
    rows2: np.ndarray
    radial: np.ndarray

    def inputs(self) -> tuple[np.ndarray, ...]:
        return self.weight, self.rows, self.weight2, self.rows2, self.radial, self.W, self.pull

    def room_for_pull(self) -> np.ndarray:
        return np.zeros((PIECES, self.W.shape[1]), self.W.dtype)


@dataclass(frozen=True)
class _Plan:
    """Everything after the token pass: the losses, and what the latent pass is to sum."""

    losses: Losses
    latent_ptr: np.ndarray
    tokens: np.ndarray
    latent_cuts: np.ndarray
    matrices: dict[str, _RowJob]
    vectors: dict[str, np.ndarray]
    b_dec: (
        np.ndarray
    )  # its gradient through the decoder; what comes through the centring is still to be pulled
    dtype: np.dtype


def _plan(params: GatedParams | StandardParams, x: Tensor, l1: float, options: LossOptions) -> _Plan:
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"x is {x.dtype}; the CPU kernels take float32 or float64")
    if isinstance(params, GatedParams):
        return _plan_gated(params, x.contiguous(), l1, options)
    return _plan_standard(params, x.contiguous(), l1, options)


def _plan_gated(params: GatedParams, x: Tensor, l1: float, options: LossOptions) -> _Plan:
    n, d = x.shape
    xc = x - params.b_dec if options.center_input else x
    gates = compact(xc, params.W_gate, -params.b_gate)
    latent_ptr, tokens, p, token_ptr, latents, order = _list_arrays(gates)
    token_cuts, latent_cuts = _equal_work(token_ptr), _equal_work(latent_ptr)
    W_gate, W_dec, b_dec = _array(params.W_gate), _array(params.W_dec), _array(params.b_dec)
    b_gate, b_mag = _array(params.b_gate), _array(params.b_mag)
    dtype, nothing = p.dtype, np.empty(0, p.dtype)
    no_rows = np.empty((0, d), dtype)
    m = np.ones_like(b_mag) if params.r_mag is None else _array(params.r_mag.exp())
    q = p
    if params.W_mag is not None:
        q = np.empty_like(p)
        arrays = (_array(xc), _array(params.W_mag), token_ptr, latents, order, q, token_cuts)
        run_pieces(PIECES, lambda a, b: cpu_tokens.products_at(*arrays, a, b))

    norms = _array(params.W_dec.norm(dim=1)) if options.sparsity == "ri_l1" else np.ones_like(b_gate)
    scale = options.error_scale(n, d)
    f, a, alpha, beta = (np.empty_like(p) for _ in range(4))
    G = np.empty((n, d), dtype)
    G_aux = no_rows if options.freeze_decoder else np.empty((n, d), dtype)
    errors, G_sums = np.zeros((n, 2)), np.zeros((PIECES, 2, d), dtype)
    given = (_array(x), b_dec, W_dec, b_gate, b_mag, m, (l1 / max(n, 1) * norms).astype(dtype))
    made = (token_ptr, latents, order, p, q, scale, f, a, alpha, beta, G, G_aux, errors, G_sums, token_cuts)
    run_pieces(PIECES, lambda first, last: cpu_tokens.gated_tokens(*given, *made, first, last))

    tied = params.W_mag is None
    encoder, magnitude = np.empty_like(p), nothing if tied else np.empty_like(p)
    sums, fired = np.empty((4, len(b_gate))), np.empty(len(b_gate), np.int64)
    listed = (latent_ptr, f, a, alpha, beta, q, m, tied, encoder, magnitude, sums, fired, latent_cuts)
    run_pieces(PIECES, lambda first, last: cpu_latents.gated_sums(*listed, first, last))
    sum_a, sum_alpha, sum_beta, sum_beta_q = sums

    through_gate = np.zeros_like(sum_alpha) if options.detach_centering else sum_alpha
    through_magnitude = m * sum_beta
    pull_gate, pull_mag = through_gate + through_magnitude if tied else through_gate, through_magnitude
    if not options.center_input:
        pull_gate = pull_mag = nothing
    radial = nothing
    if options.sparsity == "ri_l1" and not options.freeze_decoder:
        radial = (l1 / max(n, 1) * sum_a / np.maximum(norms, np.finfo(dtype).tiny)).astype(dtype)
    centred = _array(xc)
    matrices = {
        "W_gate": _RowJob(W_gate, encoder, centred, pull_gate.astype(dtype), nothing, no_rows, nothing),
        "W_dec": _RowJob(W_dec, f, G, nothing, a, G_aux, radial),
    }
    if params.W_mag is not None:
        W_mag = _array(params.W_mag)
        matrices["W_mag"] = _RowJob(
            W_mag, magnitude, centred, pull_mag.astype(dtype), nothing, no_rows, nothing
        )
    vectors = {"b_gate": sum_alpha, "b_mag": sum_beta}
    if params.r_mag is not None:
        vectors["r_mag"] = m * sum_beta_q
    losses = _losses(scale, errors, float(norms @ sum_a), len(p), fired)
    b_dec_grad = G_sums[:, 0].sum(0) + (0 if options.freeze_decoder else G_sums[:, 1].sum(0))
    return _Plan(losses, latent_ptr, tokens, latent_cuts, matrices, vectors, b_dec_grad, dtype)


def _plan_standard(params: StandardParams, x: Tensor, l1: float, options: LossOptions) -> _Plan:
    n, d = x.shape
    xc = x - params.b_dec if options.center_input else x
    gates = compact(xc, params.W_enc, -params.b_enc)
    latent_ptr, tokens, p, token_ptr, latents, order = _list_arrays(gates)
    token_cuts, latent_cuts = _equal_work(token_ptr), _equal_work(latent_ptr)
    W_dec, b_dec, b_enc = _array(params.W_dec), _array(params.b_dec), _array(params.b_enc)
    dtype, nothing = p.dtype, np.empty(0, p.dtype)
    no_rows = np.empty((0, d), dtype)

    norms = _array(params.W_dec.norm(dim=1)) if options.sparsity == "ri_l1" else np.ones_like(b_enc)
    scale = options.error_scale(n, d)
    f, beta, G = np.empty_like(p), np.empty_like(p), np.empty((n, d), dtype)
    errors, G_sums = np.zeros((n, 2)), np.zeros((PIECES, 2, d), dtype)
    given = (_array(x), b_dec, W_dec, b_enc, (l1 / max(n, 1) * norms).astype(dtype))
    made = (token_ptr, latents, order, p, scale, f, beta, G, errors, G_sums, token_cuts)
    run_pieces(PIECES, lambda first, last: cpu_tokens.standard_tokens(*given, *made, first, last))

    sums = np.empty((2, len(b_enc)))
    listed = (latent_ptr, f, beta, sums, latent_cuts)
    run_pieces(PIECES, lambda first, last: cpu_latents.standard_sums(*listed, first, last))
    sum_f, sum_beta = sums

    radial = nothing
    if options.sparsity == "ri_l1":
        radial = (l1 / max(n, 1) * sum_f / np.maximum(norms, np.finfo(dtype).tiny)).astype(dtype)
    pull = sum_beta.astype(dtype) if options.center_input else nothing
    matrices = {
        "W_enc": _RowJob(_array(params.W_enc), beta, _array(xc), pull, nothing, no_rows, nothing),
        "W_dec": _RowJob(W_dec, f, G, nothing, nothing, no_rows, radial),
    }
    losses = _losses(scale, errors, float(norms @ sum_f), len(p), np.diff(latent_ptr))
    return _Plan(
        losses, latent_ptr, tokens, latent_cuts, matrices, {"b_enc": sum_beta}, G_sums[:, 0].sum(0), dtype
    )


def _losses(scale: float, errors: np.ndarray, sparsity: float, n_open: int, fired: np.ndarray) -> Losses:
    n = max(errors.shape[0], 1)
    reconstruction, auxiliary = scale * errors.sum(0)
    numbers = (reconstruction, sparsity / n, auxiliary, fired.sum() / n, n_open / n)
    return Losses(
        *(torch.tensor(float(value), dtype=torch.float64) for value in numbers), torch.from_numpy(fired)
    )


def _list_arrays(gates: OpenGates) -> tuple[np.ndarray, ...]:
    fields = (gates.latent_ptr, gates.tokens, gates.values, gates.token_ptr, gates.latents, gates.order)
    return tuple(field.numpy() for field in fields)


def _equal_work(pointers: np.ndarray) -> np.ndarray:
    """Cut a list's rows into ``PIECES`` runs with about the same number of entries (and of rows)."""
    work = pointers + 4 * np.arange(len(pointers))
    cuts = np.searchsorted(work, work[-1] * np.arange(PIECES + 1) // PIECES)
    cuts[-1] = len(pointers) - 1
    return cuts


def _grown(array: np.ndarray, needed: int) -> np.ndarray:
    larger = np.empty(max(needed, 2 * array.shape[0]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()
