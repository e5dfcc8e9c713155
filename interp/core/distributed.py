"""Ranks under torchrun, and the collectives that the toolkit needs, which do nothing without it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from interp.core.device import resolve_device

T = TypeVar("T")


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """This process's number, 0 without torchrun."""
    return dist.get_rank() if _joined() else int(os.environ.get("RANK", 0))


def world_size() -> int:
    """How many processes work together, 1 without torchrun."""
    return dist.get_world_size() if _joined() else int(os.environ.get("WORLD_SIZE", 1))


def local_rank() -> int:
    """This process's number on its machine."""
    return int(os.environ.get("LOCAL_RANK", 0))


def local_world_size() -> int:
    """How many processes work together on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def is_main() -> bool:
    """Whether this is the first process, which alone writes what there is one of."""
    return rank() == 0


def init_from_env(backend: str | None = None) -> None:
    """Join the process group that torchrun describes; nothing to do alone or when already joined."""
    if world_size() == 1 or _joined():
        return
    device = resolve_device("auto")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend or ("nccl" if device.type == "cuda" else "gloo"))


def barrier() -> None:
    """Wait for all ranks."""
    if _joined():
        dist.barrier()


def all_reduce_sum(tensor: Tensor) -> Tensor:
    """The sum over ranks, in place."""
    if _joined():
        dist.all_reduce(tensor)
    return tensor


def from_main(items: Iterable[T]) -> Iterator[T]:
    """The items of rank 0, one by one on every rank; the others' own iterables are never read.

    All ranks must stop at the same item, if they stop before the end. Where rank 0 fails, all do.
    """
    if not _joined():
        yield from items
        return
    source = iter(items)
    while True:
        # What the others get to know when rank 0 doesn't come to an item.
        message: list[tuple[str, Any]] = [("failed", None)]
        try:
            if is_main():
                message = [next((("item", item) for item in source), ("end", None))]
        finally:
            dist.broadcast_object_list(message, src=0)
        kind, value = message[0]
        if kind == "end":
            return
        if kind == "failed":
            raise RuntimeError("rank 0 failed, on which this one waits: its message says why")
        yield value


def gather(value: Any) -> list[Any]:
    """The values of all ranks in order, on every rank; small things only."""
    if not _joined():
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
