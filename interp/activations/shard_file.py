"""One shard on disk: a safetensors file, written and hashed in a single pass and read without copying.

The file is an ordinary safetensors file that any tool opens. We write it ourselves because the library builds
a second copy of the data and hides the operating system's error when a disk fills up; we map it ourselves
because a shuffled reader wants to read a run of rows straight into its own buffer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.core.files import atomic_write

_CODES = {
    torch.int64: "I64",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int8: "I8",
}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}
_CHUNK_BYTES = 1 << 24

Layout = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


def _header(layout: Layout) -> bytes:
    """The header for these tensors, widest type first so that each of them lies aligned."""
    entries: dict[str, Any] = {}
    offset = 0
    for name, (dtype, shape) in sorted(layout.items(), key=lambda item: (-item[1][0].itemsize, item[0])):
        end = offset + int(np.prod(shape)) * dtype.itemsize
        entries[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def file_bytes(layout: Layout) -> int:
    """Size of the finished file."""
    data = sum(int(np.prod(shape)) * dtype.itemsize for dtype, shape in layout.values())
    return len(_header(layout)) + data


def write_shard(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write the tensors atomically and return the file's SHA-256. Raises OSError when the disk is full."""
    layout = {name: (t.dtype, tuple(t.shape)) for name, t in tensors.items()}
    header = _header(layout)
    digest = hashlib.sha256(header)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(header)
        for name in json.loads(header[8:]):
            data = tensors[name].contiguous().view(torch.uint8).numpy().data.cast("B")
            for start in range(0, len(data), _CHUNK_BYTES):
                chunk = data[start : start + _CHUNK_BYTES]
                digest.update(chunk)
                file.write(chunk)
    return digest.hexdigest()


@dataclass(frozen=True)
class _Entry:
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    row_bytes: int


class ShardFile:
    """A finished shard, open for reading; every method may be called from several threads."""

    def __init__(self, path: Path, expected: Layout) -> None:
        self.path = path
        self._entries = _read_header(path)
        found = {name: (entry.dtype, entry.shape) for name, entry in self._entries.items()}
        if found != dict(expected):
            raise ValueError(f"shard {path} is damaged: its header doesn't hold what the manifest says")

    @cached_property
    def _bytes(self) -> Tensor:
        # A private mapping holds no file descriptor, of which a store of many shards would run out.
        size = self.path.stat().st_size
        return torch.from_file(str(self.path), shared=False, size=size, dtype=torch.uint8)

    def tensor(self, name: str) -> Tensor:
        """A tensor mapped from the file: pages are read when they are touched."""
        entry = self._entries[name]
        end = entry.start + entry.shape[0] * entry.row_bytes
        return self._bytes[entry.start : end].view(entry.dtype).view(entry.shape)

    def read_rows(self, name: str, first: int, out: Tensor) -> None:
        """Read rows first..first+len(out)-1 into `out` (contiguous, same type) without mapping them."""
        entry = self._entries[name]
        target = out.view(torch.uint8).numpy().data.cast("B")
        with self.path.open("rb", buffering=0) as file:
            file.seek(entry.start + first * entry.row_bytes)
            done = 0
            while done < len(target):
                count = file.readinto(target[done:])
                if not count:
                    raise ValueError(f"shard {self.path} is truncated: it ended while rows were being read")
                done += count


def _read_header(path: Path) -> dict[str, _Entry]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(min(size, 1 << 24)))
            entries = {}
            for name, fields in header.items():
                shape, start = tuple(fields["shape"]), 8 + size + fields["data_offsets"][0]
                dtype = _DTYPES[fields["dtype"]]
                row_bytes = int(np.prod(shape[1:])) * dtype.itemsize
                entries[name] = _Entry(dtype, shape, start, row_bytes)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"shard {path} is damaged: its header can't be read") from error
    return entries
