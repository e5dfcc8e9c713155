"""What happens behind the last block: logits, losses and the vocabulary as directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from interp.models.inputs import ModelInputs

if TYPE_CHECKING:
    from interp.models.families import Norm

_CHUNK_LOGITS = 1 << 24  # logits alive at a time: 64 MB in float32


@dataclass(frozen=True)
class TokenLosses:
    """Cross-entropy of each next token in nats; zero where `mask` is false."""

    values: Float[Tensor, "b s-1"]
    mask: Bool[Tensor, "b s-1"]

    def sum_count(self) -> tuple[Tensor, int]:
        """The sum over predicted tokens (float64) and their number."""
        return self.values.double().sum(), int(self.mask.sum())

    def mean(self) -> Tensor:
        """Mean over predicted tokens; ValueError where there is none."""
        total, count = self.sum_count()
        if count == 0:
            raise ValueError("no token to predict: every text is a single token or padding")
        return total / count


def logits_of(output: Any, name: str) -> Tensor:
    """The logits in what a causal model returned."""
    if isinstance(output, Tensor):
        return output
    logits = getattr(output, "logits", None)
    if logits is None:
        raise ValueError(f"{name} returns no logits: load a causal language model, not a base model")
    return logits


def losses_from_logits(logits: Float[Tensor, "b s vocab"], inputs: ModelInputs) -> TokenLosses:
    return losses_from_hidden(logits, inputs, lambda rows: rows, logits.shape[-1])


def losses_from_hidden(
    hidden: Float[Tensor, "b s d"], inputs: ModelInputs, unembed: Callable[[Tensor], Tensor], d_vocab: int
) -> TokenLosses:
    """Losses from the output of the final norm; logits exist for a chunk of the predicted positions at a
    time.
    """
    mask = inputs.target_mask()
    predicting = hidden[:, :-1][mask]
    targets = inputs.input_ids[:, 1:][mask]
    values = torch.zeros(mask.shape, dtype=torch.float32, device=hidden.device)
    losses = []
    for rows, wanted in zip(
        *(t.split(max(1, _CHUNK_LOGITS // d_vocab)) for t in (predicting, targets)), strict=True
    ):
        losses.append(F.cross_entropy(unembed(rows).float(), wanted, reduction="none"))
    if len(predicting):
        values = values.masked_scatter(mask, torch.cat(losses))
    return TokenLosses(values, mask)


def logit_directions(
    vectors: Float[Tensor, "k d"],
    norm: Norm,
    weight: Float[Tensor, " d"],
    unembedding: Float[Tensor, "vocab d"],
) -> Float[Tensor, "k vocab"]:
    with torch.no_grad():
        v = vectors.to(device=unembedding.device, dtype=torch.float32)
        if norm == "layer_norm":
            v = v - v.mean(-1, keepdim=True)
        scale = weight.float() + (1.0 if norm == "rms_plus_one" else 0.0)
        return (v * scale.to(v.device)) @ unembedding.float().T
