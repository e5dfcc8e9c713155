"""A part of scripts/reproduce/convex_surrogates.py in its short form passes its own checks and writes its files."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "reproduce"


def test_short_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    script = importlib.import_module("convex_surrogates")
    assert script.main(["--quick", "--which", "C", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert {check["part"] for check in results["checks"]} == {"C"}
    assert all(check["passed"] for check in results["checks"])
    assert capsys.readouterr().out.count("PASS") == len(results["checks"]) == 9
