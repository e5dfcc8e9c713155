"""Which layer to steer at: every layer extracted in one pass over the pairs, and measured in the same rows.

Tan et al. 2024, arXiv 2407.12404, appendix on layer selection: the layer of the highest mean steerability,
averaged over data sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.steering.extraction import extract
from interp.steering.pair_activations import Layers, Read
from interp.steering.pairs import ContrastivePair, PairDataset, check_disjoint
from interp.steering.prompts import BASE, PromptVariation
from interp.steering.propensity import PropensityResult, propensity_curves
from interp.steering.steerability import Steerability, check_multipliers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from interp.models.language_model import LanguageModel
    from interp.steering.vector import SteeringVector

SWEEP_MULTIPLIERS = (-1.5, -1.0, -0.5, 0.5, 1.0, 1.5)  # 0 is the same at every layer


@dataclass(frozen=True)
class LayerSweep:
    """Steerability by layer.

    Attributes:
        vector: the direction of every layer.
        curves, steerability: by layer.
        name: of the data set.
    """

    vector: SteeringVector
    curves: dict[int, PropensityResult]
    steerability: dict[int, Steerability]
    name: str = ""

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(self.steerability)

    @property
    def best(self) -> int:
        """The layer of the highest mean steerability."""
        return max(self.layers, key=lambda layer: self.steerability[layer].mean)

    def to_frame(self) -> pd.DataFrame:
        """One row per layer: the figures of `Steerability.summary`."""
        import pandas as pd

        rows = [{"layer": layer, **s.summary()} for layer, s in self.steerability.items()]
        return pd.DataFrame(rows).set_index("layer")

    def plot(self) -> Figure:
        """Mean slope and anti-steerable fraction by layer, and the mean curve of every layer as a heat map."""
        from interp.steering.steerability_plots import plot_layers

        return plot_layers(self)

    def __str__(self) -> str:
        header = f"  {'layer':>5} {'mean slope':>11} {'interval':>18} {'std':>7} {'anti-steerable':>15}"
        rows = [
            f"  {layer:>5} {s.mean:>11.3f} {s.mean_interval!s:>18} {s.std:>7.3f} {s.anti_fraction:>15.1%}"
            for layer, s in self.steerability.items()
        ]
        return "\n".join([f"layer sweep of {self.name or 'the pairs'}; best: {self.best}", header, *rows])


def layer_sweep(
    model: LanguageModel,
    train: PairDataset | Sequence[ContrastivePair],
    test: PairDataset | Sequence[ContrastivePair],
    *,
    layers: Layers = "all",
    method: str = "mean",
    read: Read = "answer",
    variation: PromptVariation = BASE,
    multipliers: Sequence[float] = SWEEP_MULTIPLIERS,
    norm: float | SteeringVector | None = None,
    seed: int = 0,
    **options: Any,
) -> LayerSweep:
    """Extract a vector at every layer from `train`, and measure each on `test`.

    Args:
        layers, method, read, norm: of the extraction; see `extract`.
        multipliers: without 0, as in the paper.
        seed: of the intervals.
        options: further ones of `propensity_curves`.

    Raises:
        ValueError: a pair that is in both parts.
    """
    check_disjoint(train, test)
    check_multipliers(multipliers)
    vector = extract(model, train, layers, method, read, variation, norm=norm, chat=options.get("chat"))
    curves = propensity_curves(
        model,
        test,
        {str(layer): vector.only(layer) for layer in vector.layers},
        multipliers=multipliers,
        variation=variation,
        **options,
    )
    by_layer = {int(name): curve for name, curve in curves.items()}
    slopes = {
        layer: curve.steerability(seed=seed, name=f"layer {layer}") for layer, curve in by_layer.items()
    }
    return LayerSweep(vector, by_layer, slopes, getattr(test, "name", ""))


def best_layer(sweeps: Mapping[str, LayerSweep]) -> int:
    """One layer for a model: the highest mean steerability, averaged over data sets.

    Raises:
        ValueError: no sweeps, or sweeps over different layers.
    """
    if not sweeps:
        raise ValueError("sweeps={}: give at least one layer sweep by data set")
    layers = {sweep.layers for sweep in sweeps.values()}
    if len(layers) > 1:
        raise ValueError(f"the sweeps cover different layers: {sorted(layers)}")
    means = np.array([[s.mean for s in sweep.steerability.values()] for sweep in sweeps.values()])
    return layers.pop()[int(means.mean(0).argmax())]
