"""Recallers of known behaviour behave as they say."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from interp.recall.answers import read_answers
from interp.recall.design import make_cases
from interp.recall.graphs import DOMAINS
from interp.recall.narration import make_vignette
from interp.recall.prompts import build_messages
from interp.recall.runner import GraphRecallExperiment
from interp.recall.scripted import NoisyRecaller, PerfectRecaller, RecencyRecaller, ScriptedRecaller
from tests.recall.stories import prompt


@pytest.mark.parametrize("permute", [False, True])
def test_the_story_is_lossless(permute: bool) -> None:
    """Read off the messages alone, in every domain and at every strength: all edges, no others."""
    cases = make_cases(DOMAINS, n_graphs=4, clearances=(0, 2, 7), permute_pairs=permute, random_state=3)
    frame = GraphRecallExperiment(PerfectRecaller(), show_progress=False).run(cases).to_frame()
    assert len(frame) == 60
    assert (frame[["accuracy", "f1", "coverage"]] == 1).all().all()


def test_recency_keeps_the_last_clauses() -> None:
    ask = prompt(9, seed=2)
    result = read_answers([RecencyRecaller(3).answer(ask)], ask)
    said = {frozenset(p) for p, w in result.probabilities.items() if w > 0.5}
    assert said == {frozenset(e) for e in ask.vignette.edges[-3:]}
    with pytest.raises(ValueError, match="clauses"):
        RecencyRecaller(0)


def test_noise_has_its_rates() -> None:
    recaller = NoisyRecaller(miss=0.3, base=0.1, closed=0.4, seed=1)
    counts = {kind: [0, 0] for kind in ("edge", "closed", "open")}
    for k in range(60):
        vignette = make_vignette(nx.gnp_random_graph(12, 0.2, seed=k), "er", k)
        ask = build_messages(vignette, 0)
        for (u, v), w in read_answers([recaller.answer(ask)], ask).probabilities.items():
            graph = vignette.graph
            shared = len(list(nx.common_neighbors(graph, u, v)))
            kind = "edge" if graph.has_edge(u, v) else "closed" if shared else "open"
            counts[kind][0] += int(w)
            counts[kind][1] += 1
    for kind, rate in (("edge", 0.7), ("closed", 0.4), ("open", 0.1)):
        said, asked = counts[kind]
        assert abs(said / asked - rate) < 4 * np.sqrt(rate * (1 - rate) / asked)


def test_noise_does_not_depend_on_how_pairs_are_asked() -> None:
    vignette = prompt(10, seed=3).vignette
    plain, permuted = build_messages(vignette, 0), build_messages(vignette, 0, permute_pairs=True)
    recalls = []
    for ask in (plain, permuted):
        result = read_answers([NoisyRecaller(seed=4).answer(ask)], ask)
        recalls.append({frozenset(p): w for p, w in result.probabilities.items()})
    assert recalls[0] == recalls[1]
    assert NoisyRecaller(seed=4).answer(plain) == NoisyRecaller(seed=4).answer(plain)
    assert NoisyRecaller(seed=4).answer(plain) != NoisyRecaller(seed=5).answer(plain)


def test_scripts_answer_by_a_function() -> None:
    ask = prompt(4)
    recaller = ScriptedRecaller(lambda p: {p.pairs[0]: 1}, name="first")
    assert read_answers([recaller.answer(ask)], ask).probabilities == {
        pair: float(pair == ask.pairs[0]) for pair in ask.pairs
    }
    with pytest.raises(ValueError, match=r"miss = 1\.5"):
        NoisyRecaller(miss=1.5)


def test_noise_that_favours_triangles_is_called_biased() -> None:
    assert NoisyRecaller().name == "noisy"
    assert NoisyRecaller(base=0.02, closed=0.12).name == "biased"
