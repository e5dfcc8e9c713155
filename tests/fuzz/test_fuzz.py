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

from tests.fuzz import core_files, kept_values, other_files, sae_files, store_files
from tests.fuzz.mutations import NO_FILES, mutated, no_file, replaced

SECONDS, SPARE_BYTES = 5, 1 << 30


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
        alike = type(one) is type(other) and len(one) == len(other)
        return alike and all(same(*both) for both in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def anything(found: Any, right: Any) -> bool:
    """Of files without a checksum (other libraries', those that people write) another number is another number."""
    return True


@dataclass(frozen=True)
class Kind:
    """Files that belong together.

    Attributes:
        make, read: write a small good folder; read everything of it that a user gets.
        n: how many mutations the test tries.
        agrees: whether what was read is as good as what was written.
        ignored: names of files that are no part of what is read.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], Any]
    n: int = 100
    agrees: Callable[[Any, Any], bool] = same
    ignored: tuple[str, ...] = (".lock",)


KINDS = {
    "checkpoint": Kind(core_files.make_checkpoint, core_files.read_checkpoint),
    "log": Kind(core_files.make_log, core_files.read_log, 60, anything),
    "store": Kind(store_files.make, store_files.read, 200),
    "dictionaries": Kind(sae_files.make, sae_files.read, 300, sae_files.agrees),
    "transcript": Kind(
        other_files.make_transcript, other_files.read_transcript, 80, other_files.no_wrong_reply
    ),
    "memo": Kind(kept_values.make_memo, kept_values.read_memo, 80),
    "recall run": Kind(kept_values.make_recall_run, kept_values.read_recall_run, 60),
    "potential": Kind(other_files.make_potential, other_files.read_potential, 80),
    "probes": Kind(other_files.make_probes, other_files.read_probes),
    "by hand": Kind(other_files.make_people, other_files.read_people, 150, anything),
}


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
            "refused" if path.name in str(error) else f"unnamed: {type(error).__name__}: {str(error)[:500]}"
        )
    except Exception as error:  # noqa: BLE001 - what must not come out is what is looked for
        return f"bare: {type(error).__name__}: {str(error)[:500]}"
    return "right" if kind.agrees(found, right) else "believed"


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
            if what in ("absent", "dangling") and result == "believed":
                result = "absent"  # a file that isn't there may mean that nothing was kept yet
            if result.startswith("unnamed") and path.parent.name in result:
                result = "refused"  # by the folder, which lacks it
            yield result, f"{path.relative_to(folder)} is a {what}"
    assert same(kind.read(folder), right)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_outcome_is_the_right_data_or_one_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    wrong = [
        f"{result}: {what}"
        for result, what in outcomes(KINDS[name], tmp_path / name, 11, KINDS[name].n)
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
