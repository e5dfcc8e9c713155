"""The whole pipeline on a model of two blocks: what it leaves, what it uses again, what a kill costs."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interp.core.files import read_json
from interp.probes.lfp import feedback_report, stages
from interp.probes.lfp import pipeline as pipeline_module
from interp.probes.lfp.config import DictionarySettings, LayerChoice
from interp.probes.lfp.divergence import parameter_divergence
from interp.probes.lfp.feedback_report import STAGES, LFPReport
from interp.probes.lfp.pipeline import LFPPipeline, run_lfp
from interp.probes.lfp.tuning import PreferencePair, PreferenceTuning
from tests.probes.lfp.small_world import (
    NEGATIVE,
    POSITIVE,
    SUBJECTS,
    moved,
    small_config,
    small_data,
    small_model,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole")
    model = small_model()
    run_lfp(model, small_data(model), small_config(), out, progress=False)
    return out


def given(out: Path, **options: Any) -> LFPPipeline:
    """A pipeline for a model tuned by other means."""
    model = small_model()
    config = options.pop("config", small_config())
    return LFPPipeline(model, small_data(model), config, out, tuned=moved(model), progress=False, **options)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time of so small a run goes into its figures, which other tests look at."""
    for module in (pipeline_module, feedback_report):
        monkeypatch.setattr(module, "save_figure", lambda figure, path: None)
    monkeypatch.setattr(LFPReport, "plot", lambda report: None)


def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the stages that are computed rather than read, as they come."""
    names: list[str] = []
    original = stages.run_stage

    def counting(out: Path, name: str, inputs: Any, compute: Any, **more: Any) -> Any:
        def counted(folder: Path) -> Any:
            names.append(name)
            return compute(folder)

        return original(out, name, inputs, counted, **more)

    monkeypatch.setattr(pipeline_module, "run_stage", counting)
    return names


def test_every_stage_leaves_its_folder_and_the_report_its_columns(whole: Path) -> None:
    for stage in STAGES:
        assert (whole / stage / "result.json").is_file()
    for figure in ("tune/tuning", "rank/layers", "probe/words", "probe/controls", "ablate/ablation"):
        assert (whole / f"{figure}.png").stat().st_size > 5000
    report = LFPReport.load(whole)
    assert list(report.to_frame().columns)[:2] == ["tuned", "base model"]
    assert {"shuffled labels", "random probe", "raw activations", "direct supervision", "words alone"} <= set(
        report.columns()
    )
    assert (whole / "report" / "report.txt").read_text() == f"{report}\n"
    saved = read_json(whole / "report" / "report.json")
    assert saved["verdict"] == report.verdict()
    history = saved["tune"]["history"]
    assert [row["step"] for row in history] == [1, 2, 3, 4]
    assert {"reward", "kl", "length"} <= set(history[0])
    assert len(saved["saes"]["quality"]) == 4
    assert all(0 < match <= 1 for _, match in saved["saes"]["mmcs"])
    assert sum(len(latents) for _, latents in saved["ablate"]["features"]) == 3
    assert len(saved["describe"]["explanations"]) == 5
    judgements = read_json(whole / "describe" / "judgements.json")
    assert {(j["layer"], j["latent"]) for j in judgements if j["own_description"]} == {
        (s["layer"], s["latent"]) for s in saved["describe"]["judge"]["scores"]
    }


@pytest.mark.usefixtures("undrawn")
def test_the_layers_are_those_that_moved_most(tmp_path: Path) -> None:
    pipeline = given(tmp_path, config=small_config(layers=LayerChoice(k=1)))
    moves = parameter_divergence(pipeline.base, pipeline.tuned)
    assert dict(map(tuple, pipeline.rank["divergence"])) == pytest.approx(moves)
    assert pipeline.rank["layers"] == [max(moves, key=lambda layer: moves[layer])]
    lowest = given(tmp_path, config=small_config(layers=LayerChoice(k=1, how="lowest")))
    assert lowest.rank["layers"] == [min(moves, key=lambda layer: moves[layer])]


@pytest.mark.usefixtures("undrawn")
def test_features_come_from_the_model_whose_dictionaries_are_used(tmp_path: Path) -> None:
    """Were the base model read by the tuned one's dictionaries, or the other way round, they would warn."""
    pipeline = given(tmp_path)
    assert pipeline.tuned_saes[1].metadata.model_fingerprint == pipeline.tuned.fingerprint()
    assert pipeline.base_saes[1].metadata.model_fingerprint == pipeline.base.fingerprint()
    assert pipeline.tuned.fingerprint()["weights"] != pipeline.base.fingerprint()["weights"]


def test_a_second_run_computes_nothing(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, model = computed(monkeypatch), small_model()
    again = run_lfp(model, small_data(model), small_config(), whole, progress=False)
    assert names == []
    assert str(again) == str(LFPReport.load(whole))


@pytest.mark.usefixtures("undrawn")
def test_a_changed_setting_costs_its_stage_and_what_follows_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(tmp_path).report()
    names = computed(monkeypatch)
    config = small_config()
    given(tmp_path, config=replace(config, description=replace(config.description, n_each=2))).report()
    assert names == ["describe"]
    names.clear()
    given(tmp_path, config=replace(config, probe=replace(config.probe, n_draws=3))).report()
    assert names == ["probe", "describe"]  # the same features: the ablation stands
    names.clear()
    given(tmp_path, config=replace(config, dictionaries=DictionarySettings(steps=50))).report()
    assert names == ["saes", "probe", "ablate", "describe"]


@pytest.mark.usefixtures("undrawn")
def test_stages_are_usable_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = computed(monkeypatch)
    assert given(tmp_path).saes["quality"][0]["model"] == "base"
    assert names == ["rank", "saes"]
    names.clear()
    report = given(tmp_path).report(until="probe")
    assert names == ["probe"]
    assert list(report.results) == ["tune", "rank", "saes", "probe"]
    with pytest.raises(ValueError, match="did you mean 'probe'"):
        given(tmp_path).report(until="prob")


PARTS = {
    "rank": "parameter_divergence",
    "saes": "train_feedback_saes",
    "probe": "compare_feedback",
    "ablate": "ablation_effect",
    "describe": "describe_features",
}


@pytest.mark.usefixtures("undrawn")
def test_an_interruption_in_any_stage_costs_that_stage_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = given(tmp_path / "whole").report(), tmp_path / "cut"
    for number, (stage, part) in enumerate(PARTS.items()):
        with monkeypatch.context() as patch:
            names = computed(patch)
            original, calls = getattr(pipeline_module, part), []

            def interrupted(*args: Any, original: Any = original, calls: Any = calls, **options: Any) -> Any:
                calls.append(original(*args, **options))
                if stage != "saes" or len(calls) == 2:  # noqa: B023 - after the base model's dictionaries
                    raise KeyboardInterrupt
                return calls[-1]

            patch.setattr(pipeline_module, part, interrupted)
            with pytest.raises(KeyboardInterrupt):
                given(cut).report()
        previous = list(PARTS)[:number]
        assert names == [*previous[-1:], stage]
    assert str(given(cut).report()) == str(whole)


def die_at(out: Path, stage: str) -> None:
    """Run the pipeline in this process and kill it as the result of a stage is about to be written."""
    original = stages.write_sealed_json

    def write(path: Path, value: Any) -> None:
        if path == out / stage / "result.json":
            os.kill(os.getpid(), signal.SIGKILL)
        original(path, value)

    stages.write_sealed_json = write  # type: ignore[assignment]
    model = small_model()
    run_lfp(model, small_data(model), small_config(), out, progress=False)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_kill_at_the_end_of_any_stage_costs_that_stage_only(whole: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.probes.lfp.test_pipeline", "trl", "torch._dynamo"])
    out, model = tmp_path / "run", small_model()
    shutil.copytree(whole, out)
    for stage in STAGES:
        shutil.rmtree(out / stage)
        written = {path: path.stat().st_mtime_ns for path in out.glob("*/result.json")}
        process = context.Process(target=die_at, args=(out, stage))
        process.start()
        process.join(300)
        assert process.exitcode == -signal.SIGKILL
        assert not (out / stage / "result.json").exists()
        report = run_lfp(model, small_data(model), small_config(), out, progress=False)
        assert str(report) == str(LFPReport.load(whole))
        assert {path: path.stat().st_mtime_ns for path in written} == written


def preference_data(model: Any) -> Any:
    pairs = tuple(
        PreferencePair(f"the {subject} was", f" {good} .", f" {bad} .")
        for subject in SUBJECTS
        for good, bad in zip(POSITIVE, NEGATIVE, strict=True)
    )
    return replace(small_data(model), pairs=pairs)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_tuning_by_pairs_adds_the_classification_probe(tmp_path: Path) -> None:
    model = small_model()
    tuning = PreferenceTuning(steps=3, batch_size=4, lr=1e-3, max_new_tokens=3, measure_every=2)
    config = small_config(tuning=tuning)
    report = run_lfp(model, preference_data(model), config, tmp_path, until="probe", progress=False)
    assert report.results["tune"]["method"] == "dpo"
    pairs = report.results["probe"]["pairs"]
    assert list(pairs) == ["tuned", "base model", "raw activations", "raw activations, base model"]
    assert all(0 <= row["accuracy"][0] <= 1 for row in pairs.values())
    assert "chosen or rejected, held-out" in str(report)


def test_pairs_are_needed_for_preference_tuning(tmp_path: Path) -> None:
    model = small_model()
    with pytest.raises(ValueError, match=r"data\.pairs is empty"):
        LFPPipeline(model, small_data(model), small_config(tuning=PreferenceTuning()), tmp_path)
