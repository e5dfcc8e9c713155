"""Which rows an SAE was trained for; the others are left as they are wherever it is used.

Whoever runs an SAE on activations asks `TrainedRows.of` its metadata, and nobody decides it himself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.activations.store_stream import RowFilter

if TYPE_CHECKING:
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
    def of(cls, sae: Dictionary, special_token_ids: Iterable[int]) -> TrainedRows:
        """The rows of an SAE's training, by its metadata.

        Unless it is known to have seen special tokens (`special_tokens_excluded` False), it has not.
        """
        known = sae.metadata
        special = () if known.special_tokens_excluded is False else tuple(special_token_ids)
        return cls(tuple(known.skip_positions), tuple(sorted(special)), known.max_norm)

    def filter(self) -> RowFilter:
        """The rule for rows of a store."""
        return RowFilter(self.skip_positions, self.special_token_ids, self.max_norm)

    def mask(
        self,
        token_ids: Int[Tensor, "b s"],
        positions: Int[Tensor, "b s"],
        act: Float[Tensor, "b s d"],
        real: Bool[Tensor, "b s"] | Int[Tensor, "b s"],
    ) -> Bool[Tensor, "b s"]:
        """The rule for a batch, on the activations' device.

        Args:
            positions: of each token in its text or segment.
            act: the activations, as the SAE takes them.
            real: which tokens are no padding; padding is never among the rows.
        """
        rows = self.filter()
        kept, _, _ = rows.split(token_ids.cpu().numpy(), positions.cpu().numpy())
        inside = rows.within_norm(act.flatten(0, -2)).view(act.shape[:-1])
        return torch.from_numpy(kept).to(act.device) & real.to(act.device).bool() & inside
