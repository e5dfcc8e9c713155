"""Values of sets that were paid for once: kept in memory, and in a file that an interrupted run picks up."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from interp.core.files import atomic_write, parse_json
from interp.core.identity import Identity

SECONDS_BETWEEN_SAVES = 30.0
DIGEST_BYTES = 16


def digest(indices: np.ndarray) -> bytes:
    """The key of a set, given as sorted int64 indices: 16 bytes however large the set."""
    return hashlib.blake2b(indices.tobytes(), digest_size=DIGEST_BYTES).digest()


def _sum(tensors: Mapping[str, Any]) -> str:
    """SHA-256 of the sets and their values."""
    parts = (np.ascontiguousarray(tensors[name]) for name in ("digests", "values"))
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


class Memo(dict[bytes, float]):
    """A dictionary from `digest` to value; with `path` it is read from and written to that file.

    `identity` says which utility the values belong to; a file written for another one is a ValueError.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, identity: Identity | None = None) -> None:
        super().__init__()
        self.path = None if path is None else Path(path)
        self.identity = identity
        self._saved_at = time.monotonic()
        self._saved_length = 0
        if self.path is not None and self.path.is_dir():
            raise ValueError(f"memo_file = {str(path)!r} is a folder; name a file in it")
        if self.path is not None and os.path.lexists(self.path):
            self._read(self.path)

    def _read(self, path: Path) -> None:
        from interp.core.tensor_files import read_tensors, tensor_layout

        layout = tensor_layout(path)
        n = layout.entries["values"].shape[:1] if "values" in layout.entries else (0,)
        found = read_tensors(path, {"digests": (*n, DIGEST_BYTES), "values": n}, floating=False)
        if self.identity is not None:
            kept = layout.metadata.get("identity")
            known = None if kept is None else Identity.from_dict(parse_json(kept, path), path)
            self.identity.check(known, path, "name another file or delete this one")
        keys, values = (found[name].numpy() for name in ("digests", "values"))
        if keys.dtype != np.uint8 or values.dtype != np.float64 or layout.metadata.get("sum") != _sum(found):
            raise ValueError(f"{path} was changed after it was written; delete it or restore it from a copy")
        self.update(zip((key.tobytes() for key in keys), values.tolist(), strict=True))
        self._saved_length = len(self)

    def save(self) -> None:
        """Write the file, if there is one and it would change."""
        if self.path is None or len(self) == self._saved_length:
            return
        from safetensors.numpy import save_file

        keys = np.frombuffer(b"".join(self), np.uint8).reshape(-1, DIGEST_BYTES)
        tensors: dict[str, np.ndarray] = {
            "digests": keys,
            "values": np.fromiter(self.values(), np.float64, len(self)),
        }
        about = {"sum": _sum(tensors)}
        if self.identity is not None:
            about["identity"] = json.dumps(self.identity.to_dict())
        with atomic_write(self.path) as temporary:
            save_file(tensors, temporary, metadata=about)
        self._saved_at, self._saved_length = time.monotonic(), len(self)

    def save_if_due(self) -> None:
        """Write the file if the last time was more than half a minute ago."""
        if time.monotonic() - self._saved_at > SECONDS_BETWEEN_SAVES:
            self.save()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Save when the block ends, Ctrl-C and exceptions included."""
        try:
            yield
        finally:
            self.save()
