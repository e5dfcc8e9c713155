"""Graphs from everywhere are the same graph; what can't be one is refused by name."""

from __future__ import annotations

import gzip

import networkx as nx
import numpy as np
import pytest

from classic_ml.influence import InfluenceGraph, LinearThresholdGraph, load_edge_list
from classic_ml.influence.graph import as_graph, check_cascade


def edges_of(graph: InfluenceGraph) -> dict:
    names = graph.labels
    return {
        (names[u], names[v]): w
        for u, v, w in zip(graph.sources, graph.targets, graph.weights.round(12), strict=True)
    }


def test_undirected_edges_are_two_and_weigh_one_over_indegree() -> None:
    star = nx.star_graph(["hub", "a", "b"])
    graph = LinearThresholdGraph.from_networkx(star)
    assert graph.labels == ("a", "b", "hub")
    assert edges_of(graph) == {("a", "hub"): 0.5, ("b", "hub"): 0.5, ("hub", "a"): 1.0, ("hub", "b"): 1.0}
    assert (graph.n_nodes, graph.n_edges, graph.indegree.tolist()) == (3, 4, [1, 1, 2])
    pointers, targets, weights = graph.outgoing
    assert (pointers.tolist(), targets.tolist(), weights.tolist()) == (
        [0, 1, 2, 4],
        [2, 2, 0, 1],
        [0.5, 0.5, 1, 1],
    )


def test_weights_are_normalised_per_target_or_taken_as_given() -> None:
    directed = nx.DiGraph()
    directed.add_weighted_edges_from([(0, 2, 3.0), (1, 2, 1.0), (2, 0, 0.25)])
    assert edges_of(LinearThresholdGraph.from_networkx(directed, "weight")) == {
        (0, 2): 0.75,
        (1, 2): 0.25,
        (2, 0): 1.0,
    }
    assert edges_of(LinearThresholdGraph.from_networkx(directed)) == {(0, 2): 0.5, (1, 2): 0.5, (2, 0): 1.0}
    with pytest.raises(ValueError, match=r"weight of the edge 0 -> 2 is 3"):
        LinearThresholdGraph.from_networkx(directed, "weight", "given")
    directed[0][2]["weight"] = 0.5
    directed[1][2]["weight"] = 0.75
    loose = InfluenceGraph.from_networkx(directed, "weight", "given")
    assert edges_of(loose) == {(0, 2): 0.5, (1, 2): 0.75, (2, 0): 0.25}
    check_cascade(loose, "ic")
    for make in (
        lambda: LinearThresholdGraph.from_networkx(directed, "weight", "given"),
        lambda: loose.odds("lt"),
    ):
        with pytest.raises(ValueError, match=r"weights into node 2 sum to 1\.25, above 1"):
            make()


def test_order_of_building_does_not_matter() -> None:
    pairs = [("d", "a"), ("b", "c"), ("a", "b"), ("c", "d")]
    graphs = [LinearThresholdGraph.from_networkx(nx.Graph(order)) for order in (pairs, pairs[::-1])]
    assert graphs[0].labels == graphs[1].labels == ("a", "b", "c", "d")
    assert (graphs[0].sources == graphs[1].sources).all()
    mixed = LinearThresholdGraph.from_edges([("a", 1), 2, "x"], [2, "x", ("a", 1)])
    assert mixed.labels == (2, "x", ("a", 1))


def test_self_loops_go_and_repeated_edges_count_once() -> None:
    plain = LinearThresholdGraph.from_edges([0, 0, 0, 1], [1, 1, 0, 0])
    assert edges_of(plain) == {(0, 1): 1.0, (1, 0): 1.0}
    with pytest.raises(ValueError, match=r"edge 0 -> 1 is there twice with weights"):
        LinearThresholdGraph.from_edges([0, 0], [1, 1], [0.2, 0.3], scheme="given")
    lonely = LinearThresholdGraph.from_edges(["a"], ["b"], nodes=["c"])
    assert lonely.labels == ("a", "b", "c")
    assert (LinearThresholdGraph.from_edges(np.array([5, 7]), np.array([7, 9])).labels) == (5, 7, 9)


class FakeIgraph:
    """What `from_igraph` asks of an igraph graph, so that igraph need not be installed."""

    class Table(dict):
        def attributes(self) -> list[str]:
            return list(self)

    def __init__(self, pairs, names, weights=None) -> None:
        self.pairs, self.count = pairs, len(names)
        self.vs = self.Table(name=names) if isinstance(names, list) else self.Table()
        self.es = self.Table() if weights is None else self.Table(influence=weights)

    def get_edgelist(self) -> list[tuple[int, int]]:
        return self.pairs

    def vcount(self) -> int:
        return self.count

    def is_directed(self) -> bool:
        return True


def graphs_of_igraph(pairs, names, weights=None) -> list:
    made = [FakeIgraph(pairs, names, weights)]
    try:
        import igraph
    except ImportError:
        return made
    real = igraph.Graph(len(names), pairs, directed=True)
    if isinstance(names, list):
        real.vs["name"] = names
    if weights is not None:
        real.es["influence"] = weights
    return [*made, real]


def test_igraph_gives_the_graph_of_networkx() -> None:
    pairs, names = [(0, 1), (1, 2), (2, 0), (0, 2)], ["z", "y", "x"]
    same = nx.DiGraph([(names[u], names[v]) for u, v in pairs])
    for graph in graphs_of_igraph(pairs, names, [0.1, 0.2, 0.3, 0.4]):
        assert edges_of(as_graph(graph)) == edges_of(as_graph(same))
        given = LinearThresholdGraph.from_igraph(graph, "influence", "given")
        assert edges_of(given) == {("z", "y"): 0.1, ("y", "x"): 0.2, ("x", "z"): 0.3, ("z", "x"): 0.4}
        with pytest.raises(ValueError, match=r"weight = 'weight' is no edge attribute; .*influence"):
            LinearThresholdGraph.from_igraph(graph, "weight")
    for graph in graphs_of_igraph(pairs, range(3)):
        assert as_graph(graph).labels == (0, 1, 2)
    for graph in graphs_of_igraph(pairs, ["a", "a", "b"]):
        with pytest.raises(ValueError, match="names two vertices alike"):
            as_graph(graph)


def test_what_is_no_graph_is_refused() -> None:
    directed = nx.DiGraph([(0, 1)])
    with pytest.raises(ValueError, match="edge 0 -> 1 has no attribute 'w'"):
        LinearThresholdGraph.from_networkx(directed, "w")
    for weight in (-0.5, float("nan"), float("inf")):
        for scheme in ("given", "indegree"):
            with pytest.raises(ValueError, match="weight of the edge 0 -> 1"):
                InfluenceGraph.from_edges([0], [1], [weight], scheme=scheme)
    for bad, message in (
        (lambda: LinearThresholdGraph.from_edges([0], [1], scheme="given"), "needs weights"),
        (lambda: LinearThresholdGraph.from_edges([0], [1, 2]), "sources has 1 entries and targets 2"),
        (lambda: LinearThresholdGraph.from_edges([0], [1], [0.1, 0.2]), "weights has 2 entries for 1 edges"),
        (lambda: LinearThresholdGraph.from_networkx(nx.Graph()), "no nodes"),
        (lambda: LinearThresholdGraph.from_edges([0], [1], scheme="degree"), "scheme = 'degree'"),
        (lambda: check_cascade(as_graph(directed), "sir"), "cascade = 'sir'"),
        (lambda: as_graph(directed).nodes([7]), "seeds: 7 is not a node of the graph"),
        (lambda: as_graph(directed).nodes([1, 1]), "seeds: 1 is there twice"),
    ):
        with pytest.raises(ValueError, match=message):
            bad()
    with pytest.raises(TypeError, match="graph is a list"):
        as_graph([(0, 1)])


def test_edge_lists(tmp_path) -> None:
    text = "# Directed graph\n% konect\n\n10\t2\n2 10 5\n10,3\n10\t2\n"
    plain, packed = tmp_path / "edges.txt", tmp_path / "edges.txt.gz"
    plain.write_text(text)
    with gzip.open(packed, "wt") as file:
        file.write(text)
    for path in (plain, packed):
        graph = load_edge_list(path, directed=True)
        assert isinstance(graph, LinearThresholdGraph)
        assert edges_of(graph) == {(10, 2): 1.0, (2, 10): 1.0, (10, 3): 1.0}
    assert edges_of(load_edge_list(plain, directed=False))[(3, 10)] == 0.5
    named = tmp_path / "named.tsv"
    named.write_text("ada\tbob\t0.6\n7\tbob\t0.7\n")
    assert edges_of(load_edge_list(named, directed=True, weighted=True, cascade="ic")) == {
        ("ada", "bob"): 0.6,
        ("7", "bob"): 0.7,
    }
    with pytest.raises(ValueError, match=r"weights into node 'bob' sum to 1\.3"):
        load_edge_list(named, directed=True, weighted=True)


@pytest.mark.parametrize(
    ("text", "weighted", "message"),
    [
        ("1 2\n3\n", False, r"bad\.txt, line 2: '3' has 1 fields; expected source and target"),
        ("1 2\n", True, r"line 1: .* has 2 fields; expected source, target and weight"),
        ("1 2 high\n", True, r"line 1: weight 'high' is not a number"),
        ("# nothing\n", False, r"bad\.txt holds no edges"),
    ],
)
def test_edge_lists_that_are_none(tmp_path, text, weighted, message) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_edge_list(path, directed=True, weighted=weighted)
