"""The pool's kernel potential on disk: hours of work on a long pool, resumed after an interruption and used again."""

from __future__ import annotations

import hashlib
import os
import time
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
