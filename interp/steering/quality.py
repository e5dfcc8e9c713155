"""Before steering: do the differences of the pairs agree on a direction at all?

The figures are those of Tan et al. (2024, arXiv 2407.12404) and Braun et al. (2025, "Understanding (Un)Reliability
of Steering Vectors"), which found that agreement and separability of the training activations predict how well a
vector steers.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.plotting import new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ConceptQuality:
    """Agreement of n differences Δ_i at one layer.

    Attributes:
        n: pairs.
        mean_norm: mean ‖Δ_i‖.
        mean_pairwise_cosine: mean of cos(Δ_i, Δ_j) over i ≠ j; 1: all point the same way, 0: unrelated.
        mean_cosine: mean of cos(Δ_i, v).
        spread: -(mean ‖Δ_i - mean Δ‖) / (mean ‖Δ_i‖); 0 where all differences are the same.
        norm_spread: -(var ‖Δ_i‖) / (mean ‖Δ_i‖).
        separability: of the projections on v, (mean⁺ - mean⁻) / sqrt((var⁺ + var⁻) / 2), known as d'.
        held_out_agreement: share of pairs whose difference points along the mean of all the *other* differences;
            chance gives about one half, and unlike separability it can't be had by overfitting.
    """

    n: int
    mean_norm: float
    mean_pairwise_cosine: float
    mean_cosine: float
    spread: float
    norm_spread: float
    separability: float
    held_out_agreement: float

    def __str__(self) -> str:
        return "\n".join(f"{name:<22}{value:>10.3f}" for name, value in asdict(self).items())


@dataclass(frozen=True)
class QualityReport:
    """`ConceptQuality` by layer; prints as a table, a row per layer."""

    layers: dict[int, ConceptQuality]

    def __getitem__(self, layer: int) -> ConceptQuality:
        return self.layers[layer]

    def turned(self) -> QualityReport:
        """Of the opposite vector: what is measured along it changes its sign, what the pairs share does not."""
        return QualityReport(
            {
                n: replace(q, mean_cosine=-q.mean_cosine, separability=-q.separability)
                for n, q in self.layers.items()
            }
        )

    def to_frame(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame([{"layer": n, **asdict(q)} for n, q in self.layers.items()]).set_index("layer")

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """JSON values; None for a figure that is not defined."""
        return {
            str(n): {k: x if math.isfinite(x) else None for k, x in asdict(q).items()}
            for n, q in self.layers.items()
        }

    @classmethod
    def from_dict(cls, values: dict[str, dict[str, Any]]) -> QualityReport:
        read: dict[int, dict[str, Any]] = {
            int(n): {k: math.nan if x is None else x for k, x in q.items()} for n, q in values.items()
        }
        return cls({n: ConceptQuality(**q) for n, q in read.items()})

    def __str__(self) -> str:
        return self.to_frame().to_string(float_format="{:.3f}".format)

    def plot(self) -> Figure:
        """Agreement and separability by layer."""
        figure, (left, right) = new_figure(1, 2)
        frame = self.to_frame()
        for name in ("mean_pairwise_cosine", "mean_cosine", "held_out_agreement"):
            left.plot(frame.index, frame[name], marker="o", markersize=3, label=name.replace("_", " "))
        left.set(
            xlabel="layer", title="agreement of the differences", ylim=(min(0, left.get_ylim()[0]), 1.05)
        )
        left.legend()
        right.plot(frame.index, frame["separability"], marker="o", markersize=3)
        right.set(xlabel="layer", ylabel="d'", title="separability along the vector")
        return figure


def concept_quality(
    positive: Float[Tensor, "n d"], negative: Float[Tensor, "n d"], vector: Float[Tensor, " d"]
) -> ConceptQuality:
    """Figures of agreement in O(n d); NaN where one is not defined (a single pair, a zero difference)."""
    positive, negative, vector = positive.double(), negative.double(), vector.double()
    delta = positive - negative
    n, norms, mean = len(delta), delta.norm(dim=1), delta.mean(0)
    unit = delta / norms[:, None]
    total = unit.sum(0)
    along = [side @ vector for side in (positive, negative)]
    others = (n * mean - delta) * delta
    nan = torch.tensor(math.nan)
    pooled = ((along[0].var() + along[1].var()) / 2).sqrt() if n > 1 else nan
    figures = {
        "mean_norm": norms.mean(),
        "mean_pairwise_cosine": (total @ total - n) / (n * (n - 1)) if n > 1 else nan,
        "mean_cosine": (unit @ vector).mean() / vector.norm(),
        "spread": -(delta - mean).norm(dim=1).mean() / norms.mean(),
        "norm_spread": -norms.var() / norms.mean() if n > 1 else nan,
        "separability": (along[0].mean() - along[1].mean()) / pooled,
        "held_out_agreement": (others.sum(1) > 0).double().mean() if n > 1 else nan,
    }
    return ConceptQuality(n, **{name: float(value) for name, value in figures.items()})
