"""A run in stages, each in a folder of its own that is used again for as long as its inputs are the same."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interp.core.files import read_json, read_sealed_json, write_json, write_sealed_json
from interp.core.identity import Identity
from interp.core.messages import one_of

INPUTS, RESULT = "inputs.json", "result.json"

logger = logging.getLogger(__name__)


def run_stage(
    out: Path,
    name: str,
    inputs: Mapping[str, Any],
    compute: Callable[[Path], dict[str, Any]],
    *,
    later: Sequence[str] = (),
) -> dict[str, Any]:
    """The result of a stage: read from its folder, or computed and written there.

    A stage that was cut off is computed again in the folder as it stands, so that what it kept there is of use.
    One whose inputs have changed is computed anew, with a warning that says which they were. Until that is finished its
    former folder stays beside it as ``name.previous``, and comes back when the former inputs do, or where the new ones
    turn out to be refused.

    Args:
        out: folder of the run; the stage has ``out/name``.
        inputs: all that the result depends on, as values that `Identity` can tell apart.
        compute: given the folder, makes the result, as JSON values; it may keep larger things in the folder.
        later: stages that build on this one; they are set aside with it, until it is known that they fit.

    Raises:
        ValueError: the folder holds something else; whatever `compute` refuses.
    """
    folder, previous = out / name, _previous(out, name)
    shutil.rmtree(_stale(out, name), ignore_errors=True)
    identity = Identity.of(f"stage {name}", **inputs)
    if previous.is_dir() and _kept(previous) == identity:
        _remove(out, folder)
        previous.rename(folder)
    if (folder / INPUTS).is_file():
        kept = _kept(folder)
        if kept != identity:
            changed = "the release of this library" if kept is None else ", ".join(identity.differences(kept))
            logger.warning("stage %s: %s changed; computing it again", name, changed)
            set_aside(out, [name, *later])
        elif (folder / RESULT).is_file():
            logger.info("stage %s: finished before, in %s", name, folder)
            return read_sealed_json(folder / RESULT)
    elif folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} holds something other than a stage of this pipeline; give another `out`")
    write_json(folder / INPUTS, identity.to_dict())
    logger.info("stage %s", name)
    try:
        result = compute(folder)
    except ValueError:
        if previous.is_dir():
            _remove(out, folder)
            previous.rename(folder)
        raise
    write_sealed_json(folder / RESULT, result)
    _remove(out, previous)
    return read_sealed_json(folder / RESULT)


def _kept(folder: Path) -> Identity | None:
    """What the stage in a folder was made from; None where an earlier release made it."""
    content = read_json(folder / INPUTS, dict)
    return Identity.from_dict(content, folder / INPUTS) if "digest" in content else None


def set_aside(out: Path, names: Sequence[str]) -> None:
    """Move finished stages to ``name.previous``, where they wait for their inputs to return; drop unfinished ones."""
    for name in names:
        folder = out / name
        if (folder / RESULT).is_file():
            _remove(out, _previous(out, name))
            folder.rename(_previous(out, name))
        elif (folder / INPUTS).is_file():
            _remove(out, folder)


def _previous(out: Path, name: str) -> Path:
    return out / f"{name}.previous"


def _stale(out: Path, name: str) -> Path:
    return out / f"{name}.stale"


def _remove(out: Path, folder: Path) -> None:
    """Whole or gone, wherever a kill comes."""
    if folder.is_dir():
        stale = _stale(out, folder.name.removesuffix(".previous"))
        shutil.rmtree(stale, ignore_errors=True)
        folder.rename(stale)
        shutil.rmtree(stale)


def finished(out: Path, name: str) -> dict[str, Any]:
    """The result of a finished stage. Raises ValueError where there is none."""
    path = out / name / RESULT
    if not path.is_file():
        raise ValueError(f"{out} holds no finished stage {name!r}: run the pipeline on with out={str(out)!r}")
    return read_sealed_json(path)


def up_to(stages: Sequence[str], last: str) -> list[str]:
    """The stages to run if `last` is to be the last one. Raises ValueError for a name that isn't a stage's."""
    one_of("until", last, stages)
    return list(stages[: stages.index(last) + 1])
