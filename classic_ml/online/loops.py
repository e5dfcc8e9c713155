"""Compiled inner loops of a round: the ball's projections, the base learners' steps, the weights.

All in one file because numba's cache on disk watches the file of the function it compiled only. Importing this module
imports numba: do so inside functions.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_CLOSE = 1e-8  # relative excess of the norm at which one Newton step more leaves a rounding error
_EXACT = 1e-12


@njit(nogil=True, cache=True)
def project_ball(x, center, radius):
    """The points of a ball nearest to the rows of x [k d]."""
    k, d = x.shape
    nearest = np.empty((k, d))
    for i in range(k):
        norm2 = 0.0
        for j in range(d):
            norm2 += (x[i, j] - center[j]) ** 2
        if norm2 <= radius * radius:
            nearest[i] = x[i]
        else:
            scale = radius / math.sqrt(norm2)
            for j in range(d):
                nearest[i, j] = center[j] + (x[i, j] - center[j]) * scale
    return nearest


@njit(nogil=True, cache=True)
def project_ball_metric(x, eigvals, eigvecs, center, radius):
    """The points of a ball nearest to the rows of x [k d] in the norms of A_i = Q diag(a_i) Q', a_i in eigvals [k d].

    A row outside, z = Q' (x - center), moves to a z / (a + nu) with the nu >= 0 that gives it the norm `radius`.
    Newton's method looks for the root of 1/|z(nu)| = 1/radius: 1/|z| is a power mean of a + nu of order -2, therefore
    concave, and the iterates rise from nu = 0 to the root without passing it.
    """
    k, d = x.shape
    nearest = np.empty((k, d))
    z = np.empty(d)
    for i in range(k):
        norm2 = 0.0
        for j in range(d):
            norm2 += (x[i, j] - center[j]) ** 2
        if norm2 <= radius * radius:
            nearest[i] = x[i]
            continue
        z[:] = 0.0
        for l in range(d):
            for j in range(d):
                z[j] += (x[i, l] - center[l]) * eigvecs[l, j]
        nu = 0.0
        for _ in range(100):
            norm2 = slope = 0.0
            for j in range(d):
                shifted = eigvals[i, j] + nu
                moved = eigvals[i, j] * z[j] / shifted
                norm2 += moved * moved
                slope += moved * moved / shifted
            excess = math.sqrt(norm2) / radius - 1
            nu += norm2 * excess / slope
            if excess <= _CLOSE:
                break
        norm2 = 0.0
        for j in range(d):
            z[j] *= eigvals[i, j] / (eigvals[i, j] + nu)
            norm2 += z[j] * z[j]
        scale = radius / math.sqrt(norm2)
        for l in range(d):
            total = 0.0
            for j in range(d):
                total += eigvecs[l, j] * z[j]
            nearest[i, l] = center[l] + total * scale
    return nearest


@njit(nogil=True, cache=True)
def gradient_points(anchors, decisions, half_curvatures, steps, gradient, played):
    """Where the gradient learners' anchors [k d] go, before the projection."""
    k, d = anchors.shape
    points = np.empty((k, d))
    for i in range(k):
        for j in range(d):
            surrogate = gradient[j] + half_curvatures[i] * (decisions[i, j] - played[j])
            points[i, j] = anchors[i, j] - steps[i] * surrogate
    return points


@njit(nogil=True, cache=True)
def newton_points(anchors, eigvals, eigvecs, gradient, scales):
    """anchors - scales A^-1 gradient, before the projection: rows [k d], A_i = Q diag(a_i) Q'."""
    k, d = anchors.shape
    points = anchors.copy()
    along = np.zeros(d)
    for l in range(d):
        for j in range(d):
            along[j] += gradient[l] * eigvecs[l, j]
    for i in range(k):
        for l in range(d):
            total = 0.0
            for j in range(d):
                total += eigvecs[l, j] * along[j] / eigvals[i, j]
            points[i, l] -= scales[i] * total
    return points


@njit(nogil=True, cache=True)
def newton_scales(decisions, half_curvatures, gradient, played, outer):
    """The surrogate gradients' multiples [k] of the gradient, whose outer product is added to `outer` [d d]."""
    k, d = decisions.shape
    scales = np.ones(k)
    for i in range(k):
        for j in range(d):
            scales[i] += half_curvatures[i] * gradient[j] * (decisions[i, j] - played[j])
    for l in range(d):
        for j in range(d):
            outer[l, j] += gradient[l] * gradient[j]
    return scales


@njit(nogil=True, cache=True)
def play(decisions, hint, unit, rates, log_weights, optimistic):
    """Weights p [N], their point [d], and the last learner's optimism m = <hint, point - its decision> / unit."""
    n, d = decisions.shape
    weights, point = np.empty(n), np.zeros(d)
    top = -np.inf
    for i in range(n):
        weights[i] = math.log(rates[i]) + log_weights[i]
        if i < n - 1:
            top = max(top, weights[i])
    total = 0.0
    for i in range(n - 1):
        weights[i] = math.exp(weights[i] - top)
        total += weights[i]
        for j in range(d):
            point[j] += weights[i] * decisions[i, j]
    odds, rate = weights[n - 1] - top - math.log(total), rates[n - 1]
    m = 0.0
    if optimistic:
        gap = 0.0
        for j in range(d):
            gap += hint[j] * (point[j] / total - decisions[n - 1, j]) / unit
        low, high = min(0.0, gap), max(0.0, gap)
        for _ in range(60):
            m = (low + high) / 2
            off = gap / (1 + math.exp(odds + rate * m)) - m
            if abs(off) <= _EXACT:
                break
            if off > 0:
                low = m
            else:
                high = m
    others = 1 / (1 + math.exp(odds + rate * m))
    last = 1 / (1 + math.exp(-odds - rate * m))
    for i in range(n - 1):
        weights[i] *= others / total
    weights[n - 1] = last
    for j in range(d):
        point[j] = others / total * point[j] + last * decisions[n - 1, j]
    return weights, point, m


@njit(nogil=True, cache=True)
def reweigh(decisions, gradient, point, unit, m, cap, log_n, rates, log_weights, sums):
    """One update in place of `rates`, `log_weights` [N] and `sums` [5 N]: of the regrets r, (r - m)^2, rate (r - m)^2,
    and of the last round the log weights before it and before the power. Returns the sum of rate / new rate - 1."""
    n, d = decisions.shape
    drops = 0.0
    for i in range(n):
        regret = 0.0
        for j in range(d):
            regret += gradient[j] * (point[j] - decisions[i, j])
        regret /= unit
        square = (regret - (m if i == n - 1 else 0.0)) ** 2
        sums[0, i] += regret
        sums[1, i] += square
        sums[2, i] += rates[i] * square
        sums[3, i] = log_weights[i]
        sums[4, i] = log_weights[i] + rates[i] * regret - rates[i] * rates[i] * square
        rate = min(cap, math.sqrt(log_n / (1 + sums[1, i])))
        drops += rates[i] / rate - 1
        log_weights[i] = sums[4, i] * (rate / rates[i])
        rates[i] = rate
    return drops
