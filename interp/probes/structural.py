"""The Structural Probe of one layer: distances of words, or their depths (Hewitt and Manning 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from interp.core.messages import one_of
from interp.probes.bank import ProbeSpec
from interp.probes.polar import DEFAULT_RANK, PolarProbe, Sentences
from interp.probes.words import WordActivations

TARGETS = ("distance", "depth")


@dataclass
class StructuralProbe(PolarProbe):
    """The Polar Probe without its angular term. It still decodes labels, from the prototypes in its space.

    Attributes:
        target: "distance": squared distances are tree distances; "depth": squared norms are depths.
    """

    angular_weight: float | Sequence[float] = field(default=0.0, init=False)
    target: str = "distance"

    def _specs(self, words: WordActivations) -> list[ProbeSpec]:
        one_of("target", self.target, TARGETS)
        weight = {"distance": 0.0, "depth": 0.0, self.target: self.structural_weight}
        rank = min(DEFAULT_RANK, words.d) if self.rank is None else self.rank
        spec = ProbeSpec(
            words.layers[0], rank, angular=0.0, root=self.root_weight, seed=self.random_state, **weight
        )
        return [spec]

    def get_params(self, deep: bool = True) -> dict[str, object]:
        return {name: value for name, value in super().get_params(deep).items() if name != "angular_weight"}

    def predict_distances(self, activations: Sentences) -> list[Float[np.ndarray, "n n"]]:
        """Squared distances of the words of every sentence."""
        return [np.square(z[:, None] - z[None]).sum(-1) for z in self.transform(activations)]

    def predict_depths(self, activations: Sentences) -> list[Float[np.ndarray, " n"]]:
        """Squared norms of the words of every sentence."""
        return [np.square(z).sum(-1) for z in self.transform(activations)]
