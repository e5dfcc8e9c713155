"""A hash that notices when any one tensor of a model has changed, in a fraction of a second."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

_SAMPLE = 4096
_COMPARABLE = ("architecture", "n_layers", "dtype", "engine", "weight_processing")


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


def of_other_weights(known: Mapping[str, Any] | None, found: Mapping[str, Any]) -> bool:
    """Whether two fingerprints of `LanguageModel.fingerprint` tell of different weights for certain.

    The same weights hash differently in another number format, engine or processing, or with fewer layers loaded:
    of such pairs, and of an unknown one, nothing is said.
    """
    if known is None or any(known.get(key) != found.get(key) for key in _COMPARABLE):
        return False
    return known.get("weights") != found.get("weights")
