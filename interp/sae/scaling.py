"""One number that brings activations to a common size: an L1 coefficient then means the same everywhere."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.messages import one_of
from interp.sae.config import NORMALIZATIONS

_AT_ONCE = 16_384


def activation_scale(x: Float[Tensor, "n d"], normalization: str = "mean_norm") -> float:
    """The c for which c x has the wanted size, from a sample x.

    Args:
        x: 100,000 rows or more, of many documents, without position 0 (its norm would decide alone).
        normalization: ``"mean_norm"``: c = sqrt(d) / mean |x|. ``"rms"``: c = 1 / sqrt(mean |x|^2), as the
            JumpReLU paper scales. ``"none"``: c = 1.

    Raises:
        ValueError: all rows are zero, or one isn't finite.
    """
    one_of("normalization", normalization, NORMALIZATIONS)
    if normalization == "none":
        return 1.0
    norms = torch.cat([rows.double().norm(dim=1) for rows in x.split(_AT_ONCE)])
    size = float(norms.mean()) if normalization == "mean_norm" else math.sqrt(float((norms**2).mean()))
    if not 0 < size < math.inf:
        raise ValueError(f"activations have a mean norm of {size}: they can't be scaled to a common size")
    return (math.sqrt(x.shape[1]) if normalization == "mean_norm" else 1.0) / size
