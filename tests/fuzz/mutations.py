"""What can become of a file: flipped bits, cuts, insertions; other JSON values; headers that lie; no file at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Rng = np.random.Generator
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308),
    *("", "x", "/dev/zero", "../x", [], [[]], {}, {"a": 1}),
)
TEXTS = (
    *("[" * 50_000, '{"a":' * 50_000, "9" * 6_000, "NaN", "Infinity", "1e999"),
    *('{"a":1,"a":2}', "", "null", "[]", "3", '"x"'),
)
CODES = ("I32", "F16", "BF16", "I8", "F32", "F64", "I64", "BOOL", "C64", "F8_E4M3", 3)


def mutated(rng: Rng, data: bytes, suffix: str) -> bytes:
    """Other bytes than `data`, of a kind that its suffix suggests."""
    kinds: list[Callable[[Rng, bytes], bytes]] = [_flip, _cut, _insert, _zero, _repeat]
    if suffix in (".json", ".jsonl"):
        kinds += [_json, _json, _json, _json, _text]
    if suffix == ".safetensors":
        kinds += [_header, _header, _header]
    for _ in range(20):
        changed = kinds[rng.integers(len(kinds))](rng, data)
        if changed != data:
            return changed
    return data + b"\0"


def _flip(rng: Rng, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if changed:
            changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _cut(rng: Rng, data: bytes) -> bytes:
    return data[: rng.integers(len(data) + 1)]


def _insert(rng: Rng, data: bytes) -> bytes:
    at = int(rng.integers(len(data) + 1))
    return data[:at] + rng.bytes(int(rng.integers(1, 20))) + data[at:]


def _zero(rng: Rng, data: bytes) -> bytes:
    at = int(rng.integers(len(data) + 1))
    piece = data[at : at + int(rng.integers(1, 64))]
    return data[:at] + b"\0" * len(piece) + data[at + len(piece) :]


def _repeat(rng: Rng, data: bytes) -> bytes:
    at = int(rng.integers(len(data) + 1))
    return data[:at] + data[at // 2 : at] + data[at:]


def _text(rng: Rng, data: bytes) -> bytes:
    return TEXTS[rng.integers(len(TEXTS))].encode()


def _json(rng: Rng, data: bytes) -> bytes:
    """One value of one line, or of the whole, becomes another, goes, or comes twice."""
    try:
        whole = json.loads(data)
    except ValueError:
        lines = data.splitlines(keepends=True)
        if not lines:
            return data
        k = int(rng.integers(len(lines)))
        try:
            json.loads(lines[k])
        except ValueError:
            return data
        lines[k] = _json(rng, lines[k].rstrip(b"\n")) + b"\n"
        return b"".join(lines)
    return json.dumps(_change(rng, whole)).encode()


def _change(rng: Rng, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = list(value)[rng.integers(len(value))]
        if rng.random() < 0.15:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: _change(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        k = int(rng.integers(len(value)))
        if rng.random() < 0.15:
            return value[:k] + value[k + 1 :]
        return [*value[:k], _change(rng, value[k]), *value[k + 1 :]]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.6:
        return value + (1, -1, 5, -5, 0.5)[rng.integers(5)]
    if isinstance(value, str) and value and rng.random() < 0.4:
        at = int(rng.integers(len(value)))
        return value[:at] + "#" + value[at + 1 :]
    return STRANGE[rng.integers(len(STRANGE))]


def _header(rng: Rng, data: bytes) -> bytes:
    """A safetensors header that says something else, with its length put right."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError:
        return data
    names = [name for name in header if name != "__metadata__"]
    if names and rng.random() < 0.7:
        entry = header[names[rng.integers(len(names))]]
        field = ("dtype", "dtype", "shape", "data_offsets")[rng.integers(4)]
        if field == "dtype":
            entry[field] = ("I32", "F16", "BF16", "I8", "F32", "F64", "I64", "BOOL", "C64", "F8_E4M3", 3)[
                rng.integers(11)
            ]
        else:
            entry[field] = _change(rng, entry[field])
    else:
        header = _change(rng, header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


@contextmanager
def replaced(path: Path, content: bytes) -> Iterator[None]:
    """`path` holds other bytes for a while."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


NO_FILES = ("pipe", "folder", "absent", "dangling", "device", "empty")


@contextmanager
def no_file(path: Path, kind: str) -> Iterator[None]:
    """`path` is something that is no regular file with content, for a while."""
    before = path.read_bytes()
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "empty":
        path.touch()
    try:
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.write_bytes(before)
