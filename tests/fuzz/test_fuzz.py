"""Whatever becomes of a file, the outcome is the right data or one error that names it: no crash, hang or giant.

`python -m tests.fuzz.test_fuzz KIND SEED N` runs more of them, and prints the outcomes.
"""

from __future__ import annotations

import collections
import json
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.fuzz import core_files, kept_values
from tests.fuzz.mutations import NO_FILES, mutated, no_file, replaced

SECONDS, SPARE_BYTES = 5, 1 << 30


@dataclass(frozen=True)
class Kind:
    """Files that belong together.

    Attributes:
        make, read: write a small good folder; read everything of it that a user gets.
        bound: whether checksums bind all that is read: then a change must be refused. Of files without any (other
            libraries', tables that people write) another number is simply another number.
        ignored: names of files that are no part of what is read.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], Any]
    bound: bool = True
    ignored: tuple[str, ...] = (".lock",)


KINDS = {
    "checkpoint": Kind(core_files.make_checkpoint, core_files.read_checkpoint),
    "log": Kind(core_files.make_log, core_files.read_log, bound=False),
    "memo": Kind(kept_values.make_memo, kept_values.read_memo),
    "recall_run": Kind(kept_values.make_recall_run, kept_values.read_recall_run),
}
"""What is tried, and how often: some thousand mutations in all."""
N = {"checkpoint": 150, "log": 60, "memo": 60, "recall_run": 80}


def same(one: Any, other: Any) -> bool:
    """Equal, bit for bit where there are arrays."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(one[k], other[k]) for k in one)
        )
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


@contextmanager
def limits() -> Iterator[None]:
    """A second's work and a gigabyte are more than these files justify."""

    def late(*arguments: object) -> None:
        raise TimeoutError("took too long")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, before[1]))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGALRM, handler)


def outcome(kind: Kind, folder: Path, path: Path, right: Any) -> str:
    """`right`, `refused`, or what went wrong."""
    try:
        with limits():
            found = kind.read(folder)
    except (ValueError, OSError) as error:
        if isinstance(error, TimeoutError):
            return "hung"
        return (
            "refused" if path.name in str(error) else f"unnamed: {type(error).__name__}: {str(error)[:200]}"
        )
    except Exception as error:  # noqa: BLE001 - what must not come out is what is looked for
        return f"bare: {type(error).__name__}: {str(error)[:200]}"
    return "right" if not kind.bound or same(found, right) else "believed"


def outcomes(kind: Kind, folder: Path, seed: int, n: int) -> Iterator[tuple[str, str]]:
    """What came of n mutations and of every kind of no file, with a description of each."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    kind.make(folder)
    right = kind.read(folder)
    assert same(kind.read(folder), right)
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in kind.ignored)
    for k in range(n):
        path = paths[k % len(paths)]
        with replaced(path, mutated(rng, path.read_bytes(), path.suffix)):
            yield outcome(kind, folder, path, right), f"mutation {k} of {path.relative_to(folder)}"
    for path in paths:
        for what in NO_FILES:
            with no_file(path, what):
                result = outcome(kind, folder, path, right)
            if result.startswith("unnamed: FileNotFoundError") or (result == "believed" and what == "absent"):
                result = "absent"  # a missing file may mean that the thing isn't there at all
            yield result, f"{path.relative_to(folder)} is a {what}"
    assert same(kind.read(folder), right)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_outcome_is_the_right_data_or_one_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    wrong = [
        f"{result}: {what}"
        for result, what in outcomes(KINDS[name], tmp_path / name, 11, N[name])
        if result not in ("right", "refused", "absent")
    ]
    assert not wrong, f"{len(wrong)} outcomes: " + "; ".join(wrong[:5])


def test_the_harness_finds_what_it_looks_for(tmp_path: Path) -> None:
    """A reader that believes everything is caught believing, breaking and leaving files unnamed."""

    def make(folder: Path) -> None:
        (folder / "a.json").write_text('{"n": [1, 2, 3]}')

    kind = Kind(make, lambda folder: json.loads((folder / "a.json").read_text())["n"])
    found = collections.Counter(result.split(":")[0] for result, _ in outcomes(kind, tmp_path, 0, 60))
    assert found["believed"] > 5
    assert found["bare"] + found["unnamed"] > 5


if __name__ == "__main__":
    import tempfile

    name, seed, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for result, what in outcomes(KINDS[name], Path(scratch) / name, seed, n):
            counts[result.split(":")[0]] += 1
            if result not in ("right", "refused", "absent"):
                sys.stdout.write(f"{result} ({what})\n")
    sys.stdout.write(f"{name}: {dict(counts)}\n")
