"""A hash that notices when any one tensor of a model has changed, in a fraction of a second."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

_SAMPLE = 4096


def weights_hash(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over name, shape and an evenly strided sample of up to 4096 entries of every tensor."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        if tensor.device.type == "meta":
            continue
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // _SAMPLE)].cpu().contiguous()
        digest.update(sample.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
