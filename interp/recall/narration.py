"""Telling a graph as a story: one clause for every edge, so that nothing is lost and nothing is said twice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.messages import one_of
from interp.recall.ergm_statistics import as_adjacency
from interp.recall.graphs import brashears_graph
from interp.recall.names import pool

if TYPE_CHECKING:
    import networkx as nx

Pair = tuple[str, str]
MERGE, ATTRIBUTE = 0.3, 0.2
MAX_MERGED = 3
ORDERS = ("random", "node")


@dataclass(frozen=True)
class Style:
    """How a domain talks: verb phrases between two names, idle facts about one, and what is said of the lonely."""

    names: str
    relations: tuple[str, ...]
    attributes: tuple[str, ...]
    isolated: str


STYLES = {
    "social": Style(
        "social",
        (
            "is friends with",
            "goes to the same club as",
            "is dating",
            "watches films with",
            "sings in a choir with",
        ),
        ("works as a gardener", "lives in a small flat", "collects stamps", "rides a bicycle to work"),
        "is also there but knows nobody",
    ),
    "road": Style(
        "road",
        ("is joined by a road to", "has a street that leads to", "is directly connected by road to"),
        ("holds a market on Fridays", "has an old mill", "lies on a hill", "is known for its plums"),
        "is also on the map but no road leads there",
    ),
    "ppi": Style(
        "ppi",
        ("binds", "phosphorylates", "forms a complex with", "interacts with"),
        ("is found in the liver", "has a short half life", "is conserved in yeast", "was sequenced early"),
        "is also expressed but has no known partner",
    ),
    "author": Style(
        "author",
        ("wrote a paper with", "was a co-author of", "published an article with"),
        ("teaches statistics", "edits a journal", "moved to another university", "works on networks"),
        "is also in the department but has published with nobody",
    ),
    "er": Style(
        "er",
        ("is linked with", "is tied to", "has a link to"),
        ("is drawn in blue", "is drawn as a square", "was added last", "is marked with a star"),
        "is also present but is linked with nothing",
    ),
    "weak": Style(
        "social",
        ("is a friend of", "plays in the same club as", "is an acquaintance of", "is a workmate of"),
        ("enjoys hiking", "works in a bank", "grows tomatoes", "likes old films"),
        "is also there but knows nobody",
    ),
    "strong": Style(
        "social",
        ("is a cousin of", "is a sibling of", "is related by marriage to", "is a close relative of"),
        ("enjoys hiking", "works in a bank", "grows tomatoes", "likes old films"),
        "is also there but is related to nobody",
    ),
}
NARRATIVES = tuple(STYLES)


@dataclass(frozen=True)
class GraphVignette:
    """A graph told in words.

    Attributes:
        nodes: names, in the shuffled order in which pairs are asked.
        edges: pairs of names as the story tells them, first told first.
        text: the story.
        narrative, dataset: its style and where the graph comes from.
        pair_order: all n(n-1)/2 pairs in the order of `nodes`.
    """

    nodes: tuple[str, ...]
    edges: tuple[Pair, ...]
    text: str
    narrative: str
    dataset: str
    pair_order: tuple[Pair, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = len(self.nodes)
        pairs = tuple((self.nodes[i], self.nodes[j]) for i in range(n) for j in range(i + 1, n))
        object.__setattr__(self, "pair_order", pairs)

    @property
    def graph(self) -> nx.Graph:
        """The true graph on the names."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from(self.edges)
        return graph

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "pair_order"}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GraphVignette:
        edges = tuple((u, v) for u, v in values["edges"])
        return cls(**{**values, "nodes": tuple(values["nodes"]), "edges": edges})


def make_vignette(
    graph: nx.Graph,
    narrative: str,
    random_state: int = 0,
    *,
    dataset: str = "",
    names: Sequence[str] | None = None,
    order: str = "random",
    merge: float = MERGE,
    attributes: float = ATTRIBUTE,
) -> GraphVignette:
    """Tell a graph in a domain's style.

    Args:
        graph: simple and undirected; its style and origin are independent.
        narrative: social, road, ppi, author, er, or weak and strong for the wordings of the human experiment.
        names: one for each node in the graph's order; drawn from the narrative's pool where not given.
        order: of the edges: `random`, or `node`, grouped by node.
        merge: probability that an edge that shares the last sentence's subject joins that sentence.
        attributes: probability that a node gets a sentence with an irrelevant fact.

    Raises:
        ValueError: an unknown narrative or order, a graph that isn't simple and undirected or larger than the
            pool, or names that could be misread.
    """
    one_of("narrative", narrative, NARRATIVES)
    one_of("order", order, ORDERS)
    as_adjacency(graph)
    if not (0 <= merge <= 1 and 0 <= attributes <= 1):
        raise ValueError(f"merge = {merge}, attributes = {attributes}: probabilities lie between 0 and 1")
    rng = np.random.default_rng(random_state)
    style = STYLES[narrative]
    named = dict(zip(graph, _names(names, style, len(graph), rng), strict=True))
    told = _told(graph, order, rng)
    edges = tuple((named[u], named[v]) for u, v in told)
    sentences, edges = _sentences(edges, style, merge, rng)
    for node in graph:
        if graph.degree(node) == 0:
            sentences.insert(rng.integers(len(sentences) + 1), f"{named[node]} {style.isolated}")
        elif rng.random() < attributes:
            fact = style.attributes[rng.integers(len(style.attributes))]
            sentences.insert(rng.integers(len(sentences) + 1), f"{named[node]} {fact}")
    nodes = [named[node] for node in graph]
    shuffled = tuple(nodes[k] for k in rng.permutation(len(nodes)))
    return GraphVignette(shuffled, edges, ". ".join(sentences) + ".", narrative, dataset or narrative)


def brashears_vignette(kind: str, wording: str, random_state: int = 0) -> GraphVignette:
    """A network of the human experiment: `irreducible` or `reducible`, in `weak` or `strong` wording."""
    one_of("wording", wording, ("weak", "strong"))
    graph = brashears_graph(kind)
    return make_vignette(graph, wording, random_state, dataset=f"brashears_{kind}", names=list(graph))


def _told(graph: nx.Graph, order: str, rng: np.random.Generator) -> list[tuple[Any, Any]]:
    edges = list(graph.edges)
    edges = [edges[k] for k in rng.permutation(len(edges))]
    if order == "node":
        first = {node: k for k, node in enumerate(rng.permutation(np.array(list(graph), object)))}
        edges = sorted((sorted(e, key=first.__getitem__) for e in edges), key=lambda e: first[e[0]])
        return [(u, v) for u, v in edges]
    return [(u, v) if rng.random() < 0.5 else (v, u) for u, v in edges]


def _sentences(
    edges: tuple[Pair, ...], style: Style, merge: float, rng: np.random.Generator
) -> tuple[list[str], tuple[Pair, ...]]:
    """Sentences, and the edges oriented as they are told: the subject is named first."""
    sentences: list[str] = []
    oriented: list[Pair] = []
    subject, merged = "", 0
    for u, v in edges:
        relation = style.relations[rng.integers(len(style.relations))]
        if subject in (u, v) and merged < MAX_MERGED and rng.random() < merge:
            other = v if subject == u else u
            sentences[-1] += f", and also {relation} {other}"
            oriented.append((subject, other))
            merged += 1
        else:
            sentences.append(f"{u} {relation} {v}")
            oriented.append((u, v))
            subject, merged = u, 1
    return sentences, tuple(oriented)


def _names(names: Sequence[str] | None, style: Style, n: int, rng: np.random.Generator) -> list[str]:
    if names is None:
        known = pool(style.names)
        if n > len(known):
            raise ValueError(f"graph has {n} nodes, the pool of names {len(known)}; pass names=[...]")
        return [known[k] for k in rng.choice(len(known), n, replace=False)]
    chosen = [str(name) for name in names]
    if len(chosen) != n:
        raise ValueError(f"names: expected {n}, one a node, got {len(chosen)}")
    folded = [name.casefold() for name in chosen]
    for name in chosen:
        if not name.strip() or re.search(r"[,:;.()|\[\]{}\"\n]|\b\d+\b", name):
            raise ValueError(
                f"names: {name!r} could be misread; use no punctuation and no number that stands alone"
            )
        if sum(other.startswith(name.casefold()) for other in folded) > 1:
            raise ValueError(f"names: {name!r} is given twice or begins another name")
    return chosen
