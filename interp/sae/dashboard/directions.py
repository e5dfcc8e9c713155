"""What can be read off decoder directions alone: their neighbours, and what they do to the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.dashboard.features import LogitEffect

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel


def nearest_directions(
    W_dec: Float[Tensor, "F d"], latents: Sequence[int], keep: int = 6
) -> list[list[tuple[int, float]]]:
    """For each latent the others whose decoder directions have the largest cosines with its own."""
    directions = torch.nn.functional.normalize(W_dec.detach().float(), dim=1)
    chosen = torch.as_tensor(list(latents), dtype=torch.long, device=directions.device)
    keep = min(keep, len(directions) - 1)
    found = []
    for part in chosen.split(256):
        cosines = directions[part] @ directions.T
        cosines[torch.arange(len(part)), part] = -torch.inf
        values, indices = cosines.topk(keep, dim=1)
        found += [list(zip(*row, strict=True)) for row in zip(indices.tolist(), values.tolist(), strict=True)]
    return found


def logit_effects(
    model: LanguageModel, W_dec: Float[Tensor, "F d"], latents: Sequence[int], keep: int = 10, bins: int = 50
) -> list[LogitEffect]:
    """The tokens that each latent's decoder direction promotes and suppresses most.

    The direction goes through the weight of the final norm and the unembedding; the norm's division by the
    length of the residual stream, a positive factor, is left out.  Later layers are not: read it as a hint in
    the early ones.
    """
    chosen = torch.as_tensor(list(latents), dtype=torch.long, device=W_dec.device)
    effects = []
    for part in chosen.split(64):
        with torch.no_grad():
            logits = model.logit_directions(W_dec[part].detach().float()).float().cpu()
        for row in logits:
            top, bottom = row.topk(keep), row.topk(keep, largest=False)
            counts, edges = np.histogram(row.numpy(), bins=bins)
            effects.append(
                LogitEffect(
                    promoted=list(zip(top.indices.tolist(), top.values.tolist(), strict=True)),
                    suppressed=list(zip(bottom.indices.tolist(), bottom.values.tolist(), strict=True)),
                    histogram_edges=[float(e) for e in edges],
                    histogram_counts=counts.tolist(),
                )
            )
    return effects
