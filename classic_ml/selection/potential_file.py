"""The pool's kernel potential on disk: hours of work on a long pool, resumed after an interruption and used again."""

from __future__ import annotations

import hashlib
import os
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor

from interp.core.files import atomic_write, parse_json
from interp.core.identity import Identity, canonical
from interp.core.tensor_files import read_tensors, tensor_layout

SECONDS_BETWEEN_SAVES = 30.0
_PIECE = 2**19  # words of 8 bytes


class PotentialFile:
    """Sums of kernel values over the tiles that are done, with the identity of what they are sums of."""

    def __init__(self, path: str | os.PathLike[str], n: int, n_tiles: int, identity: Identity) -> None:
        self.path, self.n, self.n_tiles, self.identity = Path(path), n, n_tiles, identity
        self.saved_at = time.monotonic()

    def load(self) -> tuple[int, Float[Tensor, " n"]]:
        """Tiles done and their sums; 0 and zeros where there is no file.

        Raises ValueError when the file is of another pool, kernel or block size, or is damaged or no such file.
        """
        if self.path.is_dir():
            raise ValueError(f"{self.path} is a folder; name a file in it")
        if not self.path.exists():
            return 0, torch.zeros(self.n, dtype=torch.float64)
        try:
            metadata = tensor_layout(self.path).metadata
            kept = Identity.from_dict(parse_json(metadata.get("identity", ""), self.path), self.path)
        except ValueError as error:
            raise self._damaged(error) from error
        self.identity.check(kept, self.path, "another pool, kernel, sigma or block_size needs another file")
        try:
            stored = read_tensors(self.path, {"progress": (1,), "sums": (self.n,)}, floating=False)
        except ValueError as error:
            raise self._damaged(error) from error
        done, sums = int(stored["progress"]), stored["sums"]
        kinds = (stored["progress"].dtype, sums.dtype) == (torch.int64, torch.float64)
        if not kinds or metadata.get("sha256") != _sha256(done, sums) or not 0 <= done <= self.n_tiles:
            raise self._damaged("its sums were changed after they were written")
        return done, sums

    def save(self, done: int, sums: Float[Tensor, " n"], *, at_once: bool = False) -> None:
        """Write the state if the last time was a while ago, or `at_once`."""
        if at_once or time.monotonic() - self.saved_at >= SECONDS_BETWEEN_SAVES:
            sums = sums.cpu()
            metadata = {"identity": canonical(self.identity.to_dict()), "sha256": _sha256(done, sums)}
            with atomic_write(self.path) as temporary:
                save_file({"progress": torch.tensor([done]), "sums": sums}, temporary, metadata)
            self.saved_at = time.monotonic()

    def _damaged(self, error: object) -> ValueError:
        return ValueError(f"{self.path} is no kernel potential ({error}); delete it or name another")


def _sha256(done: int, sums: Float[Tensor, " n"]) -> str:
    return hashlib.sha256(np.int64(done).tobytes() + sums.numpy().tobytes()).hexdigest()


def array_digest(X: np.ndarray) -> str:
    """What every bit of an array goes into, with its dtype and shape, at about a second a gigabyte.

    Per 4 MiB two sums modulo 2^64 are hashed: of its 8-byte words, and of their upper halves, each times odd numbers.
    One word changed shows for certain, several but for a chance of 2^-33. (The first sum alone would let two changed
    sign bits cancel: an odd number times 2^63 is 2^63.) SHA-256 of all bytes would take five times as long.
    """
    low, high = _odd_numbers()
    digest = hashlib.sha256(f"{X.dtype.str} {X.shape}".encode())
    X = X.reshape(len(X), -1)
    rows = max(1, 8 * _PIECE // max(1, X[:1].nbytes))
    for a in range(0, len(X), rows):
        data = np.ascontiguousarray(X[a : a + rows]).reshape(-1).view(np.uint8)
        if len(data) % 8:
            data = np.concatenate([data, np.zeros(-len(data) % 8, np.uint8)])
        words = data.view(np.uint64)
        for piece in (words[b : b + _PIECE] for b in range(0, len(words), _PIECE)):
            sums = [
                np.dot(piece, low[: len(piece)]),
                np.dot(piece >> np.uint64(32), high[: len(piece)]),
            ]
            digest.update(np.array([len(piece), *sums], np.uint64).tobytes())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _odd_numbers() -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(0).integers(2**64 - 1, size=(2, _PIECE), dtype=np.uint64)
    low, high = numbers | np.uint64(1)
    return low, high
