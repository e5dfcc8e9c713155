"""The report of a run: tables, files, figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from interp.recall.analysis import RecallAnalysis, analyse
from interp.recall.baselines import BASELINES, with_baselines
from interp.recall.design import make_cases
from interp.recall.runner import GraphRecallExperiment, RecallRun
from interp.recall.score_plots import plot_bias, plot_prediction, plot_scores
from interp.recall.scripted import NoisyRecaller, PerfectRecaller, ScriptedRecaller


@pytest.fixture(scope="module")
def run() -> RecallRun:
    cases = make_cases(("er", "social"), n_graphs=10, min_nodes=8, max_nodes=12, clearances=(0,))
    return GraphRecallExperiment(NoisyRecaller(0.15, 0.02, 0.2), show_progress=False).run(cases)


@pytest.fixture(scope="module")
def found(run: RecallRun) -> RecallAnalysis:
    return analyse(run, n_permutations=40)


def test_tables(run: RecallRun, found: RecallAnalysis) -> None:
    assert list(found.bias) == ["all", "er", "social"]
    assert found.bias["er"].n_graphs == 10
    assert set(found.bias_frame()["statistic"]) == {"edges", "two_stars", "alt_triangles", "alt_two_paths"}
    table = found.baselines.set_index(["group", "metric"])
    assert table.loc[("all", "accuracy"), "all zero"] == pytest.approx(1 - run.to_frame()["density"].mean())
    assert table.loc[("er", "f1"), "recalled"] == pytest.approx(
        run.select(dataset="er").to_frame()["f1"].mean()
    )
    assert found.cases["f1 of always one"].notna().all()
    text = str(found)
    for heading in ("Scores", "Baselines", "Verdict", "Read: ", "Pattern coefficients, social", "Motifs"):
        assert heading in text


def test_files(found: RecallAnalysis, tmp_path: Path) -> None:
    folder = found.save(tmp_path / "out")
    names = {path.name for path in folder.iterdir()}
    assert {
        "results.json",
        "cases.csv",
        "bias.csv",
        "baselines.csv",
        "verdicts.csv",
        "scores.png",
        "bias.png",
        "motifs.png",
    } <= names
    results = json.loads((folder / "results.json").read_text())
    assert len(results["cases"]) == 20
    assert len(pd.read_csv(folder / "summary.csv")) == 2


def test_infinite_and_missing_numbers_are_saved_as_null(tmp_path: Path) -> None:
    cases = make_cases(("er",), n_graphs=3, max_nodes=7, clearances=(0,))
    perfect = GraphRecallExperiment(PerfectRecaller(), show_progress=False).run(cases)
    folder = analyse(perfect, n_permutations=10).save(tmp_path)
    results = json.loads((folder / "results.json").read_text())
    assert results["bias"][0]["coef"] is None


def test_figures_hold_what_they_say(run: RecallRun, found: RecallAnalysis) -> None:
    frame = run.to_frame()
    figure = plot_scores(frame)
    bars = [patch.get_height() for patch in figure.axes[0].patches]
    assert bars == pytest.approx(frame.groupby("dataset")["accuracy"].mean().tolist())
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    expected = with_baselines(frame).groupby("dataset")["accuracy of recency"].mean()
    assert drawn["recency"] == pytest.approx(expected.tolist())
    assert set(BASELINES) <= set(drawn)
    coefficients = plot_bias(found.bias)
    assert [t.get_text() for t in coefficients.axes[0].get_yticklabels()] == [
        "two stars",
        "alt triangles",
        "alt two paths",
    ]
    points = plot_prediction(frame["accuracy"], frame["f1"], frame["dataset"])
    assert sum(len(c.get_offsets()) for c in points.axes[0].collections) == 20
    assert run.plot().axes
    assert found.bias["all"].plot().axes


def test_error_bars_of_two_graphs_stay_inside_the_axes() -> None:
    cases = make_cases(("er",), n_graphs=2, max_nodes=7, clearances=(0,))
    frame = GraphRecallExperiment(NoisyRecaller(), show_progress=False).run(cases).to_frame()
    for ax in plot_scores(frame).axes[:2]:
        ends = ax.containers[0].lines[2][0].get_segments()[0][:, 1]
        assert 0 <= ends[0] < ends[1] <= 1


def test_who_says_one_to_everything_is_told_so_instead_of_shown_numbers() -> None:
    cases = make_cases(("er", "social"), n_graphs=3, max_nodes=7, clearances=(0,))
    always = ScriptedRecaller(lambda prompt: dict.fromkeys(prompt.pairs, 1.0), "always")
    run = GraphRecallExperiment(always, show_progress=False).run(cases)
    for reference in ("fixed_true", "contrast", "none"):
        found = analyse(run, reference=reference, ridge=0.1, n_permutations=10)
        assert all("every pair was recalled" in table.undefined for table in found.bias.values())
        assert found.bias_frame()[["coef", "se"]].isna().all(axis=None)
        text = str(found)
        assert "every pair was recalled in 6 of 6 graphs: who always says 1" in text
        assert "nan" not in text.casefold()
    assert not any(verdict.better for verdict in found.verdicts)
    assert plot_bias(found.bias).legends[0].get_texts()[0].get_text() == "all: undefined"


def test_refusals(run: RecallRun) -> None:
    with pytest.raises(ValueError, match="consensus"):
        analyse(run, consensus=0)
    with pytest.raises(ValueError, match="no column town"):
        analyse(run, by=("town",))
    with pytest.raises(ValueError, match="by: 'dataset' is there twice"):
        analyse(run, by=("dataset", "dataset"))


def test_patterns_rest_on_what_could_be_read_and_say_what_was_dropped(run: RecallRun) -> None:
    silent = [
        replace(result, coverage=0.0, probabilities=dict.fromkeys(result.probabilities, 0.0))
        for result in run.results
    ]
    mixed = RecallRun(run.cases, [*run.results[:10], *silent[10:]], run.recaller)
    found = analyse(mixed, n_permutations=10)
    assert found.bias["all"].n_graphs == 10
    assert found.summary.set_index("dataset")["coverage"].tolist() == [1, 0]
    assert found.summary.set_index("dataset")["accuracy"].isna().tolist() == [False, True]
    assert "infinite" not in str(found.bias["all"])
    cases = make_cases(("er",), n_graphs=3, max_nodes=7, clearances=(0,))
    perfect = GraphRecallExperiment(PerfectRecaller(), show_progress=False).run(cases)
    assert "not one false edge was recalled" in str(analyse(perfect, n_permutations=10).bias["all"])


def test_the_same_graphs_under_several_conditions_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    cases = make_cases(("er",), n_graphs=4, max_nodes=8, clearances=(0, 2))
    run = GraphRecallExperiment(NoisyRecaller(), show_progress=False).run(cases)
    analyse(run, by=("dataset", "clearance"), n_permutations=10)
    assert not caplog.text
    analyse(run, n_permutations=10)
    assert "more than one clearance" in caplog.text
