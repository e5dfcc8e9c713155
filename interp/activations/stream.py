"""Sources of activations: a store, a live model, a tensor. The trainer can't tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.activations.live_stream import LiveStream
from interp.activations.source import ActivationBatch, ActivationSource, Provenance, RowCounts
from interp.activations.store_stream import StoreStream
from interp.core.device import make_generator

__all__ = [
    "ActivationBatch",
    "ActivationSource",
    "LiveStream",
    "Provenance",
    "RowCounts",
    "StoreStream",
    "TensorStream",
]


class TensorStream(ActivationSource):
    """Rows of a tensor, an array or a memory-mapped array [n d], in a new random order every epoch.

    The permutation takes 8 bytes a row. Rows of a memory-mapped file are read one by one: for a file larger
    than memory on a slow disk, a store is faster. Batches say -1 for tokens and positions, and the row's
    number for the document.

    Args:
        array: the rows; of several sites side by side.
        seed: determines, with the epoch, the order.
        dtype: type of the batches; None: the array's.
        widths: columns of each of several sites. Empty: one.

    Raises:
        TypeError: not numbers with a fraction.
        ValueError: not [n d], no rows, or (when a batch is served) NaN or Inf.
    """

    def __init__(
        self,
        array: Tensor | np.ndarray,
        *,
        seed: int = 0,
        dtype: torch.dtype | None = torch.float32,
        widths: Sequence[int] = (),
    ) -> None:
        if not isinstance(array, Tensor | np.ndarray):
            raise TypeError(f"array is a {type(array).__name__}: give a torch tensor or a NumPy array [n d]")
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(f"array has shape {tuple(array.shape)}: give rows and columns, [n d]")
        floating = (
            array.is_floating_point()
            if isinstance(array, Tensor)
            else np.issubdtype(array.dtype, np.floating)
        )
        if not floating:
            raise TypeError(f"array holds {array.dtype}: activations are floating-point numbers")
        widths = tuple(widths) or (array.shape[1],)
        if sum(widths) != array.shape[1] or min(widths) < 1:
            raise ValueError(
                f"widths = {widths} must be positive and add up to the array's {array.shape[1]} columns"
            )
        names = ["tensor"] if len(widths) == 1 else [f"tensor.{i}" for i in range(len(widths))]
        sites = dict(zip(names, widths, strict=True))
        super().__init__(sites=sites, counts=RowCounts(array.shape[0]), seed=seed)
        self._array, self._dtype = array, dtype
        self._epoch_order: tuple[int, Tensor] | None = None

    def sample(self, n: int, seed: int = 0) -> Float[Tensor, "n d"]:
        if n < 1:
            raise ValueError(f"sample(n={n}): ask for at least one row")
        order = torch.randperm(len(self), generator=make_generator(seed, "sample"))
        return self._take(order[:n].sort().values)

    def _rows(self, epoch: int, first: int, last: int, step: int) -> ActivationBatch:
        if self._epoch_order is None or self._epoch_order[0] != epoch:
            generator = make_generator(self.seed, "rows", epoch)
            self._epoch_order = (epoch, torch.randperm(len(self), generator=generator))
        rows = self._epoch_order[1][first:last:step]
        unknown = torch.full_like(rows, -1)
        return ActivationBatch(self._take(rows), unknown, unknown, rows)

    def _take(self, rows: Tensor) -> Tensor:
        if isinstance(self._array, Tensor):
            values: Any = self._array[rows.to(self._array.device)]
        else:
            # Ascending rows, so that a memory-mapped file is read forwards.
            ascending, places = rows.sort()
            values = torch.from_numpy(np.asarray(self._array[ascending.numpy()]))[places.argsort()]
        return values if self._dtype is None else values.to(self._dtype)
