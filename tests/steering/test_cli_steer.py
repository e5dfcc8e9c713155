"""`interp steer extract` and `generate` on a tiny saved model, and the errors a user meets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from interp.cli.steer import app
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.metadata import SAEMetadata
from interp.steering.datasets import save_pairs
from interp.steering.generators import likes
from interp.steering.gguf import load_gguf
from interp.steering.vector import SteeringVector
from tests.models.tiny import byte_tokenizer, tiny_model

runner = CliRunner()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steer")
    tiny_model("llama", max_position_embeddings=256).save_pretrained(folder / "model")
    byte_tokenizer().save_pretrained(folder / "model")
    save_pairs(likes(4), folder / "pairs.jsonl")
    return folder


def run(*arguments: object) -> str:
    result = runner.invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_extract_then_generate(world: Path) -> None:
    at = ("--model", world / "model", "--pairs", world / "pairs.jsonl", "--out", world / "vector")
    shown = run("extract", *at, "--layer", 1, "--layer", -1, "--train", 0.5, "--gguf", world / "v.gguf")
    assert "held_out_agreement" in shown
    vector = SteeringVector.load(world / "vector")
    assert vector.layers == (1, 2)
    assert vector.meta["n_pairs"] == 6
    assert load_gguf(world / "v.gguf").layers == (1, 2)
    assert json.loads((world / "vector" / "steering.json").read_text())["meta"]["method"] == "mean"

    how = ("--model", world / "model", "--prompt", "one", "--prompt", "two more", "--max-new-tokens", 5)
    texts = run("generate", *how, "--vector", world / "vector", "--multiplier", 0, "--multiplier", 3)
    assert [line for line in texts.splitlines() if line.startswith("[")] == [
        "[+0] one",
        "[+0] two more",
        "[+3] one",
        "[+3] two more",
    ]
    same = run("generate", *how, "--vector", world / "v.gguf", "--multiplier", 0, "--multiplier", 3)
    assert same == texts
    for positions in ("all", "2"):
        run("generate", *how, "--vector", world / "v.gguf", "--positions", positions, "--operator", "clamp")


def test_an_sae_takes_a_vector_apart_and_gives_one(world: Path) -> None:
    """Latent 3 up by 2 and latent 5 up by 1 are found again; the vector of latent 3 is its decoder row."""
    sae = StandardSAE(StandardSAEConfig(d_in=32, d_sae=40), seed=0)
    sae.metadata = SAEMetadata(model_name="tiny", site="resid_post.1")
    sae.save_pretrained(world / "sae")
    rows = sae.W_dec.detach()
    planted = SteeringVector({0: torch.ones(32), 1: 2 * rows[3] + rows[5]})
    planted.save(world / "planted")
    shown = run(
        "decompose", "--vector", world / "planted", "--sae", world / "sae", "--n-latents", 2
    ).splitlines()
    assert "layer 1" in shown[0]
    assert [line.split()[:2] for line in shown[2:4]] == [["3", "2.000"], ["5", "1.000"]]
    assert shown[-1].startswith("explained: 1.000; of 5 random directions 0.")
    made = run("latent", "--sae", world / "sae", "--latent", 3, "--activation", 40, "--out", world / "latent")
    assert "norm 40.000" in made  # decoder rows have norm 1
    vector = SteeringVector.load(world / "latent")
    torch.testing.assert_close(vector[1], 40 * rows[3])
    for factor, activation in ((1, 40), (-0.5, -20)):
        assert (factor * vector).meta["activation"] == activation
    how = ("--model", world / "model", "--prompt", "one", "--max-new-tokens", 2, "--multiplier", 1)
    assert "[+1] one" in run("generate", *how, "--vector", world / "latent")


def test_user_errors_name_the_fix(world: Path) -> None:
    at = ("--model", str(world / "model"), "--out", str(world / "nothing"))
    with pytest.raises(ValueError, match="no such file"):
        runner.invoke(app, ["extract", *at, "--pairs", "missing.jsonl"], catch_exceptions=False)
    with pytest.raises(ValueError, match="method = 'median'"):
        runner.invoke(
            app,
            ["extract", *at, "--pairs", str(world / "pairs.jsonl"), "--method", "median"],
            catch_exceptions=False,
        )
    with pytest.raises(FileNotFoundError, match="is missing"):
        runner.invoke(
            app,
            [
                "generate",
                "--model",
                str(world / "model"),
                "--vector",
                str(world / "nothing"),
                "--prompt",
                "x",
            ],
            catch_exceptions=False,
        )
    assert not (world / "nothing").exists()


@pytest.mark.parametrize("command", [["extract"], ["evaluate", "--layer", "1"]])
def test_a_file_in_the_place_of_the_folder_is_refused_at_once(world: Path, command: list[str]) -> None:
    """Before the model, which isn't there, is looked for."""
    asked = [*command, "--model", "none", "--pairs", str(world / "pairs.jsonl")]
    with pytest.raises(ValueError, match=r"out=.*pairs\.jsonl is a file"):
        runner.invoke(app, [*asked, "--out", str(world / "pairs.jsonl")], catch_exceptions=False)


def test_a_vector_of_all_pairs_can_not_be_evaluated_on_some_of_them(world: Path) -> None:
    at = ("--model", str(world / "model"), "--pairs", str(world / "pairs.jsonl"))
    run("extract", *at, "--layer", 1, "--out", world / "all")
    asked = ["evaluate", *at, "--layer", "1", "--vector", str(world / "all"), "--out", str(world / "report")]
    with pytest.raises(ValueError, match=r"6 of the 6 pairs .* the same --train and --seed"):
        runner.invoke(app, asked, catch_exceptions=False)
