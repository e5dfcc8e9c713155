"""Hidden links: what is hidden is not told, and who knows the domain finds it."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from interp.recall.design import make_cases
from interp.recall.link_prediction import (
    CommonNeighbourRecaller,
    accuracy_correlation,
    hide_links,
    predict_links,
)
from interp.recall.narration import make_vignette
from interp.recall.scripted import ScriptedRecaller, told_edges
from tests.recall.stories import story


def test_a_fifth_of_the_edges_is_left_out_and_asked_with_as_many_non_edges() -> None:
    for seed in range(5):
        vignette = story(10, 0.4, seed=seed)
        case = hide_links(vignette, random_state=seed)
        ask, true = case.prompt(), vignette.graph
        assert len(case.hidden) == len(case.absent) == max(1, round(0.2 * len(vignette.edges)))
        told = {frozenset(e) for e in told_edges(ask)}
        assert told == {frozenset(e) for e in vignette.edges} - {frozenset(e) for e in case.hidden}
        assert all(true.has_edge(*e) for e in case.hidden)
        assert not any(true.has_edge(*e) for e in case.absent)
        assert {frozenset(p) for p in ask.pairs} == {frozenset(p) for p in (*case.hidden, *case.absent)}
        assert set(case.vignette.nodes) == set(vignette.nodes)
        assert ask.task == "link_prediction"
        assert hide_links(vignette, random_state=seed) == case


def test_small_graphs_hide_at_least_one_and_keep_at_least_one() -> None:
    assert len(hide_links(make_vignette(nx.path_graph(3), "er")).hidden) == 1
    assert len(hide_links(make_vignette(nx.path_graph(3), "er"), 0.9).hidden) == 1
    for graph in (nx.complete_graph(4), nx.path_graph(2)):
        with pytest.raises(ValueError, match="two edges"):
            hide_links(make_vignette(graph, "er"))
    with pytest.raises(ValueError, match="share"):
        hide_links(make_vignette(nx.path_graph(4), "er"), 1.0)


def test_common_neighbours_know_small_worlds_and_nothing_of_chance(tmp_path: Path) -> None:
    cases = make_cases(("social", "er"), n_graphs=40, min_nodes=9, max_nodes=14, random_state=1)
    stories = [case.vignette for case in cases]
    path = tmp_path / "t.jsonl"
    table = predict_links(CommonNeighbourRecaller(), stories, transcripts=path, show_progress=False)
    assert (table["coverage"] == 1).all()
    means = table.groupby("dataset")["accuracy"].mean()
    assert means["social"] > 0.58
    assert 0.3 < means["er"] < 0.7
    again = predict_links(CommonNeighbourRecaller(), stories, transcripts=path, show_progress=False)
    assert again.equals(table)


def test_one_who_knows_the_truth_is_always_right() -> None:
    truth = {}
    stories = [story(9, 0.4, seed=k) for k in range(4)]
    for v in stories:
        truth |= {frozenset((u, w)): v.graph.has_edge(u, w) for u, w in v.pair_order}
    for v in stories:
        oracle = ScriptedRecaller(lambda p, g=v.graph: {q: float(g.has_edge(*q)) for q in p.pairs})
        table = predict_links(oracle, [v], show_progress=False)
        assert table["accuracy"].tolist() == table["auroc"].tolist() == [1.0]


def test_correlation() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    y = 0.6 * x + 0.8 * rng.normal(size=80)
    found = accuracy_correlation(x, y)
    assert found.r == pytest.approx(stats.pearsonr(x, y).statistic)
    normal = stats.pearsonr(x, y).confidence_interval(0.95)
    assert found.low == pytest.approx(normal.low, abs=0.08)
    assert found.high == pytest.approx(normal.high, abs=0.08)
    assert np.isnan(accuracy_correlation([1, 1, 1], [1, 2, 3]).r)
    unknown = accuracy_correlation([*x, np.nan, 0], [*y, 0, np.nan])
    assert (unknown.r, unknown.n) == (found.r, found.n)
    with pytest.raises(ValueError, match="at least 3"):
        accuracy_correlation([1, 2], [1, 2])
