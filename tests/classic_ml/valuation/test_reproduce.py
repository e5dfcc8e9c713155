"""The short forms of scripts/reproduce/du_shapley.py and two_d_oob.py run, pass and leave their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "reproduce"


def reproduce(name: str, out: Path, *arguments: str) -> tuple[int, dict]:
    done = subprocess.run(
        [sys.executable, SCRIPTS / f"{name}.py", "--quick", "--out", out, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert (out / "results.json").exists(), done.stderr
    results = json.loads((out / "results.json").read_text())
    for check in results["checks"]:
        assert check["statement"] in done.stdout
    return done.returncode, results


@pytest.mark.slow
def test_du_shapley(tmp_path):
    code, results = reproduce("du_shapley", tmp_path, "--which", "A", "C", "D")
    assert [c["statement"] for c in results["checks"] if not c["passed"]] == []
    assert code == 0
    names = {path.stem for path in tmp_path.glob("*.png")}
    assert names == {"linear_regression", "rate", "uniform"}


@pytest.mark.slow
def test_two_d_oob(tmp_path):
    code, results = reproduce("two_d_oob", tmp_path, "--which", "C", "D")
    assert [c["statement"] for c in results["checks"] if not c["passed"]] == []
    assert code == 0
    assert {path.stem for path in tmp_path.glob("*.png")} == {"backdoor"}
    assert results["numbers"]["D"]["roc_auc"]["2D-OOB-data"][0] >= 0.96
