"""A run in stages, each in a folder of its own that is used again for as long as its inputs are the same."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interp.core.files import read_json, write_json
from interp.core.messages import one_of

INPUTS, RESULT = "inputs.json", "result.json"

logger = logging.getLogger(__name__)


def run_stage(
    out: Path, name: str, inputs: Mapping[str, Any], compute: Callable[[Path], dict[str, Any]]
) -> dict[str, Any]:
    """The result of a stage: read from its folder, or computed and written there.

    A stage that was cut off is computed again in the folder as it stands, so that what it kept there is of use.
    One whose inputs have changed is cleared away first, with a warning that says which they were.

    Args:
        out: folder of the run; the stage has ``out/name``.
        inputs: all that the result depends on, as JSON values.
        compute: given the folder, makes the result, as JSON values; it may keep larger things in the folder.

    Raises:
        ValueError: the folder holds something else.
    """
    folder, stale = out / name, out / f"{name}.stale"
    shutil.rmtree(stale, ignore_errors=True)
    inputs = json.loads(json.dumps(inputs))
    if (folder / INPUTS).is_file():
        before = read_json(folder / INPUTS)
        if before != inputs:
            changed = sorted(k for k in before.keys() | inputs.keys() if before.get(k) != inputs.get(k))
            logger.warning("stage %s: %s changed; computing it again", name, ", ".join(changed))
            folder.rename(stale)  # whole or gone, wherever a kill comes
            shutil.rmtree(stale)
        elif (folder / RESULT).is_file():
            logger.info("stage %s: finished before, in %s", name, folder)
            return read_json(folder / RESULT)
    elif folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} holds something other than a stage of this pipeline; give another `out`")
    write_json(folder / INPUTS, inputs)
    logger.info("stage %s", name)
    write_json(folder / RESULT, compute(folder))
    return read_json(folder / RESULT)


def finished(out: Path, name: str) -> dict[str, Any]:
    """The result of a finished stage. Raises ValueError where there is none."""
    path = out / name / RESULT
    if not path.is_file():
        raise ValueError(f"{out} holds no finished stage {name!r}: run the pipeline on with out={str(out)!r}")
    return read_json(path)


def up_to(stages: Sequence[str], last: str) -> list[str]:
    """The stages to run if `last` is to be the last one. Raises ValueError for a name that isn't a stage's."""
    one_of("until", last, stages)
    return list(stages[: stages.index(last) + 1])
