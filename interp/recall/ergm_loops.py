"""Compiled loops over one graph: change statistics, sampling, enumeration.

A graph is four arrays that a toggle keeps true together: `adjacent` [n n] of 0 and 1, `neighbours` [n n] with
the `degree` [n] first entries of each row in use, and `shared` [n n], the number of common neighbours of every
pair.  With `shared` at hand a change statistic looks at the neighbours of the dyad's two ends and at nothing
else, and so does the toggle that keeps `shared` up to date: O(degree) each.
"""

from __future__ import annotations

import numpy as np
from numba import njit

EDGES, TRIANGLES, TWO_STARS, ALT_TRIANGLES, ALT_TWO_PATHS, ALT_STARS = range(6)


@njit(nogil=True, cache=True)
def change(codes, lam, powers, adjacent, neighbours, degree, shared, i, j, out):  # type: ignore[no-untyped-def]
    """Statistics with the edge ij minus statistics without it, whichever the graph has; `powers[k] = g**k`."""
    here = adjacent[i, j]
    for k in range(codes.shape[0]):
        code = codes[k]
        if code == EDGES:
            out[k] = 1.0
        elif code == TRIANGLES:
            out[k] = shared[i, j]
        elif code == TWO_STARS:
            out[k] = degree[i] + degree[j] - 2 * here
        elif code == ALT_STARS:
            out[k] = lam * (2.0 - powers[degree[i] - here] - powers[degree[j] - here])
        elif code == ALT_TRIANGLES:
            total = lam * (1.0 - powers[shared[i, j]])
            for q in range(degree[i]):
                h = neighbours[i, q]
                if adjacent[h, j]:
                    total += powers[shared[i, h] - here] + powers[shared[j, h] - here]
            out[k] = total
        else:
            total = 0.0
            for q in range(degree[j]):
                h = neighbours[j, q]
                if h != i:
                    total += powers[shared[i, h] - here]
            for q in range(degree[i]):
                h = neighbours[i, q]
                if h != j:
                    total += powers[shared[j, h] - here]
            out[k] = total


@njit(nogil=True, cache=True)
def _remove(neighbours, degree, i, j):  # type: ignore[no-untyped-def]
    last = degree[i] - 1
    for q in range(last):
        if neighbours[i, q] == j:
            neighbours[i, q] = neighbours[i, last]
            break
    degree[i] = last


@njit(nogil=True, cache=True)
def toggle(adjacent, neighbours, degree, shared, i, j):  # type: ignore[no-untyped-def]
    """Add the edge ij where it is missing, take it away where it is there."""
    if adjacent[i, j]:
        step = -1
        _remove(neighbours, degree, i, j)
        _remove(neighbours, degree, j, i)
    else:
        step = 1
    for q in range(degree[i]):
        h = neighbours[i, q]
        shared[h, j] += step
        shared[j, h] += step
    for q in range(degree[j]):
        h = neighbours[j, q]
        shared[h, i] += step
        shared[i, h] += step
    if step == 1:
        neighbours[i, degree[i]] = j
        neighbours[j, degree[j]] = i
        degree[i] += 1
        degree[j] += 1
    adjacent[i, j] += step
    adjacent[j, i] += step


@njit(nogil=True, cache=True)
def design(codes, lam, powers, adjacent, neighbours, degree, shared, dyads, out):  # type: ignore[no-untyped-def]
    """The change statistics of every dyad, one row each."""
    for m in range(dyads.shape[0]):
        i, j = dyads[m, 0], dyads[m, 1]
        change(codes, lam, powers, adjacent, neighbours, degree, shared, i, j, out[m])


@njit(nogil=True, cache=True)
def sample(  # type: ignore[no-untyped-def]
    codes,
    lam,
    powers,
    adjacent,
    neighbours,
    degree,
    shared,
    dyads,
    theta,
    z,
    seed,
    burn_in,
    interval,
    out,
    edges,
):
    """Metropolis toggles of uniformly drawn dyads; the graph and its statistics `z` are left where the chain ends.

    `out` [M p] takes the statistics every `interval` toggles after `burn_in`; `edges` [M m], where it has rows, the
    state of every dyad.  Returns the number of accepted toggles.
    """
    np.random.seed(seed)
    delta = np.empty(codes.shape[0])
    accepted = 0
    for draw in range(out.shape[0]):
        for _ in range(interval + (burn_in if draw == 0 else 0)):
            m = np.random.randint(dyads.shape[0])
            i, j = dyads[m, 0], dyads[m, 1]
            change(codes, lam, powers, adjacent, neighbours, degree, shared, i, j, delta)
            sign = 1.0 - 2.0 * adjacent[i, j]
            drift = 0.0
            for k in range(codes.shape[0]):
                drift += theta[k] * delta[k]
            drift *= sign
            if drift >= 0 or np.random.random() < np.exp(drift):
                toggle(adjacent, neighbours, degree, shared, i, j)
                for k in range(codes.shape[0]):
                    z[k] += sign * delta[k]
                accepted += 1
        out[draw] = z
        if edges.shape[0]:
            for m in range(dyads.shape[0]):
                edges[draw, m] = adjacent[dyads[m, 0], dyads[m, 1]]
    return accepted


@njit(nogil=True, cache=True)
def enumerate_all(  # type: ignore[no-untyped-def]
    codes, lam, powers, adjacent, neighbours, degree, shared, dyads, z, out
):
    """The statistics of all 2**m states of the dyads, in the order of a Gray code: one toggle apart."""
    delta = np.empty(codes.shape[0])
    out[0] = z
    for index in range(1, out.shape[0]):
        m = 0
        while not (index >> m) & 1:
            m += 1
        i, j = dyads[m, 0], dyads[m, 1]
        change(codes, lam, powers, adjacent, neighbours, degree, shared, i, j, delta)
        sign = 1.0 - 2.0 * adjacent[i, j]
        toggle(adjacent, neighbours, degree, shared, i, j)
        for k in range(codes.shape[0]):
            z[k] += sign * delta[k]
        out[index] = z
