"""The reproduction's short form holds its checks and leaves its results."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

FOLDER = str(Path(__file__).parents[3] / "scripts" / "reproduce")


@pytest.mark.slow
def test_quick_holds_its_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    lfp = importlib.import_module("lfp")
    try:
        code = lfp.main(["--quick", "--out", str(tmp_path)])
    finally:
        for name in ("lfp", "lfp_toy"):
            sys.modules.pop(name, None)
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "11 of 11 checks passed" in printed
    results = json.loads((tmp_path / "results.json").read_text())
    tune = results["numbers"]["b"]["tune"]
    assert tune["after"]["reward"] - tune["before"]["reward"] >= 0.5
    assert {"tuned", "base model", "shuffled labels"} <= set(results["numbers"]["b"]["columns"])
    assert (tmp_path / "b_columns.png").exists()
