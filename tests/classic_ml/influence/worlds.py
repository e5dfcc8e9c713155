"""The sheet's small graphs, random ones, and values by recursion over fractions: no array, no library code."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from fractions import Fraction as F

import numpy as np

from classic_ml.influence import InfluenceGraph, LinearThresholdGraph, Motif

Edges = dict[tuple[int, int], F]

A: tuple[Edges, list[Motif]] = ({(0, 1): F(1, 4), (1, 0): F(1, 4)}, [Motif((0, 1), 2)])
B: tuple[Edges, list[Motif]] = (
    {
        (0, 1): F(1, 2),
        (2, 1): F(1, 2),
        (1, 0): F(1, 2),
        (1, 2): F(1, 2),
        (3, 2): F(1, 4),
        (2, 3): F(1, 3),
        (4, 3): F(1, 3),
        (3, 4): F(1, 2),
    },
    [Motif((1, 2), 2), Motif((2, 3), 2), Motif((3, 4), 1)],
)
C: tuple[Edges, list[Motif]] = (
    {(0, 1): F(1, 2), (0, 2): F(1, 2), (1, 2): F(1, 4), (2, 1): F(1, 4)},
    [Motif((1, 2), 2)],
)
D: tuple[Edges, list[Motif]] = (
    {(0, v): F(1, 2) for v in (1, 2, 3, 4)}
    | {(u, v): F(1, 3) for u, v in itertools.permutations((5, 6, 7), 2)}
    | {(8, 5): F(1, 3)},
    [Motif((5, 6, 7), 3), Motif((5, 6), 2), Motif((1, 2), 2)],
)


def as_graph(edges: Edges, *, cascade: str = "lt") -> InfluenceGraph:
    kind = LinearThresholdGraph if cascade == "lt" else InfluenceGraph
    sources, targets = zip(*edges, strict=True)
    return kind.from_edges(sources, targets, [float(w) for w in edges.values()], scheme="given")


def live_graphs(edges: Edges, cascade: str = "lt") -> Iterator[tuple[F, set[tuple[int, int]]]]:
    """Probability and live edges, of every live-edge graph."""
    nodes = sorted({node for edge in edges for node in edge})
    options: list[list[tuple[F, tuple[int, int] | None]]] = []
    if cascade == "lt":
        for v in nodes:
            into = [(w, edge) for edge, w in edges.items() if edge[1] == v]
            options.append([*into, (1 - sum((w for w, _ in into), F(0)), None)])
    else:
        options = [[(w, edge), (1 - w, None)] for edge, w in edges.items()]
    for choice in itertools.product(*options):
        probability = F(1)
        for p, _ in choice:
            probability *= p
        if probability:
            yield probability, {edge for _, edge in choice if edge is not None}


def reached(starts: Iterable[int], live: set[tuple[int, int]]) -> set[int]:
    active = set(starts)
    while more := {v for u, v in live if u in active} - active:
        active |= more
    return active


def values(edges: Edges, motifs: list[Motif], seeds: Iterable[int], cascade: str = "lt") -> dict[str, F]:
    """Spread, influence and bounds, straight from their definitions."""
    seeds = list(seeds)
    names = ("lower_tree", "lower_seed", "influence", "upper_min", "upper_any", "spread")
    total = dict.fromkeys(names, F(0))
    for p, live in live_graphs(edges, cascade):
        active = reached(seeds, live)
        total["spread"] += p * len(active)
        for motif in motifs:
            p_value, members, r = p * F(motif.value), set(motif.nodes), motif.threshold
            inner = {(u, v) for u, v in live if u in members and v in members}
            count = len(active & members)
            tree = any(v in active and len(reached([v], inner)) >= r for v in members)
            alone = any(len(reached([s], live) & members) >= r for s in seeds)
            total["lower_tree"] += p_value * tree
            total["lower_seed"] += p_value * alone
            total["influence"] += p_value * (count >= r)
            total["upper_min"] += p_value * min(F(1), F(count, r))
            total["upper_any"] += p_value * (count > 0)
    return total


def activation(edges: Edges, seeds: Iterable[int], cascade: str = "lt") -> dict[int, F]:
    """How likely each node is to be active."""
    total = {node: F(0) for edge in edges for node in edge}
    for p, live in live_graphs(edges, cascade):
        for v in reached(seeds, live):
            total[v] += p
    return total


def random_world(seed: int, n: int = 6, cascade: str = "lt") -> tuple[Edges, list[Motif]]:
    """Up to two edges into every node (about eight edges in all for "ic"), three motifs with values."""
    rng = np.random.default_rng(seed)
    edges: Edges = {}
    for v in range(n):
        others = rng.permutation([u for u in range(n) if u != v])[
            : 2 if cascade == "lt" else 1 + (v % 3 == 0)
        ]
        parts = rng.integers(1, 5, len(others) + 1)
        for u, part in zip(others, parts, strict=False):
            edges[(int(u), v)] = F(int(part), int(parts.sum()))
    sizes = rng.integers(2, 5, 3)
    groups = [tuple(sorted(rng.choice(n, size, replace=False).tolist())) for size in sizes]
    motifs = [
        Motif(group, int(rng.integers(1, len(group) + 1)), value)
        for group, value in zip(groups, (1, 2, 0.5), strict=True)
    ]
    return edges, motifs
