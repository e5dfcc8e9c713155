"""Exact means over micro-batches, masks and ranks: sums and counts are added, and divided once."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from interp.core.runtime import Runtime
from interp.core.task import LossOutput


def number(value: Tensor | float) -> float:
    """A Python float (double precision)."""
    return value.item() if isinstance(value, Tensor) else float(value)


class Means:
    """Adds up what a task's losses say, in float64.

    A metric that is a plain number counts as a mean over the samples of its loss, and is weighted by their count.
    """

    def __init__(self) -> None:
        self._totals: dict[str, list[float]] = {}

    def add(self, outputs: Iterable[LossOutput]) -> None:
        for output in outputs:
            count = number(output.count)
            self._add("loss", number(output.sum), count)
            for name, value in output.metrics.items():
                if isinstance(value, tuple):
                    self._add(name, number(value[0]), number(value[1]))
                else:
                    self._add(name, number(value) * count if count else 0.0, count)

    def _add(self, name: str, total: float, count: float) -> None:
        pair = self._totals.setdefault(name, [0.0, 0.0])
        pair[0] += total
        pair[1] += count

    def reduce(self, runtime: Runtime) -> dict[str, float]:
        """The mean of every metric over all ranks; NaN where nothing was counted. All ranks must call it."""
        totals = self._totals
        if runtime.world_size > 1:
            flat = torch.tensor(list(totals.values()), dtype=torch.float64, device=runtime.device)
            totals = dict(zip(totals, runtime.all_reduce(flat).tolist(), strict=True))
        return {name: total / count if count else float("nan") for name, (total, count) in totals.items()}
