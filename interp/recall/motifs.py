"""Censuses of induced subgraphs of three and four nodes, and how recall shifts them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from interp.recall.ergm_statistics import as_adjacency
from interp.recall.permutation import against_shuffled

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

MOTIFS = {
    3: ("empty", "edge", "two_path", "triangle"),
    4: (
        "empty",
        "edge",
        "matching",
        "two_path",
        "triangle",
        "path",
        "star",
        "cycle",
        "paw",
        "diamond",
        "clique",
    ),
}
CHUNK = 4_000_000


def motif_census(graph: nx.Graph | ndarray, size: int = 4) -> dict[str, int]:
    """How many sets of `size` nodes induce each graph, isolated nodes included: `two_path` of size 4 is a path of
    two edges beside a node of its own.

    Raises:
        ValueError: a size other than 3 and 4, or a graph that isn't simple and undirected.
    """
    _check(size)
    counts = census(as_adjacency(graph)[None], size)[0]
    return dict(zip(MOTIFS[size], map(int, counts), strict=True))


def motif_bias(
    true_graphs: Sequence[nx.Graph],
    recalled_graphs: Sequence[nx.Graph],
    size: int = 4,
    *,
    n_permutations: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """Censuses of true and recalled graphs, and z-scores against recalls with as many errors in random places."""
    _check(size)
    return against_shuffled(
        true_graphs,
        recalled_graphs,
        lambda a: census(a, size),
        MOTIFS[size],
        n_permutations=n_permutations,
        seed=seed,
    )


def census(adjacency: Int[ndarray, "b n n"], size: int) -> Int[ndarray, "b k"]:
    """The censuses of many graphs; edges, largest and smallest degree tell all graphs of up to four nodes apart."""
    out = np.zeros((len(adjacency), len(MOTIFS[size])), int)
    sets = np.array(list(combinations(range(adjacency.shape[1]), size)), int).reshape(-1, size)
    step = max(1, CHUNK // max(1, len(sets)))
    for first in range(0, len(adjacency), step):
        some = adjacency[first : first + step]
        degrees = np.stack(
            [sum(some[:, sets[:, i], sets[:, j]] for j in range(size) if j != i) for i in range(size)]
        )
        edges, high, low = degrees.sum(0) // 2, degrees.max(0), degrees.min(0)
        code = _codes(size)[edges, high, low]
        for k in range(len(MOTIFS[size])):
            out[first : first + step, k] = (code == k).sum(1)
    return out


def _codes(size: int) -> Int[ndarray, "edges high low"]:
    """(edges, largest degree, smallest degree) -> index of the motif."""
    known = {
        3: {(0, 0, 0): "empty", (1, 1, 0): "edge", (2, 2, 1): "two_path", (3, 2, 2): "triangle"},
        4: {
            (0, 0, 0): "empty",
            (1, 1, 0): "edge",
            (2, 1, 1): "matching",
            (2, 2, 0): "two_path",
            (3, 2, 0): "triangle",
            (3, 2, 1): "path",
            (3, 3, 1): "star",
            (4, 2, 2): "cycle",
            (4, 3, 1): "paw",
            (5, 3, 2): "diamond",
            (6, 3, 3): "clique",
        },
    }[size]
    table = np.full((7, 4, 4), -1)
    for key, name in known.items():
        table[key] = MOTIFS[size].index(name)
    return table


def _check(size: int) -> None:
    if size not in MOTIFS:
        raise ValueError(f"size = {size}: censuses of 3 or 4 nodes are known")
