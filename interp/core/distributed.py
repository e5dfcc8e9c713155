"""Ranks under torchrun, and a barrier and a sum that are no-ops without it."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor

from interp.core.device import resolve_device


def rank() -> int:
    """This process's number, 0 without torchrun."""
    return int(os.environ.get("RANK", 0))


def world_size() -> int:
    """How many processes work together, 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", 1))


def local_rank() -> int:
    """This process's number on its machine."""
    return int(os.environ.get("LOCAL_RANK", 0))


def is_main() -> bool:
    return rank() == 0


def init_from_env(backend: str | None = None) -> None:
    """Join the process group that torchrun describes; nothing to do alone or when already joined."""
    if world_size() == 1 or dist.is_initialized():
        return
    device = resolve_device("auto")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend or ("nccl" if device.type == "cuda" else "gloo"))


def barrier() -> None:
    """Wait for all ranks."""
    if dist.is_initialized():
        dist.barrier()


def all_reduce_sum(tensor: Tensor) -> Tensor:
    """The sum over ranks, in place."""
    if dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor
