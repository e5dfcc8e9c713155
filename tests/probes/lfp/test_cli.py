"""`interp probe lfp`, from the command line's side."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interp.cli.probe import app
from interp.core.config import load_config, save_config
from interp.probes.lfp.config import LFPConfig
from tests.probes.lfp.small_world import LEXICON, SUBJECTS, moved, small_config, small_model
from tests.recall.test_endpoint import Stub, completion

LONG = [
    f"the {s} was {word} and the {t} was {word} and red ."
    for s, t in itertools.pairwise(SUBJECTS)
    for word in LEXICON
]


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A base model, one "tuned" by other means, texts and settings, as files."""
    root = tmp_path_factory.mktemp("cli")
    base = small_model()
    for name, model in (("base", base), ("tuned", moved(base))):
        model.module.save_pretrained(root / name)
        model.tokenizer.save_pretrained(root / name)
    (root / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in LONG))
    save_config(root / "config.yaml", small_config())
    return {path.name.split(".")[0]: str(path) for path in root.iterdir()}


@pytest.fixture(autouse=True)
def small_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triples in this model's words, which the templates for English have not."""
    from interp.probes.lfp import data

    def build(templates: Any, lexicon: Any, n: int, seed: int, tokenizer: Any) -> Any:
        frames = [f"the {subject} was {{word}}" for subject in SUBJECTS]
        return original(frames, LEXICON, n, seed, tokenizer, neutral=["old", "red"], share=0.5)

    original = data.build_lexicon_triples
    monkeypatch.setattr(data, "build_lexicon_triples", build)


def arguments(folders: dict[str, str], out: Path, *more: str) -> list[str]:
    given = {"--model": "base", "--text": "texts", "--config": "config"}
    named = [part for option, name in given.items() for part in (option, folders[name])]
    return ["lfp", *named, "--n-triples", "48", "--device", "cpu", "--out", str(out), *more]


def test_a_run_and_its_repetition(folders: dict[str, str], tmp_path: Path) -> None:
    first = call(*arguments(folders, tmp_path, "--tuned", folders["tuned"], "--k", "1"))
    assert "Held-out words: tau" in first
    assert "saved to" in first
    before = {p: p.stat().st_mtime_ns for p in tmp_path.glob("*/result.json")}
    assert len(before) == 6  # data, and all stages but tuning
    saved = load_config(tmp_path / "config.yaml", LFPConfig)
    assert saved.layers.k == 1
    assert saved.dictionaries == small_config().dictionaries
    assert call(*arguments(folders, tmp_path, "--tuned", folders["tuned"], "--k", "1")) == first
    assert {p: p.stat().st_mtime_ns for p in tmp_path.glob("*/result.json")} == before


def test_options_go_before_the_settings_file(folders: dict[str, str], tmp_path: Path) -> None:
    more = [
        "--steps",
        "2",
        "--lr",
        "1e-4",
        "--beta",
        "0.2",
        "--max-kl",
        "3",
        "--expansion",
        "0.5",
        "--seed",
        "7",
    ]
    shown = call(*arguments(folders, tmp_path, "--until", "tune", *more))
    saved = load_config(tmp_path / "config.yaml", LFPConfig)
    tuning = saved.tuning
    assert (tuning.steps, tuning.lr, tuning.beta, tuning.max_kl, tuning.seed) == (2, 1e-4, 0.2, 3.0, 7)
    assert (saved.seed, saved.dictionaries.expansion) == (7, 0.5)
    assert "Tuning (rloo, 2 steps" in shown


def test_an_endpoint_describes_and_judges(folders: dict[str, str], tmp_path: Path) -> None:
    def script(number: int, body: dict[str, Any]) -> Any:
        text = body["messages"][-1]["content"]
        return 200, completion("1" if "Reply with 1" in text or "Texts:" in text else "words of praise")

    stub = Stub()
    stub.script = script
    try:
        chat = ["--base-url", stub.url, "--chat-model", "some-model"]
        shown = call(*arguments(folders, tmp_path, "--tuned", folders["tuned"], *chat))
        asked = len(stub.bodies)
        assert call(*arguments(folders, tmp_path, "--tuned", folders["tuned"], *chat)) == shown
        assert len(stub.bodies) == asked
    finally:
        stub.close()
    assert "words of praise" in shown
    assert "5 of 5 described features have to do with the task (endpoint:" in shown
    lines = (tmp_path / "transcripts.jsonl").read_text().splitlines()
    assert len(lines) == asked


def test_user_errors_are_value_errors(folders: dict[str, str], tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"prompt": "a"}\n')
    whole = tmp_path / "whole.jsonl"
    whole.write_text('{"prompt": "a", "chosen": " good", "rejected": " bad"}\n')
    for more, message in [
        (["--until", "prob"], "did you mean 'probe'"),
        (["--k", "9", "--until", "rank", "--tuned", folders["tuned"]], "has 2 layers"),
        (["--base-url", "http://localhost"], "base_url needs chat_model"),
        (["--chat-model", "m"], "'m' needs base_url"),
        (["--tuned", folders["tuned"], "--steps", "9"], "steps would do nothing"),
        (["--pairs", str(whole)], "is by reward"),
        (["--n-triples", "-5"], "n_triples = -5"),
        (["--l1-coefficient", "-1"], "l1_coefficient = -1"),
        (["--pairs", str(pairs)], "pair 1"),
        (["--how", "middle", "--until", "rank", "--tuned", folders["tuned"]], "middle"),
    ]:
        with pytest.raises(ValueError, match=message):
            call(*arguments(folders, tmp_path / "out", *more))


def test_an_endpoint_that_is_not_there_is_known_at_once(folders: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="nothing answers there"):
        call(
            *arguments(folders, tmp_path / "out", "--base-url", "http://127.0.0.1:9/v1", "--chat-model", "m")
        )
    assert not (tmp_path / "out").exists()


def test_a_missing_extra_is_known_before_the_model_writes(
    folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(ImportError, match=r"interp-toolkit\[feedback\]"):
        call(*arguments(folders, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_help_teaches() -> None:
    shown = call("lfp", "--help")
    assert "Example: interp probe lfp --model smollm2-135m" in shown
