"""The compiled loops over the graph's structure: cliques, edges within motifs.

Importing this module imports numba: do so inside functions.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def grown(a, size):  # type: ignore[no-untyped-def]
    """`a` with room for `size` entries."""
    if size <= a.size:
        return a
    more = np.empty(max(size, 2 * a.size), np.int32)
    for i in range(a.size):
        more[i] = a[i]
    return more


@njit(nogil=True, cache=True)
def _has(ptr, neighbours, v, u):  # type: ignore[no-untyped-def]
    """Whether u is in the rising row of v."""
    low, high = ptr[v], ptr[v + 1]
    while low < high:
        middle = (low + high) // 2
        if neighbours[middle] < u:
            low = middle + 1
        else:
            high = middle
    return low < ptr[v + 1] and neighbours[low] == u


@njit(nogil=True, cache=True)
def larger_cliques(cliques, ptr, neighbours):  # type: ignore[no-untyped-def]
    """Cliques [c j] -> cliques [c' j + 1], flat: every neighbour of the last node that is one of all the others, too.

    Returns an array and how much of it is in use. Neighbours are of an acyclic orientation, so that each clique
    comes once.
    """
    size = cliques.shape[1]
    out, total = np.empty(1024, np.int32), 0
    for c in range(cliques.shape[0]):
        last = cliques[c, size - 1]
        for q in range(ptr[last], ptr[last + 1]):
            w = neighbours[q]
            whole = True
            for i in range(size - 1):
                if not _has(ptr, neighbours, cliques[c, i], w):
                    whole = False
                    break
            if whole:
                out = grown(out, total + size + 1)
                for i in range(size):
                    out[total + i] = cliques[c, i]
                out[total + size] = w
                total += size + 1
    return out, total


@njit(nogil=True, cache=True)
def edges_inside(in_ptr, sources, motif_ptr, members):  # type: ignore[no-untyped-def]
    """The edges of the motifs' induced subgraphs as pairs of places in `members`: source, target, source, ...

    Returns an array and how much of it is in use.
    """
    n = in_ptr.size - 1
    inside, place = np.zeros(n, np.int32), np.empty(n, np.int32)
    out, total = np.empty(1024, np.int32), 0
    for i in range(motif_ptr.size - 1):
        first, end = motif_ptr[i], motif_ptr[i + 1]
        for j in range(first, end):
            inside[members[j]] = i + 1
            place[members[j]] = j
        for j in range(first, end):
            v = members[j]
            out = grown(out, total + 2 * (end - first))
            if in_ptr[v + 1] - in_ptr[v] > 8 * (end - first):
                for i_other in range(first, end):
                    if _has(in_ptr, sources, v, members[i_other]):
                        out[total], out[total + 1] = i_other, j
                        total += 2
            else:
                for e in range(in_ptr[v], in_ptr[v + 1]):
                    if inside[sources[e]] == i + 1:
                        out[total], out[total + 1] = place[sources[e]], j
                        total += 2
    return out, total
