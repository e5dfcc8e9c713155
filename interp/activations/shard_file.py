"""One shard on disk: a safetensors file, written and hashed in a single pass and read without a copy.

The file is an ordinary safetensors file that any tool opens. We write it ourselves because the library builds
a second copy of the data and hides the operating system's error when a disk fills up; we read it ourselves
because a shuffled reader wants runs of rows straight in its own buffer. It is never mapped: a mapped file that is
cut while it is open ends the process with a bus error.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.core.files import atomic_write, open_regular
from interp.core.tensor_files import header_bytes, tensor_layout

_CHUNK_BYTES = 1 << 24
_GAP_BYTES = 1024  # rows nearer to each other than this are read in one go

Layout = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


def file_bytes(layout: Layout, metadata: Mapping[str, str]) -> int:
    """Size of the finished file."""
    data = sum(math.prod(shape) * dtype.itemsize for dtype, shape in layout.values())
    return len(header_bytes(layout, metadata)) + data


def write_shard(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], values: Collection[str]
) -> tuple[str, str]:
    """Write the tensors in this order, atomically; `values` are the last of them.

    Returns:
        SHA-256 of the file, and of its head: the part before the values.

    Raises:
        OSError: the disk is full, say.
    """
    header = header_bytes({name: (t.dtype, tuple(t.shape)) for name, t in tensors.items()}, metadata)
    digest = hashlib.sha256(header)
    head: str | None = None
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(header)
        for name, tensor in tensors.items():
            if head is None and name in values:
                head = digest.hexdigest()
            data = _bytes(tensor.contiguous())
            for start in range(0, len(data), _CHUNK_BYTES):
                chunk = data[start : start + _CHUNK_BYTES]
                digest.update(chunk)
                file.write(chunk)
    whole = digest.hexdigest()
    return whole, whole if head is None else head


@dataclass(frozen=True)
class _Place:
    start: int
    row_bytes: int
    dtype: torch.dtype
    row_shape: tuple[int, ...]


class ShardFile:
    """A shard that has exactly the header that its store's manifest asks for.

    Its path is all that is kept of it, no descriptor: a store has many shards.

    Raises:
        ValueError: the file isn't the one that the manifest describes; it is named.
        OSError: it isn't there or may not be read.
    """

    def __init__(self, path: Path, layout: Layout, metadata: Mapping[str, str]) -> None:
        self.path = path
        expected = header_bytes(layout, metadata)
        with open_regular(path) as file:
            header = file.read(len(expected))
            size = file.seek(0, 2)
        if header != expected:
            there = tensor_layout(path)  # which says what is wrong where it can't be read
            if there.metadata != metadata:
                raise ValueError(f"shard {path} belongs to another store, or to another place in this one")
            raise ValueError(f"shard {path} is damaged: its header doesn't hold what the manifest says")
        if size != file_bytes(layout, metadata):
            raise ValueError(f"shard {path} is truncated: it has {size} bytes")
        self._places: dict[str, _Place] = {}
        offset = len(expected)
        for name, (dtype, shape) in layout.items():
            row_bytes = math.prod(shape[1:]) * dtype.itemsize
            self._places[name] = _Place(offset, row_bytes, dtype, shape[1:])
            offset += shape[0] * row_bytes

    def sha256(self, before: str | None = None) -> str:
        """Of the file, or of its head: what comes before a tensor."""
        digest = hashlib.sha256()
        left = math.inf if before is None else self._places[before].start
        with open_regular(self.path) as file:
            while left and (block := file.read(int(min(left, 1 << 20)))):
                digest.update(block)
                left -= len(block)
        return digest.hexdigest()

    def read_rows(self, first: int, out: Mapping[str, Tensor]) -> None:
        """Read rows from `first` on into tensors (contiguous, of the stored type), by name."""
        with open_regular(self.path) as file:
            for name, target in out.items():
                if target.numel():
                    place = self._places[name]
                    self._fill(file.raw, place.start + first * place.row_bytes, _bytes(target))

    def take(self, name: str, rows: np.ndarray) -> Tensor:
        """Some rows, in any order; those that lie close together are read in one go."""
        place = self._places[name]
        wanted, back = np.unique(rows, return_inverse=True)
        cuts = np.flatnonzero(np.diff(wanted) > max(1, _GAP_BYTES // place.row_bytes)) + 1
        firsts, lasts = wanted[np.append(0, cuts)], wanted[np.append(cuts, len(wanted)) - 1]
        ends = np.cumsum(lasts + 1 - firsts)
        starts = ends - (lasts + 1 - firsts)
        block = torch.empty(int(ends[-1]), *place.row_shape, dtype=place.dtype)
        target = _bytes(block)
        with open_regular(self.path) as file:
            offsets = place.start + firsts * place.row_bytes
            bounds = np.stack([starts, ends], axis=1) * place.row_bytes
            for offset, (start, end) in zip(offsets.tolist(), bounds.tolist(), strict=True):
                self._fill(file.raw, offset, target[start:end])
        run = np.searchsorted(firsts, wanted, side="right") - 1
        return block[torch.from_numpy((starts[run] + wanted - firsts[run])[back])]

    def _fill(self, raw: Any, offset: int, target: memoryview) -> None:
        raw.seek(offset)
        while len(target):
            count = raw.readinto(target)
            if not count:
                raise ValueError(f"shard {self.path} is truncated: it ended while rows were being read")
            target = target[count:]


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.view(torch.uint8).numpy().data.cast("B")
