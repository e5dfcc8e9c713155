"""Where true graphs come from: a generator for each domain, edge lists on disk, networkx's shipped graphs, vignettes
of the human experiments; and small connected samples of large ones."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from interp.core.messages import nearest, one_of

if TYPE_CHECKING:
    import networkx as nx

DOMAINS = ("social", "road", "ppi", "author", "er")
METHODS = ("ego", "random_walk", "snowball")
SHIPPED = ("karate_club", "les_miserables", "florentine_families", "davis_southern_women")
MAX_ATTEMPTS = 2000

# Brashears, "Humans use compression heuristics to improve the recall of social networks", Scientific Reports 2013.
BRASHEARS_NAMES = (
    "James Elizabeth Henry Anne Alyssa Simon Catherine Thomas Peter Michael Lewis Mary Victoria Isabelle Jane"
).split()
BRASHEARS_EDGES = {
    "irreducible": "James-Elizabeth Elizabeth-Henry James-Anne Alyssa-Simon Henry-Alyssa Catherine-Thomas "
    "Peter-Catherine Michael-Lewis Thomas-Lewis Mary-Catherine Victoria-Catherine Isabelle-Victoria Jane-Michael",
    "reducible": "James-Elizabeth James-Henry Elizabeth-Henry Henry-Anne Elizabeth-Alyssa James-Alyssa Simon-Alyssa "
    "Alyssa-Henry Catherine-Thomas Catherine-Peter Catherine-Michael Catherine-Lewis Thomas-Peter Thomas-Michael "
    "Thomas-Lewis Peter-Lewis Michael-Lewis Peter-Michael Lewis-Mary Peter-Victoria Victoria-Jane Isabelle-Jane "
    "Victoria-Isabelle",
}


def domain_graph(domain: str, n: int = 200, random_state: int = 0) -> nx.Graph:
    """A large graph with the character of a domain, from which to sample small ones.

    social: a connected small world (6 neighbours, 10 % rewired); road: a grid without a quarter of its edges and
    with a few diagonals; ppi: duplication and divergence; author: papers of 2 to 5 authors as cliques; er: uniform
    random with mean degree 6.

    Raises:
        ValueError: an unknown domain, or fewer than 10 nodes.
    """
    import networkx as nx

    one_of("domain", domain, DOMAINS)
    if n < 10:
        raise ValueError(f"n = {n}: a graph to sample from needs at least 10 nodes")
    if domain == "social":
        return nx.connected_watts_strogatz_graph(n, 6, 0.1, seed=random_state)
    if domain == "road":
        return _roads(n, np.random.default_rng(random_state))
    if domain == "ppi":
        return nx.duplication_divergence_graph(n, 0.4, seed=random_state)
    if domain == "author":
        return _authors(n, np.random.default_rng(random_state))
    return nx.gnp_random_graph(n, min(6 / (n - 1), 1.0), seed=random_state)


def _roads(n: int, rng: np.random.Generator) -> nx.Graph:
    import networkx as nx

    side = int(np.ceil(np.sqrt(n)))
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side))
    edges = list(grid.edges)
    grid.remove_edges_from([edges[k] for k in rng.choice(len(edges), len(edges) // 4, replace=False)])
    corners = [i for i in range(side * side) if i % side < side - 1 and i // side < side - 1]
    for i in rng.choice(corners, max(1, len(corners) // 20), replace=False):
        grid.add_edge(int(i), int(i) + side + 1)
    return grid.subgraph(range(n)).copy()


def _authors(n: int, rng: np.random.Generator) -> nx.Graph:
    """Papers until everybody has written one; authors who have written more are likelier to write again."""
    import networkx as nx

    graph = nx.empty_graph(n)
    papers, newcomers = np.ones(n), list(rng.permutation(n))
    while newcomers:
        first = newcomers.pop()
        others = np.delete(np.arange(n), first)
        weights = papers[others] / papers[others].sum()
        team = [first, *rng.choice(others, rng.integers(1, 5), replace=False, p=weights)]
        papers[team] += 1
        graph.add_edges_from(itertools.combinations(map(int, team), 2))
    return graph


def shipped_graph(name: str) -> nx.Graph:
    """One of the graphs that come with networkx, as a simple graph with integer nodes.

    Raises:
        ValueError: a name that isn't among `SHIPPED`.
    """
    import networkx as nx

    one_of("name", name, SHIPPED)
    makers: dict[str, Callable[[], nx.Graph]] = {
        "karate_club": nx.karate_club_graph,
        "les_miserables": nx.les_miserables_graph,
        "florentine_families": nx.florentine_families_graph,
        "davis_southern_women": nx.davis_southern_women_graph,
    }
    return nx.convert_node_labels_to_integers(nx.Graph(makers[name]().edges))


def brashears_graph(kind: str) -> nx.Graph:
    """The 15 people of the human experiment: `irreducible` (13 ties, no triangle) or `reducible` (23 ties)."""
    import networkx as nx

    one_of("kind", kind, tuple(BRASHEARS_EDGES))
    graph = nx.Graph()
    graph.add_nodes_from(BRASHEARS_NAMES)
    graph.add_edges_from(pair.split("-") for pair in BRASHEARS_EDGES[kind].split())
    return graph


def load_edge_list(path: str | os.PathLike[str]) -> nx.Graph:
    """A simple undirected graph from a text file of two node names a line (SNAP's format, .csv and .tsv too).

    Lines that start with # or % are comments, further columns are left out, both directions of an edge are one,
    self-loops are dropped.

    Raises:
        ValueError: no such file, one that isn't text, a line with fewer than two columns (its number is named), or no
            edge at all.
    """
    import networkx as nx

    file = Path(path)
    if not file.is_file():
        raise ValueError(f"path = {str(path)!r}: no such file")
    try:
        content = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text file of edges ({error})") from error
    graph = nx.Graph()
    for number, line in enumerate(content.splitlines(), 1):
        text = line.strip()
        if not text or text[0] in "#%":
            continue
        columns = text.replace(",", " ").replace(";", " ").split()
        if len(columns) < 2:
            raise ValueError(f"{path}, line {number}: expected two nodes, got {text!r}")
        if columns[0] != columns[1]:
            graph.add_edge(columns[0], columns[1])
    if not graph.number_of_edges():
        raise ValueError(f"{path} holds no edge")
    return graph


def load_source(source: str, n: int = 200, random_state: int = 0) -> nx.Graph:
    """A domain's generator, a shipped graph, or an edge list on disk, by one name."""
    if source in DOMAINS:
        return domain_graph(source, n, random_state)
    if source in SHIPPED:
        return shipped_graph(source)
    if Path(source).is_file():
        return load_edge_list(source)
    raise ValueError(
        f"source = {source!r} is no domain, shipped graph or file; {nearest(source, (*DOMAINS, *SHIPPED))}"
    )


def sample_subgraphs(
    graph: nx.Graph,
    n_samples: int,
    *,
    min_nodes: int = 5,
    max_nodes: int = 20,
    method: str = "ego",
    connected: bool = True,
    random_state: int = 0,
) -> list[nx.Graph]:
    """Induced subgraphs of uniformly drawn size, with nodes renumbered from 0 in random order.

    Graphs without an edge or with all of them are drawn again, and disconnected ones where `connected`.

    Args:
        method: ego (the centre's neighbours, then theirs, a random part of the last ring), random_walk, snowball
            (up to three random neighbours of each node reached).

    Raises:
        ValueError: a size range that makes no sense, or a graph that yields no such subgraphs.
    """
    import networkx as nx

    one_of("method", method, METHODS)
    if n_samples < 1 or not 3 <= min_nodes <= max_nodes:
        raise ValueError(
            f"n_samples = {n_samples}, min_nodes = {min_nodes}, max_nodes = {max_nodes}: expected at least one "
            "sample and 3 <= min_nodes <= max_nodes"
        )
    if min_nodes > graph.number_of_nodes():
        raise ValueError(f"min_nodes = {min_nodes}, but the graph has {graph.number_of_nodes()} nodes")
    rng = np.random.default_rng(random_state)
    nodes = list(graph)
    samples: list[nx.Graph] = []
    for _ in range(MAX_ATTEMPTS + n_samples):
        size = int(rng.integers(min_nodes, max_nodes + 1))
        chosen = _collect(graph, nodes[rng.integers(len(nodes))], size, method, rng)
        if len(chosen) < min_nodes:
            continue
        part = _induced(graph, chosen)
        possible = len(part) * (len(part) - 1) // 2
        if not 0 < part.number_of_edges() < possible or (connected and not nx.is_connected(part)):
            continue
        order = dict(zip(part, rng.permutation(len(part)).tolist(), strict=True))
        renumbered = nx.empty_graph(len(part))
        renumbered.add_edges_from((order[u], order[v]) for u, v in part.edges)
        samples.append(renumbered)
        if len(samples) == n_samples:
            return samples
    raise ValueError(
        f"only {len(samples)} of {n_samples} subgraphs with {min_nodes} to {max_nodes} nodes were found; lower "
        "min_nodes or use another method"
    )


def _induced(graph: nx.Graph, chosen: list[object]) -> nx.Graph:
    """`graph.subgraph` in the order of `chosen`: its own order hangs on the hashes of the nodes."""
    import networkx as nx

    part = nx.Graph()
    part.add_nodes_from(chosen)
    part.add_edges_from((u, v) for u in chosen for v in graph[u] if v in part)
    return part


def _collect(
    graph: nx.Graph, centre: object, size: int, method: str, rng: np.random.Generator
) -> list[object]:
    """Up to `size` nodes around a centre."""
    chosen, at = {centre: None}, centre
    if method == "random_walk":
        for _ in range(50 * size):
            neighbours = list(graph[at])
            if len(chosen) == size or not neighbours:
                break
            at = neighbours[rng.integers(len(neighbours))]
            chosen[at] = None
        return list(chosen)
    ring = [centre]
    while ring and len(chosen) < size:
        following = []
        for node in ring:
            fresh = [v for v in graph[node] if v not in chosen]
            fresh = [fresh[k] for k in rng.permutation(len(fresh))]
            for v in fresh[: 3 if method == "snowball" else None]:
                if len(chosen) < size:
                    chosen[v] = None
                    following.append(v)
        ring = following
    return list(chosen)
