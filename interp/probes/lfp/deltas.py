"""Which features move when a neutral word is replaced by a positive or a negative one, and how evenly they do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.messages import at_least
from interp.probes.lfp.probe import Place, TripleFeatures

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FeatureDeltas:
    """Changes of F features over n triples, in the units of the features.

    Attributes:
        places: (layer, latent) of each.
        positive, negative: mean change from the neutral text to the positive and to the negative one.
        contrast: positive minus negative.
        effect: contrast over the standard deviation, among triples, of the difference of the two texts (Cohen's d of
            paired samples); 0 for a feature that never differs, infinite for one that always differs by the same.
    """

    places: tuple[Place, ...]
    positive: Float[np.ndarray, " F"]
    negative: Float[np.ndarray, " F"]
    contrast: Float[np.ndarray, " F"]
    effect: Float[np.ndarray, " F"]

    def top(self, k: int = 10) -> list[int]:
        """Columns of the k largest effects of either sign, largest first."""
        at_least("k", k, 1)
        return np.argsort(-np.abs(self.effect), kind="stable")[:k].tolist()

    def rows(self, k: int = 10) -> list[dict[str, Any]]:
        """The k largest effects as JSON values; an infinite one is None."""
        columns = {name: getattr(self, name) for name in ("positive", "negative", "contrast", "effect")}
        found = []
        for place in self.top(k):
            numbers = {name: float(values[place]) for name, values in columns.items()}
            layer, latent = self.places[place]
            finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
            found.append({"layer": layer, "latent": latent, **finite})
        return found

    def to_frame(self) -> pd.DataFrame:
        """One row a feature, the largest effects first."""
        import pandas as pd

        frame = pd.DataFrame(
            {
                "layer": [layer for layer, _ in self.places],
                "latent": [latent for _, latent in self.places],
                "positive": self.positive,
                "negative": self.negative,
                "contrast": self.contrast,
                "effect": self.effect,
            }
        )
        return frame.iloc[self.top(len(frame))].reset_index(drop=True)

    def plot(self) -> Figure:
        """Every feature by its two mean changes; off the diagonal are those that tell the classes apart."""
        from interp.core.plotting import new_figure

        figure, ax = new_figure()
        both = np.concatenate([self.positive, self.negative])
        ax.plot([both.min(), both.max()], [both.min(), both.max()], color="0.7", linewidth=1, zorder=0)
        for layer in sorted({layer for layer, _ in self.places}):
            mine = np.asarray([place[0] == layer for place in self.places])
            ax.scatter(self.positive[mine], self.negative[mine], s=12, alpha=0.7, label=f"layer {layer}")
        ax.set(
            xlabel="change to the positive text",
            ylabel="change to the negative text",
            title="mean feature deltas",
        )
        ax.legend()
        return figure

    def __str__(self) -> str:
        return self.to_frame().head(10).to_string(float_format=lambda x: f"{x:.3f}")


def feature_deltas(features: TripleFeatures, places: Sequence[Place]) -> FeatureDeltas:
    """Mean changes of every feature, and how large they are beside their spread.

    Args:
        places: of `feature_places`, in the order of the columns.

    Raises ValueError for fewer than two triples, or places of another number of features.
    """
    features.check()
    n, width = features.positive.shape
    if n < 2:
        raise ValueError(f"features are of {n} triple: a spread needs two or more")
    if len(places) != width:
        raise ValueError(f"places names {len(places)} features, the triples have {width}")
    positive, negative, neutral = (np.asarray(part, dtype=np.float64) for part in features)
    apart = positive - negative
    contrast, spread = apart.mean(0), apart.std(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = np.where(contrast == 0, 0.0, contrast / spread)
    return FeatureDeltas(
        tuple(places), (positive - neutral).mean(0), (negative - neutral).mean(0), contrast, effect
    )
