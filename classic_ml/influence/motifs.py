"""Motifs: groups of nodes that count once enough of their members are active; and how to find some in a graph."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from classic_ml.influence.graph import InfluenceGraph, as_graph
from classic_ml.random_state import RandomState, as_generator
from interp.core.messages import at_least


@dataclass(frozen=True)
class Motif:
    """A group of nodes (labels), how many of them must be active, and what it is then worth.

    Raises:
        ValueError: no nodes, a node twice, a threshold outside 1 .. len(nodes), a value that is not positive.
    """

    nodes: tuple[Hashable, ...]
    threshold: int
    value: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        if not self.nodes:
            raise ValueError("a motif has no nodes; give at least one")
        if len(set(self.nodes)) < len(self.nodes):
            raise ValueError(f"motif {_short(self.nodes)} has a node twice; name each once")
        at_least("threshold", self.threshold, 1)
        if self.threshold > len(self.nodes):
            raise ValueError(
                f"threshold = {self.threshold} of motif {_short(self.nodes)} is more than its {len(self.nodes)} nodes"
            )
        if not (np.isfinite(self.value) and self.value > 0):
            raise ValueError(
                f"value = {self.value} of motif {_short(self.nodes)} must be positive and finite"
            )


@dataclass(frozen=True, eq=False)
class MotifTable:
    """Motifs as arrays over a graph's node numbers; motif i has members[ptr[i] : ptr[i + 1]]."""

    ptr: Int[np.ndarray, " motifs+1"]
    members: Int[np.ndarray, " places"]
    thresholds: Int[np.ndarray, " motifs"]
    values: Float[np.ndarray, " motifs"]

    @classmethod
    def build(cls, graph: InfluenceGraph, motifs: Iterable[Motif]) -> MotifTable:
        """Raises ValueError for no motifs or a node outside the graph, TypeError for what is no `Motif`. Warns where a
        motif is not strongly connected: its members then can't all trigger each other, as the paper asks."""
        listed = list(motifs)
        if not listed:
            raise ValueError("motifs is empty; give at least one Motif")
        for motif in listed:
            if not isinstance(motif, Motif):
                raise TypeError(f"motifs holds a {type(motif).__name__}: make it Motif(nodes, threshold)")
        index = graph.index
        try:
            places = [index[label] for motif in listed for label in motif.nodes]
        except KeyError:
            for motif in listed:
                graph.nodes(motif.nodes, "motifs")
            raise
        table = cls(
            np.concatenate([[0], np.cumsum([len(motif.nodes) for motif in listed])]).astype(np.int64),
            np.array(places, dtype=np.int32),
            np.array([motif.threshold for motif in listed], dtype=np.int32),
            np.array([motif.value for motif in listed], dtype=np.float64),
        )
        loose = np.flatnonzero(~strongly_connected(graph, table.ptr, table.members))
        if len(loose):
            warnings.warn(
                f"{len(loose)} of {len(listed)} motifs are not strongly connected, the first is "
                f"{_short(listed[loose[0]].nodes)}; the bounds hold, but the paper's motifs are",
                UserWarning,
                stacklevel=3,
            )
        return table

    def __len__(self) -> int:
        return len(self.thresholds)

    @cached_property
    def total_value(self) -> float:
        """What all motifs are worth together; their number where each is worth 1."""
        return float(self.values.sum())

    @cached_property
    def cumulative(self) -> Float[np.ndarray, " motifs"]:
        return np.cumsum(self.values)

    @property
    def groups(self) -> list[Int[np.ndarray, " size"]]:
        """The members of every motif."""
        return np.split(self.members, self.ptr[1:-1])[: len(self)]

    def by_node(self, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """Pointers [n + 1] and the motifs of each node."""
        order = np.argsort(self.members, kind="stable")
        owner = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.ptr))
        pointers = np.concatenate([[0], np.cumsum(np.bincount(self.members, minlength=n_nodes))])
        return pointers.astype(np.int64), owner[order]


NO_MOTIFS = MotifTable(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))


def strongly_connected(
    graph: InfluenceGraph, ptr: Int[np.ndarray, " motifs+1"], members: Int[np.ndarray, " places"]
) -> np.ndarray:
    """[motifs] whether every member reaches every other over edges among them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    from classic_ml.influence.clique_loops import edges_inside

    flat, used = edges_inside(graph.in_ptr, graph.sources, ptr, members)
    edges = flat[:used].reshape(-1, 2)
    links = coo_array((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(len(members),) * 2)
    _, component = connected_components(links.tocsr(), connection="strong")
    first = np.repeat(component[ptr[:-1]], np.diff(ptr))
    return ~np.logical_or.reduceat(component != first, ptr[:-1])


def node_motifs(graph: Any) -> list[Motif]:
    """Every node a motif of its own: motif influence is then the spread, and maximising it classical IMM."""
    return [Motif((label,), 1) for label in as_graph(graph).labels]


def clique_motifs(
    graph: Any,
    size: int,
    *,
    threshold: int | None = None,
    n_motifs: int | None = None,
    random_state: RandomState = None,
) -> list[Motif]:
    """Cliques of `size` nodes, directions dropped, that are strongly connected with their directions.

    Args:
        threshold: active members needed; None is all of them.
        n_motifs: draw that many of them uniformly, without replacement; None takes all, in rising order.

    Raises ValueError where there are fewer than `n_motifs`.
    """
    from classic_ml.influence.clique_loops import larger_cliques

    at_least("size", size, 2)
    graph = as_graph(graph)
    ends = np.sort(np.stack([graph.sources, graph.targets], axis=1), axis=1)
    pairs = np.unique(ends[:, 0].astype(np.int64) * graph.n_nodes + ends[:, 1])
    pairs = np.stack(np.divmod(pairs, graph.n_nodes), axis=1)
    degree = np.bincount(pairs.ravel(), minlength=graph.n_nodes)
    order = np.lexsort((np.arange(graph.n_nodes), degree))
    rank = np.empty(graph.n_nodes, np.int64)
    rank[order] = np.arange(graph.n_nodes)
    # Oriented from small to large degree, no node has more than sqrt(2 m) successors.
    low, high = np.sort(rank[pairs], axis=1).T
    place = np.lexsort((high, low))
    neighbours = high[place].astype(np.int32)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(low, minlength=graph.n_nodes))]).astype(np.int64)
    cliques = np.arange(graph.n_nodes, dtype=np.int32)[:, None]
    while cliques.shape[1] < size:
        flat, used = larger_cliques(cliques, ptr, neighbours)
        cliques = flat[:used].reshape(-1, cliques.shape[1] + 1)
    found = np.sort(order[cliques], axis=1)
    found = found[np.lexsort(found.T[::-1])]
    if len(found):
        bounds = np.arange(0, found.size + 1, size, dtype=np.int64)
        found = found[strongly_connected(graph, bounds, found.ravel().astype(np.int32))]
    return _as_motifs(graph, found, threshold, n_motifs, random_state)


def edge_motifs(graph: Any, **options: Any) -> list[Motif]:
    """Pairs of nodes joined in both directions; options as `clique_motifs` has them."""
    return clique_motifs(graph, 2, **options)


def triangle_motifs(graph: Any, **options: Any) -> list[Motif]:
    """Triangles; options as `clique_motifs` has them."""
    return clique_motifs(graph, 3, **options)


def scc_motifs(
    graph: Any, *, threshold: int | None = None, min_size: int = 2, max_size: int | None = None
) -> list[Motif]:
    """Strongly connected components of min_size .. max_size nodes."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = as_graph(graph)
    at_least("min_size", min_size, 1)
    at_least("max_size", graph.n_nodes if max_size is None else max_size, min_size)
    links = coo_array(
        (np.ones(graph.n_edges, np.int8), (graph.sources, graph.targets)), shape=(graph.n_nodes,) * 2
    )
    _, component = connected_components(links.tocsr(), connection="strong")
    order = np.argsort(component, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(component[order])) + 1)
    kept = [group for group in groups if min_size <= len(group) <= (max_size or graph.n_nodes)]
    kept.sort(key=lambda group: group[0])
    return [_motif(graph, group, threshold) for group in kept]


def random_connected_motifs(
    graph: Any, size: int, n_motifs: int, *, threshold: int | None = None, random_state: RandomState = None
) -> list[Motif]:
    """Groups grown from a random node, each new member a random neighbour, directions dropped, of those before.

    Where edges have one direction only the groups need not be strongly connected. Raises ValueError where no
    connected component has `size` nodes.
    """
    from scipy.sparse.csgraph import connected_components

    at_least("size", size, 1)
    at_least("n_motifs", n_motifs, 1)
    graph, rng = as_graph(graph), as_generator(random_state)
    links = _undirected(graph)
    _, component = connected_components(links, directed=False)
    starts = np.flatnonzero(np.bincount(component)[component] >= size)
    if not len(starts):
        raise ValueError(f"size = {size}: no connected component of the graph has that many nodes")
    return [
        _motif(graph, _grow(links, int(rng.choice(starts)), size, rng), threshold) for _ in range(n_motifs)
    ]


def _grow(links: Any, start: int, size: int, rng: np.random.Generator) -> list[int]:
    group, border = {start}, sorted(links.indices[links.indptr[start] : links.indptr[start + 1]].tolist())
    while len(group) < size:
        new = border[rng.integers(len(border))]
        group.add(new)
        border += links.indices[links.indptr[new] : links.indptr[new + 1]].tolist()
        border = [v for v in border if v not in group]
    return sorted(group)


def _undirected(graph: InfluenceGraph) -> Any:
    from scipy.sparse import coo_array

    links = coo_array(
        (np.ones(graph.n_edges), (graph.sources, graph.targets)), shape=(graph.n_nodes,) * 2
    ).tocsr()
    return (links + links.T).tocsr()


def _as_motifs(
    graph: InfluenceGraph,
    groups: Int[np.ndarray, "c size"],
    threshold: int | None,
    n_motifs: int | None,
    random_state: RandomState,
) -> list[Motif]:
    if n_motifs is not None:
        at_least("n_motifs", n_motifs, 1)
        if n_motifs > len(groups):
            raise ValueError(f"n_motifs = {n_motifs}, but the graph has only {len(groups)} such motifs")
        groups = groups[np.sort(as_generator(random_state).choice(len(groups), n_motifs, replace=False))]
    return [_motif(graph, group, threshold) for group in groups.tolist()]


def _motif(graph: InfluenceGraph, group: ArrayLike | Sequence[int], threshold: int | None) -> Motif:
    labels = tuple(graph.labels[i] for i in np.asarray(group).tolist())
    return Motif(labels, len(labels) if threshold is None else threshold)


def _short(nodes: Sequence[Hashable]) -> str:
    shown = ", ".join(map(repr, nodes[:6]))
    return f"({shown}{', ...' if len(nodes) > 6 else ''})"
