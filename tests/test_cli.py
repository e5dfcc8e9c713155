"""The command line on a tiny local model: the same four steps as the README, and errors a user meets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.tiny import byte_tokenizer, tiny_model


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a saved tiny model and a text file of a few documents."""
    folder = tmp_path_factory.mktemp("cli")
    tiny_model("llama").save_pretrained(folder / "model")
    byte_tokenizer().save_pretrained(folder / "model")
    lines = [{"text": f"Document {i} says that {i} times {i} is {i * i}. " * 3} for i in range(120)]
    (folder / "text.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def interp(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "interp.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_harvest_train_evaluate_report(world: Path) -> None:
    text = ("--model", "model", "--text", "text.jsonl")
    out = interp(
        "harvest",
        *text,
        "--site",
        "resid_post.1",
        "--tokens",
        "4k",
        "--context-size",
        32,
        "--out",
        "store",
        cwd=world,
    )
    assert out.returncode == 0, out.stderr
    assert "resid_post.1" in out.stdout

    options = ("--d-sae", 64, "--steps", 30, "--batch-size", 128, "--l1-coefficient", 0.1)
    out = interp("train", "--store", "store", *options, "--out", "run", cwd=world)
    assert out.returncode == 0, out.stderr
    config = json.loads((world / "run" / "sae" / "config.json").read_text())
    assert config["architecture"] == "gated"
    rows = [json.loads(line) for line in (world / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 30

    out = interp("evaluate", "--sae", "run", *text, "--tokens", "1k", cwd=world)
    assert out.returncode == 0, out.stderr
    metrics = json.loads((world / "run" / "metrics.json").read_text())
    assert metrics["ce_clean"] > 0
    assert metrics["site"] == "resid_post.1"
    assert metrics["loss_recovered"] == pytest.approx(
        1 - (metrics["ce_spliced"] - metrics["ce_clean"]) / (metrics["ce_zero"] - metrics["ce_clean"])
    )

    out = interp("evaluate", "--sae", "run", *text, "--tokens", "1k", "--with-error-term", cwd=world)
    assert out.returncode == 0, out.stderr
    assert "not saved" in out.stdout
    assert json.loads((world / "run" / "metrics.json").read_text()) == metrics

    out = interp(
        "report",
        "--sae",
        "run",
        "--store",
        "store",
        "--model",
        "model",
        "--n-latents",
        5,
        "--out",
        "report",
        cwd=world,
    )
    assert out.returncode == 0, out.stderr
    assert (world / "report" / "index.html").stat().st_size > 10_000

    out = interp("verify", "store", cwd=world)
    assert "intact" in out.stdout
    out = interp("export", "--sae", "run", "--out", "saelens", "--to", "saelens", cwd=world)
    assert out.returncode == 0, out.stderr
    assert json.loads((world / "saelens" / "cfg.json").read_text())["architecture"] == "gated"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("harvest", "--model", "model", "--text", "text.jsonl", "--site", "resid_pst.1", "--out", "x"),
            "resid_post",
        ),
        (
            ("harvest", "--model", "model", "--text", "text.jsonl", "--site", "resid_post.7", "--out", "x"),
            "layer",
        ),
        (
            ("harvest", "--model", "model", "--text", "absent.jsonl", "--site", "resid_post.1", "--out", "x"),
            "absent",
        ),
        (("train", "--store", "nowhere", "--out", "x"), "nowhere"),
        (("evaluate", "--sae", "nowhere", "--model", "model"), "nowhere"),
        (
            (
                "harvest",
                "--model",
                "model",
                "--text",
                "text.jsonl",
                "--site",
                "embed",
                "--out",
                "text.jsonl/x",
            ),
            "text.jsonl",
        ),
    ],
)
def test_user_errors_are_one_line_and_exit_2(world: Path, arguments: tuple[str, ...], said: str) -> None:
    out = interp(*arguments, cwd=world)
    assert out.returncode == 2
    assert "Traceback" not in out.stderr
    assert said in out.stderr.splitlines()[-1] or said in out.stderr


def test_an_interrupt_says_how_to_go_on(monkeypatch, capsys) -> None:
    import interp.activations.store as module
    from interp.cli import main

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.ActivationStore, "open", interrupted)
    monkeypatch.setattr(sys, "argv", ["interp", "verify", "store"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert "run the same command again to continue" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "shown"), [("Unable to allocate 7 PiB", "Unable to allocate 7 PiB"), ("", "MemoryError")]
)
def test_too_much_for_the_memory_is_one_line(monkeypatch, capsys, said: str, shown: str) -> None:
    import interp.activations.store as module
    from interp.cli import main

    def too_much(*_: object, **__: object) -> None:
        raise MemoryError(said)

    monkeypatch.setattr(module.ActivationStore, "open", too_much)
    monkeypatch.setattr(sys, "argv", ["interp", "verify", "store"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {shown}"
