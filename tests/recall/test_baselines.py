"""What the baselines score: against recallers that do what they say, and by hand; and what is judged better."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx
import numpy as np
import pytest

from interp.recall.answers import Answer
from interp.recall.baselines import BASELINES, RECENT, baseline_table, baselines, verdicts, with_baselines
from interp.recall.design import make_cases
from interp.recall.metrics import recall_metrics
from interp.recall.narration import Pair
from interp.recall.prompts import RecallPrompt
from interp.recall.runner import GraphRecallExperiment, RecallRun
from interp.recall.scripted import NoisyRecaller, PerfectRecaller, RecencyRecaller, ScriptedRecaller

CASES = make_cases(("er", "road"), n_graphs=8, min_nodes=6, max_nodes=10, clearances=(0,))


def run_of(recaller: ScriptedRecaller) -> RecallRun:
    return GraphRecallExperiment(recaller, show_progress=False).run(CASES)


def everything(prompt: RecallPrompt) -> Mapping[Pair, float]:
    return dict.fromkeys(prompt.pairs, 1.0)


@pytest.mark.parametrize(
    ("name", "recaller"),
    [
        ("all zero", ScriptedRecaller(lambda prompt: {})),
        ("always one", ScriptedRecaller(everything)),
        ("recency", RecencyRecaller(RECENT)),
    ],
)
def test_they_score_what_recallers_of_their_kind_do(name: str, recaller: ScriptedRecaller) -> None:
    frame = with_baselines(run_of(recaller).to_frame())
    for metric in ("accuracy", "f1"):
        assert frame[metric].tolist() == pytest.approx(frame[f"{metric} of {name}"].tolist())


def test_by_hand() -> None:
    """A path of 5 nodes: 4 of 10 pairs. Five pairs at random hold two edges on average: F1 4/9, accuracy 5/10."""
    scores = baselines(nx.path_graph(5), 5)
    assert (scores["all zero"].accuracy, scores["all zero"].f1) == (0.6, 0)
    assert scores["always one"] == pytest.approx((0.4, 0.4, 1, 4 / 7))
    assert scores["matched density"] == pytest.approx((0.5, 0.4, 0.5, 4 / 9))
    assert scores["recency"] == pytest.approx((0.9, 1, 0.75, 6 / 7))
    assert scores["random"] == pytest.approx((0.52, 0.4, 0.4, 0.4))
    assert scores["perfect"] == (1, 1, 1, 1)
    assert baselines(nx.path_graph(5), 10)["matched density"] == scores["always one"]
    with pytest.raises(ValueError, match="n_recalled = 11"):
        baselines(nx.path_graph(5), 11)


def test_random_ones_by_simulation() -> None:
    graph, n_recalled = nx.gnp_random_graph(12, 0.3, seed=1), 30
    named, p, rng = baselines(graph, n_recalled), nx.density(graph), np.random.default_rng(0)
    pairs = [(u, v) for u in range(12) for v in range(u)]
    for name, draw in {
        "random": lambda: rng.random(66) < p,
        "matched density": lambda: rng.permutation(66) < n_recalled,
    }.items():
        drawn = [recall_metrics(graph, dict(zip(pairs, map(float, draw()), strict=True))) for _ in range(400)]
        assert np.mean([d.accuracy for d in drawn]) == pytest.approx(named[name].accuracy, abs=0.01)
        assert np.mean([d.f1 for d in drawn]) == pytest.approx(named[name].f1, abs=0.02)


def test_the_verdict_is_about_the_best_baseline() -> None:
    """Who always says 1 has an F1 far above the random recall's, and is no better than a baseline."""
    always = run_of(ScriptedRecaller(everything)).to_frame()
    table = baseline_table(always).set_index(["group", "metric"])
    assert table.loc[("all", "f1"), "recalled"] > table.loc[("all", "f1"), "random"] + 0.1
    assert not any(v.better for v in verdicts(always))
    assert verdicts(always)[0].every_pair == 16
    for v in verdicts(always):
        group = table.loc[(v.group, v.metric)]
        assert v.baseline == group[list(BASELINES)].max() == group[v.best]
    assert all(
        v.better and "better, difference +" in str(v) for v in verdicts(run_of(PerfectRecaller()).to_frame())
    )
    assert verdicts(run_of(NoisyRecaller(0.02, 0.01, 0.01)).to_frame())[1].better


def test_one_graph_and_none_that_could_be_read_are_not_judged() -> None:
    assert "1 graph can't tell" in str(verdicts(run_of(PerfectRecaller()).to_frame().head(1))[0])

    class Mute(ScriptedRecaller):
        def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
            return Answer("The weather is fine.")

    run = run_of(Mute(lambda prompt: {}))
    assert verdicts(run.to_frame()) == []
    assert "nothing to judge" in str(run)


def test_what_could_not_be_read_reaches_tables_and_print() -> None:
    class Hedging(ScriptedRecaller):
        def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
            (a, b), (c, d), (e, f), *_ = prompt.pairs
            said = f"({a},{b}): 1\nMaybe {c} is linked with {d}.\n{e} and {f} are linked.\n{e} and {f} are not linked."
            return Answer(said)

    run = run_of(Hedging(lambda prompt: {}))
    frame = run.to_frame()
    assert (frame["unread"] == 3).all()
    assert (frame["conflicts"] == 1).all()
    text = str(run)
    assert f"Read: 16 of {int((frame['nodes'] * (frame['nodes'] - 1) // 2).sum())} pairs" in text
    assert "48 pieces of text not understood with certainty; 16 pairs with contradictory answers" in text
    assert "not read: 'Maybe " in text
