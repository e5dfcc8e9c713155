"""Checkpoints: a folder per step, whole or absent, read back without pickle.

step_00001234/
  model.safetensors   the weights of every module, keys `<module>.<parameter>`
  state.pt            optimiser, task, stream, generators: tensors, numbers and strings (weights_only)
  meta.json           schema version, step, checksums of the other two, configuration, environment
"""

from __future__ import annotations

import os
import pickle
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
            _remove(target)
        os.replace(aside, target)
        sync(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    for old in _complete(folder)[:-keep_last]:
        _remove(old)
    return target


def _complete(folder: Path) -> list[Path]:
    """Checkpoint folders in order of their steps; a folder has its final name only when it is complete."""
    if not folder.is_dir():
        return []
    paths = (path for path in folder.iterdir() if path.name.startswith("step_") and path.name[5:].isdigit())
    return sorted(paths, key=lambda path: int(path.name[5:]))


def _remove(path: Path) -> None:
    """Take the final name away first, so that no half of a checkpoint ever bears it."""
    aside = path.with_name(f"{path.name}.tmp-old-{os.getpid()}")
    os.replace(path, aside)
    shutil.rmtree(aside)


def latest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The newest complete checkpoint under `folder`, or None."""
    complete = _complete(Path(folder))
    return complete[-1] if complete else None


def remove_after(folder: str | os.PathLike[str], step: int) -> list[Path]:
    """Delete the checkpoints past `step`, which a run that goes on from there replaces, and what interrupted saves
    left behind. Returns the checkpoints that went."""
    for path in Path(folder).glob("step_*.tmp-*"):
        shutil.rmtree(path, ignore_errors=True)
    later = [path for path in _complete(Path(folder)) if int(path.name[5:]) > step]
    for path in later:
        _remove(path)
    return later


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint folder whole, onto the CPU.

    Raises ValueError naming the file that is missing, damaged or of another schema.
    """
    path = Path(path)
    for name in (META, WEIGHTS, STATE):
        if not (path / name).is_file():
            raise ValueError(f"{path} is not a whole checkpoint: {name} is missing")
    meta = read_json(path / META)
    version = meta.get("schema_version") if isinstance(meta, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(f"{path / META} has schema_version {version!r}; this release reads {SCHEMA_VERSION}")
    for name, expected in meta["sha256"].items():
        if sha256_file(path / name) != expected:
            raise ValueError(
                f"{path / name} is corrupt (its checksum differs from the one in {META}); delete {path} to go on from "
                "the checkpoint before it"
            )
    try:
        state = torch.load(path / STATE, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path / STATE} holds more than tensors, numbers and strings: {error}") from error
    return Checkpoint(
        path=path,
        step=meta["step"],
        weights=load_file(path / WEIGHTS),
        state=state,
        meta=meta,
    )
