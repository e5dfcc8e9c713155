"""Starting values: random directions of unit norm, and a decoder bias that centres the data."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.device import make_generator
from interp.core.messages import one_of

B_DEC_INITS = ("zero", "mean", "geometric_median")


def random_directions(
    n_latents: int, d: int, *, seed: int, norm: float = 1.0, double: bool = False
) -> Float[Tensor, "F d"]:
    """Gaussian directions of a given length on the CPU: the same on every device.

    They are drawn in float32; `double` has their length right to float64's rounding.
    """
    directions = torch.randn(n_latents, d, generator=make_generator(seed, "directions"))
    if double:
        directions = directions.double()
    return directions * (norm / directions.norm(dim=1, keepdim=True))


def initial_b_dec(sample: Float[Tensor, "n d"], how: str) -> Float[Tensor, " d"]:
    """The decoder's bias before training: ``"zero"``, or a sample's ``"mean"`` or ``"geometric_median"``.

    A large common mean that isn't taken out first kills latents at the start.
    """
    one_of("b_dec_init", how, B_DEC_INITS)
    if how == "zero":
        return torch.zeros_like(sample[0])
    if how == "mean":
        return sample.mean(0, dtype=torch.float64).to(sample.dtype)
    return geometric_median(sample)


def geometric_median(
    x: Float[Tensor, "n d"], *, tolerance: float = 1e-8, max_iterations: int = 500
) -> Float[Tensor, " d"]:
    """The point with the least summed distance to the rows of x, by Weiszfeld's iteration in float64.

    Stops when a step is shorter than `tolerance` times the mean distance.
    """
    if x.dim() != 2 or x.shape[0] == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}; a median needs [n, d] with n > 0")
    points = x.detach().double()
    median = points.mean(0)
    tiny = torch.finfo(torch.float64).tiny
    for _ in range(max_iterations):
        distances = (points - median).norm(dim=1)
        weights = 1 / distances.clamp_min(max(tiny, 1e-12 * float(distances.mean())))
        moved = weights @ points / weights.sum()
        step = float((moved - median).norm())
        median = moved
        if step <= tolerance * float(distances.mean()):
            break
    return median.to(x.dtype)
