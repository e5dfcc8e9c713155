"""Checkpoints: a folder per step, whole or absent, read back without pickle.

step_00001234/
  model.safetensors   the weights of every module, keys `<module>.<parameter>`
  state.pt            optimiser, task, stream, generators: tensors, numbers and strings (weights_only)
  meta.json           schema version, step, checksums of the other two, configuration, environment
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp.core.files import read_json, sha256_file, sync, write_json

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
WEIGHTS, STATE, META = "model.safetensors", "state.pt", "meta.json"


class DamagedCheckpoint(ValueError):
    """A checkpoint with a file that is missing, cut short or changed."""


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
    """Write `step_<step>` under `folder` aside, flush it, rename it, then remove all but the newest `keep_last`.

    Raises TypeError naming the place in `state` of something that could not be read back: better now than when the
    run is to go on.
    """
    _check_plain(state, "state")
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
    """Delete the checkpoints past `step`, which a run that goes on from there replaces, and what interrupted
    writes left behind. Returns the checkpoints that went."""
    for path in Path(folder).glob("*.tmp-*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    later = [path for path in _complete(Path(folder)) if int(path.name[5:]) > step]
    for path in later:
        _remove(path)
    return later


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint folder whole, onto the CPU.

    Raises ValueError naming the file that is missing, damaged (`DamagedCheckpoint`) or of another schema.
    """
    path = Path(path)
    for name in (META, WEIGHTS, STATE):
        if not (path / name).is_file():
            raise DamagedCheckpoint(f"{path} is not a whole checkpoint: {name} is missing")
    try:
        meta = read_json(path / META)
    except ValueError as error:
        raise DamagedCheckpoint(str(error)) from error
    version = meta.get("schema_version") if isinstance(meta, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(f"{path / META} has schema_version {version!r}; this release reads {SCHEMA_VERSION}")
    for name, expected in meta["sha256"].items():
        if sha256_file(path / name) != expected:
            raise DamagedCheckpoint(
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


def load_latest(folder: str | os.PathLike[str]) -> Checkpoint | None:
    """The newest good checkpoint under `folder`, or None where there is none at all; a warning names damaged ones.

    Raises DamagedCheckpoint when there are checkpoints and all are damaged.
    """
    damage: DamagedCheckpoint | None = None
    for path in reversed(_complete(Path(folder))):
        try:
            return load_checkpoint(path)
        except DamagedCheckpoint as error:
            logger.warning("%s; trying the one before it", error)
            damage = damage or error
    if damage is not None:
        raise damage
    return None


def _check_plain(value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_plain(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for i, item in enumerate(value):
            _check_plain(item, f"{where}[{i}]")
    elif value is not None and not isinstance(value, Tensor) and type(value) not in (bool, int, float, str):
        raise TypeError(
            f"{where} is a {type(value).__name__}; a checkpoint holds tensors, numbers, strings, and lists and dicts "
            "of these"
        )
