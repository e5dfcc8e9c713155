"""Runs, their tables, and what an interruption leaves."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

from interp.recall.answers import Answer
from interp.recall.design import make_cases
from interp.recall.prompts import RecallPrompt
from interp.recall.runner import Case, GraphRecallExperiment, RecallRun, load_run, save_settings
from interp.recall.scripted import NoisyRecaller, PerfectRecaller, ScriptedRecaller
from tests.recall.stories import story


class Counting(ScriptedRecaller):
    """Says no to everything; after `limit` prompts comes Ctrl-C."""

    def __init__(self, limit: int = 10**9) -> None:
        super().__init__(lambda prompt: {}, "counting")
        self.asked, self.limit = 0, limit

    def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
        if self.asked == self.limit:
            raise KeyboardInterrupt
        self.asked += 1
        return super().answer(prompt, sample)


def quiet(recaller: object, **options: object) -> GraphRecallExperiment:
    return GraphRecallExperiment(recaller, show_progress=False, **options)  # type: ignore[arg-type]


def test_the_table_of_a_run() -> None:
    run = quiet(ScriptedRecaller(lambda p: {p.pairs[0]: 1}), clearance=2).run(
        [story(5, seed=k) for k in range(3)]
    )
    frame = run.to_frame()
    assert frame["clearance"].tolist() == [2, 2, 2]
    assert frame["nodes"].tolist() == [5, 5, 5]
    assert (frame["tp"] + frame["fp"] == 1).all()
    assert (frame["tp"] + frame["fp"] + frame["fn"] + frame["tn"] == 10).all()
    assert (frame["coverage"] == 1).all()
    assert "accuracy" in str(run)


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    stories, path = [story(5, seed=k) for k in range(6)], tmp_path / "t.jsonl"
    with pytest.raises(KeyboardInterrupt):
        quiet(Counting(limit=4), transcripts=path).run(stories)
    second = Counting()
    run = quiet(second, transcripts=path).run(stories)
    assert second.asked == 2
    whole = quiet(Counting()).run(stories)
    assert run.to_frame().equals(whole.to_frame())


def test_samples_are_asked_apart(tmp_path: Path) -> None:
    recaller = Counting()
    quiet(recaller, samples=3, transcripts=tmp_path / "t.jsonl").run([story(4)])
    assert recaller.asked == 3
    quiet(recaller, samples=4, transcripts=tmp_path / "t.jsonl").run([story(4)])
    assert recaller.asked == 4


def test_thresholds_of_scores_and_patterns_are_two(tmp_path: Path) -> None:
    class Unsure(ScriptedRecaller):
        def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
            return Answer(choices=tuple([0.1, 0.5, 0.51] + [0.0] * (len(prompt.pairs) - 3)))

    run = quiet(Unsure(lambda p: {})).run([story(4)])
    scores = run.to_frame().iloc[0]
    assert scores["tp"] + scores["fp"] == 1
    assert run.recalled_graphs()[0].number_of_edges() == 3
    assert run.recalled_graphs(0.5)[0].number_of_edges() == 2
    assert set(run.recalled_graphs()[0]) == set(run.true_graphs()[0])


def test_saved_runs_are_read_back_whole_or_in_part(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cases = make_cases(("er", "road"), n_graphs=2, max_nodes=7, clearances=(0, 2), primings=("none", "male"))
    recaller = NoisyRecaller(seed=3)
    save_settings(tmp_path, recaller, cases, 1)
    with pytest.raises(ValueError, match="not one of the 16 cases"):
        load_run(tmp_path)
    quiet(recaller, transcripts=tmp_path / "transcripts.jsonl").run(cases[:10])
    caplog.set_level(logging.WARNING)
    assert len(load_run(tmp_path).cases) == 10
    assert "10 of 16 cases" in caplog.text
    run = quiet(recaller, transcripts=tmp_path / "transcripts.jsonl").run(cases)
    save_settings(tmp_path, recaller, cases, 1)  # the same settings are welcome
    assert load_run(tmp_path).to_frame().equals(run.to_frame())
    with pytest.raises(ValueError, match=r"recaller\.parameters\.seed was 3 there and is 4 here"):
        save_settings(tmp_path, NoisyRecaller(seed=4), cases, 1)
    assert load_run(tmp_path).recaller == "noisy"
    with pytest.raises(ValueError, match="interp recall run"):
        load_run(tmp_path / "nothing")
    settings = tmp_path / "run.json"
    settings.write_text(settings.read_text().replace('"seed": 3', '"seed": 5'))
    with pytest.raises(ValueError, match=r"run\.json: its identity was changed after it was written"):
        load_run(tmp_path)


def test_settings_without_a_reply_give_way(tmp_path: Path) -> None:
    cases = make_cases(("er",), n_graphs=2, max_nodes=6, clearances=(0,))
    save_settings(tmp_path, NoisyRecaller(seed=3), cases, 1)
    save_settings(tmp_path, NoisyRecaller(seed=4), cases, 1)
    quiet(NoisyRecaller(seed=4), transcripts=tmp_path / "transcripts.jsonl").run(cases)
    with pytest.raises(ValueError, match="n_cases was 2 there and is 1 here"):
        save_settings(tmp_path, NoisyRecaller(seed=4), cases[:1], 1)
    assert len(load_run(tmp_path).cases) == 2


class Mumbling(ScriptedRecaller):
    """Says something legible to the first prompt only."""

    def __init__(self) -> None:
        super().__init__(lambda prompt: {}, "mumbling")
        self.asked = 0

    def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
        self.asked += 1
        return super().answer(prompt, sample) if self.asked == 1 else Answer("The weather is fine.")


def test_what_could_not_be_read_has_no_scores(caplog: pytest.LogCaptureFixture) -> None:
    run = quiet(Mumbling()).run([story(5, seed=k) for k in range(3)])
    assert "nothing could be read in 2 of 3 cases" in caplog.text
    frame = run.to_frame()
    assert frame["coverage"].tolist() == [1, 0, 0]
    assert frame["accuracy"].notna().tolist() == [True, False, False]
    assert run.summary()["accuracy"].tolist() == [frame["accuracy"][0]]
    legible = run.legible()
    assert legible.cases == run.cases[:1]
    nothing = RecallRun(run.cases[1:], run.results[1:], "mumbling")
    with pytest.raises(ValueError, match="not one answer to 2 cases could be read"):
        nothing.legible()


def test_a_run_of_failures_only_is_none() -> None:
    class Dead(ScriptedRecaller):
        def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
            return Answer(error="no line")

    with pytest.raises(ConnectionError, match=r"4 of 4 replies failed \(no line\)"):
        quiet(Dead(lambda prompt: {}), samples=2).run([story(5, seed=k) for k in range(2)])


def test_an_experiment_keeps_what_it_was_told_when_a_reply_fails() -> None:
    class Stumbling(Counting):
        """Its second answer fails."""

        def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
            answer = super().answer(prompt, sample)
            return Answer(error="no line") if self.asked == 2 else answer

    recaller = Stumbling()
    experiment = quiet(recaller)
    stories = [story(5, seed=k) for k in range(3)]
    with pytest.raises(
        ConnectionError, match=r"1 of 3 replies failed \(no line\); run again to ask for the 1"
    ):
        experiment.run(stories)
    assert len(experiment.run(stories).cases) == 3
    assert recaller.asked == 4


def test_replies_that_can_not_be_read_leave_their_cases_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cases = make_cases(("er",), n_graphs=3, max_nodes=6, clearances=(0,))
    save_settings(tmp_path, NoisyRecaller(), cases, 1)
    path = tmp_path / "transcripts.jsonl"
    quiet(NoisyRecaller(), transcripts=path).run(cases)
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(
        "".join([first.replace('"tokens": []', '"tokens": [{"token": "1", "logprob": null}]'), *rest])
    )
    assert load_run(tmp_path).cases == cases[1:]
    assert "1 of its replies can't be read" in caplog.text
    assert "2 of 3 cases are answered" in caplog.text


def test_selection() -> None:
    run = quiet(PerfectRecaller()).run(make_cases(("er", "road"), n_graphs=2, max_nodes=6, clearances=(0, 2)))
    chosen = run.select(dataset="road", clearance=2)
    assert len(chosen.cases) == 2
    assert set(chosen.to_frame()["dataset"]) == {"road"}
    with pytest.raises(ValueError, match="no column town"):
        run.select(town="x")
    with pytest.raises(ValueError, match="no case"):
        run.select(dataset="ppi")


def test_designs_cross_everything_on_the_same_graphs() -> None:
    cases = make_cases(
        ("er", "karate_club"),
        ("matched", "social"),
        n_graphs=3,
        max_nodes=8,
        clearances=(0, 7),
        primings=("none", "female"),
    )
    assert len(cases) == 2 * 2 * 3 * 2 * 2
    graphs: dict[tuple[str, int], list[nx.Graph]] = {}
    for index, case in enumerate(cases):
        key = (case.vignette.dataset, index % 3)
        graphs.setdefault(key, []).append(case.vignette.graph)
    assert all(len(same) == 8 for same in graphs.values())
    assert all(nx.is_isomorphic(same[0], other) for same in graphs.values() for other in same)
    assert {c.vignette.narrative for c in cases if c.vignette.dataset == "karate_club"} == {"er", "social"}
    human = make_cases(("brashears_reducible",), clearances=(2,))
    assert [c.vignette.narrative for c in human] == ["weak", "strong"]
    again = make_cases(("er",), n_graphs=3, max_nodes=8)
    assert again == make_cases(("er",), n_graphs=3, max_nodes=8)
    assert Case.from_dict(cases[-1].to_dict()) == cases[-1]


def test_edge_lists_make_data_sets(tmp_path: Path) -> None:
    path = tmp_path / "friends.txt"
    path.write_text("\n".join(f"{u} {v}" for u, v in nx.gnp_random_graph(30, 0.2, seed=0).edges))
    cases = make_cases((str(path),), n_graphs=2, max_nodes=7)
    assert [c.vignette.dataset for c in cases] == ["friends", "friends"]


def test_prompts_are_the_same_in_every_process(tmp_path: Path) -> None:
    """Names are strings, whose hashes differ from process to process; a resumed run must find its replies."""
    path = tmp_path / "friends.txt"
    path.write_text("\n".join(f"a{u} a{v}" for u, v in nx.gnp_random_graph(30, 0.2, seed=0).edges))
    code = (
        "from interp.recall.design import make_cases\n"
        "from interp.recall.link_prediction import hide_links\n"
        f"cases = make_cases(({str(path)!r}, 'er'), n_graphs=2, max_nodes=8)\n"
        "print([c.prompt().messages for c in cases], [hide_links(c.vignette).prompt().messages for c in cases])"
    )
    shown = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert shown[0] == shown[1]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="empty"):
        quiet(PerfectRecaller()).run([])
    with pytest.raises(ValueError, match="samples"):
        quiet(PerfectRecaller(), samples=0).run([story(4)])
    with pytest.raises(ValueError, match="clearance = 1"):
        quiet(PerfectRecaller(), clearance=1).run([story(4)])
    with pytest.raises(ValueError, match="at least one of each"):
        make_cases(())
    with pytest.raises(ValueError, match="narratives"):
        make_cases(("er",), ("novel",))
    for repeated in (
        {"datasets": ("er", "er")},
        {"narratives": ("er", "matched")},
        {"clearances": (7, 7)},
        {"primings": ("none", "none")},
    ):
        with pytest.raises(ValueError, match=f"{next(iter(repeated))}.* is there twice"):
            make_cases(**{"datasets": ("er",), **repeated})
