"""Checkpoints: a folder per step, whole or absent, read back without pickle.

step_00001234/
  model.safetensors   the weights of every module, keys `<module>.<parameter>`
  state.pt            optimiser, task, stream, generators: tensors, numbers and strings (weights_only)
  meta.json           schema version, step, checksums of the other two and of itself, configuration, environment
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pickle
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.core.files import open_regular, read_json, read_sealed_json, sha256_file, sync, write_sealed_json
from interp.core.tensor_files import read_tensors, write_tensors

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 2
WEIGHTS, STATE, META = "model.safetensors", "state.pt", "meta.json"
_STEP = re.compile(r"step_([0-9]{1,18})")
# What atomic writes and ours leave when the process is killed. A user's own notes.tmp-old is none of it.
_LEFTOVER = re.compile(r"(step_[0-9]+|.+\.(json|jsonl|safetensors|yaml))\.tmp-(old-)?[0-9]+")


class DamagedCheckpoint(ValueError):
    """A checkpoint with a file that is missing, cut short or changed."""


class UnknownSchema(ValueError):
    """A checkpoint of another release."""


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
        sums = {WEIGHTS: write_tensors(aside / WEIGHTS, weights), STATE: _write_state(aside / STATE, state)}
        write_sealed_json(
            aside / META, {"schema_version": SCHEMA_VERSION, "step": step, "sha256": sums, **meta}
        )
        for name in (WEIGHTS, STATE):
            sync(aside / name)
        sync(aside)
        _make_room(target)
        os.replace(aside, target)
        sync(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    for old in _complete(folder)[:-keep_last]:
        _remove(old)
    return target


class _NotingFile(io.BufferedWriter):
    """Remembers the system's error: `torch.save` reports only that its archive came out too short."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.error = error
            raise


def _write_state(path: Path, state: Mapping[str, Any]) -> str:
    file = _NotingFile(io.FileIO(path, "w"))
    try:
        torch.save(state, file)
        file.close()
    except (RuntimeError, OSError) as error:
        with contextlib.suppress(OSError):
            file.close()
        raise (file.error or error) from None
    return sha256_file(path)


def _step_of(path: Path) -> int | None:
    """The step of a checkpoint's final name; None for any other name, and for what is no folder."""
    match = _STEP.fullmatch(path.name)
    return int(match[1]) if match and path.is_dir() else None


def _complete(folder: Path) -> list[Path]:
    """Checkpoint folders in order of their steps; a folder has its final name only when it is complete."""
    if not folder.is_dir():
        return []
    found = [(step, path) for path in folder.iterdir() if (step := _step_of(path)) is not None]
    return [path for _, path in sorted(found)]


def _make_room(target: Path) -> None:
    """Clear the final name: an older checkpoint goes, a file that somebody put there is set aside."""
    if target.is_dir():
        _remove(target)
    elif os.path.lexists(target):
        kept = target.with_name(f"{target.name}.in-the-way-{os.getpid()}")
        os.replace(target, kept)
        logger.warning("%s was no checkpoint and is %s now", target, kept)


def _remove(path: Path) -> None:
    """Take the final name away first, so that no half of a checkpoint ever bears it. Of a link only the link goes."""
    if path.is_symlink():
        path.unlink()
        return
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
        if not _LEFTOVER.fullmatch(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    later = [path for path in _complete(Path(folder)) if (_step_of(path) or 0) > step]
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
            raise DamagedCheckpoint(f"{path} is not a whole checkpoint: {name} is missing or no file")
    try:
        version = read_json(path / META, dict).get("schema_version")
        if version != SCHEMA_VERSION:
            raise UnknownSchema(
                f"{path / META} has schema_version {version!r}; this release reads {SCHEMA_VERSION}: finish the run "
                "with the release that began it"
            )
        meta = read_sealed_json(path / META, ("step", "sha256"))
    except UnknownSchema:
        raise
    except ValueError as error:
        raise DamagedCheckpoint(str(error)) from error
    named = _step_of(path)
    if named is not None and named != meta["step"]:
        raise DamagedCheckpoint(
            f"{path} is the checkpoint of step {meta['step']} by its {META}: it was renamed"
        )
    for name in (WEIGHTS, STATE):
        if sha256_file(path / name) != meta["sha256"].get(name):
            raise DamagedCheckpoint(
                f"{path / name} is corrupt (its checksum differs from the one in {META}); delete {path} to go on from "
                "the checkpoint before it"
            )
    try:
        with open_regular(path / STATE) as file:
            state = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:
        raise ValueError(f"{path / STATE} holds more than tensors, numbers and strings: {error}") from error
    weights = read_tensors(path / WEIGHTS, floating=False, finite=False)
    return Checkpoint(path=path, step=meta["step"], weights=weights, state=state, meta=meta)


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
