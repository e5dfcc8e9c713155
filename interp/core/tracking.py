"""Where a run's numbers go: a JSONL file in its folder, and Weights & Biases when asked."""

from __future__ import annotations

import json
import logging
import os
import uuid
from pathlib import Path
from typing import Any

from interp.core.device import environment
from interp.core.distributed import is_main
from interp.core.files import read_json, write_json
from interp.core.history import FILE, without_nan
from interp.core.messages import one_of, warn_once

logger = logging.getLogger(__name__)
TRACKERS = ("none", "jsonl", "wandb")
RUN_FILE, SUMMARY_FILE, WANDB_FILE = "run.json", "summary.json", "wandb.json"


class Tracker:
    """Appends rows to `metrics.jsonl` in `out_dir`; without a folder it keeps nothing.

    Configuration, git commit and library versions are written to `run.json` beside it.
    """

    def __init__(
        self, out_dir: str | os.PathLike[str] | None = None, *, config: dict[str, Any] | None = None
    ) -> None:
        self.folder = Path(out_dir) if out_dir is not None else None
        self._about: dict[str, Any] | None = {"config": config or {}, "environment": environment()}

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """One row; `step` is part of it."""
        if self.folder is not None:
            if self._about is not None:  # not before the run is under way: it may be refused
                write_json(self.folder / RUN_FILE, self._about)
                self._about = None
            with open(self.folder / FILE, "a") as file:
                file.write(json.dumps({"step": step, **without_nan(metrics)}) + "\n")

    def summary(self, values: dict[str, Any]) -> None:
        """Final values of the run."""
        if self.folder is not None:
            write_json(self.folder / SUMMARY_FILE, without_nan(values))

    def finish(self) -> None:
        """Flush and close; who made the tracker calls it."""


class WandbTracker(Tracker):
    """Mirrors the JSONL file into a W&B run (mode from WANDB_MODE, else offline).

    An offline W&B run can't be resumed (wandb/wandb#2423), so every start in the same `out_dir` opens a new run in
    the group of the first. `wandb.json` there lists them.
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
        import wandb

        super().__init__(out_dir, config=config)
        ours = self.folder / WANDB_FILE if self.folder is not None else None
        known: dict[str, Any] = {"runs": []}
        if ours is not None and ours.exists():
            known = read_json(ours, dict, ("group", "runs"))
        run_id = uuid.uuid4().hex[:8]
        group = (
            group or known.get("group") or f"{name or (self.folder.name if self.folder else 'run')}-{run_id}"
        )
        self.run = wandb.init(
            project=project,
            group=group,
            name=name,
            id=run_id,
            config={**config, "environment": environment()},
            dir=os.fspath(self.folder) if self.folder is not None else None,
            mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
            reinit="create_new",  # a run that the user has open stays his
        )
        if ours is not None:
            write_json(ours, {"group": group, "runs": [*known["runs"], run_id]})

    def log(self, metrics: dict[str, Any], step: int) -> None:
        super().log(metrics, step)
        self.run.log({name: value for name, value in metrics.items() if name != "step"}, step=step)

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
    """A tracker by name: `none` keeps nothing, `jsonl` a file, `wandb` a file and a W&B run.

    A W&B that is not installed or can't start (no login) never stops a run: one warning, and the file alone. On ranks
    other than the first nothing is kept.
    """
    one_of("tracker", kind, TRACKERS)
    if kind == "none" or not is_main():
        return Tracker(None)
    if kind == "wandb":
        try:
            import wandb
        except ImportError:
            warn_once(
                logger, "absent", "tracker = 'wandb', but wandb is not installed: logging to a file only"
            )
        else:
            try:
                return WandbTracker(out_dir, config=config or {}, project=project, group=group, name=name)
            except (wandb.Error, ValueError, OSError) as error:  # ValueError: of its settings, WANDB_MODE say
                reason = " ".join(str(error).split())
                warn_once(logger, "failed", f"W&B could not start ({reason}): logging to a file only")
    return Tracker(out_dir, config=config)
