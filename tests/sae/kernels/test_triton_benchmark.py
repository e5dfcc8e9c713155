"""benchmarks/gpu.py runs from end to end without a GPU, on tiny sizes, and what it checks is right."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tests.sae.kernels.triton_cases  # noqa: F401  (checks that the interpreter is on)
from interp.sae.kernels.triton import tokens

ROOT = Path(__file__).resolve().parents[3]


def test_dry_run_checks_and_times_everything(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    command = [sys.executable, "benchmarks/gpu.py", "--dry-run", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert len(result["checks"]) == 53
    assert all(check["passed"] and check["error"] <= check["bound"] for check in result["checks"])
    timed = {(row["precision"], row["what"]) for row in result["timings"]}
    for precision in ("bf16", "tf32"):
        for what in (
            "encoder product, torch",
            "dense step, eager",
            "dense step, torch.compile",
            "ours: token pass",
            "ours: latent pass W_gate",
            "ours: latent pass W_dec",
        ):
            assert (precision, what) in timed
        assert set(result["verdicts"][f"dry {precision}"]) == {
            "times_the_floor",
            "faster_than_compiled",
            "faster_than_eager",
            "times_torchs_product",
        }
    assert {("bf16", "list of topk"), ("bf16", "whole step of topk, beta1 = 0.9, clipped")} <= timed
    product = next(row for row in result["timings"] if row["what"] == "encoder product, torch")
    assert product["flops"] == 2 * 4 * 17 * 21


def test_a_wrong_kernel_fails_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sparsity term is one per cent too strong: the token pass must be seen to differ, and nothing else."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    checks = importlib.import_module("gpu_checks")
    right = tokens.latent_weights
    monkeypatch.setattr(tokens, "latent_weights", lambda *a: 1.01 * right(*a))
    found = checks.check_passes(checks.Size("dry", 3, 8, 9, 2), torch.device("cpu"))
    failed = {check.name for check in found if not check.passed}
    assert failed == {"token pass dry: losses", "token pass dry: cotangents"}
