"""What every launch shares: which tensors are taken, on which device it runs, how a width is cut into blocks."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from interp.sae.kernels.dispatch import TRITON_WIDEST


def check(interpretable: Any, *tensors: Tensor | None) -> None:
    """Refuse what the kernels cannot take.

    Raises:
        TypeError: a tensor is not float32 (parameters and sums are; the encoder product may be narrower).
        ValueError: tensors are not on a CUDA device (unless Triton's interpreter is on), or too wide.
    """
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.dtype != torch.float32:
            raise TypeError(
                f"the Triton kernels take float32, got {tensor.dtype}: convert it, or use backend='dense'"
            )
        if tensor.device.type != "cuda" and isinstance(interpretable, triton.runtime.JITFunction):
            raise ValueError(
                f"backend='triton' needs tensors on a CUDA device, got {tensor.device}: move them, or use "
                "backend='auto' (numba on a CPU), or set TRITON_INTERPRET=1 before importing triton to debug"
            )
        if tensor.dim() == 2 and tensor.shape[1] > TRITON_WIDEST:
            raise ValueError(f"width d={tensor.shape[1]} is over {TRITON_WIDEST}: use backend='dense'")


def check_in_place(tensors: NamedTuple) -> None:
    """Refuse what a kernel would write to in the wrong places.

    Raises:
        ValueError: a tensor is not contiguous.
    """
    for name, tensor in tensors._asdict().items():
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(
                f"{name} has strides {tensor.stride()}: it is updated in place, make it contiguous"
            )


def on_device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device: make it the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.device.type == "cuda" else nullcontext()


def product_precision(device: torch.device) -> str:
    """Precision in which torch would run the same product here: ``"bf16"``, ``"tf32"`` or ``"ieee"``.

    bfloat16 under ``torch.autocast``; TF32 where ``torch.set_float32_matmul_precision("high")`` (or
    ``torch.backends.cuda.matmul``) allows it. Sums are float32 in all three.
    """
    if torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) == torch.bfloat16:
        return "bf16"
    matmul = torch.backends.cuda.matmul
    allowed = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return "tf32" if allowed else "ieee"


def gather_blocks(d: int) -> dict[str, int]:
    """Blocks for walking rows of width d piece by piece: about 16 KiB of rows in flight per program."""
    width = min(1024, triton.next_power_of_2(d))
    return {"BLOCK_Q": _rows_in_flight(width), "BLOCK_D": width, "num_warps": 4}


def whole_row_blocks(d: int) -> dict[str, int]:
    """Blocks for holding a row of width d, whole: a thread holds at most 64 numbers of the rows in flight."""
    width = triton.next_power_of_2(d)
    rows = _rows_in_flight(width)
    return {"BLOCK_Q": rows, "BLOCK_D": width, "num_warps": max(1, min(32, width * rows // 2048))}


def _rows_in_flight(width: int) -> int:
    return max(4, min(32, 4096 // width))
