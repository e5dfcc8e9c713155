"""From a batch to what the latent pass has to sum: list of open gates, token pass, and sums per latent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels import cpu_loops
from interp.sae.kernels.cpu_list import as_array, compact, listed
from interp.sae.kernels.lists import CodeParams, GatedParams, Losses, LossOptions, OpenGates
from interp.sae.kernels.reference import count_weight, jump_cotangents
from interp.sae.kernels.rules import BatchTopK, Prefixes, TopK, Window
from interp.sae.kernels.threads import PIECES, equal_work, run_pieces


@dataclass(frozen=True)
class RowJob:
    """One matrix's gradient: ``sum weight rows (+ sum weight2 rows2) (+ radial_i W_i)``, and ``W^T pull``.

    which: of each entry, the one of ``rows`` that it takes.
    """

    W: np.ndarray
    which: np.ndarray
    weight: np.ndarray
    rows: np.ndarray
    pull: np.ndarray
    weight2: np.ndarray
    rows2: np.ndarray
    radial: np.ndarray
    edges: np.ndarray  # of the radial blocks

    def inputs(self) -> tuple[np.ndarray, ...]:
        """In the order the compiled loops take them."""
        return (
            self.which,
            self.weight,
            self.rows,
            self.weight2,
            self.rows2,
            self.radial,
            self.edges,
            self.W,
            self.pull,
        )

    def room_for_pull(self) -> np.ndarray:
        """Where each piece of work adds up its share of ``W^T pull``."""
        return np.zeros((PIECES, self.W.shape[1]), self.W.dtype)


@dataclass(frozen=True)
class Plan:
    """Everything known after the token pass; ``matrices`` is left to sum, ``vectors`` are done.

    b_dec is its gradient through the decoder only: the centring's share, ``-W^T pull``, comes with the rows.
    """

    losses: Losses
    latent_ptr: np.ndarray
    cuts: np.ndarray
    matrices: dict[str, RowJob]
    vectors: dict[str, np.ndarray]
    b_dec: np.ndarray
    dtype: np.dtype
    G: np.ndarray
    W_skip: np.ndarray | None = None


def make_plan(
    params: GatedParams | CodeParams,
    x: Float[Tensor, "n d"],
    l1: float,
    options: LossOptions,
    target: Float[Tensor, "n e"] | None = None,
    guess: float = 0.0,
) -> Plan:
    """Find the open gates and run the token pass.

    Args:
        target: what is to be reconstructed, where it isn't x.
        guess: see :func:`interp.sae.kernels.cpu_list.listed`.

    Raises:
        TypeError: x is neither float32 nor float64.
    """
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"x is {x.dtype}; the CPU kernels take float32 or float64")
    x = x.contiguous()
    xc = torch.from_numpy(as_array(x) - as_array(params.b_dec)) if options.center_input else x
    if isinstance(params, GatedParams):
        return _plan_gated(params, x, xc, l1, options)
    return _plan_code(params, x, xc, l1, options, x if target is None else target.contiguous(), guess)


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
    radial = no_rows
    if options.sparsity == "ri_l1" and not options.freeze_decoder:
        radial = _radial(per_token * sum_a, W_dec, options)
    W_gate, edges = as_array(params.W_gate), np.array([0, d])
    matrices = {
        "W_gate": RowJob(W_gate, tokens, encoder, centred, pull, nothing, no_rows, no_rows, edges),
        "W_dec": RowJob(W_dec, tokens, f, G, nothing, a, G_aux, radial, edges),
    }
    if params.W_mag is not None:
        pull = through_magnitude.astype(dtype) if options.center_input else nothing
        matrices["W_mag"] = RowJob(W_mag, tokens, magnitude, centred, pull, nothing, no_rows, no_rows, edges)
    vectors = {"b_gate": sum_alpha, "b_mag": sum_beta}
    if params.r_mag is not None:
        vectors["r_mag"] = m * sum_beta_q
    b_dec = G_sums[:, 0].sum(0) if options.freeze_decoder else G_sums.sum((0, 1))
    reconstruction, auxiliary = scale * errors.sum(0)
    losses = _losses(reconstruction, float(norms @ sum_a) / max(n, 1), auxiliary, n, len(p), fired)
    return Plan(losses, latent_ptr, cuts, matrices, vectors, b_dec, dtype, G)


def _plan_code(
    params: CodeParams, x: Tensor, xc: Tensor, l1: float, options: LossOptions, target: Tensor, guess: float
) -> Plan:
    n, e = target.shape
    rule, prefixes = options.rule, options.prefixes or Prefixes((params.W_dec.shape[0],), (1.0,))
    gates = listed(params, xc, options, guess=guess)
    latent_ptr, tokens, p, token_ptr, latents, order = _list_arrays(gates)
    token_cuts, cuts = equal_work(token_ptr), equal_work(latent_ptr)
    W_dec, b_enc = as_array(params.W_dec), as_array(params.b_enc)
    dtype, nothing, no_rows = p.dtype, np.empty(0, p.dtype), np.empty((0, e), p.dtype)
    theta = nothing if params.threshold is None else as_array(params.threshold)
    y = target if params.W_skip is None else target - x @ params.W_skip.detach().T
    by_rank, P = prefixes.by == "rank", len(prefixes.ends)
    if by_rank:
        run_pieces(cpu_loops.codes_by_size, token_ptr, latents, order, p, b_enc, token_cuts)

    needs_norms = options.sparsity in ("ri_l1", "tanh") or getattr(rule, "by_norm", False)
    norms = as_array(options.norms(params.W_dec.detach())) if needs_norms else np.ones(len(b_enc), dtype)
    per_token, scale = l1 / max(n, 1), options.error_scale(n, e)
    of_latent = {"l1": np.ones_like(norms), "ri_l1": norms}.get(options.sparsity, np.zeros_like(norms))
    pull = (per_token * of_latent).astype(dtype)
    f, beta, G = np.empty_like(p), np.empty_like(p), np.empty((n * P, e), dtype)
    rows = tokens if P == 1 else np.empty(len(p), np.int32)
    errors, G_sums = np.zeros((n, P)), np.zeros((PIECES, e), dtype)
    ends, weights = np.array(prefixes.ends, np.int64), np.array(prefixes.weights, dtype)
    given = (as_array(y), as_array(params.b_dec), W_dec, b_enc, theta, pull, token_ptr, latents, order, p)
    made = (scale, f, beta, G, rows, errors, G_sums)
    run_pieces(cpu_loops.code_tokens, *given, ends, by_rank, weights, *made, token_cuts)

    per_entry, fired, n_open, jumps = f, np.diff(latent_ptr), len(p), {}
    if options.sparsity == "tanh" or isinstance(rule, Window):
        of_entry = np.repeat(np.arange(len(b_enc)), np.diff(latent_ptr))
    if options.sparsity == "tanh":
        c = options.sparsity_parameter
        u = np.tanh(c * f * norms[of_entry])
        beta += (per_token * c * norms[of_entry] * (1 - u * u)).astype(dtype)
        per_entry = (c * f * (1 - u * u)).astype(dtype)
    if isinstance(rule, Window):
        z, limits = p + b_enc[of_entry], theta[of_entry]
        n_open = int((z > limits).sum())
        fired = np.bincount(of_entry[f != 0], minlength=len(b_enc))
        entries = tuple(torch.from_numpy(a) for a in (z, beta, limits))
        per_open = count_weight(n_open / max(n, 1), n, l1, options)
        through = jump_cotangents(entries[0], entries[1], entries[2], per_open, rule)
        beta, through_theta = (t.numpy().astype(dtype) for t in through)
        jumps["threshold"] = np.bincount(of_entry, through_theta, len(b_enc))

    sums = np.empty((2, len(b_enc)))
    run_pieces(cpu_loops.code_sums, latent_ptr, per_entry, beta, sums, cuts)
    sum_f, sum_beta = sums
    radial = no_rows
    if options.sparsity in ("ri_l1", "tanh"):
        radial = _radial(per_token * sum_f, W_dec, options)
    pull = sum_beta.astype(dtype) if options.center_input else nothing
    edges = np.cumsum([0, *(options.blocks or (e,))])
    matrices = {
        "W_enc": RowJob(
            as_array(params.W_enc), tokens, beta, as_array(xc), pull, nothing, no_rows, no_rows, edges
        ),
        "W_dec": RowJob(W_dec, rows, f, G, nothing, nothing, no_rows, radial, edges),
    }
    by_prefix = scale * errors.sum(0)
    sparsity = _code_sparsity(
        options, float(of_latent @ sum_f), u if options.sparsity == "tanh" else nothing, n, n_open
    )
    smallest = np.inf
    if isinstance(rule, TopK | BatchTopK) and len(p):
        smallest = _smallest(f, norms, latent_ptr, by_norm=rule.by_norm)
    reconstruction, error = float(by_prefix @ np.array(prefixes.weights)), by_prefix[prefixes.main]
    losses = _losses(reconstruction, sparsity, 0.0, n, n_open, fired, error, smallest)
    vectors, b_dec = {"b_enc": sum_beta, **jumps}, G_sums.sum(0)
    W_skip = None if params.W_skip is None else G[::P].T @ as_array(x)
    return Plan(losses, latent_ptr, cuts, matrices, vectors, b_dec, dtype, G, W_skip)


def _code_sparsity(options: LossOptions, weighted: float, u: np.ndarray, n: int, n_open: int) -> float:
    """The sparsity term before its weight."""
    n = max(n, 1)
    if options.sparsity == "quadratic":
        return (n_open / n / options.sparsity_parameter - 1) ** 2
    terms = {"l0": n_open, "tanh": float(u.sum(dtype=np.float64)), "none": 0.0}
    return terms.get(options.sparsity, weighted) / n


def _smallest(f: np.ndarray, norms: np.ndarray, latent_ptr: np.ndarray, *, by_norm: bool) -> float:
    """The smallest score that a selection kept."""
    scores = np.abs(f)
    return float((scores * np.repeat(norms, np.diff(latent_ptr)) if by_norm else scores).min())


def _norms(W_dec: Tensor, options: LossOptions) -> np.ndarray:
    """What the sparsity term multiplies each latent by."""
    rows = as_array(W_dec)
    return np.linalg.norm(rows, axis=1) if options.sparsity == "ri_l1" else np.ones(len(rows), rows.dtype)


def _radial(weight: np.ndarray, W_dec: np.ndarray, options: LossOptions) -> np.ndarray:
    """What multiplies a decoder row's blocks in its own gradient, [F, blocks]: the norm's derivative."""
    widths = options.blocks or (W_dec.shape[1],)
    parts = np.split(W_dec, np.cumsum(widths)[:-1], axis=1)
    tiny = np.finfo(W_dec.dtype).tiny
    scaled = [weight / np.maximum(np.linalg.norm(part, axis=1), tiny) for part in parts]
    return np.stack(scaled, axis=1).astype(W_dec.dtype)


def _losses(
    reconstruction: float,
    sparsity: float,
    auxiliary: float,
    n: int,
    n_open: int,
    fired: np.ndarray,
    error: float | None = None,
    smallest: float = np.inf,
) -> Losses:
    n = max(n, 1)
    numbers = [reconstruction, sparsity, auxiliary, fired.sum() / n, n_open / n]
    numbers += [reconstruction if error is None else error, smallest]
    first, second, third, l0, open_gates, whole, least = torch.tensor(
        list(map(float, numbers)), dtype=torch.float64
    )
    return Losses(first, second, third, l0, open_gates, torch.from_numpy(fired), whole, least)


def _list_arrays(gates: OpenGates) -> tuple[np.ndarray, ...]:
    fields = (gates.latent_ptr, gates.tokens, gates.values, gates.token_ptr, gates.latents, gates.order)
    return tuple(field.numpy() for field in fields)
