"""A memo of utilities, and a recall run with its transcripts, for the fuzz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from classic_ml.valuation.utility import Utility
from interp.recall.runner import TRANSCRIPTS, Case, GraphRecallExperiment, load_run, save_settings
from interp.recall.scripted import NoisyRecaller
from tests.recall.stories import story

CASES = tuple(Case(story(4, seed=k), clearance=0, seed=k) for k in range(3))


def total(rows: np.ndarray) -> float:
    return float(rows.sum())


def make_memo(folder: Path) -> None:
    Utility(total, memo_file=folder / "memo.safetensors").many([[1], [2, 3], [5]])


def read_memo(folder: Path) -> Any:
    return dict(Utility(total, memo_file=folder / "memo.safetensors").memo)


def make_recall_run(folder: Path) -> None:
    save_settings(folder, NoisyRecaller(), CASES, 1)
    GraphRecallExperiment(NoisyRecaller(), transcripts=folder / TRANSCRIPTS, show_progress=False).run(CASES)


def read_recall_run(folder: Path) -> Any:
    """A reply that can't be read leaves its case out, with a warning; those that are left must be the right ones."""
    run = load_run(folder)
    expected = GraphRecallExperiment(NoisyRecaller(), show_progress=False).run(run.cases)
    right = all(case in CASES for case in run.cases) and run.results == expected.results
    return "right, or a part of it" if right else "wrong"
