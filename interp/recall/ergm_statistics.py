"""What an exponential random graph model counts: six statistics and their change when one edge is added.

Snijders, Pattison, Robins and Handcock 2006, "New specifications for exponential random graph models" (alternating
forms); with g = 1 - 1/lam, d_i degrees and S_ij numbers of common neighbours:

    edges          sum_{i<j} y_ij
    triangles      number of triangles
    two_stars      sum_i C(d_i, 2)
    alt_triangles  lam sum_{i<j} y_ij (1 - g^S_ij)        gwesp(log lam) of statnet
    alt_two_paths  lam sum_{i<j} (1 - g^S_ij)             gwdsp(log lam)
    alt_stars      lam^2 sum_i (g^d_i + d_i/lam - 1)      altkstar(lam)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from interp.core.messages import nearest

if TYPE_CHECKING:
    import networkx as nx

STATISTICS = ("edges", "triangles", "two_stars", "alt_triangles", "alt_two_paths", "alt_stars")
DEFAULT_STATISTICS = ("edges", "two_stars", "alt_triangles", "alt_two_paths")


@dataclass(frozen=True)
class Specification:
    """Which statistics, and the decay `lam` > 1 of the alternating ones."""

    statistics: tuple[str, ...] = DEFAULT_STATISTICS
    lam: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistics", tuple(self.statistics))
        for name in self.statistics:
            if name not in STATISTICS:
                raise ValueError(f"statistics: {name!r} is not known; {nearest(name, STATISTICS)}")
        if not self.statistics or len(set(self.statistics)) < len(self.statistics):
            raise ValueError(f"statistics = {self.statistics}: name at least one, and each once")
        if not 1 < self.lam < float("inf"):
            raise ValueError(f"lam = {self.lam}: must be above 1 and finite (2 is usual)")

    @property
    def codes(self) -> Int[ndarray, " p"]:
        return np.array([STATISTICS.index(name) for name in self.statistics])

    def powers(self, n: int) -> Float[ndarray, " n+1"]:
        return (1 - 1 / self.lam) ** np.arange(n + 1)


def as_adjacency(graph: Any) -> Int[ndarray, "n n"]:
    """The 0/1 matrix of a simple undirected graph, given as networkx graph (rows in its node order) or matrix.

    Raises:
        ValueError: directed edges, parallel edges, self-loops or fewer than two nodes.
    """
    import networkx as nx

    if isinstance(graph, nx.Graph):
        if graph.is_directed() or graph.is_multigraph():
            raise ValueError("graph is directed or has parallel edges; give a simple nx.Graph")
        matrix = nx.to_numpy_array(graph, weight=None)
    else:
        matrix = np.asarray(graph)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise ValueError(f"graph: expected at least two nodes as a square matrix, got shape {matrix.shape}")
    if np.diag(matrix).any():
        raise ValueError("graph has self-loops; remove them (nx.selfloop_edges lists them)")
    if not np.isin(matrix, (0, 1)).all() or not (matrix == matrix.T).all():
        raise ValueError("graph: the matrix must be symmetric with entries 0 and 1")
    return matrix.astype(np.int64)


@dataclass(frozen=True)
class Network:
    """One observed graph and the dyads that are free to change; the others are held as they are."""

    adjacency: Int[ndarray, "n n"]
    free: Int[ndarray, "m 2"]

    @classmethod
    def of(cls, graph: Any, fixed: Any = None) -> Network:
        """`fixed`: a graph whose edges are held (same node order), or a boolean matrix that is True where held."""
        adjacency = as_adjacency(graph)
        held = np.zeros(adjacency.shape, bool) if fixed is None else _mask(fixed, graph, len(adjacency))
        rows, cols = np.nonzero(np.triu(~held, k=1))
        if not len(rows):
            raise ValueError("fixed holds every dyad; at least one must be free")
        return cls(adjacency, np.stack([rows, cols], axis=1))

    @property
    def observed(self) -> Int[ndarray, " m"]:
        """The free dyads' states."""
        return self.adjacency[self.free[:, 0], self.free[:, 1]]

    def with_free(self, states: Int[ndarray, " m"] | int) -> Network:
        """The network with its free dyads set."""
        adjacency = self.adjacency.copy()
        adjacency[self.free[:, 0], self.free[:, 1]] = states
        adjacency[self.free[:, 1], self.free[:, 0]] = states
        return Network(adjacency, self.free)

    def design(self, spec: Specification) -> Float[ndarray, "m p"]:
        """The change statistics of the free dyads."""
        from interp.recall import ergm_loops

        out = np.empty((len(self.free), len(spec.statistics)))
        arrays = State(self, spec).arrays
        ergm_loops.design(*arrays, self.free, out)
        return out


class State:
    """A network in the form the compiled loops work on: they change it in place."""

    def __init__(self, network: Network, spec: Specification) -> None:
        adjacency = network.adjacency.copy()
        n = len(adjacency)
        neighbours = np.zeros((n, n), np.int64)
        for i, row in enumerate(adjacency):
            found = np.flatnonzero(row)
            neighbours[i, : len(found)] = found
        shared = adjacency @ adjacency
        np.fill_diagonal(shared, 0)
        graph = (adjacency, neighbours, adjacency.sum(1), shared)
        self.arrays = (spec.codes, float(spec.lam), spec.powers(n), *graph)
        self.z = graph_statistics(adjacency, spec.statistics, spec.lam)
        self.free = network.free


def graph_statistics(
    graph: nx.Graph | ndarray, statistics: Sequence[str] = DEFAULT_STATISTICS, lam: float = 2.0
) -> Float[ndarray, " p"]:
    """The statistics z(y) of a graph, from their definitions.

    Raises:
        ValueError: an unknown statistic, lam <= 1, or a graph that isn't simple and undirected.
    """
    return batch_statistics(as_adjacency(graph)[None], Specification(tuple(statistics), lam))[0]


def batch_statistics(adjacency: Int[ndarray, "b n n"], spec: Specification) -> Float[ndarray, "b p"]:
    """The statistics of many graphs on the same nodes."""
    d, (rows, cols) = adjacency.sum(2), np.triu_indices(adjacency.shape[1], k=1)
    y, s = adjacency[:, rows, cols], (adjacency @ adjacency)[:, rows, cols]
    lam, g = spec.lam, 1 - 1 / spec.lam
    values = {
        "edges": lambda: y.sum(1),
        "triangles": lambda: (y * s).sum(1) / 3,
        "two_stars": lambda: (d * (d - 1)).sum(1) / 2,
        "alt_triangles": lambda: lam * (y * (1 - g**s)).sum(1),
        "alt_two_paths": lambda: lam * (1 - g**s).sum(1),
        "alt_stars": lambda: lam**2 * (g**d + d / lam - 1).sum(1),
    }
    return np.stack([values[name]().astype(float) for name in spec.statistics], axis=1)


def change_statistics(
    graph: nx.Graph | ndarray,
    i: int,
    j: int,
    statistics: Sequence[str] = DEFAULT_STATISTICS,
    lam: float = 2.0,
) -> Float[ndarray, " p"]:
    """z(graph with ij) - z(graph without ij), for the i-th and j-th node; the graph may or may not have the edge.

    Raises:
        ValueError: as `graph_statistics`, and for i = j or a node that isn't there.
    """
    adjacency = as_adjacency(graph)
    n = len(adjacency)
    if i == j or not (0 <= i < n and 0 <= j < n):
        raise ValueError(f"i = {i}, j = {j}: expected two different nodes from 0 to {n - 1}")
    return Network(adjacency, np.array([[i, j]])).design(Specification(tuple(statistics), lam))[0]


def _mask(fixed: Any, graph: Any, n: int) -> ndarray:
    import networkx as nx

    if isinstance(fixed, nx.Graph):
        if isinstance(graph, nx.Graph):
            if set(fixed) != set(graph):
                raise ValueError("fixed has other nodes than the graph")
            mask = nx.to_numpy_array(fixed, nodelist=list(graph), weight=None) > 0
        else:
            mask = as_adjacency(fixed) > 0
    else:
        mask = np.asarray(fixed).astype(bool)
    if mask.shape != (n, n) or not (mask == mask.T).all():
        raise ValueError(f"fixed: expected a symmetric [{n} {n}] mask or a graph, got shape {mask.shape}")
    return mask
