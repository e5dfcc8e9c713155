"""Compiled latent passes: sums over each latent's open gates, gradients of its rows, and Adam on the spot.

Latents are independent; ``cuts`` splits them into pieces of about equal work and every loop runs pieces
first..last. A latent without an open gate is never visited: its gradient is zero and, with beta1 = 0, its row
does not move.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from interp.sae.kernels.backend import SMALLEST_NORM
from interp.sae.kernels.cpu_rows import FAST, add_rows, sum_of_squares


@njit(nogil=True, cache=True)
def gated_sums(  # type: ignore[no-untyped-def]
    latent_ptr, f, a, alpha, beta, q, m, tied, encoder, magnitude, sums, fired, cuts, first, last
):  # fmt: skip
    """Per latent: sums of a, alpha, beta and beta q (columns of ``sums``), tokens with f > 0.

    Per gate: ``encoder``, what multiplies xc in the encoder row's gradient (alpha + m beta when tied, else
    alpha), and ``magnitude``, the same for W_mag (m beta; empty when tied).
    """
    for i in range(cuts[first], cuts[last]):
        total_a, total_alpha, total_beta, total_beta_q, positive = 0.0, 0.0, 0.0, 0.0, 0
        for z in range(latent_ptr[i], latent_ptr[i + 1]):
            total_a += a[z]
            total_alpha += alpha[z]
            total_beta += beta[z]
            total_beta_q += beta[z] * q[z]
            positive += f[z] > 0
            if tied:
                encoder[z] = alpha[z] + m[i] * beta[z]
            else:
                encoder[z] = alpha[z]
                magnitude[z] = m[i] * beta[z]
        sums[0, i], sums[1, i], sums[2, i], sums[3, i] = total_a, total_alpha, total_beta, total_beta_q
        fired[i] = positive


@njit(nogil=True, cache=True)
def standard_sums(latent_ptr, f, beta, sums, cuts, first, last):  # type: ignore[no-untyped-def]
    """Per latent: sums of f and beta."""
    for i in range(cuts[first], cuts[last]):
        total_f, total_beta = 0.0, 0.0
        for z in range(latent_ptr[i], latent_ptr[i + 1]):
            total_f += f[z]
            total_beta += beta[z]
        sums[0, i], sums[1, i] = total_f, total_beta


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def _row_gradient(grad, i, latent_ptr, tokens, weight, rows, weight2, rows2, radial, W):  # type: ignore[no-untyped-def]
    lo, hi = latent_ptr[i], latent_ptr[i + 1]
    grad[:] = 0
    add_rows(grad, rows, tokens[lo:hi], weight[lo:hi])
    if rows2.shape[0] > 0:
        add_rows(grad, rows2, tokens[lo:hi], weight2[lo:hi])
    if radial.shape[0] > 0:
        for j in range(grad.shape[0]):
            grad[j] += radial[i] * W[i, j]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def row_gradients(  # type: ignore[no-untyped-def]
    latent_ptr, tokens, weight, rows, weight2, rows2, radial, W, pull, pulled, out, cuts, first, last
):  # fmt: skip
    """``out_i = sum weight rows_token (+ sum weight2 rows2_token) (+ radial_i W_i)``.

    Where ``pull`` isn't empty, ``pulled[piece] += sum_i pull_i W_i``, which is W^T pull in the end.
    """
    for piece in range(first, last):
        for i in range(cuts[piece], cuts[piece + 1]):
            if latent_ptr[i] == latent_ptr[i + 1]:
                continue
            _row_gradient(out[i], i, latent_ptr, tokens, weight, rows, weight2, rows2, radial, W)
            if pull.shape[0] > 0:
                for j in range(W.shape[1]):
                    pulled[piece, j] += pull[i] * W[i, j]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def update_rows(  # type: ignore[no-untyped-def]
    latent_ptr, tokens, weight, rows, weight2, rows2, radial, W, pull, pulled,
    v, last_step, adam, beta2, step, unit_norm, cuts, first, last,
):  # fmt: skip
    """:func:`row_gradients` with Adam (and the unit norm) applied to each row while it is at hand.

    ``adam`` holds (lr, 1 - beta2, eps, 1 / sqrt(1 - beta2^step)) in the rows' precision.
    """
    d = W.shape[1]
    grad = np.empty(d, W.dtype)
    lr, fresh, eps, correction = adam[0], adam[1], adam[2], adam[3]
    for piece in range(first, last):
        for i in range(cuts[piece], cuts[piece + 1]):
            if latent_ptr[i] == latent_ptr[i + 1]:
                continue
            row, moment = W[i], v[i]
            _row_gradient(grad, i, latent_ptr, tokens, weight, rows, weight2, rows2, radial, W)
            if pull.shape[0] > 0:
                for j in range(d):
                    pulled[piece, j] += pull[i] * row[j]
            if unit_norm:
                along = W.dtype.type(0)
                for j in range(d):
                    along += grad[j] * row[j]
                for j in range(d):
                    grad[j] -= along * row[j]
            decay = W.dtype.type(beta2 ** (step - last_step[i]))
            last_step[i] = step
            for j in range(d):
                moment[j] = decay * moment[j] + fresh * grad[j] * grad[j]
                grad[j] = row[j] - lr * grad[j] / (np.sqrt(moment[j]) * correction + eps)
            if unit_norm:
                norm = np.sqrt(sum_of_squares(grad))
                if norm < SMALLEST_NORM:
                    continue
                shrink = W.dtype.type(1) / norm
                for j in range(d):
                    row[j] = grad[j] * shrink
            else:
                row[:] = grad


@njit(nogil=True, cache=True, error_model="numpy")
def update_entries(latent_ptr, grad, parameter, v, last_step, adam, beta2, step):  # type: ignore[no-untyped-def]
    """Adam on one number per latent, for latents with an open gate."""
    lr, fresh, eps, correction = adam[0], adam[1], adam[2], adam[3]
    for i in range(parameter.shape[0]):
        if latent_ptr[i] == latent_ptr[i + 1]:
            continue
        v[i] = parameter.dtype.type(beta2 ** (step - last_step[i])) * v[i] + fresh * grad[i] * grad[i]
        last_step[i] = step
        parameter[i] -= lr * grad[i] / (np.sqrt(v[i]) * correction + eps)
