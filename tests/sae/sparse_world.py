"""Activations that are sparse sums of known directions, and dictionaries with every parameter random."""

from __future__ import annotations

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.device import make_generator
from interp.sae.dictionary import Dictionary

D = TypeVar("D", bound=Dictionary)


def sparse_rows(
    n: int, d: int = 16, n_features: int = 24, *, p: float = 0.1, seed: int = 0, noise: float = 0.01
) -> Float[Tensor, "n d"]:
    """x = sum_i s_i c_i q_i + offset + noise with s_i ~ Bernoulli(p), c_i ~ U[0.5, 2], q_i random directions."""
    generator = make_generator(seed, "sparse world")
    q = torch.nn.functional.normalize(torch.randn(n_features, d, generator=generator), dim=1)
    active = torch.rand(n, n_features, generator=generator) < p
    size = 0.5 + 1.5 * torch.rand(n, n_features, generator=generator)
    offset = 0.3 * torch.randn(d, generator=generator)
    return (active * size) @ q + offset + noise * torch.randn(n, d, generator=generator)


def randomize(sae: D, seed: int = 0, scale: float = 0.3) -> D:
    """Add noise to every parameter, so that none is at a special value."""
    generator = make_generator(seed, "randomize")
    with torch.no_grad():
        for parameter in sae.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_((scale * noise).to(parameter.dtype))
        if "threshold" in dict(sae.named_parameters()):
            sae.get_parameter("threshold").abs_()
    return sae
