"""In which precision the dense products run: torch's autocast decides, where the processor can follow."""

from __future__ import annotations

import functools
import logging

import torch

from interp.core.device import cpu_has_bf16
from interp.core.messages import warn_once

_log = logging.getLogger(__name__)


def product_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """bfloat16 for float32 data under ``torch.autocast(dtype=torch.bfloat16)``, else `dtype` itself.

    A CPU without native bfloat16 keeps float32, which is faster there and exact, and says so once.
    """
    asked = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) == torch.bfloat16
    if not asked or dtype != torch.float32:
        return dtype
    if device.type == "cpu" and not native_bf16():
        warn_once(_log, "bf16", "this CPU has no native bfloat16: SAE products stay in float32")
        return dtype
    return torch.bfloat16


@functools.cache
def native_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 (looked up once: it's asked at every step)."""
    return cpu_has_bf16()
