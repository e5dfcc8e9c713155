"""Compiled token passes: reconstructions and residuals of each token, cotangents of each of its open gates.

Tokens are independent; ``cuts`` splits them into pieces and every loop runs pieces first..last. Arrays over
gates are in the list's (latent, token) order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from interp.sae.kernels.cpu_rows import (
    FAST,
    add_rows,
    add_rows_to_both,
    dot_both,
    dot_rows,
    sum_of_squares,
)


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def gated_tokens(  # type: ignore[no-untyped-def]
    x, b_dec, W_dec, b_gate, b_mag, m, pull, token_ptr, latents, order, p, q,
    scale, f, a, alpha, beta, G, G_aux, errors, G_sums, cuts, first, last,
):  # fmt: skip
    """The gated SAE's two reconstructions.

    ``pull_i`` is what the sparsity term adds to alpha; squared errors are multiplied by ``scale``.
    ``G_aux`` has n rows where the caller wants dL/dx_tilde, and none where the decoder is frozen.
    """
    d = x.shape[1]
    longest = np.max(token_ptr[1:] - token_ptr[:-1]) if token_ptr.shape[0] > 1 else 0
    f_row, a_row = np.empty(longest, x.dtype), np.empty(longest, x.dtype)
    main_dots, aux_dots = np.empty(longest, x.dtype), np.empty(longest, x.dtype)
    scratch = np.empty(d, x.dtype)
    twice = x.dtype.type(2 * scale)
    for piece in range(first, last):
        for t in range(cuts[piece], cuts[piece + 1]):
            lo, count = token_ptr[t], token_ptr[t + 1] - token_ptr[t]
            which, at = latents[lo : lo + count], order[lo : lo + count]
            for e in range(count):
                i = which[e]
                a_row[e] = p[at[e]] + b_gate[i]
                f_row[e] = max(m[i] * q[at[e]] + b_mag[i], x.dtype.type(0))
            main = G[t]
            auxiliary = G_aux[t] if G_aux.shape[0] > 0 else scratch
            for j in range(d):
                main[j] = b_dec[j] - x[t, j]
                auxiliary[j] = main[j]
            add_rows_to_both(main, auxiliary, W_dec, which, f_row, a_row)
            errors[t, 0], errors[t, 1] = sum_of_squares(main), sum_of_squares(auxiliary)
            for j in range(d):
                main[j] *= twice
                auxiliary[j] *= twice
                G_sums[piece, 0, j] += main[j]
                G_sums[piece, 1, j] += auxiliary[j]
            dot_both(main, auxiliary, W_dec, which, main_dots, aux_dots)
            for e in range(count):
                z = at[e]
                f[z], a[z] = f_row[e], a_row[e]
                alpha[z] = aux_dots[e] + pull[which[e]]
                beta[z] = main_dots[e] if f_row[e] > 0 else x.dtype.type(0)


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def standard_tokens(  # type: ignore[no-untyped-def]
    x, b_dec, W_dec, b_enc, pull, token_ptr, latents, order, p,
    scale, f, beta, G, errors, G_sums, cuts, first, last,
):  # fmt: skip
    """A ReLU SAE's reconstruction; see :func:`gated_tokens`."""
    d = x.shape[1]
    longest = np.max(token_ptr[1:] - token_ptr[:-1]) if token_ptr.shape[0] > 1 else 0
    f_row, dots = np.empty(longest, x.dtype), np.empty(longest, x.dtype)
    twice = x.dtype.type(2 * scale)
    for piece in range(first, last):
        for t in range(cuts[piece], cuts[piece + 1]):
            lo, count = token_ptr[t], token_ptr[t + 1] - token_ptr[t]
            which, at = latents[lo : lo + count], order[lo : lo + count]
            for e in range(count):
                f_row[e] = p[at[e]] + b_enc[which[e]]
            main = G[t]
            for j in range(d):
                main[j] = b_dec[j] - x[t, j]
            add_rows(main, W_dec, which, f_row)
            errors[t, 0] = sum_of_squares(main)
            for j in range(d):
                main[j] *= twice
                G_sums[piece, 0, j] += main[j]
            dot_rows(main, W_dec, which, dots)
            for e in range(count):
                f[at[e]] = f_row[e]
                beta[at[e]] = dots[e] + pull[which[e]]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def products_at(x, weight, token_ptr, latents, order, out, cuts, first, last):  # type: ignore[no-untyped-def]
    """``<x_t, weight_i>`` at the listed pairs only."""
    longest = np.max(token_ptr[1:] - token_ptr[:-1]) if token_ptr.shape[0] > 1 else 0
    dots = np.empty(longest, x.dtype)
    for piece in range(first, last):
        for t in range(cuts[piece], cuts[piece + 1]):
            lo, hi = token_ptr[t], token_ptr[t + 1]
            dot_rows(x[t], weight, latents[lo:hi], dots)
            for z in range(lo, hi):
                out[order[z]] = dots[z - lo]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def decode_tokens(token_ptr, latents, values, W_dec, b_dec, out, cuts, first, last):  # type: ignore[no-untyped-def]
    """``out_t = b_dec + sum of value * W_dec[latent]`` over the token's entries (values in token order)."""
    for piece in range(first, last):
        for t in range(cuts[piece], cuts[piece + 1]):
            lo, hi = token_ptr[t], token_ptr[t + 1]
            out[t] = b_dec
            add_rows(out[t], W_dec, latents[lo:hi], values[lo:hi])
