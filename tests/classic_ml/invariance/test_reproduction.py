"""Parts of scripts/reproduce/transformation_invariant_learning.py pass their own checks and write their files."""

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
    script = importlib.import_module("transformation_invariant_learning")
    assert script.main(["--quick", "--which", "A", "D", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert {check["part"] for check in results["checks"]} == {"A"}
    assert all(check["passed"] for check in results["checks"])
    assert "left out by --quick" in results["remarks"][-1]
    assert (tmp_path / "game.png").exists()
    assert capsys.readouterr().out.count("PASS") == len(results["checks"]) == 9
