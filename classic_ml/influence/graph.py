"""Directed graphs whose edges carry influence: labels outside, arrays of incoming edges inside."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int

from interp.core.messages import nearest, one_of

SCHEMES = ("indegree", "given")
CASCADES = ("lt", "ic")
_ROOM = 1e-9  # by which rounding may take the weights of a node's incoming edges above 1

Self = TypeVar("Self", bound="InfluenceGraph")


@dataclass(frozen=True, eq=False)
class InfluenceGraph:
    """n nodes, m directed edges u -> v and the weight w(u, v) in [0, 1] with which u influences v.

    Enough for the independent cascade ("ic": every edge is live with probability w). The linear threshold model ("lt")
    also needs the weights into every node to sum to at most 1: `LinearThresholdGraph` asserts it, as does whatever
    runs that cascade.

    Attributes:
        labels: the caller's name of node 0 .. n-1, sorted where they can be.
        in_ptr, sources, weights: the edges into node v are in_ptr[v] : in_ptr[v + 1] of `sources` (rising) and
            `weights`.

    Raises:
        ValueError: a weight outside [0, 1], naming the edge.
    """

    labels: tuple[Hashable, ...]
    in_ptr: Int[np.ndarray, " n+1"]
    sources: Int[np.ndarray, " m"]
    weights: Float[np.ndarray, " m"]

    def __post_init__(self) -> None:
        wrong = ~((self.weights >= 0) & (self.weights <= 1 + _ROOM))
        if wrong.any():
            edge = int(np.flatnonzero(wrong)[0])
            u, v = self.labels[self.sources[edge]], self.labels[self.targets[edge]]
            raise ValueError(
                f"weight of the edge {u!r} -> {v!r} is {self.weights[edge]:g}; it must lie in [0, 1]"
            )

    @property
    def n_nodes(self) -> int:
        return len(self.labels)

    @property
    def n_edges(self) -> int:
        """Directed edges; an undirected edge counts as two."""
        return len(self.sources)

    @cached_property
    def index(self) -> dict[Hashable, int]:
        """Node number of every label."""
        return {label: i for i, label in enumerate(self.labels)}

    @cached_property
    def indegree(self) -> Int[np.ndarray, " n"]:
        return np.diff(self.in_ptr)

    @cached_property
    def targets(self) -> Int[np.ndarray, " m"]:
        """The node that each edge leads to."""
        return np.repeat(np.arange(self.n_nodes, dtype=np.int32), self.indegree)

    @cached_property
    def total_weight(self) -> Float[np.ndarray, " n"]:
        """Sum of the weights into every node."""
        return np.bincount(self.targets, self.weights, self.n_nodes)

    @cached_property
    def cumulative(self) -> Float[np.ndarray, " m"]:
        """Weights summed along the edges into each node."""
        running = np.cumsum(self.weights)
        before = np.concatenate([[0.0], running])[self.in_ptr[:-1]]
        return running - np.repeat(before, self.indegree)

    @cached_property
    def outgoing(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same edges by their source: pointers [n + 1], targets [m] (rising), weights [m]."""
        order = np.argsort(self.sources, kind="stable")
        pointers = np.concatenate([[0], np.cumsum(np.bincount(self.sources, minlength=self.n_nodes))])
        return pointers.astype(np.int64), self.targets[order], self.weights[order]

    def odds(self, cascade: str) -> Float[np.ndarray, " m"]:
        """What a draw is compared with: cumulative weights ("lt"), weights ("ic"). Raises as `check_cascade` does."""
        check_cascade(self, cascade)
        return self.cumulative if cascade == "lt" else self.weights

    def nodes(self, labels: Iterable[Hashable], argument: str = "seeds") -> Int[np.ndarray, " k"]:
        """Node numbers of labels. Raises ValueError for one that is not in the graph, or is there twice."""
        wanted = list(labels)
        for label in wanted:
            if label not in self.index:
                choices = (
                    nearest(label, self.labels) if self.n_nodes <= 50 else f"it has {self.n_nodes} nodes"
                )
                raise ValueError(f"{argument}: {label!r} is not a node of the graph; {choices}")
        if len(set(wanted)) < len(wanted):
            twice = next(label for i, label in enumerate(wanted) if label in wanted[:i])
            raise ValueError(f"{argument}: {twice!r} is there twice; name each node once")
        return np.array([self.index[label] for label in wanted], dtype=np.int32)

    @classmethod
    def from_networkx(
        cls: type[Self], graph: Any, weight: str | None = None, scheme: str = "indegree"
    ) -> Self:
        """From a networkx graph; an undirected edge becomes two directed ones.

        Args:
            weight: the edge attribute to read; None gives every edge the same.
            scheme: "indegree" divides the weights by their sum over the edges into the target, 1/indegree without
                `weight`; "given" takes the attribute as it is.
        """
        labels = sorted_labels(graph.nodes)
        index = {label: i for i, label in enumerate(labels)}
        if weight is None:
            ends = np.array([(index[u], index[v]) for u, v in graph.edges()], dtype=np.int64).reshape(-1, 2)
            values = None
        else:
            rows = list(graph.edges(data=weight))
            for u, v, value in rows:
                if value is None:
                    raise ValueError(
                        f"edge {u!r} -> {v!r} has no attribute {weight!r}; leave `weight` out or set it"
                    )
            ends = np.array([(index[u], index[v]) for u, v, _ in rows], dtype=np.int64).reshape(-1, 2)
            values = np.array([value for *_, value in rows], dtype=np.float64)
        return cls._assembled(labels, ends, values, graph.is_directed(), scheme)

    @classmethod
    def from_igraph(cls: type[Self], graph: Any, weight: str | None = None, scheme: str = "indegree") -> Self:
        """From an igraph graph; labels are the vertices' "name" where they have one, else their numbers."""
        names = graph.vs["name"] if "name" in graph.vs.attributes() else list(range(graph.vcount()))
        if len(set(names)) < len(names):
            raise ValueError('vertex attribute "name" names two vertices alike; make the names unique')
        if weight is not None and weight not in graph.es.attributes():
            raise ValueError(
                f"weight = {weight!r} is no edge attribute; {nearest(weight, graph.es.attributes())}"
            )
        labels = sorted_labels(names)
        place = {label: i for i, label in enumerate(labels)}
        order = np.array([place[name] for name in names], dtype=np.int64)
        ends = order[np.array(graph.get_edgelist(), dtype=np.int64).reshape(-1, 2)]
        values = None if weight is None else np.array(graph.es[weight], dtype=np.float64)
        return cls._assembled(labels, ends, values, graph.is_directed(), scheme)

    @classmethod
    def from_edges(
        cls: type[Self],
        sources: Sequence[Any],
        targets: Sequence[Any],
        weights: Sequence[float] | None = None,
        *,
        directed: bool = True,
        scheme: str = "indegree",
        nodes: Sequence[Hashable] | None = None,
    ) -> Self:
        """From the labels of both ends of every edge; `nodes` adds nodes without edges."""
        if len(sources) != len(targets):
            raise ValueError(f"sources has {len(sources)} entries and targets {len(targets)}")
        if nodes is None and _are_integers(sources) and _are_integers(targets):
            known, places = np.unique(np.array([sources, targets], dtype=np.int64), return_inverse=True)
            pairs = places.reshape(2, -1).T
            labels = known.tolist()
        else:
            labels = sorted_labels({*sources, *targets, *(nodes or ())})
            place = {label: i for i, label in enumerate(labels)}
            both = [(place[u], place[v]) for u, v in zip(sources, targets, strict=True)]
            pairs = np.array(both, dtype=np.int64).reshape(-1, 2)
        values = None if weights is None else np.asarray(weights, dtype=np.float64)
        if values is not None and len(values) != len(pairs):
            raise ValueError(f"weights has {len(values)} entries for {len(pairs)} edges")
        return cls._assembled(labels, pairs, values, directed, scheme)

    @classmethod
    def _assembled(
        cls: type[Self],
        labels: Sequence[Hashable],
        ends: Int[np.ndarray, "e 2"],
        values: Float[np.ndarray, " e"] | None,
        directed: bool,
        scheme: str,
    ) -> Self:
        one_of("scheme", scheme, SCHEMES)
        if values is None and scheme == "given":
            raise ValueError(
                "scheme = 'given' needs weights: name the edge attribute in `weight`, or hand them over"
            )
        if not labels:
            raise ValueError("the graph has no nodes")
        if not directed:
            ends = np.concatenate([ends, ends[:, ::-1]])
            values = None if values is None else np.concatenate([values, values])
        kept = ends[:, 0] != ends[:, 1]  # a node has no need to influence itself
        ends = ends[kept]
        key = ends[:, 1] * len(labels) + ends[:, 0]
        key, first = np.unique(key, return_index=True)
        if values is not None:
            values = values[kept]
            if len(key) < len(values):
                again = np.setdiff1d(np.arange(len(values)), first)[0]
                u, v = (labels[i] for i in ends[again])
                raise ValueError(
                    f"the edge {u!r} -> {v!r} is there twice with weights; merge parallel edges first"
                )
            values = values[first]
        targets, sources = np.divmod(key, len(labels))
        degree = np.bincount(targets, minlength=len(labels))
        if scheme == "indegree":
            values = np.ones(len(key)) if values is None else values
            if (values < 0).any() or not np.isfinite(values).all():
                edge = int(np.flatnonzero(~(values >= 0) | np.isinf(values))[0])
                u, v = labels[sources[edge]], labels[targets[edge]]
                raise ValueError(
                    f"weight of the edge {u!r} -> {v!r} is {values[edge]:g}; it must not be negative"
                )
            total = np.bincount(targets, values, len(labels))[targets]
            values = np.divide(values, total, out=np.zeros_like(values), where=total > 0)
        assert values is not None
        pointers = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
        return cls(tuple(labels), pointers, sources.astype(np.int32), values)


class LinearThresholdGraph(InfluenceGraph):
    """An `InfluenceGraph` in which the weights into every node sum to at most 1 (1e-9 for rounding).

    Raises:
        ValueError: weights into a node that sum to more, naming it.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cascade(self, "lt")


def check_cascade(graph: InfluenceGraph, cascade: str) -> None:
    """Raise ValueError unless the graph's weights suit the cascade."""
    one_of("cascade", cascade, CASCADES)
    if cascade == "lt" and len(heavy := np.flatnonzero(graph.total_weight > 1 + _ROOM)):
        v = heavy[0]
        raise ValueError(
            f"weights into node {graph.labels[v]!r} sum to {graph.total_weight[v]:.6g}, above 1: normalise them per "
            "target (scheme='indegree'), or use cascade='ic'"
        )


def as_graph(graph: Any) -> InfluenceGraph:
    """The graph itself; a networkx or igraph graph with weights 1/indegree."""
    if isinstance(graph, InfluenceGraph):
        return graph
    reader: Callable[[Any], InfluenceGraph] | None = None
    if hasattr(graph, "vcount"):
        reader = LinearThresholdGraph.from_igraph
    elif hasattr(graph, "edges") and hasattr(graph, "is_directed"):
        reader = LinearThresholdGraph.from_networkx
    if reader is None:
        raise TypeError(
            f"graph is a {type(graph).__name__}: give an InfluenceGraph, or a graph of networkx or igraph"
        )
    return reader(graph)


def _are_integers(labels: Sequence[Any]) -> bool:
    if isinstance(labels, np.ndarray):
        return labels.dtype.kind in "iu"
    return set(map(type, labels)) <= {int}


def sorted_labels(labels: Iterable[Hashable]) -> list[Any]:
    """Sorted, so that node numbers don't depend on the order in which a graph was built; by type and text where
    labels can't be compared."""
    listed: list[Any] = list(labels)
    try:
        return sorted(listed)
    except TypeError:
        return sorted(listed, key=lambda label: (type(label).__name__, repr(label)))
