"""The reproduction script in its short form."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "reproduce" / "graph_recall.py"


def test_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--quick", "--which", "loop", "bias", "--out", str(out)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    shown = capsys.readouterr().out
    assert end.value.code == 0, shown
    assert "FAIL" not in shown
    results = json.loads((out / "results.json").read_text())
    assert {check["part"] for check in results["checks"]} == {"loop", "bias"}
    assert (out / "planted_bias.png").stat().st_size > 5000
