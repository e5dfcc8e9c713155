"""What the Trainer does to a batch: count it, split it, move it.

A batch is a tensor, a tuple or a mapping of tensors with a common number of rows, or an object of its own with
`__len__` and `to(device)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def rows_of(batch: Any) -> int:
    """The number of samples in a batch."""
    if isinstance(batch, Tensor):
        return batch.shape[0]
    if isinstance(batch, tuple):
        return batch[0].shape[0]
    return len(next(iter(batch.values()))) if isinstance(batch, Mapping) else len(batch)


def move(batch: Any, device: torch.device, *, double: bool = False) -> Any:
    """The batch on `device`; `double` makes its floating-point tensors float64."""
    if isinstance(batch, Tensor):
        if device.type == "cuda":
            batch = batch.to(device, non_blocking=batch.is_pinned())
        else:
            batch = batch.to(device)
        return batch.double() if double and batch.is_floating_point() else batch
    if isinstance(batch, tuple):
        return tuple([move(part, device, double=double) for part in batch])
    if isinstance(batch, Mapping):
        return {name: move(part, device, double=double) for name, part in batch.items()}
    return batch.to(device)


def split(batch: Any, parts: int) -> list[Any]:
    """Up to `parts` micro-batches of near-equal size in the order of the rows, none empty if the batch isn't.

    Raises TypeError for an object that is no tensor, tuple or mapping of tensors.
    """
    if parts == 1:
        return [batch]
    parts = min(parts, max(1, rows_of(batch)))
    if isinstance(batch, Tensor):
        return list(batch.tensor_split(parts))
    if isinstance(batch, Mapping):
        pieces = {name: part.tensor_split(parts) for name, part in batch.items()}
        return [{name: piece[i] for name, piece in pieces.items()} for i in range(parts)]
    if isinstance(batch, tuple):
        return list(zip(*(part.tensor_split(parts) for part in batch), strict=True))
    raise TypeError(f"a batch of type {type(batch).__name__} can't be split; set accumulate=1")
