"""Files that are whole or absent: atomic writes, JSON, checksums and the cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is flushed to disk and takes `path`'s place.

    On any exception the temporary file is removed and `path` stays as it was. A crash leaves at most a file named
    `<name>.tmp-<pid>`, which readers ignore.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def check_folder(argument: str, path: str | os.PathLike[str]) -> None:
    """Raise ValueError unless `path` is a folder to write into or can become one: before long work, not after it."""
    wanted = Path(path).absolute()
    there = next(folder for folder in (wanted, *wanted.parents) if folder.exists())
    if not there.is_dir():
        raise ValueError(f"{argument}={os.fspath(path)!r}: {there} is a file, not a folder; choose another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"{argument}={os.fspath(path)!r}: {there} can't be written to; choose another")


def sync(path: Path) -> None:
    """Force a file, or a folder's list of names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinities are a ValueError: JSON has none."""
    try:
        text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    except ValueError as error:
        raise ValueError(
            f"{path} can't be written: {error}; give None for a number that isn't finite"
        ) from error
    with atomic_write(path) as temporary:
        temporary.write_text(text)


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; a broken one is a ValueError that names it."""
    try:
        return json.loads(Path(path).read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not valid JSON ({error}); delete it or restore it from a copy"
        ) from error


def read_json_lines(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The values of a JSON Lines file, blank lines left out. Raises ValueError naming file and line of a broken one."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}, is not JSON: {error}") from error


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def cache_dir() -> Path:
    """Where converted weights are kept: $INTERP_CACHE, else $XDG_CACHE_HOME/interp, else ~/.cache/interp."""
    if own := os.environ.get("INTERP_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "interp"
