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
        ([*RUN, "--model", "perfect", "--clearances", "9", "--out", str(tmp_path)], "clearance = 9"),
        (
            ["run", "--model", "perfect", "--datasets", "nowhere", "--out", str(tmp_path)],
            "source = 'nowhere'",
        ),
        ([*RUN, "--datasets", "er", "--model", "perfect", "--out", str(tmp_path)], "'er' is there twice"),
        ([*RUN, "--model", "perfect", "--mode", "foo", "--out", str(tmp_path)], "--mode has no effect"),
        ([*RUN, "--model", "noisy", "--prompt-price", "-1", "--out", str(tmp_path)], "--prompt-price has no"),
        (
            [*RUN, "--model", "m", "--base-url", "http://x", "--mode", "generate", "--out", "x"],
            "--mode has no",
        ),
        ([*RUN, "--model", "m", "--temperature", "1", "--out", str(tmp_path)], "--temperature has no effect"),
        (
            [*RUN, "--model", "m", "--base-url", "http://x", "--max-tokens", "0", "--out", "x"],
            "max_tokens = 0",
        ),
        (["analyse", "--run", str(tmp_path / "none")], "interp recall run"),
    ]:
        with pytest.raises(ValueError, match=message):
            CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_what_was_refused_leaves_the_folder_free(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    for refused in (["--clearances", "9"], ["--primings", "foo"], ["--samples", "0"]):
        with pytest.raises(ValueError, match=refused[0].strip("-").removesuffix("s")):
            CliRunner().invoke(
                app, [*RUN, "--model", "perfect", *refused, "--out", folder], catch_exceptions=False
            )
    call(*RUN, "--model", "perfect", "--clearances", "5", "--out", folder)
    with pytest.raises(ValueError, match=r"cases\[0\]\.clearance was 5 there and is 4 here"):
        CliRunner().invoke(
            app, [*RUN, "--model", "perfect", "--clearances", "4", "--out", folder], catch_exceptions=False
        )


def test_an_analysis_says_what_it_counts_and_refuses_a_file_at_once(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    assert (
        call(*RUN, "--model", "biased", "--out", folder)
        .splitlines()[0]
        .startswith("biased; pairs with w > 0.5")
    )
    shown = call(
        "analyse", "--run", folder, "--threshold", "0.4", "--consensus", "0.2", "--n-permutations", "20"
    )
    assert "recalled where w > 0.4" in shown
    assert "recalled where w >= 0.2" in shown
    assert "coverage" in shown
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file, not a folder"):
        CliRunner().invoke(
            app, ["analyse", "--run", folder, "--out", str(tmp_path / "file"), "--n-permutations", "-1"],
            catch_exceptions=False,
        )  # fmt: skip


def test_a_run_whose_replies_all_failed_has_no_scores(tmp_path: Path) -> None:
    stub = Stub()
    stub.script = lambda number, body: (418, "no")
    asked = [*RUN, "--model", "m", "--base-url", stub.url, "--out", str(tmp_path)]
    try:
        with pytest.raises(ConnectionError, match="6 of 6 replies failed"):
            CliRunner().invoke(app, asked, catch_exceptions=False)
        stub.script = all_ones
        call(*asked)
    finally:
        stub.close()
