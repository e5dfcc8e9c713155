"""Files that are whole or absent: atomic writes, JSON, checksums and the cache folder."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import math
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

_QUIET_SECONDS = (
    60  # a writer on another machine, whose process can't be seen here, touches its file more often
)
_RESTORE = "delete it or restore it from a copy"


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is flushed to disk and takes `path`'s place.

    On any exception the temporary file is removed and `path` stays as it was. A crash leaves at most a file named
    `<name>.tmp-<pid>`, which readers ignore and the next write of `path` removes.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def _remove_leftovers(path: Path) -> None:
    """What killed processes left of `path`; a live one's is younger, or its process is there to be seen."""
    for leftover in path.parent.glob(f"{glob.escape(path.name)}.tmp-*"):
        pid = leftover.name.rpartition("-")[2]
        with contextlib.suppress(OSError):  # another process was first
            old = time.time() - leftover.stat().st_mtime > _QUIET_SECONDS
            if pid.isascii() and pid.isdigit() and old and not _alive(int(pid)):
                leftover.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


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
        temporary.write_text(text, encoding="utf-8")


def read_json(
    path: str | os.PathLike[str], kind: type = object, required: Sequence[str] = (), *, nan: bool = False
) -> Any:
    """Read a JSON file and hold it against what it should be.

    Args:
        kind: of the value at the top: `dict`, `list` or any.
        required: keys that a mapping must have.
        nan: whether NaN and infinities, which JSON has not, are let pass (other libraries write them).

    Raises:
        ValueError: not a regular file; not JSON; nested too deeply, a number with thousands of digits, a key that
            comes twice; another kind of value, or a required key missing. It names the file.
        OSError: it isn't there or may not be read.
    """
    path = Path(path)
    value = parse_json(read_regular(path), path, nan=nan)
    if not issubclass(type(value), kind):
        raise ValueError(f"{path} holds a {type(value).__name__}, not a {kind.__name__}; {_RESTORE}")
    if missing := [key for key in required if key not in value]:
        raise ValueError(f"{path} lacks {', '.join(map(repr, missing))}; {_RESTORE}")
    return value


def parse_json(text: str | bytes, where: str | os.PathLike[str], *, nan: bool = False) -> Any:
    """The value of a JSON text from somebody else. Raises ValueError naming `where`, as `read_json` does."""

    def constant(name: str) -> float:
        if not nan:
            raise ValueError(f"{name} is no JSON number")
        return float(name)

    def real(digits: str) -> float:
        number = float(digits)
        if math.isinf(number) and not nan:
            raise ValueError(f"{digits[:20]} is too large a number")
        return number

    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(text, object_pairs_hook=_once, parse_constant=constant, parse_float=real)
    except RecursionError:
        raise ValueError(
            f"{os.fspath(where)} is nested too deeply to be one of our files; {_RESTORE}"
        ) from None
    except ValueError as error:  # of the syntax, the encoding, an integer of thousands of digits, or ours
        raise ValueError(f"{os.fspath(where)} is not valid JSON ({error}); {_RESTORE}") from error


def canonical(value: Any) -> str:
    """JSON of a plain value, the same for equal ones: keys sorted, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def write_sealed_json(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a mapping as `write_json` does, with a checksum of all that it says under "seal"."""
    plain = json.loads(json.dumps(content))
    write_json(path, {**plain, "seal": _seal(plain)})


def read_sealed_json(path: str | os.PathLike[str], required: Sequence[str] = ()) -> dict[str, Any]:
    """What `write_sealed_json` was given. Raises ValueError as `read_json` does, and where a value was changed."""
    content = read_json(path, dict, ("seal", *required))
    seal = content.pop("seal")
    if seal != _seal(content):
        raise ValueError(
            f"{os.fspath(path)} was changed after it was written (its checksum differs); {_RESTORE}"
        )
    return content


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} comes twice")
    return found


def read_json_lines(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The values of a JSON Lines file, blank lines left out. Raises ValueError naming file and line of a broken one."""
    with open_regular(path) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield parse_json(line, f"{os.fspath(path)}, line {number},")


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading bytes. Raises ValueError for a device, a pipe or a folder: they may have no end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{os.fspath(path)} is not a regular file; {_RESTORE}")
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file; see `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def cache_dir() -> Path:
    """Where converted weights are kept: $INTERP_CACHE, else $XDG_CACHE_HOME/interp, else ~/.cache/interp."""
    if own := os.environ.get("INTERP_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "interp"
