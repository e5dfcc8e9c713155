"""A checkpoint and the log of a run, for the fuzz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from interp.core.checkpoint import load_checkpoint, save_checkpoint
from interp.core.history import History


def make_checkpoint(folder: Path) -> None:
    weights = {"net.weight": torch.arange(6.0).reshape(2, 3), "net.bias": torch.ones(2).bfloat16()}
    state = {"moments": torch.arange(4.0), "position": 7, "nested": [{"a": None}], "name": "adam"}
    save_checkpoint(folder, 15, weights=weights, state=state, meta={"config": {"lr": 0.1}, "max_steps": 30})


def read_checkpoint(folder: Path) -> Any:
    found = load_checkpoint(folder / "step_00000015")
    return found.step, found.weights, found.state, found.meta


def make_log(folder: Path) -> None:
    history = History()
    for step in range(1, 6):
        history.add(step, {"loss": 1.0 / step, "l0": None})
    history.rewrite(folder)


def read_log(folder: Path) -> Any:
    """Its rows say nothing of each other, so what another number means can't be known: see `History.check`."""
    rows = History.read(folder).rows
    assert all(isinstance(row, dict) and isinstance(row["step"], int) for row in rows)
    return len(rows)
