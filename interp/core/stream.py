"""Batches in an order that is a pure function of (seed, epoch), with an integer for a position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from interp.core.device import make_generator


@runtime_checkable
class DataStream(Protocol):
    """What the Trainer reads from.

    `next_batch(size)` serves the next `size` samples and never mixes two epochs, so the last batch of an epoch may be
    smaller; with `world > 1` it returns this rank's stride of that global batch, which may then be empty.
    """

    @property
    def epoch(self) -> int:
        """Epochs completed."""

    @property
    def samples(self) -> int:
        """Samples served since the start, over all ranks."""

    def next_batch(self, size: int, rank: int = 0, world: int = 1) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class ArrayStream:
    """Rows of tensors held in memory: a tensor, a tuple of tensors or a mapping of tensors, of equal length."""

    def __init__(
        self,
        tensors: Tensor | tuple[Tensor, ...] | Mapping[str, Tensor],
        *,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        self.tensors = tensors
        self.shuffle, self.seed = shuffle, seed
        self._length = self._common_length()
        self._epoch = self._position = self._samples = 0
        self._order: tuple[int, Tensor] | None = None  # of an epoch

    def _common_length(self) -> int:
        if isinstance(self.tensors, Tensor):
            parts = {"tensors": self.tensors}
        elif isinstance(self.tensors, Mapping):
            parts = dict(self.tensors)
        elif isinstance(self.tensors, tuple):
            parts = {str(i): part for i, part in enumerate(self.tensors)}
        else:
            raise TypeError(
                f"tensors is a {type(self.tensors).__name__}; give a tensor, a tuple or a mapping of them"
            )
        if not parts:
            raise ValueError("tensors is empty; a stream needs at least one tensor")
        lengths = {name: len(part) for name, part in parts.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"tensors must have the same number of rows, got {lengths}")
        length = next(iter(lengths.values()))
        if length == 0:
            raise ValueError("tensors holds no rows; a stream needs at least one")
        return length

    def __len__(self) -> int:
        return self._length

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def samples(self) -> int:
        return self._samples

    def _permutation(self) -> Tensor:
        if self._order is None or self._order[0] != self._epoch:
            generator = make_generator(self.seed, "epoch", self._epoch)
            order = (
                torch.randperm(len(self), generator=generator) if self.shuffle else torch.arange(len(self))
            )
            self._order = (self._epoch, order)
        return self._order[1]

    def next_batch(self, size: int, rank: int = 0, world: int = 1) -> Any:
        if size < 1 or not 0 <= rank < world:
            raise ValueError(
                f"size = {size}, rank = {rank}, world = {world}: size >= 1 and 0 <= rank < world"
            )
        rows = self._permutation()[self._position : self._position + size]
        self._position += len(rows)
        self._samples += len(rows)
        if self._position >= len(self):
            self._epoch, self._position = self._epoch + 1, 0
        mine = rows[rank::world]
        if isinstance(self.tensors, Tensor):
            return self.tensors[mine]
        if isinstance(self.tensors, tuple):
            return tuple([part[mine] for part in self.tensors])
        return {name: part[mine] for name, part in self.tensors.items()}

    def state_dict(self) -> dict[str, Any]:
        return {
            "epoch": self._epoch,
            "position": self._position,
            "samples": self._samples,
            **self._order_of(),
        }

    def _order_of(self) -> dict[str, int]:
        """What the order of the rows depends on, besides the epoch."""
        return {"seed": self.seed, "shuffle": self.shuffle, "rows": len(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another stream over the same rows stood; ValueError names what differs in its order."""
        for name, here in self._order_of().items():
            if state[name] != here:
                raise ValueError(
                    f"{name} = {here} of this stream, but the saved one had {name} = {state[name]}"
                )
        self._epoch, self._position, self._samples = state["epoch"], state["position"], state["samples"]
