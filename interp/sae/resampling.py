"""Reviving dead latents: point them at what the dictionary reconstructs badly.

Bricken et al. 2023, "Towards Monosemanticity", appendix "Neuron resampling"; used for Gated SAEs by
Rajamanoharan et al. 2024, appendix D.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.sae.dictionary import SMALLEST_NORM, Dictionary
from interp.sae.step import TrainStep

_ROWS_AT_ONCE = 2048
_ENCODER_NORM = 0.2  # of a revived latent, relative to the mean over living ones


@torch.no_grad()
def resample_dead_(
    sae: Dictionary,
    step: TrainStep | None,
    sample: Float[Tensor, "n d"],
    dead: Int[Tensor, " k"],
    generator: torch.Generator,
    *,
    init_fire_rate: float | None = None,
) -> Int[Tensor, " m"]:
    """Give dead latents new directions, in place; returns the latents changed.

    Each gets an input of its own, drawn with a probability proportional to its squared reconstruction loss
    (that is, to |x_hat - x|^4). With v = x - b_dec of that input: ``d_i = v / |v|``; the encoder row is that
    direction at 0.2 times the mean norm over living latents; biases and r_mag are 0; the optimiser forgets
    the latent.

    Args:
        sae: changed in place.
        step: its training step, whose moments are reset.
        sample: rows at the scale the dictionary is trained at.
        dead: latents to change. Where there are more than rows with a loss, the first ones.
        generator: a CPU generator.
        init_fire_rate: share of the sample on which a revived latent fires; None leaves its biases at 0.
    """
    losses = reconstruction_losses(sae, sample).cpu()
    count = min(len(dead), int((losses > 0).sum()))
    if count == 0:
        return dead[:0]
    dead = dead[:count].to(sae.W_dec.device)
    weights = (losses / losses.max()) ** 2
    drawn = torch.multinomial(weights.clamp_min(torch.finfo(torch.float64).tiny), count, generator=generator)
    v = sample[drawn.to(sample.device)] - sae.b_dec
    directions = v / v.norm(dim=1, keepdim=True).clamp_min(SMALLEST_NORM)

    alive = torch.ones(sae.cfg.d_sae, dtype=torch.bool, device=dead.device)
    alive[dead] = False
    if not alive.any():
        alive[:] = True
    sae.W_dec[dead] = directions
    for name in sae.encoder_matrices:
        matrix = getattr(sae, name)
        if matrix is not None:
            matrix[dead] = _ENCODER_NORM * matrix[alive].norm(dim=1).mean() * directions
    for vector in (*(getattr(sae, name) for name in sae.latent_vectors), getattr(sae, "r_mag", None)):
        if vector is not None:
            vector[dead] = 0
    if init_fire_rate is not None:
        fire_at_(sae, sample, dead, init_fire_rate)
    if step is not None:
        step.reset_latents_(dead)
    return dead


@torch.no_grad()
def reconstruction_losses(sae: Dictionary, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """|x_hat - x|^2 of each row, float64."""
    parts = [(sae(rows).x_hat - rows).double().pow(2).sum(1) for rows in x.split(_ROWS_AT_ONCE)]
    return torch.cat(parts)


@torch.no_grad()
def fire_at_(sae: Dictionary, sample: Float[Tensor, "n d"], latents: Int[Tensor, " k"], rate: float) -> None:
    """Set the biases of some latents such that each fires on this share of a sample."""
    weight = getattr(sae, sae.encoder_matrices[0])
    xc = sample - sae.b_dec if sae.cfg.apply_b_dec_to_input else sample
    index = min(len(sample) - 1, round(rate * len(sample)))
    for some in latents.split(256):
        sae.open_above_(some, (xc @ weight[some].T).sort(dim=0, descending=True).values[index])
