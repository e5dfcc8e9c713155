"""What every source of activations is: batches in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

_CHECK_EVERY = 64  # batches between two looks for NaN


@dataclass
class ActivationBatch:
    """Rows of activations, and for each its token id, position in its segment and document (-1: unknown)."""

    values: Float[Tensor, "n d"]
    tokens: Int[Tensor, " n"]
    positions: Int[Tensor, " n"]
    doc_ids: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.values)

    def to(self, device: torch.device | str) -> ActivationBatch:
        return ActivationBatch(*(getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)))


@dataclass(frozen=True)
class RowCounts:
    """Rows of one epoch, and how many of the source's rows were left out and why.

    A row is counted under the first reason that applies: its position (`skip_positions`), a special token,
    a norm above `max_norm_multiple` times the median.
    """

    kept: int
    dropped_position0: int = 0
    dropped_special: int = 0
    dropped_norm: int = 0

    @property
    def total(self) -> int:
        return self.kept + self.dropped_position0 + self.dropped_special + self.dropped_norm


@dataclass(frozen=True)
class Provenance:
    """Where rows come from and which of them are served; None means unknown.

    Attributes:
        model, contexts: `LanguageModel.fingerprint()` and `TokenContexts.identity()`.
        skip_positions: positions that are left out.
        skip_special: whether special tokens are.
        max_norm: rows of a larger norm are; None: none for that.
    """

    model: dict[str, Any] | None = None
    contexts: dict[str, Any] | None = None
    skip_positions: tuple[int, ...] | None = None
    skip_special: bool | None = None
    max_norm: float | None = None


class ActivationSource(ABC):
    """A `DataStream` of `ActivationBatch`es that knows its width `d`, its `site`, its `counts` and its `provenance`.

    A batch may hold the same rows at several `sites`, side by side: columns of their `widths`, whose sum is `d`.

    Every kept row comes once an epoch. A batch never mixes two epochs, so the last one of an epoch may be
    smaller. The state is three integers: epoch, position in it, and rows served in all.
    """

    def __init__(
        self,
        *,
        sites: Mapping[str, int],
        counts: RowCounts,
        seed: int,
        provenance: Provenance | None = None,
    ) -> None:
        self.sites, self.widths = tuple(sites), tuple(sites.values())
        self.d, self.site = sum(self.widths), " + ".join(sites)
        if counts.kept == 0:
            raise ValueError(f"no row of {self.site} is left to serve: {counts}")
        self.counts, self.seed = counts, seed
        self.provenance = provenance or Provenance()
        self.epoch = 0
        self.samples = 0
        self._position = 0
        self._batches = 0

    def __len__(self) -> int:
        """Rows in an epoch."""
        return self.counts.kept

    def next_batch(self, size: int, rank: int = 0, world: int = 1) -> ActivationBatch:
        """The next `size` rows; of these, rank r of `world` gets rows r, r + world, r + 2 world, ...

        Raises:
            ValueError: NaN or Inf among them (looked for in the first batch and in one of every 64).
        """
        if size < 1 or not 0 <= rank < world:
            raise ValueError(
                f"next_batch(size={size}, rank={rank}, world={world}): size >= 1, 0 <= rank < world"
            )
        first, last = self._position, min(self._position + size, len(self))
        batch = self._rows(self.epoch, first + rank, last, world)
        if self._batches % _CHECK_EVERY == 0 and not torch.isfinite(batch.values).all():
            bad = int((~torch.isfinite(batch.values).all(-1)).sum())
            raise ValueError(f"{bad} of {len(batch)} rows of {self.site} are NaN or Inf (epoch {self.epoch})")
        self._batches += 1
        self.samples += last - first
        self._position = last
        if last == len(self):
            self.epoch, self._position = self.epoch + 1, 0
        return batch

    @abstractmethod
    def _rows(self, epoch: int, first: int, last: int, step: int) -> ActivationBatch:
        """Rows first, first + step, ... (below last) of an epoch's order."""

    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> Float[Tensor, "n d"]:
        """At most `n` kept rows drawn without replacement; the stream's position doesn't move."""

    def _order(self) -> dict[str, int]:
        """The numbers that determine the order of rows, besides the epoch."""
        return {"seed": self.seed, "n_rows": len(self)}

    def state_dict(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "position": self._position,
            "samples": self.samples,
            "batches": self._batches,
            "order": self._order(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another stream over the same rows stood.

        Raises:
            ValueError: that stream had another order; the message names what differs.
        """
        for name, here in self._order().items():
            there = state["order"].get(name)
            if there != here:
                raise ValueError(
                    f"this stream can't go on from that state: {name} was {there} and is {here} now"
                )
        self.epoch, self._position = state["epoch"], state["position"]
        self.samples, self._batches = state["samples"], state["batches"]
