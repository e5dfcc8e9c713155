"""Checkpoints: a folder per step, whole or absent, read back without pickle.

step_00001234/
  model.safetensors   the weights of every module, keys `<module>.<parameter>`
  state.pt            optimiser, task, stream, generators: tensors, numbers and strings (weights_only)
  meta.json           schema version, step, checksums of the other two, configuration, environment
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp.core.files import read_json, sha256_file, sync, write_json

SCHEMA_VERSION = 1
WEIGHTS, STATE, META = "model.safetensors", "state.pt", "meta.json"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder holds."""

    path: Path
    step: int
    weights: dict[str, Tensor]
    state: dict[str, Any]
    meta: dict[str, Any]


def save_checkpoint(
    folder: str | os.PathLike[str],
    step: int,
    *,
    weights: dict[str, Tensor],
    state: dict[str, Any],
    meta: dict[str, Any],
    keep_last: int = 2,
) -> Path:
    """Write `step_<step>` under `folder` aside, flush it, rename it, then remove all but the newest `keep_last`."""
    folder = Path(folder)
    target = folder / f"step_{step:08d}"
    aside = folder / f"{target.name}.tmp-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, aside / WEIGHTS
        )
        torch.save(state, aside / STATE)
        sums = {name: sha256_file(aside / name) for name in (WEIGHTS, STATE)}
        write_json(aside / META, {"schema_version": SCHEMA_VERSION, "step": step, "sha256": sums, **meta})
        for name in (WEIGHTS, STATE):
            sync(aside / name)
        sync(aside)
        if target.exists():
            shutil.rmtree(target)
        os.replace(aside, target)
        sync(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    for old in _complete(folder)[:-keep_last]:
        shutil.rmtree(old)
    return target


def _complete(folder: Path) -> list[Path]:
    """Checkpoint folders in order of their steps; a folder has its final name only when it is complete."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.name.startswith("step_") and p.name[5:].isdigit())


def latest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The newest complete checkpoint under `folder`, or None."""
    complete = _complete(Path(folder))
    return complete[-1] if complete else None


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Delete what interrupted saves left behind."""
    for path in Path(folder).glob("step_*.tmp-*"):
        shutil.rmtree(path, ignore_errors=True)


def load_checkpoint(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> Checkpoint:
    """Read a checkpoint folder whole.

    Raises ValueError naming the file that is missing, damaged or of a newer schema.
    """
    path = Path(path)
    for name in (META, WEIGHTS, STATE):
        if not (path / name).is_file():
            raise ValueError(f"{path} is not a checkpoint: {name} is missing")
    meta = read_json(path / META)
    version = meta.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"{path / META} has schema_version {version!r}; this release reads {SCHEMA_VERSION}")
    for name, expected in meta["sha256"].items():
        if sha256_file(path / name) != expected:
            raise ValueError(
                f"{path / name} is corrupt (its checksum differs from meta.json); delete {path} to continue from the "
                "checkpoint before it"
            )
    return Checkpoint(
        path=path,
        step=meta["step"],
        weights=load_file(path / WEIGHTS, device=str(device)),
        state=torch.load(path / STATE, map_location="cpu", weights_only=True),
        meta=meta,
    )
