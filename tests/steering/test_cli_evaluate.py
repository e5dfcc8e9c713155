"""`interp steer evaluate` on a tiny saved model: the report, its files, and a vector brought along."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interp.cli.steer import app
from interp.steering.datasets import load_pairs, save_pairs
from interp.steering.extraction import extract
from interp.steering.generators import likes
from interp.steering.propensity import propensity_curve
from tests.models.tiny import byte_tokenizer, tiny_model

runner = CliRunner()


def test_evaluate_measures_on_the_pairs_left_out(tmp_path: Path) -> None:
    from interp.models.loading import load_model

    tiny_model("llama", max_position_embeddings=256).save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    save_pairs(likes(4), tmp_path / "pairs.jsonl")
    asked = ["evaluate", "--model", tmp_path / "model", "--pairs", tmp_path / "pairs.jsonl", "--layer", -1]
    extra = ["--multiplier", -1, "--multiplier", 1, "--seeds", 1, "--seed", 3, "--out", tmp_path / "report"]
    result = runner.invoke(app, [*map(str, [*asked, *extra])], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "verdict: do not trust" in result.output
    saved = json.loads((tmp_path / "report" / "report.json").read_text())
    assert (tmp_path / "report" / "report.png").stat().st_size > 10_000

    model = load_model(str(tmp_path / "model"))
    train, test = load_pairs(tmp_path / "pairs.jsonl").split(0.5, seed=3)
    vector = extract(model, train, 2)
    curve = propensity_curve(model, test, vector, multipliers=[-1, 1], progress=False)
    assert saved["slopes"] == pytest.approx(curve.steerability().slopes.tolist(), abs=1e-4)
    assert saved["layer"] == 2

    vector.save(tmp_path / "vector")
    again = [*asked, *extra, "--vector", tmp_path / "vector"]
    assert runner.invoke(app, [*map(str, again)], catch_exceptions=False).exit_code == 0
    assert json.loads((tmp_path / "report" / "report.json").read_text())["slopes"] == pytest.approx(
        saved["slopes"]
    )
