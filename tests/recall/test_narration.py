"""Stories hold exactly their graph, and names that cannot be misread."""

from __future__ import annotations

import re

import networkx as nx
import numpy as np
import pytest

from interp.recall.graphs import DOMAINS
from interp.recall.names import pool
from interp.recall.narration import (
    NARRATIVES,
    STYLES,
    GraphVignette,
    brashears_vignette,
    make_vignette,
)
from interp.recall.prompts import build_messages
from interp.recall.scripted import told_edges


@pytest.mark.parametrize("domain", DOMAINS)
def test_pools_are_legible(domain: str) -> None:
    names = pool(domain)
    assert len(set(names)) == len(names) == 60
    folded = [name.casefold() for name in names]
    assert not any(a != b and b.startswith(a) for a in folded for b in folded)
    assert not any(re.search(r"[,:().]|[01]|\b\d+\b", name) for name in names)


@pytest.mark.parametrize("narrative", NARRATIVES)
@pytest.mark.parametrize("order", ["random", "node"])
def test_one_clause_an_edge(narrative: str, order: str) -> None:
    for seed in range(5):
        graph = nx.gnp_random_graph(9, 0.3, seed=seed)
        vignette = make_vignette(graph, narrative, seed, order=order, merge=0.5)
        told = told_edges(build_messages(vignette, 0))
        assert told == list(vignette.edges)
        assert len({frozenset(e) for e in told}) == len(told) == graph.number_of_edges()
        assert nx.is_isomorphic(vignette.graph, graph)
        clauses = sum(vignette.text.count(r) for r in STYLES[narrative].relations)
        assert clauses >= len(told)  # "has a link to" is said once an edge, whatever else the text holds


def test_everybody_is_mentioned_and_the_lonely_once() -> None:
    graph = nx.gnp_random_graph(8, 0.2, seed=4)
    graph.add_node(8)
    vignette = make_vignette(graph, "social", 1, attributes=0.0)
    lonely = [name for name in vignette.nodes if vignette.graph.degree(name) == 0]
    assert lonely
    for name in vignette.nodes:
        assert vignette.text.count(name) == max(1, vignette.graph.degree(name)) or name not in lonely
        assert name in vignette.text
    for name in lonely:
        assert vignette.text.count(f"{name} is also there but knows nobody") == 1


def test_merging_and_attributes_happen_as_often_as_asked() -> None:
    graph = nx.star_graph(30)
    merged = make_vignette(graph, "er", 0, merge=1.0, attributes=0.0)
    assert ", and also " in merged.text
    assert max(s.count(" and also ") for s in merged.text.split(".")) <= 2  # three edges a sentence at most
    assert ", and also " not in make_vignette(graph, "er", 0, merge=0.0).text
    facts = STYLES["er"].attributes
    share = np.mean(
        [
            sum(make_vignette(graph, "er", s, attributes=0.2).text.count(f) for f in facts) / 31
            for s in range(30)
        ]
    )
    assert share == pytest.approx(0.2, abs=0.04)


def test_names_do_not_follow_the_story() -> None:
    """Over many stories the order of the nodes says nothing about who is told first."""
    firsts = [
        v.nodes.index(v.edges[0][0]) for s in range(200) if (v := make_vignette(nx.path_graph(6), "er", s))
    ]
    counts = np.bincount(firsts, minlength=6)
    assert counts.min() > 15
    assert counts.max() < 60


def test_seeded_and_saved() -> None:
    graph = nx.cycle_graph(7)
    one, two = make_vignette(graph, "ppi", 5, dataset="road"), make_vignette(graph, "ppi", 5, dataset="road")
    assert one == two
    assert one != make_vignette(graph, "ppi", 6, dataset="road")
    assert GraphVignette.from_dict(one.to_dict()) == one
    assert len(one.pair_order) == 21
    assert (one.narrative, one.dataset) == ("ppi", "road")


@pytest.mark.parametrize(("wording", "word"), [("weak", "friend"), ("strong", "sibling")])
def test_wordings_of_the_human_experiment(wording: str, word: str) -> None:
    vignette = brashears_vignette("reducible", wording, 2)
    assert word in vignette.text
    assert len(vignette.edges) == 23
    assert "Victoria" in vignette.nodes
    assert vignette.dataset == "brashears_reducible"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["Ann", "Anna", "Bob"], "begins another"),
        (["Ann", "ann", "Bob"], "twice"),
        (["Ann, B", "Cid", "Bob"], "misread"),
        (["node 1", "Cid", "Bob"], "misread"),
        (["", "Cid", "Bob"], "misread"),
        (["Cid", "Bob"], "expected 3"),
    ],
)
def test_names_that_could_be_misread_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_vignette(nx.path_graph(3), "social", names=names)


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="narrative"):
        make_vignette(nx.path_graph(3), "family")
    with pytest.raises(ValueError, match="order"):
        make_vignette(nx.path_graph(3), "er", order="alphabetical")
    with pytest.raises(ValueError, match="pool"):
        make_vignette(nx.path_graph(61), "er")
    with pytest.raises(ValueError, match="probabilities"):
        make_vignette(nx.path_graph(3), "er", merge=2)
    with pytest.raises(ValueError, match="directed"):
        make_vignette(nx.DiGraph([(0, 1)]), "er")
    with pytest.raises(ValueError, match="wording"):
        brashears_vignette("reducible", "firm")
