"""The compiled loop of greedy coverage, with an inverted index from nodes to rows.

Importing this module imports numba: do so inside functions.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def _contribute(
    s, sign, truncated, nodes, row_ptr, sample_ptr, need, weight, covered, reached, fresh, touched, gain
):  # type: ignore[no-untyped-def]
    """Add (or take away) what sample s gives every node that it does not yet owe to the seeds."""
    left = need[s] - reached[s]
    if left <= 0:
        return
    count = 0
    for row in range(sample_ptr[s], sample_ptr[s + 1]):
        if covered[row]:
            continue
        for q in range(row_ptr[row], row_ptr[row + 1]):
            u = nodes[q]
            if fresh[u] == 0:
                touched[count] = u
                count += 1
            fresh[u] += 1
    for q in range(count):
        u = touched[q]
        if truncated:
            gain[u] += sign * weight[s] * min(left, fresh[u]) / need[s]
        elif fresh[u] >= left:
            gain[u] += sign * weight[s]
        fresh[u] = 0


@njit(nogil=True, cache=True)
def greedy(nodes, row_ptr, sample_ptr, need, weight, truncated, n, k):  # type: ignore[no-untyped-def]
    """k nodes, each the one that adds most; among equals the smallest. Returns them and what each added.

    A sample is worth its weight once `need` of its rows hold a seed, truncated: weight * min(1, rows / need).
    """
    n_rows = row_ptr.size - 1
    index_ptr = np.zeros(n + 1, np.int64)
    for q in range(nodes.size):
        index_ptr[nodes[q] + 1] += 1
    for v in range(n):
        index_ptr[v + 1] += index_ptr[v]
    at = np.empty(n, np.int64)
    for v in range(n):
        at[v] = index_ptr[v]
    rows_of = np.empty(nodes.size, np.int32)
    for row in range(n_rows):
        for q in range(row_ptr[row], row_ptr[row + 1]):
            rows_of[at[nodes[q]]] = row
            at[nodes[q]] += 1
    sample_of = np.empty(n_rows, np.int32)
    for s in range(need.size):
        for row in range(sample_ptr[s], sample_ptr[s + 1]):
            sample_of[row] = s
    gain, fresh, touched = np.zeros(n), np.zeros(n, np.int32), np.empty(n, np.int32)
    covered, reached, chosen = (
        np.zeros(n_rows, np.bool_),
        np.zeros(need.size, np.int32),
        np.zeros(n, np.bool_),
    )
    state = (truncated, nodes, row_ptr, sample_ptr, need, weight, covered, reached, fresh, touched, gain)
    for s in range(need.size):
        _contribute(s, 1.0, *state)
    picks, gains = np.empty(k, np.int32), np.empty(k)
    for step in range(k):
        best = -1.0
        for v in range(n):
            if not chosen[v] and gain[v] > best:
                best = gain[v]
        v, room = 0, 1e-9 * max(best, 1.0)  # sums of weights, of at most 1, carry rounding
        while chosen[v] or gain[v] < best - room:
            v += 1
        chosen[v] = True
        picks[step], gains[step] = v, gain[v]
        q = index_ptr[v]
        while q < index_ptr[v + 1]:
            s = sample_of[rows_of[q]]
            if reached[s] >= need[s]:
                q += 1
                continue
            for sign in (-1.0, 1.0):
                _contribute(s, sign, *state)
                while sign < 0 and q < index_ptr[v + 1] and sample_of[rows_of[q]] == s:
                    if not covered[rows_of[q]]:
                        covered[rows_of[q]] = True
                        reached[s] += 1
                    q += 1
    return picks, gains
