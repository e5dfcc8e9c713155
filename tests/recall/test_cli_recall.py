"""`interp recall run` and `analyse`, from the command line's side."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from interp.cli.recall import app
from tests.recall.test_endpoint import Stub, all_ones

RUN = ["run", "--datasets", "er", "--datasets", "road", "--n-graphs", "3", "--max-nodes", "8"]


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_run_then_analyse(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    first = call(*RUN, "--model", "biased", "--clearances", "0", "--clearances", "2", "--out", folder)
    assert "interp recall analyse --run" in first
    lines = (tmp_path / "run" / "transcripts.jsonl").read_text().splitlines()
    assert len(lines) == 12
    assert call(*RUN, "--model", "biased", "--clearances", "0", "--clearances", "2", "--out", folder) == first
    assert (tmp_path / "run" / "transcripts.jsonl").read_text().splitlines() == lines
    shown = call(
        "analyse", "--run", folder, "--by", "dataset", "--by", "clearance", "--statistics", "edges",
        "--statistics", "triangles", "--n-permutations", "20",
    )  # fmt: skip
    assert "Pattern coefficients, road 2" in shown
    assert (tmp_path / "run" / "analysis" / "results.json").is_file()


def test_an_endpoint(tmp_path: Path) -> None:
    stub = Stub()
    stub.script = all_ones
    try:
        shown = call(*RUN, "--model", "m", "--base-url", stub.url, "--workers", "2", "--out", str(tmp_path))
    finally:
        stub.close()
    assert "endpoint:" in shown
    assert len(stub.bodies) == 6


def test_help_teaches() -> None:
    assert "Example: interp recall run" in call("run", "--help")
    assert "fixed_true" in call("analyse", "--help")


def test_user_errors_are_value_errors(tmp_path: Path) -> None:
    for arguments, message in [
        ([*RUN, "--model", "perfect", "--clearances", "9", "--out", str(tmp_path)], "strength = 9"),
        (
            ["run", "--model", "perfect", "--datasets", "nowhere", "--out", str(tmp_path)],
            "source = 'nowhere'",
        ),
        (["analyse", "--run", str(tmp_path / "none")], "interp recall run"),
    ]:
        with pytest.raises(ValueError, match=message):
            CliRunner().invoke(app, arguments, catch_exceptions=False)
