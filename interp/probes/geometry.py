"""The shape of a probe's space: angles between relations, the same relation at different levels, dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.probes.bank import ProbeBank
from interp.probes.decoded_trees import ReadOut
from interp.probes.readout import cosines

if TYPE_CHECKING:
    import pandas as pd


def prototype_angles(reading: ReadOut) -> pd.DataFrame:
    """Angle between the prototypes of every two relations, in degrees."""
    import pandas as pd

    cos = cosines(reading.prototypes, reading.prototypes).clip(-1, 1)
    return pd.DataFrame(np.degrees(np.arccos(cos)), index=reading.relations, columns=reading.relations)


@dataclass(frozen=True)
class LevelConsistency:
    """Whether a relation keeps its direction when its phrase is nested.

    Attributes:
        levels: the two levels.
        relations: those that occur at both.
        cosines: [r r] of each relation's mean direction at the first level (rows) with each one's at the second.
    """

    levels: tuple[int, int]
    relations: tuple[str, ...]
    cosines: Float[np.ndarray, "r r"]

    @property
    def same(self) -> dict[str, float]:
        """Of every relation with itself."""
        return dict(zip(self.relations, np.diag(self.cosines).tolist(), strict=True))

    @property
    def cross(self) -> float:
        """Between different relations, averaged; NaN for a single relation."""
        different = self.cosines[~np.eye(len(self.relations), dtype=bool)]
        return float(different.mean()) if different.size else float("nan")

    def between(self, first: str, second: str) -> float:
        """Of one relation at the first level with another at the second."""
        return float(self.cosines[self.relations.index(first), self.relations.index(second)])

    @property
    def mean(self) -> float:
        """Over the relations."""
        return float(np.diag(self.cosines).mean())

    def __str__(self) -> str:
        each = ", ".join(f"{name} {value:.2f}" for name, value in self.same.items())
        return (
            f"level {self.levels[0]} against {self.levels[1]}: {each}; different relations {self.cross:.2f}"
        )


def level_consistency(reading: ReadOut, levels: tuple[int, int] = (0, 1)) -> LevelConsistency:
    """Compare the mean unit edge of every relation at two nesting levels (the level of the dependent).

    Raises ValueError where the trees have no levels, or no relation occurs at both.
    """
    if any(tree.levels is None for tree in reading.trees):
        raise ValueError("levels: these trees have none; the controlled grammar's have")
    level = np.array([l for tree in reading.trees for l in tree.levels or ()])[reading.matches.dependents]
    unit = reading.edge_vectors / np.maximum(
        np.linalg.norm(reading.edge_vectors, axis=1, keepdims=True), 1e-12
    )
    means: dict[tuple[int, int], np.ndarray] = {}
    for kind in range(len(reading.relations)):
        for l in levels:
            mine = (reading.edge_types == kind) & (level == l)
            if mine.any():
                means[kind, l] = unit[mine].mean(0)
    both = [k for k in range(len(reading.relations)) if (k, levels[0]) in means and (k, levels[1]) in means]
    if not both:
        raise ValueError(f"levels={levels}: no relation occurs at both")
    table = cosines(
        np.array([means[k, levels[0]] for k in both]), np.array([means[k, levels[1]] for k in both])
    )
    return LevelConsistency(levels, tuple(reading.relations[k] for k in both), table)


def spectrum(bank: ProbeBank, probe: int = 0) -> Float[np.ndarray, " k"]:
    """Share of the squared singular values of a probe's map that its first 1, 2, ... dimensions hold."""
    values = np.linalg.svd(
        (bank.weight[probe] * bank.columns[probe]).detach().double().cpu().numpy(), compute_uv=False
    )
    return np.cumsum(values**2) / np.sum(values**2)
