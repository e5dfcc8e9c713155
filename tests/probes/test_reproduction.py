"""The short form of the reproduction holds its own checks, and the command line works from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "reproduce" / "polar_probe.py"


@pytest.mark.slow
def test_planted_geometry_in_short(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick", "--out", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 of 6 checks hold" in done.stdout
    saved = json.loads((tmp_path / "results.json").read_text())
    structural, polar, angular = saved["tables"]["A seed 0"]["rows"]
    assert polar["las"] > 1.5 * structural["las"]
    assert polar["las"] >= 0.9
    assert angular["uuas"] < polar["uuas"] <= structural["uuas"]
