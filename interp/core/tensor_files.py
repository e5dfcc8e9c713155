"""Safetensors files: written and hashed in one pass, and held against size and expectation before they are believed.

They are ordinary files that any tool opens. We write them ourselves because the library builds a second copy of the
data, hides the operating system's error when a disk fills up, and orders metadata differently from run to run; we read
them ourselves because a mapped file that is cut while it is open ends the process with a bus error.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

import torch
from torch import Tensor

from interp.core.files import open_regular, parse_json

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
_CHUNK_BYTES = 1 << 24
_LARGEST_HEADER = 100_000_000  # of the format's own readers
_LARGEST_SIZE = 2**62
_COPY = "copy it again"


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> str:
    """Write tensors to a new file (see `atomic_write` for one that takes another's place) and return its SHA-256.

    The bytes are a pure function of the arguments. Raises OSError when the disk is full, TypeError for a dtype that
    the format doesn't know.
    """
    for name, tensor in tensors.items():
        if tensor.dtype not in CODES:
            raise TypeError(f"tensor {name!r} is {tensor.dtype}, which {os.fspath(path)} can't hold")
    # Widest type first, so that each of them lies aligned.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])))
    header = header_bytes({name: (t.dtype, tuple(t.shape)) for name, t in ordered.items()}, metadata)
    digest = hashlib.sha256(header)
    with open(path, "wb") as file:
        file.write(header)
        for tensor in ordered.values():
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            data = flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")
            for start in range(0, len(data), _CHUNK_BYTES):
                chunk = data[start : start + _CHUNK_BYTES]
                digest.update(chunk)
                file.write(chunk)
    return digest.hexdigest()


def header_bytes(
    layout: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: Mapping[str, str] | None = None
) -> bytes:
    """The header of a file of such tensors, which lie in the order given."""
    entries: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    offset = 0
    for name, (dtype, shape) in layout.items():
        end = offset + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


@dataclass(frozen=True)
class TensorEntry:
    """Where a tensor lies in its file: bytes start..end-1 from the file's beginning."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class TensorLayout:
    """What a safetensors file holds, by its header, which fits the file's size exactly."""

    entries: dict[str, TensorEntry]
    metadata: dict[str, str]


def tensor_layout(path: str | os.PathLike[str]) -> TensorLayout:
    """The header of a safetensors file.

    Raises:
        ValueError: not a regular file, or a header that can't be read, that contradicts itself or the file's size.
        OSError: it isn't there or may not be read.
    """
    with open_regular(path) as file:
        return _layout(file, os.fspath(path))


def read_tensors(
    path: str | os.PathLike[str],
    expected: Mapping[str, tuple[int, ...]] | None = None,
    *,
    floating: bool = True,
    finite: bool = True,
) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the CPU. No more memory is taken than the file is long.

    Args:
        expected: names and shapes that the file must have, no more and no fewer; None takes what there is.
        floating: whether every tensor must be of floating point.
        finite: whether every number must be finite.

    Raises:
        ValueError: as `tensor_layout`, or a tensor other than expected; file and tensor are named.
        OSError: it isn't there or may not be read.
    """
    where = os.fspath(path)
    with open_regular(path) as file:
        layout = _layout(file, where)
        _check_names(layout, expected, where)
        for name, entry in layout.entries.items():
            if floating and not entry.dtype.is_floating_point:
                raise ValueError(
                    f"{where}: tensor {name!r} is {_dtype(entry)}, not of floating point; {_COPY}"
                )
        tensors = {name: _read(file, entry, where) for name, entry in layout.entries.items()}
    if finite:
        for name, tensor in tensors.items():
            check_finite(tensor, name, where)
    return tensors


def check_finite(tensor: Tensor, name: str, where: str | os.PathLike[str]) -> None:
    """Raise ValueError where a tensor that was read from a file has NaN or infinite values."""
    if tensor.dtype.is_floating_point and not bool(tensor.isfinite().all()):
        bad = int((~tensor.isfinite()).sum())
        raise ValueError(
            f"{os.fspath(where)}: tensor {name!r} has {bad} NaN or infinite values; {_COPY} or train it again"
        )


def _check_names(layout: TensorLayout, expected: Mapping[str, tuple[int, ...]] | None, where: str) -> None:
    if expected is None:
        return
    for name in layout.entries:
        if name not in expected:
            raise ValueError(f"{where}: tensor {name!r} doesn't belong here; expected {', '.join(expected)}")
    for name, shape in expected.items():
        if name not in layout.entries:
            raise ValueError(
                f"{where}: tensor {name!r} is missing; there are {', '.join(layout.entries) or 'none'}"
            )
        found = layout.entries[name].shape
        if found != tuple(shape):
            raise ValueError(f"{where}: tensor {name!r} has shape {found}, expected {tuple(shape)}")


def _layout(file: BufferedReader, where: str) -> TensorLayout:
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _LARGEST_HEADER):
        raise ValueError(
            f"{where} is cut short or no safetensors file: its header doesn't fit in it; {_COPY}"
        )
    header = parse_json(file.read(length), f"{where}, its header,")
    if not isinstance(header, dict):
        raise ValueError(f"{where} is damaged: its header is a {type(header).__name__}; {_COPY}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError(f"{where} is damaged: its metadata are not texts; {_COPY}")
    entries = {
        name: _entry(fields, 8 + length, f"{where}: tensor {name!r}") for name, fields in header.items()
    }
    end = 8 + length
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != end:
            raise ValueError(
                f"{where} is damaged: tensor {name!r} doesn't begin where the one before it ends; {_COPY}"
            )
        end = entry.end
    if end != size:
        raise ValueError(f"{where} is cut short or damaged: {size} bytes, {end} by its header; {_COPY}")
    return TensorLayout(entries, metadata)


def _entry(fields: Any, base: int, where: str) -> TensorEntry:
    known = isinstance(fields, dict) and set(fields) == {"dtype", "shape", "data_offsets"}
    if not known or not (_sizes(fields["shape"]) and _sizes(fields["data_offsets"], 2)):
        raise ValueError(f"{where} is not described as a tensor is (dtype, shape, data_offsets); {_COPY}")
    dtype = DTYPES.get(fields["dtype"]) if isinstance(fields["dtype"], str) else None
    if dtype is None:
        raise ValueError(f"{where} has dtype {fields['dtype']!r}; known: {', '.join(DTYPES)}")
    shape, (start, end) = tuple(fields["shape"]), fields["data_offsets"]
    expected = math.prod(shape) * dtype.itemsize  # of Python's integers: no product overflows
    if end - start != expected:
        raise ValueError(f"{where} has {end - start} bytes, its shape {shape} asks for {expected}; {_COPY}")
    return TensorEntry(dtype, shape, base + start, base + end)


def _sizes(value: Any, length: int | None = None) -> bool:
    right = isinstance(value, list) and all(type(n) is int and 0 <= n <= _LARGEST_SIZE for n in value)
    return right and (length is None or len(value) == length)


def _read(file: BufferedReader, entry: TensorEntry, where: str) -> Tensor:
    out = torch.empty(entry.shape, dtype=entry.dtype)
    if out.numel():
        file.seek(entry.start)
        target = out.reshape(-1).view(torch.uint8).numpy().data
        if file.readinto(target) != len(target):
            raise ValueError(f"{where} was cut short while it was read; {_COPY}")
    return out


def _dtype(entry: TensorEntry) -> str:
    return str(entry.dtype).removeprefix("torch.")
