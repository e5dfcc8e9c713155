"""How many samples suffice: VC dimension of a class composed with finitely many transformations, and uniform gaps.

What counts is vc(H o T), the VC dimension of { x -> h(T(x)) }, not vc(H) + vc(T).  It equals vc(H) where the maps are
linear and H begins with a linear layer (halfspaces, feed-forward networks; thresholds with shifts: 1), and is infinite
for the family of all maps.
"""

from __future__ import annotations

import math

from interp.core.messages import at_least


def sauer_vc_bound(vc: int, n_transforms: int) -> int:
    """The largest m with n_transforms * sum_{i <= vc} C(m, i) >= 2^m: no more points can be shattered by H o T.

    Sauer's lemma for each transformation and the union of them; grows as vc log vc + log n_transforms.
    """
    at_least("vc", vc, 0)
    at_least("n_transforms", n_transforms, 1)

    def may_shatter(m: int) -> bool:
        return n_transforms * sum(math.comb(m, i) for i in range(vc + 1)) >= 2**m

    low, high = (
        vc,
        2 * vc + 2,
    )  # the ratio of the two sides never rises with m, so that bisection finds the last
    while may_shatter(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if may_shatter(middle) else (low, middle)
    return low


def sample_size(
    vc: int, n_transforms: int | None, eps: float, delta: float = 0.05, *, constant: float = 1.0
) -> int:
    """constant * (vc(H o T) + ln(1/delta)) / eps^2, rounded up: samples for a worst case within eps (Theorem 2.1).

    The theorem is known for its rate only: `constant` is yours, and the result an order of magnitude.

    Args:
        vc: of H.
        n_transforms: vc(H o T) is then taken as `sauer_vc_bound`; None where H o T lies inside H.
    """
    _check_share("eps", eps)
    _check_share("delta", delta)
    if not constant > 0:
        raise ValueError(f"constant = {constant} must be positive")
    at_least("vc", vc, 0)
    composed = vc if n_transforms is None else sauer_vc_bound(vc, n_transforms)
    return math.ceil(constant * (composed + math.log(1 / delta)) / eps**2)


def hoeffding_gap(n_predictors: int, n_transforms: int, n_samples: int, delta: float = 0.05) -> float:
    """sqrt(ln(2 |H| |T| / delta) / (2 m)): with probability 1 - delta no |err_S - err| of all pairs is larger.

    For predictors chosen without looking at these samples, such as those measured on a test set, or a finite class.
    """
    at_least("n_predictors", n_predictors, 1)
    at_least("n_transforms", n_transforms, 1)
    at_least("n_samples", n_samples, 1)
    _check_share("delta", delta)
    return math.sqrt(math.log(2 * n_predictors * n_transforms / delta) / (2 * n_samples))


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} = {value} must lie between 0 and 1")
