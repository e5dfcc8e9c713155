"""What the data prove about L_gamma, whatever the regions' masses: exact intervals of local losses, and their count."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from classic_ml.auditing.explanations import in_unit_interval
from interp.core.intervals import Interval

FloatArray = npt.NDArray[np.float64]


def clopper_pearson(wrong: npt.ArrayLike, n: npt.ArrayLike, failure: float) -> tuple[FloatArray, FloatArray]:
    """Two-sided exact bounds [m], [m] of proportions seen as `wrong` of `n` [m]; each pair fails with probability at
    most `failure`.  0 of 0 gives [0, 1]."""
    in_unit_interval("failure", failure)
    k, n = np.broadcast_arrays(np.asarray(wrong), np.asarray(n))
    if (k < 0).any() or (k > n).any():
        raise ValueError("wrong must lie between 0 and n, number by number")
    pairs, back = np.unique(np.stack([k, n], -1).reshape(-1, 2), axis=0, return_inverse=True)
    a, b = pairs[:, 0].astype(float), pairs[:, 1].astype(float)
    low = np.where(a > 0, betaincinv(np.maximum(a, 1), b - a + 1, failure / 2), 0.0)
    high = np.where(a < b, betaincinv(a + 1, np.maximum(b - a, 1), 1 - failure / 2), 1.0)
    back = back.reshape(k.shape)
    return low[back], high[back]


def proportion_upper_bound(successes: int, n: int, failure: float = 0.05) -> float:
    """The one-sided exact upper bound of a proportion (1 - failure^(1/n) for 0 of n, about 3/n; 1 for n of n)."""
    return 1.0 if successes >= n else float(betaincinv(successes + 1, n - successes, 1 - failure))


def sampling_slack(n_audit: int, delta: float) -> float:
    """By how much the audited points' share strays from the data's, at any threshold, with probability delta / 2.

    sqrt(ln(4 / delta) / (2 m)): Hoeffding for one gamma and, with the same constant, Dvoretzky-Kiefer-Wolfowitz and
    Massart for all of them at once.
    """
    return math.sqrt(math.log(4 / delta) / (2 * n_audit))


def certified_interval(low: FloatArray, high: FloatArray, gamma: float, delta: float) -> Interval:
    """[lower, upper] of L_gamma from simultaneous bounds [m] of the audited points' local losses.

    A point is surely wrong where low >= gamma, surely fine where high < gamma. If the bounds fail together with
    probability at most delta / 2, the interval holds with probability 1 - delta, for all gamma at once: choosing gamma
    after a look at the data costs nothing.
    """
    in_unit_interval("gamma", gamma)
    slack = sampling_slack(len(low), delta)
    lower, upper = float((low >= gamma).mean()), float((high >= gamma).mean())
    return Interval(max(0.0, lower - slack), min(1.0, upper + slack))
