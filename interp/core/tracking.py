"""Where a run's numbers go: always a JSONL file in its folder, and Weights & Biases when asked."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from interp.core.device import environment
from interp.core.files import write_json
from interp.core.history import FILE
from interp.core.messages import one_of, warn_once

logger = logging.getLogger(__name__)
TRACKERS = ("none", "jsonl", "wandb")


class Tracker:
    """Appends rows to `metrics.jsonl` under `out_dir`; without a folder it keeps nothing."""

    def __init__(self, out_dir: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(out_dir) / FILE if out_dir is not None else None
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)

    def log(self, metrics: dict[str, float], step: int) -> None:
        """One row; `step` is part of it."""
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps({"step": step, **metrics}) + "\n")

    def summary(self, values: dict[str, Any]) -> None:
        """Final values of the run."""
        if self.path is not None:
            write_json(self.path.with_name("summary.json"), values)

    def finish(self) -> None:
        """Flush and close."""


class WandbTracker(Tracker):
    """Mirrors the JSONL file into a W&B run (mode from WANDB_MODE, else offline).

    An offline W&B run can't be resumed, so a resumed training opens a new run in the same group.
    """

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None,
        *,
        config: dict[str, Any],
        project: str,
        group: str | None,
        name: str | None,
    ) -> None:
        super().__init__(out_dir)
        import wandb

        self.run = wandb.init(
            project=project,
            group=group,
            name=name,
            config={**config, "environment": environment()},
            dir=os.fspath(out_dir) if out_dir is not None else None,
            mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
        )

    def log(self, metrics: dict[str, float], step: int) -> None:
        super().log(metrics, step)
        self.run.log(metrics, step=step)

    def summary(self, values: dict[str, Any]) -> None:
        super().summary(values)
        self.run.summary.update(values)

    def finish(self) -> None:
        self.run.finish()


def make_tracker(
    kind: str,
    out_dir: str | os.PathLike[str] | None = None,
    *,
    config: dict[str, Any] | None = None,
    project: str = "interp",
    group: str | None = None,
    name: str | None = None,
) -> Tracker:
    """A tracker by name: `none`, `jsonl` or `wandb` (without the package: JSONL, and one warning)."""
    one_of("tracker", kind, TRACKERS)
    if kind == "none":
        return Tracker(None)
    if kind == "wandb":
        try:
            return WandbTracker(out_dir, config=config or {}, project=project, group=group, name=name)
        except ImportError:
            warn_once(
                logger, "wandb", "tracker='wandb', but wandb is not installed: logging to metrics.jsonl only"
            )
    return Tracker(out_dir)
