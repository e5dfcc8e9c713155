"""The compiled loops: sampling a chain, merging pairs, walking a dictionary along a text.

All in one file because numba's cache on disk watches the file of the function it compiled only. Importing this module
imports numba: do so inside functions.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_STEP = np.uint64(0x9E3779B97F4A7C15)  # the increment and multipliers of SplitMix64 (Steele, Lea, Flood 2014)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53


@njit(nogil=True, cache=True)
def sample_chain(out, row, keep, other, next_own, next_other, n_symbols, seed):  # type: ignore[no-untyped-def]
    """Fill `out` with a chain that starts in `row`, by Walker's alias method.

    One uniform number picks a column and, by its fraction, the column's own symbol (`keep` is that symbol's share) or
    the `other` one. Tables are flat: `row` is A times the context, `next_*` hold the row that each choice leads to.

    What decides the speed is the latency from row to next row: one load, one comparison and a choice without a branch
    (it would be mispredicted half the time). Unsigned indices save the test for negative ones; the random numbers
    don't depend on the chain, so the processor computes them ahead of it.
    """
    state, at, size = np.uint64(seed), np.uint64(row), np.float64(n_symbols)
    for i in range(out.shape[0]):
        state += _STEP
        z = state
        z = (z ^ (z >> _30)) * _MIX_1
        z = (z ^ (z >> _27)) * _MIX_2
        u = np.float64(np.int64((z ^ (z >> _31)) >> _11)) * (_UNIT * size)
        column = np.int64(u)
        fraction = u - np.float64(column)
        cell = at + np.uint64(column)
        leave = np.uint64(0) - np.uint64(fraction >= keep[cell])
        own, elsewhere = np.uint64(next_own[cell]), np.uint64(next_other[cell])
        at = own ^ ((own ^ elsewhere) & leave)
        stay, go = np.uint64(column), np.uint64(other[cell])
        out[i] = stay ^ ((stay ^ go) & leave)


@njit(nogil=True, cache=True)
def merge_pair(ids, n, left, right, new):  # type: ignore[no-untyped-def]
    """Replace the pair in `ids[:n]` from left to right without overlap, in place; returns the new length."""
    i = j = 0
    while i < n:
        if i + 1 < n and ids[i] == left and ids[i + 1] == right:
            ids[j] = new
            i += 2
        else:
            ids[j] = ids[i]
            i += 1
        j += 1
    return j


@njit(nogil=True, cache=True)
def longest_matches(text, child, token_at, out):  # type: ignore[no-untyped-def]
    """Greedy encoding: at every position the longest token. Returns the number of tokens."""
    n, i, count = text.shape[0], 0, 0
    while i < n:
        node, best, end, j = 0, -1, i, i
        while j < n:
            node = child[node, text[j]]
            if node < 0:
                break
            j += 1
            if token_at[node] >= 0:
                best, end = token_at[node], j
        if best < 0:
            return -i - 1
        out[count] = best
        count += 1
        i = end
    return count


@njit(nogil=True, cache=True)
def likeliest_path(text, child, token_at, log_probability, out):  # type: ignore[no-untyped-def]
    """Viterbi: the tokens with the largest sum of log-probabilities; among equals the one found first, from the left.

    Returns the number of tokens, which stand in `out[:count]`.
    """
    n = text.shape[0]
    score = np.full(n + 1, -np.inf)
    came_from = np.full(n + 1, -1, np.int64)
    by = np.full(n + 1, -1, np.int64)
    score[0] = 0.0
    for i in range(n):
        if score[i] == -np.inf:
            continue
        node, j = 0, i
        while j < n:
            node = child[node, text[j]]
            if node < 0:
                break
            j += 1
            token = token_at[node]
            if token >= 0 and score[i] + log_probability[token] > score[j]:
                score[j] = score[i] + log_probability[token]
                came_from[j], by[j] = i, token
    if score[n] == -np.inf:
        return -1
    count, j = 0, n
    while j > 0:
        out[count] = by[j]
        count += 1
        j = came_from[j]
    for a in range(count // 2):
        out[a], out[count - 1 - a] = out[count - 1 - a], out[a]
    return count
