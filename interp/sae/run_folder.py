"""What lies where in the folder of a training run, and what becomes of an earlier run's."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

SAE, PREVIOUS = "sae", "sae.previous"
CONFIG_FILE, METRICS_FILE = "config.yaml", "metrics.json"

_log = logging.getLogger(__name__)


def set_aside(runs: Iterable[Path]) -> None:
    """In each folder, move the dictionary of an earlier run, with its configuration and metrics, to ``sae.previous``.

    From then on until the new run is finished, it has no dictionary that could pass for the new run's.
    """
    for run in runs:
        old, away = run / SAE, run / PREVIOUS
        if not old.is_dir():
            continue
        for name in (METRICS_FILE, CONFIG_FILE):
            if (run / name).is_file():
                os.replace(run / name, old / name)
        if away.is_dir():
            shutil.rmtree(away)
        old.rename(away)
        _log.warning("%s holds the dictionary that this run replaces, until it is finished", away)
