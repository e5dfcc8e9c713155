"""How much of a polytope decodes safely: shares of its volume, from points drawn uniformly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.core.intervals import Interval, wilson

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from classic_ml.surrogates.embedding import PolytopeEmbedding


@dataclass(frozen=True)
class RegionFractions:
    """Shares of P.

    Attributes:
        name: of the embedding.
        points: (N, d) drawn uniformly on P.
        labels: (N,) the class decoded from each.
        is_strict: (N,) that class is the only mode of every distribution embedded there.
        may_hallucinate: (N,) it has probability zero in one of them.
    """

    name: str
    points: Float[np.ndarray, "N d"]
    labels: Int[np.ndarray, " N"]
    is_strict: Bool[np.ndarray, " N"]
    may_hallucinate: Bool[np.ndarray, " N"]

    @property
    def strict(self) -> float:
        return float(self.is_strict.mean())

    @property
    def hallucination(self) -> float:
        return float(self.may_hallucinate.mean())

    @property
    def strict_interval(self) -> Interval:
        """95 % (Wilson)."""
        return wilson(int(self.is_strict.sum()), len(self.points))

    @property
    def hallucination_interval(self) -> Interval:
        """95 % (Wilson)."""
        return wilson(int(self.may_hallucinate.sum()), len(self.points))

    def to_frame(self) -> pd.DataFrame:
        """One row per region: its share and the 95 % interval."""
        import pandas as pd

        rows = {
            "strict": (self.strict, *self.strict_interval),
            "hallucination": (self.hallucination, *self.hallucination_interval),
        }
        return pd.DataFrame.from_dict(rows, orient="index", columns=["share", "low", "high"]).rename_axis(
            "region"
        )

    def plot(self) -> Figure:
        """The points in P's two widest directions, by region."""
        from classic_ml.surrogates.surrogate_plots import plot_regions

        return plot_regions(self)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.name}, {len(self.points):,} points of its polytope",
                f"  always the mode (strict)    {self.strict:.4f} {self.strict_interval}",
                f"  may have probability zero   {self.hallucination:.4f} {self.hallucination_interval}",
            ]
        )


def region_fractions(embedding: PolytopeEmbedding, points: Float[np.ndarray, "N d"]) -> RegionFractions:
    """The regions of an embedding at points of its polytope."""
    return RegionFractions(
        embedding.name,
        points,
        embedding.link(points),
        embedding.in_strict_region(points),
        embedding.in_hallucination_region(points),
    )
