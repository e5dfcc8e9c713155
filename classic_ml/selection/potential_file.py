"""The pool's kernel potential on disk: hours of work on a long pool, resumed after an interruption and used again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp.core.files import atomic_write

SECONDS_BETWEEN_SAVES = 30.0


class PotentialFile:
    """Sums of kernel values over the tiles that are done, and two kernel rows by which the pool is recognised."""

    def __init__(self, path: str | os.PathLike[str], block_size: int, rows: Float[Tensor, "2 n"]) -> None:
        self.path, self.block_size, self.rows = Path(path), block_size, rows.cpu()
        self.saved_at = time.monotonic()

    def load(self) -> tuple[int, Float[Tensor, " n"]]:
        """Tiles done and their sums; 0 and zeros where there is no file.

        Raises ValueError when the file is of another pool, kernel or block size, or is no such file.
        """
        if self.path.is_dir():
            raise ValueError(f"{self.path} is a folder; name a file in it")
        if not self.path.exists():
            return 0, torch.zeros(self.rows.shape[1], dtype=torch.float64)
        try:
            stored = load_file(self.path)
            done, block_size = stored["progress"].tolist()
            same = stored["rows"].shape == self.rows.shape and torch.allclose(
                stored["rows"], self.rows, atol=1e-5
            )
        except (SafetensorError, KeyError, ValueError) as error:
            raise ValueError(
                f"{self.path} is no kernel potential ({error}); delete it or name another"
            ) from error
        if not same or block_size != self.block_size:
            raise ValueError(
                f"{self.path} holds the potential of another pool, kernel, sigma or block_size; name another file"
            )
        return done, stored["sums"]

    def save(self, done: int, sums: Float[Tensor, " n"], *, at_once: bool = False) -> None:
        """Write the state if the last time was a while ago, or `at_once`."""
        if at_once or time.monotonic() - self.saved_at >= SECONDS_BETWEEN_SAVES:
            progress = torch.tensor([done, self.block_size])
            with atomic_write(self.path) as temporary:
                save_file({"progress": progress, "sums": sums.cpu(), "rows": self.rows}, temporary)
            self.saved_at = time.monotonic()
