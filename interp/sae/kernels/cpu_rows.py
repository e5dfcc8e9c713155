"""Compiled inner loops over rows of width d: weighted sums of rows, and dot products with rows.

Several rows at a time, so that what they share is loaded once. The order of summation is fixed by the list:
``reassoc`` only lets the compiler sum the lanes of a vector register in an order that the machine fixes.
"""

from __future__ import annotations

from numba import njit

FAST = {"reassoc", "contract", "nsz"}


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
