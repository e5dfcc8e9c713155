"""Compiled loops that turn a tile of pre-activations into list entries, and index the list by token."""

from __future__ import annotations

import numpy as np
from numba import njit

from interp.sae.kernels.cpu_rows import dot_rows

BLOCK = 32  # columns tested together: the second scan skips the blocks in which nothing is open


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
