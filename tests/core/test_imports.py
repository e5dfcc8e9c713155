"""Importing the Trainer costs torch and little else."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "lightning_fabric",
    "wandb",
    "rich",
    "matplotlib",
    "pandas",
    "transformers",
    "yaml",
    "typer",
    "numba",
    "triton",
)


def test_the_trainer_is_light():
    code = (
        "import sys, torch; import interp.core.trainer, interp.core.tracking, interp.core.callbacks, "
        "interp.core.config, interp.core.plotting, interp.core.runtime; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
