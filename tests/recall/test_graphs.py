"""Domain generators, shipped graphs, edge lists and subgraph samples."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from interp.recall.graphs import (
    DOMAINS,
    METHODS,
    SHIPPED,
    brashears_graph,
    domain_graph,
    load_edge_list,
    load_source,
    sample_subgraphs,
    shipped_graph,
)


def test_domains_have_their_character() -> None:
    graphs = {domain: domain_graph(domain, 150, 1) for domain in DOMAINS}
    assert all(g.number_of_nodes() == 150 and nx.number_of_selfloops(g) == 0 for g in graphs.values())
    clustering = {domain: nx.average_clustering(g) for domain, g in graphs.items()}
    assert clustering["social"] > 0.3
    assert clustering["author"] > 0.4
    assert clustering["er"] < 0.1
    assert max(d for _, d in graphs["road"].degree) <= 6  # four streets and at most two diagonals
    assert nx.is_connected(graphs["social"])
    assert min(d for _, d in graphs["author"].degree) >= 1


def test_roads_are_a_grid_without_a_quarter_of_its_edges() -> None:
    graph = domain_graph("road", 144, 0)
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(12, 12))
    streets = [e for e in graph.edges if grid.has_edge(*e)]
    diagonals = [e for e in graph.edges if not grid.has_edge(*e)]
    assert len(streets) == grid.number_of_edges() - grid.number_of_edges() // 4
    assert len(diagonals) == 121 // 20
    assert all(abs(u - v) == 13 for u, v in diagonals)


@pytest.mark.parametrize("domain", DOMAINS)
def test_same_seed_same_graph(domain: str) -> None:
    assert set(domain_graph(domain, 60, 3).edges) == set(domain_graph(domain, 60, 3).edges)
    assert set(domain_graph(domain, 60, 3).edges) != set(domain_graph(domain, 60, 4).edges)


def test_shipped_graphs_are_simple() -> None:
    sizes = {name: (len(g), g.number_of_edges()) for name in SHIPPED if (g := shipped_graph(name))}
    assert sizes["karate_club"] == (34, 78)
    assert sizes["florentine_families"] == (15, 20)
    assert sizes["les_miserables"] == (77, 254)
    assert sizes["davis_southern_women"] == (32, 89)
    with pytest.raises(ValueError, match="karate_club"):
        shipped_graph("karate")


def test_the_networks_of_the_human_experiment() -> None:
    irreducible, reducible = brashears_graph("irreducible"), brashears_graph("reducible")
    assert (len(irreducible), irreducible.number_of_edges()) == (15, 13)
    assert sum(nx.triangles(irreducible).values()) == 0
    assert (len(reducible), reducible.number_of_edges()) == (15, 23)
    assert sum(nx.triangles(reducible).values()) > 0


def test_edge_lists(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("# comment\n% other\n1 2\n2\t1\n2,3\n3 3\n\n4 5 0.7\n")
    graph = load_edge_list(path)
    assert {frozenset(e) for e in graph.edges} == {frozenset("12"), frozenset("23"), frozenset("45")}
    assert set(load_source(str(path))) == set("12345")
    path.write_text("1 2\nalone\n")
    with pytest.raises(ValueError, match="line 2"):
        load_edge_list(path)
    path.write_text("# nothing\n")
    with pytest.raises(ValueError, match="no edge"):
        load_edge_list(path)
    (tmp_path / "binary.txt").write_bytes(b"\x80\x81 \xff\n")
    with pytest.raises(ValueError, match=r"binary\.txt is no text file"):
        load_edge_list(tmp_path / "binary.txt")
    with pytest.raises(ValueError, match="no such file"):
        load_edge_list(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="did you mean 'social'"):
        load_source("socials")


@pytest.mark.parametrize("method", METHODS)
def test_samples_are_induced_connected_and_in_range(method: str) -> None:
    graph = domain_graph("social", 100, 0)
    parts = sample_subgraphs(graph, 12, min_nodes=5, max_nodes=9, method=method, random_state=2)
    assert len(parts) == 12
    for part in parts:
        n, m = len(part), part.number_of_edges()
        assert 5 <= n <= 9
        assert set(part) == set(range(n))
        assert 0 < m < n * (n - 1) // 2
        assert nx.is_connected(part)
    again = sample_subgraphs(graph, 12, min_nodes=5, max_nodes=9, method=method, random_state=2)
    assert [set(p.edges) for p in parts] == [set(p.edges) for p in again]


def test_sampling_refuses_what_it_cannot_give() -> None:
    with pytest.raises(ValueError, match="only 0 of 2"):
        sample_subgraphs(nx.complete_graph(6), 2, min_nodes=3, max_nodes=5)
    with pytest.raises(ValueError, match="has 4 nodes"):
        sample_subgraphs(nx.path_graph(4), 2)
    with pytest.raises(ValueError, match="min_nodes"):
        sample_subgraphs(nx.path_graph(40), 2, min_nodes=8, max_nodes=6)
    with pytest.raises(ValueError, match="method"):
        sample_subgraphs(nx.path_graph(40), 2, method="walk")
    with pytest.raises(ValueError, match="10 nodes"):
        domain_graph("er", 4)
