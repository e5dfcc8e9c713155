"""From words in a probe's space to trees: which pairs are edges, who is the head, what is the relation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.probes.treebank import Edge

BLOCK = 1 << 16  # pairs whose distances are computed at once


@dataclass(frozen=True)
class Pairs:
    """Every pair of words (a < b) of the same sentence, sentence by sentence, in order of (a, b)."""

    a: Int[np.ndarray, " Q"]
    b: Int[np.ndarray, " Q"]
    n_words: int

    @classmethod
    def within(cls, starts: np.ndarray, keep: np.ndarray | None = None) -> Pairs:
        """Pairs of sentences that begin at `starts[:-1]`; words for which `keep` is false are in none."""
        firsts, seconds = [], []
        for start, end in itertools.pairwise(starts):
            words = np.arange(start, end) if keep is None else start + np.flatnonzero(keep[start:end])
            a, b = np.triu_indices(len(words), k=1)
            firsts.append(words[a])
            seconds.append(words[b])
        return cls(np.concatenate(firsts), np.concatenate(seconds), int(starts[-1]))

    def squared_distances(self, z: Float[np.ndarray, "N k"]) -> Float[np.ndarray, " Q"]:
        parts = []
        for at in range(0, len(self.a), BLOCK):
            gap = z[self.a[at : at + BLOCK]] - z[self.b[at : at + BLOCK]]
            parts.append(np.einsum("ij,ij->i", gap, gap))
        return np.concatenate([*parts, np.empty(0, z.dtype)])


def spanning_forest(
    weights: Float[np.ndarray, " Q"], pairs: Pairs
) -> tuple[Int[np.ndarray, " E"], Int[np.ndarray, " E"]]:
    """The minimum spanning tree of every sentence, by one call of scipy over all of them.

    A tree depends on the order of the weights only, so their ranks stand in for them: ties are broken by
    (weight, first word, second word), and no weight is 0, which scipy would take for a missing edge.

    Returns the two words of each edge, the smaller first.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    ranks = np.empty(len(weights))
    ranks[np.argsort(weights, kind="stable")] = np.arange(1, len(weights) + 1)
    graph = coo_array((ranks, (pairs.a, pairs.b)), shape=(pairs.n_words, pairs.n_words))
    tree = minimum_spanning_tree(graph.tocsr()).tocoo()
    order = np.lexsort((tree.col, tree.row))
    return tree.row[order].astype(np.int64), tree.col[order].astype(np.int64)


def cosines(
    vectors: Float[np.ndarray, "E k"], prototypes: Float[np.ndarray, "R k"], eps: float = 1e-12
) -> Float[np.ndarray, "E R"]:
    """Cosine of every vector with every prototype; 0 where either is 0."""
    lengths = np.linalg.norm(vectors, axis=1)[:, None] * np.linalg.norm(prototypes, axis=1)
    return vectors @ prototypes.T / np.maximum(lengths, eps)


@dataclass(frozen=True)
class Edges:
    """Decoded edges: the head, the dependent and the number of the relation of each."""

    heads: Int[np.ndarray, " E"]
    dependents: Int[np.ndarray, " E"]
    types: Int[np.ndarray, " E"]


def orient(
    u: np.ndarray, v: np.ndarray, z: Float[np.ndarray, "N k"], prototypes: Float[np.ndarray, "R k"]
) -> Edges:
    """Label pairs and say which word is the head: the prototype nearest in |cosine| decides, by its sign.

    Edges point from the dependent to the head, z_head - z_dependent (Diego-Simon et al. 2024).
    """
    scores = cosines(z[u] - z[v], prototypes)
    types = np.abs(scores).argmax(1)
    forward = np.take_along_axis(scores, types[:, None], 1)[:, 0] > 0
    return Edges(np.where(forward, u, v), np.where(forward, v, u), types)


def orient_from_root(
    u: np.ndarray,
    v: np.ndarray,
    z: Float[np.ndarray, "N k"],
    prototypes: Float[np.ndarray, "R k"],
    starts: np.ndarray,
    roots: np.ndarray | None = None,
) -> Edges:
    """Like `orient`, but every sentence becomes a tree that hangs on one root.

    Args:
        roots: the root of each sentence; None takes the word from which most edges point as `orient` would
            have them, ties by the summed |cosine| of those edges, then the first word.

    Raises ValueError for a given root that no edge of its sentence touches.
    """
    free = orient(u, v, z, prototypes)
    strength = np.abs(cosines(z[u] - z[v], prototypes)).max(1)
    heads, dependents = [], []
    sentence = np.searchsorted(starts, u, side="right") - 1
    for index in range(len(starts) - 1):
        here = np.flatnonzero(sentence == index)
        neighbours: dict[int, list[int]] = {}
        for a, b in zip(u[here].tolist(), v[here].tolist(), strict=True):
            neighbours.setdefault(a, []).append(b)
            neighbours.setdefault(b, []).append(a)
        wished = {
            (head, word): value
            for head, word, value in zip(
                free.heads[here].tolist(),
                free.dependents[here].tolist(),
                strength[here].tolist(),
                strict=True,
            )
        }
        candidates = sorted(neighbours)
        if roots is not None and candidates:
            if (root := int(roots[index])) not in neighbours:
                raise ValueError(f"roots[{index}]={root}: no edge of sentence {index} touches this word")
            candidates = [root]
        best = max(
            (_downwards(root, neighbours) for root in candidates),
            # fsum: two roots that agree with the same edges tie, in whatever order their edges come.
            key=lambda edges: (
                len(wished.keys() & edges),
                math.fsum(wished.get(edge, 0.0) for edge in edges),
            ),
            default=[],
        )
        heads += [head for head, _ in best]
        dependents += [word for _, word in best]
    head, word = np.array(heads, dtype=np.int64), np.array(dependents, dtype=np.int64)
    return Edges(head, word, cosines(z[head] - z[word], prototypes).argmax(1))


def decode(
    pairs: Pairs,
    points: Float[np.ndarray, "N k"],
    prototypes: Float[np.ndarray, "R k"],
    starts: np.ndarray,
    *,
    rooted: bool = False,
    roots: np.ndarray | None = None,
) -> Edges:
    """Spanning trees of all sentences, labelled and directed; `rooted` hangs each on one root."""
    u, v = spanning_forest(pairs.squared_distances(points), pairs)
    if rooted:
        return orient_from_root(u, v, points, prototypes, starts, roots)
    return orient(u, v, points, prototypes)


def nearest_words(
    points: Float[np.ndarray, "N k"],
    centre: Float[np.ndarray, " k"],
    starts: np.ndarray,
    keep: np.ndarray | None = None,
) -> Int[np.ndarray, " S"]:
    """The word of each sentence that is nearest to a point; -1 for a sentence without a word to keep.

    Args:
        keep: [N] false at words that are left out.
    """
    gaps = np.square(points - centre).sum(1)
    if keep is not None:
        gaps = np.where(keep, gaps, np.inf)
    nearest = [start + gaps[start:end].argmin() for start, end in itertools.pairwise(starts)]
    return np.array([word if gaps[word] < np.inf else -1 for word in nearest])


def by_sentence(edges: Edges, starts: np.ndarray, relations: Sequence[str]) -> list[list[Edge]]:
    """The edges (head, dependent, relation) of every sentence, its words counted from 0."""
    out: list[list[Edge]] = [[] for _ in range(len(starts) - 1)]
    index = np.searchsorted(starts, edges.heads, side="right") - 1
    heads, words = edges.heads - starts[index], edges.dependents - starts[index]
    for s, head, word, kind in zip(*(x.tolist() for x in (index, heads, words, edges.types)), strict=True):
        out[s].append((head, word, relations[kind]))
    return out


def _downwards(root: int, neighbours: dict[int, list[int]]) -> list[tuple[int, int]]:
    """(head, dependent) of every edge of a tree, seen from its root."""
    edges, open_, seen = [], [root], {root}
    while open_:
        head = open_.pop()
        for word in neighbours.get(head, []):
            if word not in seen:
                seen.add(word)
                edges.append((head, word))
                open_.append(word)
    return edges
