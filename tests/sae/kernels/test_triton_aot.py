"""Every Triton kernel compiles for sm_80 and sm_90 without a GPU, and none spills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KERNELS = {
    "encode_tiles",
    "keep_largest",
    "token_pass",
    "code_pass",
    "products_at",
    "decode_tokens",
    "sum_by_latent",
    "latent_rows",
    "chunk_rows",
    "pull_rows",
    "adam_entries",
    "walk_rows",
}
# One launch of each kernel; `make aot` compiles every one.
ONE_OF_EACH = (
    r"encode ieee$|largest|token pass gated d=4096|token pass of 5 d=4096|products.*4096|decode d=4096|"
    r"latent sums of 4|latent pass unit norm, all terms d=3072|latent chunks d=3072|pull|Adam entries$|"
    r"walk momentum d=3072"
)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, env=inherited | environment
    )


def test_every_kernel_compiles_for_both_targets_without_spilling(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    out = run("scripts/aot_compile.py", "--only", ONE_OF_EACH, "--json", str(table))
    assert out.returncode == 0, out.stderr
    rows = json.loads(table.read_text())
    assert {(row["function"], row["target"]) for row in rows} == {
        (kernel, target) for kernel in KERNELS for target in ("sm_80", "sm_90")
    }
    assert all(row["stack_bytes"] <= 64 for row in rows)
    assert all(0 < row["registers"] <= 255 for row in rows)
    assert all(row["shared_bytes"] <= 163 * 1024 for row in rows)


def test_a_spill_fails() -> None:
    """The same kernel with a tile that doesn't fit the registers."""
    code = (
        "import sys; sys.argv = ['aot', '--arch', '90', '--only', 'encode ieee$'];"
        "sys.path.insert(0, 'scripts'); import aot_compile; from interp.sae.kernels.triton import encode;"
        "encode.TILES['ieee'] = encode.Tile(64, 256, 16, parts=1, warps=4, stages=2);"
        "sys.exit(aot_compile.main())"
    )
    out = run("-c", code)
    assert out.returncode == 1, out.stderr
    assert "encode ieee on sm_90" in out.stderr


def test_tensors_on_a_cpu_are_refused_where_nothing_interprets() -> None:
    code = (
        "import torch; from interp.sae.kernels.triton import compact;"
        "compact(torch.zeros(1, 2), torch.zeros(3, 2), torch.zeros(3))"
    )
    out = run("-c", code)
    assert "ValueError: backend='triton' needs tensors on a CUDA device, got cpu" in out.stderr
