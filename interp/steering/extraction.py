"""From the activations of contrastive pairs to a steering vector: find a direction in their differences."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.messages import one_of
from interp.steering.pair_activations import Layers, PairActivations, Read, collect
from interp.steering.pairs import ContrastivePair, PairDataset
from interp.steering.prompts import BASE, PromptVariation
from interp.steering.vector import SteeringVector

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

log = logging.getLogger(__name__)
Direction = Float[Tensor, " d"]


def extract(
    model: LanguageModel,
    pairs: PairDataset | Sequence[ContrastivePair],
    layers: Layers = "all",
    method: str = "mean",
    read: Read = "answer",
    variation: PromptVariation = BASE,
    *,
    chat: bool | None = None,
    batch_size: int = 8,
    site: str = "resid_post",
    norm: float | SteeringVector | None = None,
    progress: bool = False,
) -> SteeringVector:
    """A steering vector from contrastive pairs: `collect`, then `fit`; see there for the arguments.

    The concept's quality at every layer goes into ``meta["quality"]`` (`SteeringVector.quality` prints it).
    """
    one_of("method", method, METHODS)
    activations = collect(
        model,
        pairs,
        layers,
        read,
        variation,
        chat=chat,
        batch_size=batch_size,
        site=site,
        progress=progress,
    )
    return fit(activations, method, norm=norm)


def fit(
    activations: PairActivations, method: str = "mean", *, norm: float | SteeringVector | None = None
) -> SteeringVector:
    """A direction per layer from the differences Δ = positive - negative [n d].

    Args:
        method: one of
            - "mean": mean Δ, the contrastive activation addition of Rimsky et al. (2024, arXiv 2312.06681). Not
              rescaled: λ = 1 adds one average contrast. The others have norm 1 and mean Δ·v > 0:
            - "pca": first principal axis of the rows [Δ; -Δ] about 0. Centring each pair on its midpoint and
              pooling the 2n rows gives the same axis; "pca_center" is that name for it (vgel/repeng).
            - "pca_diff": first principal axis of Δ about its mean (the first control vectors, vgel/repeng): the
              common part of the differences is what it does *not* see.
            - "logistic": coefficient of a logistic regression without intercept (L2, C = 1) that tells positive
              from negative on rows centred per pair.
        norm: rescale to this norm, or layer by layer to another vector's norms (vectors of different prompts are
            compared at equal norm).

    Raises:
        ValueError: an unknown method; differences that are all zero; one pair where a method needs two.
    """
    one_of("method", method, METHODS)
    directions = {}
    for layer in activations.layers:
        delta = activations.differences(layer)
        if not delta.any():
            raise ValueError(
                f"layer {layer}: positive and negative activations are the same in all {len(delta)} pairs: the token "
                "read is the same in both and has seen nothing else. Choose another read index or layer"
            )
        if len(none := (~delta.any(1)).nonzero()[:, 0]):
            log.warning(
                "layer %d: the two activations of %d of the %d pairs (e.g. %d) are the same: they make the vector "
                "shorter, and cosines with them are not defined (NaN in its quality)",
                *(layer, len(none), len(delta), int(none[0])),
            )
        direction = _METHODS[method](delta)
        along = float((delta @ direction).mean())
        directions[layer] = direction if method == "mean" or along >= 0 else -direction
    vector = SteeringVector(directions, {**activations.meta, "method": method, "n_pairs": len(activations)})
    vector.meta["quality"] = activations.quality(vector).to_dict()
    return vector if norm is None else vector.normalize(norm)


def _principal_axis(rows: Float[Tensor, "n d"]) -> Direction:
    return torch.linalg.svd(rows.double(), full_matrices=False).Vh[0].float()


def _axis_of_centred_differences(delta: Float[Tensor, "n d"]) -> Direction:
    if len(delta) < 2:
        raise ValueError("method='pca_diff' needs at least two pairs: it looks at how differences vary")
    return _principal_axis(delta - delta.mean(0))


def _logistic(delta: Float[Tensor, "n d"]) -> Direction:
    from sklearn.linear_model import LogisticRegression

    halves = (delta / 2).numpy()
    rows = torch.cat([delta / 2, -delta / 2]).numpy()
    labels = [1] * len(halves) + [0] * len(halves)
    fitted = LogisticRegression(fit_intercept=False, max_iter=1000).fit(rows, labels)
    coefficient = torch.from_numpy(fitted.coef_[0]).float()
    return coefficient / coefficient.norm()


_METHODS: dict[str, Callable[[Float[Tensor, "n d"]], Direction]] = {
    "mean": lambda delta: delta.mean(0),
    "pca": _principal_axis,
    "pca_center": _principal_axis,
    "pca_diff": _axis_of_centred_differences,
    "logistic": _logistic,
}
METHODS = tuple(_METHODS)
