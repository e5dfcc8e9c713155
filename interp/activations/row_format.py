"""How a row of activations is stored: bfloat16, float16, float32, or int8 with a scale for each token.

Relative error of one number: bfloat16 at most 2**-8 (0.4 %), float16 2**-11 up to 65,504. int8 is symmetric,
scale = max|x| / 127 for each row, so the error is at most half a scale: cheap to store, coarse where a few
coordinates dwarf the others, and therefore never the default.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from interp.core.messages import one_of

STORED_DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "int8": torch.int8,
}
_SHORT_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def stored_dtype_name(dtype: str | torch.dtype) -> str:
    """The one name of a type ("bf16", torch.bfloat16: "bfloat16"); ValueError for one not stored."""
    name = str(dtype).removeprefix("torch.")
    name = _SHORT_NAMES.get(name, name)
    one_of("dtype", name, tuple(STORED_DTYPES))
    return name


@dataclass(frozen=True)
class EncodedRows:
    """Rows ready for the store, still on the device that made them.

    `norms` are the Euclidean norms before rounding; `finite` is False where a row is NaN or Inf, or has
    become so by rounding.
    """

    values: Shaped[Tensor, "n d"]
    scale: Float[Tensor, "n 1"] | None
    norms: Float[Tensor, " n"]
    finite: Bool[Tensor, " n"]


def encode_rows(values: Float[Tensor, "n d"], dtype: str) -> EncodedRows:
    """Round rows to the stored type, on the device where they are."""
    exact = values.float()
    norms = torch.linalg.vector_norm(exact, dim=-1)
    if dtype == "int8":
        largest = exact.abs().amax(dim=-1, keepdim=True)
        scale = torch.where(largest > 0, largest / 127.0, 1.0)
        rounded = (exact / scale).round_().nan_to_num_(0.0).to(torch.int8)
        return EncodedRows(rounded, scale, norms, torch.isfinite(largest[:, 0]))
    stored = values.to(STORED_DTYPES[dtype])
    return EncodedRows(stored, None, norms, torch.isfinite(stored).all(dim=-1))


def decode_rows(
    values: Shaped[Tensor, "n d"], scale: Float[Tensor, "n 1"] | None, dtype: torch.dtype | None = None
) -> Float[Tensor, "n d"]:
    """Stored rows as `dtype`; None: as stored, and float32 for int8."""
    if scale is not None:
        values = values.float() * scale
    return values if dtype is None else values.to(dtype)
