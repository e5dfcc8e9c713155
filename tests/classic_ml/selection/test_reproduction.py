"""The short forms of scripts/reproduce/rdss.py and chrono_epilogi.py pass their own checks and write their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "reproduce"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "parts", "figures"),
    [("rdss", "CD", {"mixture", "replacement"}), ("chrono_epilogi", "AC", {"forecasts"})],
)
def test_short_form(tmp_path: Path, script: str, parts: str, figures: set[str]) -> None:
    command = [
        sys.executable,
        str(SCRIPTS / f"{script}.py"),
        "--quick",
        "--which",
        *parts,
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert {check["part"] for check in results["checks"]} == set(parts)
    assert all(check["passed"] for check in results["checks"])
    assert {path.stem for path in tmp_path.glob("*.png")} == figures
    assert done.stdout.count("PASS") == len(results["checks"])
