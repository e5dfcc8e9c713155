"""Pairs of classes compared in several small problems: who meets whom, and what the comparisons say of the mode.

An instance of dimension d is a set of d disjoint pairs (a, b): class a at +e_i, b at -e_i, all others at 0. Its mean
embedding is p_a - p_b in coordinate i. All pairs together give D_ab = p_a - p_b, and p itself: sum_b D_ab = n p_a - 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from classic_ml.surrogates.points import as_distributions
from interp.core.messages import at_least

Pairs = tuple[tuple[int, int], ...]


def round_robin_schedule(n_classes: int, dimension: int | None = None) -> list[Pairs]:
    """All pairs of classes in the fewest instances of at most `dimension` disjoint pairs, ceil(n (n - 1) / (2 d)).

    With d = n // 2 (None) these are the rounds of a round-robin tournament: n - 1, or n for odd n, where each class
    sits out once. Raises ValueError for a dimension outside 1..n // 2.
    """
    at_least("n_classes", n_classes, 2)
    half = n_classes // 2
    size = half if dimension is None else dimension
    at_least("dimension", size, 1)
    if size > half:
        raise ValueError(f"dimension = {size}: {n_classes} classes make at most {half} disjoint pairs")
    seats = n_classes + n_classes % 2  # the last seat of an odd number is a bye
    rounds: list[list[tuple[int, int]]] = []
    ring = list(range(1, seats))
    for _ in range(seats - 1):
        order = [0, *ring]
        pairs = [(order[i], order[-1 - i]) for i in range(seats // 2)]
        rounds.append([pair for pair in pairs if n_classes not in pair])
        ring = [ring[-1], *ring[:-1]]
    if size == half:
        return [tuple(pairs) for pairs in rounds]
    return [tuple(pairs) for pairs in _evened(rounds, size)]


def _evened(rounds: list[list[tuple[int, int]]], size: int) -> list[list[tuple[int, int]]]:
    """The same pairs in the fewest matchings of at most `size`, by swapping alternating paths between two of them."""
    n_pairs = sum(map(len, rounds))
    full, large = [], []
    for pairs in rounds:
        cuts = range(size, len(pairs) - size + 1, size)
        full += [pairs[cut - size : cut] for cut in cuts]
        large.append(pairs[len(cuts) * size :])  # size to 2 size - 1 pairs
    small: list[list[tuple[int, int]]] = [[] for _ in range(-(-n_pairs // size) - len(full) - len(large))]
    done = full
    while large:
        giver = large.pop()
        while len(giver) > size:
            taker = small.pop()
            giver, taker = _one_moved(giver, taker)
            (small if len(taker) < size else done).append(taker)
        (small if len(giver) < size else done).append(giver)
    return [pairs for pairs in [*done, *small] if pairs]


def _one_moved(
    giver: list[tuple[int, int]], taker: list[tuple[int, int]]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Two matchings with one pair fewer and one more, the larger being larger by two or more."""
    of_giver = {v: pair for pair in giver for v in pair}
    of_taker = {v: pair for pair in taker for v in pair}
    for start in of_giver:
        if start in of_taker:
            continue
        path: list[tuple[int, int]] = []
        v, sides = start, (of_giver, of_taker)
        while (pair := sides[len(path) % 2].get(v)) is not None:
            path.append(pair)
            v = pair[1] if pair[0] == v else pair[0]
        if len(path) % 2:
            out, back = path[::2], path[1::2]
            return [p for p in giver if p not in out] + back, [p for p in taker if p not in back] + out
    raise AssertionError("a larger matching has an augmenting path")


def instance_vertices(pairs: Sequence[tuple[int, int]], n_classes: int) -> Float[np.ndarray, "n d"]:
    """Row a is +e_i and row b is -e_i for pair i = (a, b); classes in no pair are 0."""
    V = np.zeros((n_classes, len(pairs)))
    for i, (a, b) in enumerate(pairs):
        V[a, i], V[b, i] = 1, -1
    return V


Reports = Iterable[Float[np.ndarray, "N d"]]
"""One report u (N, d) per instance, in the order of the schedule; may be a generator."""


def comparison_matrix(
    reports: Reports, schedule: Sequence[Pairs], n_classes: int
) -> Float[np.ndarray, "N n n"]:
    """D_ab = u_i, D_ba = -u_i of every pair i = (a, b)."""
    columns = [(u, *np.array(pairs).T) for u, pairs in zip(reports, schedule, strict=True)]
    D = np.zeros((len(columns[0][0]), n_classes, n_classes))
    for u, a, b in columns:
        D[:, a, b], D[:, b, a] = u, -u
    return D


def margin_scores(reports: Reports, schedule: Sequence[Pairs], n_classes: int) -> Float[np.ndarray, "N n"]:
    """(1 + sum_b D_ab) / n: the label distribution, where reports are exact. They sum to 1 and may be negative."""
    return (1 + _totals(((u, -u) for u in reports), schedule, n_classes)) / n_classes


def copeland_scores(reports: Reports, schedule: Sequence[Pairs], n_classes: int) -> Int[np.ndarray, "N n"]:
    """How many other classes each beats, D_ab > 0."""
    wins = _totals(((u > 0, u < 0) for u in reports), schedule, n_classes)
    return wins.astype(np.int64)


def _totals(
    gains: Iterable[tuple[np.ndarray, np.ndarray]], schedule: Sequence[Pairs], n_classes: int
) -> Float[np.ndarray, "N n"]:
    """Sums over instances of what the first and the second class of every pair gain."""
    totals = np.zeros((n_classes, 0))  # a row per class: adding to a few of them is then quick
    for k, ((first, second), pairs) in enumerate(zip(gains, schedule, strict=True)):
        if k == 0:
            totals = np.zeros((n_classes, len(first)))
        a, b = np.array(pairs).T
        totals[a] += first.T
        totals[b] += second.T
    return totals.T


def beats_all(wins: Int[np.ndarray, "N n"]) -> Bool[np.ndarray, " N"]:
    """Whether some class beats every other one (a Condorcet winner), from Copeland scores."""
    return wins.max(1) == wins.shape[1] - 1


def knockout_modes(P: Any) -> tuple[Int[np.ndarray, " N"], int]:
    """The mode of known distributions P (N, n) by comparing winners only: ceil(log2 n) rounds one after the other.

    A round is an instance whose pairs depend on p, so this is no way to train on samples; it says how few comparisons
    a mode needs. Ties go to the lower class. Returns the modes and the number of rounds.
    """
    probabilities = as_distributions(P)
    n_rows, n = probabilities.shape
    left = np.broadcast_to(np.arange(n), (n_rows, n))
    rounds = 0
    while left.shape[1] > 1:
        paired = left.shape[1] // 2 * 2
        a, b = left[:, 0:paired:2], left[:, 1:paired:2]
        difference = np.take_along_axis(probabilities, a, 1) - np.take_along_axis(probabilities, b, 1)
        left = np.hstack([np.where(difference >= 0, a, b), left[:, paired:]])
        rounds += 1
    return left[:, 0].copy(), rounds
