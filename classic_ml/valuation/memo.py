"""Values of sets that were paid for once: kept in memory, and in a file that an interrupted run picks up."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from interp.core.files import atomic_write

SECONDS_BETWEEN_SAVES = 30.0
DIGEST_BYTES = 16


def digest(indices: np.ndarray) -> bytes:
    """The key of a set, given as sorted int64 indices: 16 bytes however large the set."""
    return hashlib.blake2b(indices.tobytes(), digest_size=DIGEST_BYTES).digest()


class Memo(dict[bytes, float]):
    """A dictionary from `digest` to value; with `path` it is read from and written to that file.

    `fingerprint` says which utility the values belong to; a file written for another one is a ValueError.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, fingerprint: str = "") -> None:
        super().__init__()
        self.path = None if path is None else Path(path)
        self.fingerprint = fingerprint
        self._saved_at = time.monotonic()
        self._saved_length = 0
        if self.path is not None and self.path.is_dir():
            raise ValueError(f"memo_file = {str(path)!r} is a folder; name a file in it")
        if self.path is not None and self.path.exists():
            self._read(self.path)

    def _read(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                known = (file.metadata() or {}).get("fingerprint")
                keys, values = file.get_tensor("digests"), file.get_tensor("values")
        except SafetensorError as error:
            raise ValueError(
                f"memo_file = {str(path)!r} is not a file of utilities ({error}); name another"
            ) from error
        if known != self.fingerprint:
            raise ValueError(
                f"memo_file = {str(path)!r} was written for another utility (model or data differ); "
                "name another file or delete this one"
            )
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
        with atomic_write(self.path) as temporary:
            save_file(tensors, temporary, metadata={"fingerprint": self.fingerprint})
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
