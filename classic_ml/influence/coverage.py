"""Reverse reachable sets of motifs, and greedy choice of the nodes that cover most of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from classic_ml.influence.estimate import in_chunks, sampling_arguments, streams
from classic_ml.influence.graph import InfluenceGraph, as_graph
from classic_ml.influence.motifs import Motif, MotifTable
from classic_ml.random_state import RandomState
from interp.core.messages import at_least, one_of

KINDS = ("seed", "tree", "any", "min", "exact")
_ROWS_OF = {"seed": 0, "tree": 1, "any": 2, "min": 3, "exact": 3}  # the codes of `loops.draw`


@dataclass(frozen=True, eq=False)
class RRCollection:
    """Samples of random motifs: who would have activated them.

    A sample has rows of nodes, and a seed set is worth to it what its `kind` says: for the coverages "seed", "tree"
    and "any" 1 once it meets the sample's one row; for "min" and "exact", which have a row a member,
    min(1, rows met / threshold) and 1 once `threshold` rows are met.

    Attributes:
        nodes: [total] int32, node numbers of all rows; row i is nodes[row_ptr[i] : row_ptr[i + 1]], maybe empty.
        sample_ptr: [samples + 1], the rows of each sample.
        need: [samples], rows to be met.
        labels: the nodes' names.
        total_value: of all motifs; influence is estimated as total_value * worth per sample.
    """

    kind: str
    nodes: Int[np.ndarray, " total"]
    row_ptr: Int[np.ndarray, " rows+1"]
    sample_ptr: Int[np.ndarray, " samples+1"]
    need: Int[np.ndarray, " samples"]
    labels: tuple[Hashable, ...]
    total_value: float

    def __len__(self) -> int:
        return len(self.need)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.nodes, self.row_ptr, self.sample_ptr, self.need))

    def coverage(self, seeds: Iterable[Hashable]) -> float:
        """Worth per sample of a seed set. For seeds chosen on this very collection it is biased upwards."""
        place = {label: i for i, label in enumerate(self.labels)}
        chosen = np.zeros(len(self.labels), bool)
        chosen[[place[label] for label in seeds]] = True
        # A trailing 0 keeps reduceat's empty last rows legal; rows that are empty take the next one's sum.
        hits = np.add.reduceat(np.append(chosen[self.nodes], False), self.row_ptr[:-1], dtype=np.int64)
        met = (hits > 0) & (np.diff(self.row_ptr) > 0)
        rows = np.add.reduceat(met, self.sample_ptr[:-1], dtype=np.int64)
        share = np.minimum(1, rows / self.need)
        return float((share if self.kind == "min" else share == 1).mean())


@dataclass(frozen=True)
class Cover:
    """A greedy choice: node numbers in order, and what each added to the mean worth per sample."""

    nodes: Int[np.ndarray, " k"]
    gains: Float[np.ndarray, " k"]

    @property
    def worth(self) -> float:
        return float(self.gains.sum())


def sample_motif_rr(
    graph: Any,
    motifs: Iterable[Motif],
    n_samples: int,
    kind: str = "seed",
    *,
    cascade: str = "lt",
    n_jobs: int = 1,
    random_state: RandomState = None,
) -> RRCollection:
    """Draw `n_samples` motifs in proportion to their values, and for each a live-edge graph that its members share.

    With one seed, all kinds come from the same live-edge graphs.
    """
    graph = as_graph(graph)
    at_least("n_samples", n_samples, 1)
    table = MotifTable.build(graph, motifs)
    stream = streams(random_state, "rr", 1)[0]
    return draw_rr(graph, table, kind, stream, 0, n_samples, cascade, n_jobs)


def draw_rr(
    graph: InfluenceGraph,
    table: MotifTable,
    kind: str,
    stream: np.uint64,
    first: int,
    last: int,
    cascade: str,
    n_jobs: int,
) -> RRCollection:
    """Samples first .. last - 1 of a stream."""
    from classic_ml.influence.loops import draw

    one_of("kind", kind, KINDS)
    fixed, code = sampling_arguments(graph, table, cascade), _ROWS_OF[kind]

    def part(a: int, b: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        nodes, total, lengths, rows, motifs = draw(code, stream, a, b, *fixed)
        return nodes[:total].copy(), lengths[:rows].copy(), motifs

    parts = in_chunks(part, first, last, n_jobs)
    nodes, lengths, drawn = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    by_member = kind in ("min", "exact")
    rows = np.diff(table.ptr)[drawn] if by_member else np.ones(len(drawn), np.int64)
    need = table.thresholds[drawn] if by_member else np.ones(len(drawn), np.int32)
    return RRCollection(
        kind, nodes, _pointers(lengths), _pointers(rows), need, graph.labels, table.total_value
    )


def greedy_max_coverage(
    collections: RRCollection | Sequence[RRCollection], n_seeds: int, weights: Sequence[float] | None = None
) -> Cover:
    """The k nodes that greedily maximise the (weighted) sum of the collections' mean worths; ties to the first label.

    Within 1 - 1/e of the best for every kind but "exact", which is not submodular. Raises ValueError for k outside
    1 .. n, collections of different graphs, or "exact" and "min" mixed.
    """
    from classic_ml.influence.greedy_loops import greedy

    parts = [collections] if isinstance(collections, RRCollection) else list(collections)
    if not parts:
        raise ValueError("collections is empty; give at least one RRCollection")
    if any(part.labels != parts[0].labels for part in parts):
        raise ValueError("collections are of different graphs; draw them from one")
    factors = [1.0] * len(parts) if weights is None else list(weights)
    if len(factors) != len(parts):
        raise ValueError(f"weights has {len(factors)} entries for {len(parts)} collections")
    kinds = {part.kind for part in parts}
    if kinds >= {"min", "exact"}:
        raise ValueError("collections mix the kinds 'min' and 'exact'; maximise one of them")
    check_n_seeds(n_seeds, len(parts[0].labels))
    whole = joined(parts)
    longest = max(map(len, parts))  # whole numbers where all are of one length, so that ties are exact
    weight = np.concatenate(
        [
            np.full(len(part), factor * longest / len(part))
            for part, factor in zip(parts, factors, strict=True)
        ]
    )
    heaviest = float(weight.max())
    if not (min(factors) >= 0 and 0 < heaviest < np.inf):
        raise ValueError(f"weights = {factors} must not be negative, nor all 0")
    weight = weight / heaviest
    arrays = (whole.nodes, whole.row_ptr, whole.sample_ptr, whole.need, weight)
    picks, gains = greedy(*arrays, "min" in kinds, len(whole.labels), n_seeds)
    return Cover(picks, gains * heaviest / longest)


def joined(parts: Sequence[RRCollection]) -> RRCollection:
    """The samples of all parts, one after another; of the first part's kind, labels and value."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        nodes=np.concatenate([part.nodes for part in parts]),
        row_ptr=_pointers(np.concatenate([np.diff(part.row_ptr) for part in parts])),
        sample_ptr=_pointers(np.concatenate([np.diff(part.sample_ptr) for part in parts])),
        need=np.concatenate([part.need for part in parts]),
    )


def check_n_seeds(n_seeds: int, n_nodes: int) -> None:
    """Raise unless `n_seeds` is an integer in 1 .. n_nodes."""
    at_least("n_seeds", n_seeds, 1)
    if n_seeds > n_nodes:
        raise ValueError(f"n_seeds = {n_seeds} is more than the graph's {n_nodes} nodes")


def _pointers(lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n+1"]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
