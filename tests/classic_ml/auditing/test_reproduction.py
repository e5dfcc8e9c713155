"""The short form of scripts/reproduce/auditing_explanations.py passes its own checks and writes its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "reproduce" / "auditing_explanations.py"


@pytest.mark.slow
def test_short_form(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--which", "A", "C", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert {check["part"] for check in results["checks"]} == {"A", "C"}
    assert all(check["passed"] for check in results["checks"])
    assert done.stdout.count("PASS") == len(results["checks"]) == 18
    assert {path.stem for path in tmp_path.glob("*.png")} == {"step"}
