"""The compiled loops of the CPU backend: rows of width d, scans of a tile, the token pass, the latent pass.

All in one file because numba's cache on disk watches the file of the function it compiled only: a loop in
another file that calls these would go on running the old ones after an edit.

Rows are taken several at a time, so that what they share is loaded once. The order of summation is fixed by
the list: ``reassoc`` only lets the compiler sum the lanes of a vector register in an order that the machine
fixes. In the passes ``cuts`` splits the work into pieces, and a call runs pieces first..last; arrays over
gates are in the list's (latent, token) order. A latent without an open gate is never visited: its gradient is
zero and, with beta1 = 0, its row does not move.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from interp.sae.kernels.backend import SMALLEST_NORM

FAST = {"reassoc", "contract", "nsz"}
BLOCK = 32  # columns tested together: the second scan skips the blocks in which nothing is open


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def add_rows(out, rows, which, weight):  # type: ignore[no-untyped-def]
    """``out += sum_q weight[q] * rows[which[q]]``."""
    d, count = out.shape[0], which.shape[0]
    q = 0
    while q + 4 <= count:
        r0, r1, r2, r3 = rows[which[q]], rows[which[q + 1]], rows[which[q + 2]], rows[which[q + 3]]
        w0, w1, w2, w3 = weight[q], weight[q + 1], weight[q + 2], weight[q + 3]
        for j in range(d):
            out[j] += w0 * r0[j] + w1 * r1[j] + w2 * r2[j] + w3 * r3[j]
        q += 4
    while q < count:
        r0, w0 = rows[which[q]], weight[q]
        for j in range(d):
            out[j] += w0 * r0[j]
        q += 1


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def add_rows_to_both(out, other, rows, which, weight, other_weight):  # type: ignore[no-untyped-def]
    """:func:`add_rows` into two sums over the same rows, each row loaded once."""
    d, count = out.shape[0], which.shape[0]
    q = 0
    while q + 4 <= count:
        r0, r1, r2, r3 = rows[which[q]], rows[which[q + 1]], rows[which[q + 2]], rows[which[q + 3]]
        w0, w1, w2, w3 = weight[q], weight[q + 1], weight[q + 2], weight[q + 3]
        v0, v1, v2, v3 = other_weight[q], other_weight[q + 1], other_weight[q + 2], other_weight[q + 3]
        for j in range(d):
            out[j] += w0 * r0[j] + w1 * r1[j] + w2 * r2[j] + w3 * r3[j]
            other[j] += v0 * r0[j] + v1 * r1[j] + v2 * r2[j] + v3 * r3[j]
        q += 4
    while q < count:
        r0, w0, v0 = rows[which[q]], weight[q], other_weight[q]
        for j in range(d):
            out[j] += w0 * r0[j]
            other[j] += v0 * r0[j]
        q += 1


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def dot_rows(vector, rows, which, out):  # type: ignore[no-untyped-def]
    """``out[q] = <vector, rows[which[q]]>``."""
    d, count = vector.shape[0], which.shape[0]
    zero = rows.dtype.type(0)
    q = 0
    while q + 4 <= count:
        r0, r1, r2, r3 = rows[which[q]], rows[which[q + 1]], rows[which[q + 2]], rows[which[q + 3]]
        s0, s1, s2, s3 = zero, zero, zero, zero
        for j in range(d):
            s0 += vector[j] * r0[j]
            s1 += vector[j] * r1[j]
            s2 += vector[j] * r2[j]
            s3 += vector[j] * r3[j]
        out[q], out[q + 1], out[q + 2], out[q + 3] = s0, s1, s2, s3
        q += 4
    while q < count:
        r0, s0 = rows[which[q]], zero
        for j in range(d):
            s0 += vector[j] * r0[j]
        out[q] = s0
        q += 1


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def dot_both(vector, other, rows, which, out, other_out):  # type: ignore[no-untyped-def]
    """:func:`dot_rows` of two vectors with the same rows, each row loaded once."""
    d, count = vector.shape[0], which.shape[0]
    zero = rows.dtype.type(0)
    q = 0
    while q + 2 <= count:
        r0, r1 = rows[which[q]], rows[which[q + 1]]
        s0, s1, t0, t1 = zero, zero, zero, zero
        for j in range(d):
            s0 += vector[j] * r0[j]
            s1 += vector[j] * r1[j]
            t0 += other[j] * r0[j]
            t1 += other[j] * r1[j]
        out[q], out[q + 1], other_out[q], other_out[q + 1] = s0, s1, t0, t1
        q += 2
    if q < count:
        r0, s0, t0 = rows[which[q]], zero, zero
        for j in range(d):
            s0 += vector[j] * r0[j]
            t0 += other[j] * r0[j]
        out[q], other_out[q] = s0, t0


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def sum_of_squares(row):  # type: ignore[no-untyped-def]
    """``|row|^2`` in the row's precision."""
    total = row.dtype.type(0)
    for j in range(row.shape[0]):
        total += row[j] * row[j]
    return total


@njit(nogil=True, cache=True)
def count_open(pre, threshold, start, rows, blocks, counts):  # type: ignore[no-untyped-def]
    """Count ``pre[r] > threshold[start + r]`` per block of columns, per row (into ``counts``) and in all."""
    n = pre.shape[1]
    everything = 0
    for r in range(rows):
        limit, row, total = threshold[start + r], pre[r], 0
        for b in range(n // BLOCK):
            inside = np.int32(0)
            for j in range(BLOCK):
                inside += np.int32(row[b * BLOCK + j] > limit)
            blocks[r, b] = inside
            total += inside
        for j in range(n // BLOCK * BLOCK, n):
            total += row[j] > limit
        counts[start + r] = total
        everything += total
    return everything


@njit(nogil=True, cache=True)
def fill_open(pre, threshold, start, rows, blocks, tokens, values):  # type: ignore[no-untyped-def]
    """Write the entries that :func:`count_open` counted, row by row, columns ascending."""
    n = pre.shape[1]
    at = 0
    for r in range(rows):
        limit, row = threshold[start + r], pre[r]
        for b in range(n // BLOCK):
            if blocks[r, b] == 0:
                continue
            for j in range(b * BLOCK, (b + 1) * BLOCK):
                if row[j] > limit:
                    tokens[at], values[at] = j, row[j]
                    at += 1
        for j in range(n // BLOCK * BLOCK, n):
            if row[j] > limit:
                tokens[at], values[at] = j, row[j]
                at += 1


@njit(nogil=True, cache=True)
def keep_exact(vectors, weight, threshold, start, rows, counts, tokens, values):  # type: ignore[no-untyped-def]
    """Replace listed values by exact products, drop entries that fail the threshold, return how many stay."""
    at, lo = 0, 0
    for r in range(rows):
        i, hi = start + r, lo + counts[start + r]
        exact = np.empty(hi - lo, values.dtype)
        dot_rows(weight[i], vectors, tokens[lo:hi], exact)
        kept = 0
        for e in range(hi - lo):
            if exact[e] > threshold[i]:
                tokens[at], values[at] = tokens[lo + e], exact[e]
                at += 1
                kept += 1
        counts[i] = kept
        lo = hi
    return at


@njit(nogil=True, cache=True)
def count_scores(pre, bias, scale, bounds, absolute, start, rows, blocks, counts):  # type: ignore[no-untyped-def]
    """:func:`count_open` with a bound for each token: scores ``(pre + bias_i) scale_i``, above 0 and not below it."""
    n = pre.shape[1]
    everything = 0
    for r in range(rows):
        b, s, row, total = bias[start + r], scale[start + r], pre[r], 0
        for k in range(n // BLOCK):
            inside = np.int32(0)
            for j in range(k * BLOCK, (k + 1) * BLOCK):
                score = (row[j] + b) * s
                if absolute:
                    score = abs(score)
                inside += np.int32((score >= bounds[j]) & (score > 0))
            blocks[r, k] = inside
            total += inside
        for j in range(n // BLOCK * BLOCK, n):
            score = (row[j] + b) * s
            if absolute:
                score = abs(score)
            total += (score >= bounds[j]) & (score > 0)
        counts[start + r] = total
        everything += total
    return everything


@njit(nogil=True, cache=True)
def fill_scores(pre, bias, scale, bounds, absolute, start, rows, blocks, tokens, values, scores):  # type: ignore[no-untyped-def]
    """Write the entries that :func:`count_scores` counted, row by row, columns ascending."""
    n = pre.shape[1]
    at = 0
    for r in range(rows):
        b, s, row = bias[start + r], scale[start + r], pre[r]
        for k in range(n // BLOCK + 1):
            if k < n // BLOCK and blocks[r, k] == 0:
                continue
            for j in range(k * BLOCK, min((k + 1) * BLOCK, n)):
                score = (row[j] + b) * s
                if absolute:
                    score = abs(score)
                if score >= bounds[j] and score > 0:
                    tokens[at], values[at], scores[at] = j, row[j], score
                    at += 1


@njit(nogil=True, cache=True)
def _place_least(scores, latents, values, k):  # type: ignore[no-untyped-def]
    """Restore a heap whose root was replaced: the least score at the root, of equal ones the highest latent."""
    at, score, latent, value = 0, scores[0], latents[0], values[0]
    while True:
        child = 2 * at + 1
        if child >= k:
            break
        other = child + 1
        if other < k and (
            scores[other] < scores[child]
            or (scores[other] == scores[child] and latents[other] > latents[child])
        ):
            child = other
        if scores[child] > score or (scores[child] == score and latents[child] <= latent):
            break
        scores[at], latents[at], values[at] = scores[child], latents[child], values[child]
        at = child
    scores[at], latents[at], values[at] = score, latent, value


@njit(nogil=True, cache=True)
def keep_largest(pre, bias, scale, absolute, start, rows, scores, latents, values, bounds):  # type: ignore[no-untyped-def]
    """Put a tile's positive scores into heaps of the k largest of each token; ``bounds`` is each heap's least.

    A token's heap takes ever fewer of the later latents, so most blocks are only looked at.
    """
    n, k = pre.shape[1], scores.shape[1]
    for r in range(rows):
        b, s, row = bias[start + r], scale[start + r], pre[r]
        for first in range(0, n, BLOCK):
            last = min(first + BLOCK, n)
            larger = np.int32(0)
            for j in range(first, last):
                score = (row[j] + b) * s
                if absolute:
                    score = abs(score)
                larger += np.int32(score > bounds[j])
            if larger == 0:
                continue
            for j in range(first, last):
                score = (row[j] + b) * s
                if absolute:
                    score = abs(score)
                if score > bounds[j]:
                    scores[j, 0], latents[j, 0], values[j, 0] = score, start + r, row[j]
                    _place_least(scores[j], latents[j], values[j], k)
                    bounds[j] = scores[j, 0]


@njit(nogil=True, cache=True)
def merge_largest(scores, latents, values, other_scores, other_latents, other_values):  # type: ignore[no-untyped-def]
    """Put the heaps of other latents into the first ones; of equal scores the lower latents stay."""
    k = scores.shape[1]
    for j in range(scores.shape[0]):
        for q in range(k):
            score, latent = other_scores[j, q], other_latents[j, q]
            least = scores[j, 0]
            if score > least or (score == least and score > 0 and latent < latents[j, 0]):
                scores[j, 0], latents[j, 0], values[j, 0] = score, latent, other_values[j, q]
                _place_least(scores[j], latents[j], values[j], k)


@njit(nogil=True, cache=True)
def list_heaps(scores, latents, values, latent_ptr, tokens, listed):  # type: ignore[no-untyped-def]
    """The entries of all heaps in (latent, token) order; ``latent_ptr`` comes as zeros."""
    n, k = scores.shape
    for j in range(n):
        for q in range(k):
            if scores[j, q] > 0:
                latent_ptr[latents[j, q] + 1] += 1
    for i in range(latent_ptr.shape[0] - 1):
        latent_ptr[i + 1] += latent_ptr[i]
    at = latent_ptr[:-1].copy()
    for j in range(n):
        for q in range(k):
            if scores[j, q] > 0:
                i = latents[j, q]
                tokens[at[i]], listed[at[i]] = j, values[j, q]
                at[i] += 1


@njit(nogil=True, cache=True)
def drop_entries(latent_ptr, tokens, values, keep, new_ptr, new_tokens, new_values):  # type: ignore[no-untyped-def]
    """The list without the entries that aren't marked."""
    at = 0
    for i in range(latent_ptr.shape[0] - 1):
        for q in range(latent_ptr[i], latent_ptr[i + 1]):
            if keep[q]:
                new_tokens[at], new_values[at] = tokens[q], values[q]
                at += 1
        new_ptr[i + 1] = at


@njit(nogil=True, cache=True)
def index_by_token(latent_ptr, tokens, token_ptr, latents, order):  # type: ignore[no-untyped-def]
    """A counting sort by token, stable, so that each token's latents come out ascending."""
    n = token_ptr.shape[0] - 1
    token_ptr[:] = 0
    for q in range(tokens.shape[0]):
        token_ptr[tokens[q] + 1] += 1
    for t in range(n):
        token_ptr[t + 1] += token_ptr[t]
    at = token_ptr[:n].copy()
    for i in range(latent_ptr.shape[0] - 1):
        for q in range(latent_ptr[i], latent_ptr[i + 1]):
            t = tokens[q]
            latents[at[t]] = i
            order[at[t]] = q
            at[t] += 1


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


@njit(nogil=True, cache=True)
def codes_by_size(token_ptr, latents, order, p, b_enc, cuts, first, last):  # type: ignore[no-untyped-def]
    """Sort each token's entries by the magnitude of their codes, descending; equal ones stay as they are."""
    for piece in range(first, last):
        for t in range(cuts[piece], cuts[piece + 1]):
            lo, hi = token_ptr[t], token_ptr[t + 1]
            size = np.empty(hi - lo, p.dtype)
            for q in range(lo, hi):
                size[q - lo] = -abs(p[order[q]] + b_enc[latents[q]])
            by_size = np.argsort(size, kind="mergesort")
            which, at = latents[lo:hi].copy(), order[lo:hi].copy()
            for q in range(hi - lo):
                latents[lo + q], order[lo + q] = which[by_size[q]], at[by_size[q]]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def code_tokens(  # type: ignore[no-untyped-def]
    y, b_dec, W_dec, b_enc, theta, pull, token_ptr, latents, order, p, ends, by_rank, weights,
    scale, f, beta, G, rows, errors, G_sums, cuts, first, last,
):  # fmt: skip
    """One code's reconstructions by prefix; see :func:`gated_tokens`.

    Each of the P prefixes has its row of G (n P rows), in the end the sum over it and those that hold it. ``rows``
    is which of them an entry receives (nothing is written where P is 1: it is the token). ``theta`` is empty but
    for a JumpReLU.
    """
    d, P = y.shape[1], ends.shape[0]
    longest = np.max(token_ptr[1:] - token_ptr[:-1]) if token_ptr.shape[0] > 1 else 0
    f_row, dots = np.empty(longest, y.dtype), np.empty(longest, y.dtype)
    stops = np.empty(P, np.int64)
    twice = y.dtype.type(2 * scale)
    for piece in range(first, last):
        for t in range(cuts[piece], cuts[piece + 1]):
            lo, count = token_ptr[t], token_ptr[t + 1] - token_ptr[t]
            which, at = latents[lo : lo + count], order[lo : lo + count]
            for e in range(count):
                code = p[at[e]] + b_enc[which[e]]
                if theta.shape[0] > 0 and code <= theta[which[e]]:
                    code = y.dtype.type(0)
                f_row[e] = code
                f[at[e]] = code
            done = 0
            for g in range(P):
                stop = done
                if g == P - 1:
                    stop = count
                elif by_rank:
                    stop = min(ends[g], count)
                else:
                    while stop < count and which[stop] < ends[g]:
                        stop += 1
                main = G[t * P + g]
                if g == 0:
                    for j in range(d):
                        main[j] = b_dec[j] - y[t, j]
                else:
                    main[:] = G[t * P + g - 1]
                add_rows(main, W_dec, which[done:stop], f_row[done:stop])
                errors[t, g] = sum_of_squares(main)
                stops[g] = stop
                done = stop
            for g in range(P - 1, -1, -1):
                main, factor = G[t * P + g], twice * weights[g]
                for j in range(d):
                    main[j] *= factor
                if g < P - 1:
                    after = G[t * P + g + 1]
                    for j in range(d):
                        main[j] += after[j]
            main = G[t * P]
            for j in range(d):
                G_sums[piece, j] += main[j]
            done = 0
            for g in range(P):
                dot_rows(G[t * P + g], W_dec, which[done : stops[g]], dots[done : stops[g]])
                if P > 1:
                    for e in range(done, stops[g]):
                        rows[at[e]] = t * P + g
                done = stops[g]
            for e in range(count):
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
def code_sums(latent_ptr, f, beta, sums, cuts, first, last):  # type: ignore[no-untyped-def]
    """Per latent: sums of f and beta."""
    for i in range(cuts[first], cuts[last]):
        total_f, total_beta = 0.0, 0.0
        for z in range(latent_ptr[i], latent_ptr[i + 1]):
            total_f += f[z]
            total_beta += beta[z]
        sums[0, i], sums[1, i] = total_f, total_beta


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def _row_gradient(grad, i, latent_ptr, which, weight, rows, weight2, rows2, radial, edges, W):  # type: ignore[no-untyped-def]
    lo, hi = latent_ptr[i], latent_ptr[i + 1]
    grad[:] = 0
    add_rows(grad, rows, which[lo:hi], weight[lo:hi])
    if rows2.shape[0] > 0:
        add_rows(grad, rows2, which[lo:hi], weight2[lo:hi])
    if radial.shape[0] > 0:
        for block in range(radial.shape[1]):
            for j in range(edges[block], edges[block + 1]):
                grad[j] += radial[i, block] * W[i, j]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def row_gradients(  # type: ignore[no-untyped-def]
    latent_ptr, which, weight, rows, weight2, rows2, radial, edges, W, pull, pulled, out, cuts, first, last
):  # fmt: skip
    """``out_i = sum weight rows_which (+ sum weight2 rows2_which) (+ radial_i W_i, block by block)``.

    Where ``pull`` isn't empty, ``pulled[piece] += sum_i pull_i W_i``, which is W^T pull in the end.
    """
    for piece in range(first, last):
        for i in range(cuts[piece], cuts[piece + 1]):
            if latent_ptr[i] == latent_ptr[i + 1]:
                continue
            _row_gradient(out[i], i, latent_ptr, which, weight, rows, weight2, rows2, radial, edges, W)
            if pull.shape[0] > 0:
                for j in range(W.shape[1]):
                    pulled[piece, j] += pull[i] * W[i, j]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def update_rows(  # type: ignore[no-untyped-def]
    latent_ptr, which, weight, rows, weight2, rows2, radial, edges, W, pull, pulled,
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
            _row_gradient(grad, i, latent_ptr, which, weight, rows, weight2, rows2, radial, edges, W)
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


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def squares_of_rows(grad, out, cuts, first, last):  # type: ignore[no-untyped-def]
    """Each piece's sum of squares of a gradient, in float64."""
    for piece in range(first, last):
        total = 0.0
        for i in range(cuts[piece], cuts[piece + 1]):
            total += np.float64(sum_of_squares(grad[i]))
        out[piece] = total


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def walk_rows(  # type: ignore[no-untyped-def]
    grad, W, m, v, last_step, adam, beta2, step, factor, unit_norm, cuts, first, last
):  # fmt: skip
    """Adam on all rows of a matrix, with gradients (changed) that are first multiplied by ``factor``.

    Where ``m`` is empty, beta1 is 0 and rows without a gradient stay; else rows without one, and without momentum,
    only forget. ``adam`` holds (lr, 1 - beta1, 1 - beta2, eps, 1 / sqrt(1 - beta2^step), 1 / (1 - beta1^step)).
    """
    d = W.shape[1]
    lr, new, fresh, eps, correction, unbiased = adam[0], adam[1], adam[2], adam[3], adam[4], adam[5]
    momentum = m.shape[0] > 0
    zero, one = W.dtype.type(0), W.dtype.type(1)
    for piece in range(first, last):
        for i in range(cuts[piece], cuts[piece + 1]):
            row, moment, g = W[i], v[i], grad[i]
            size = zero
            for j in range(d):
                size = max(size, abs(g[j]))
            if size == zero:
                if not momentum:
                    continue
                speed = zero
                for j in range(d):
                    speed = max(speed, abs(m[i, j]))
                if speed == zero:
                    for j in range(d):
                        moment[j] *= one - fresh
                    continue
            along = zero
            for j in range(d):
                g[j] *= factor
                along += g[j] * row[j]
            if unit_norm:
                for j in range(d):
                    g[j] -= along * row[j]
            if momentum:
                mean = m[i]
                for j in range(d):
                    mean[j] += new * (g[j] - mean[j])
                    moment[j] = (one - fresh) * moment[j] + fresh * g[j] * g[j]
                    g[j] = row[j] - lr * unbiased * mean[j] / (np.sqrt(moment[j]) * correction + eps)
            else:
                decay = W.dtype.type(beta2 ** (step - last_step[i]))
                last_step[i] = step
                for j in range(d):
                    moment[j] = decay * moment[j] + fresh * g[j] * g[j]
                    g[j] = row[j] - lr * g[j] / (np.sqrt(moment[j]) * correction + eps)
            if unit_norm:
                norm = np.sqrt(sum_of_squares(g))
                if norm < SMALLEST_NORM:
                    continue
                shrink = one / norm
                for j in range(d):
                    row[j] = g[j] * shrink
            else:
                row[:] = g


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
