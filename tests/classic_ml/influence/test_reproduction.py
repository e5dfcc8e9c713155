"""The quick parts of scripts/reproduce/motif_influence.py pass their own checks."""

from __future__ import annotations

import importlib
import json
import warnings
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "reproduce"


def test_short_form(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    with warnings.catch_warnings():  # the script sets filters of its own
        script = importlib.import_module("motif_influence")
        assert script.main(["--quick", "--which", "A", "B", "G", "H", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert {check["part"] for check in results["checks"]} == {"A", "B", "G"}
    assert all(check["passed"] for check in results["checks"])
    printed = capsys.readouterr().out
    assert printed.count("PASS") == len(results["checks"]) == 38
    assert "left out by --quick" in printed
