"""Which rows an SAE was trained for; the others are left as they are wherever it is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.activations.store_stream import RowFilter

if TYPE_CHECKING:
    from interp.activations.packing import ContextBatch
    from interp.sae.dictionary import Dictionary


@dataclass(frozen=True)
class TrainedRows:
    """A rule that tells the rows: not at some positions, no special tokens, none above a norm.

    The default takes every row.
    """

    skip_positions: tuple[int, ...] = ()
    special_token_ids: tuple[int, ...] = ()
    max_norm: float | None = None

    @classmethod
    def of(cls, sae: Dictionary, special_token_ids: Sequence[int]) -> TrainedRows:
        """The rows of an SAE's training, by its metadata.

        Unless it is known to have seen special tokens (`special_tokens_excluded` False), it has not.
        """
        known = sae.metadata
        special = () if known.special_tokens_excluded is False else tuple(special_token_ids)
        return cls(tuple(known.skip_positions), special, known.max_norm)

    def filter(self) -> RowFilter:
        """The rule for rows of a store."""
        return RowFilter(self.skip_positions, self.special_token_ids, self.max_norm)

    def mask(self, batch: ContextBatch, act: Float[Tensor, "b s d"]) -> Bool[Tensor, "b s"]:
        """The rule for a batch with its activations; padding is never among the rows."""
        rows = self.filter()
        kept, _, _ = rows.split(batch.input_ids.numpy(), batch.position_ids.numpy())
        real = torch.from_numpy(kept) & batch.attention_mask.bool()
        return real.to(act.device) & rows.within_norm(act.flatten(0, 1)).view(real.shape)
