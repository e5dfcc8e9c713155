"""When are the features labelled as task-related active?  The paper's validation of its labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ActivationGap:
    """Share of (input, feature) pairs that are active, in per cent.

    Attributes:
        chosen_high, chosen_low: the chosen features, on inputs of high predicted feedback and on the others.
        all_high: every feature, on inputs of high predicted feedback.
    """

    chosen_high: float
    chosen_low: float
    all_high: float
    n_high: int
    n_low: int

    def __str__(self) -> str:
        return (
            f"task-related features active on {self.chosen_high:.1f} % of {self.n_high} high inputs, on "
            f"{self.chosen_low:.1f} % of {self.n_low} others; all features on {self.all_high:.1f} % of the high ones"
        )


def activation_gap(
    features: np.ndarray, chosen: Sequence[int], rewards: np.ndarray, *, threshold: float = 3.0
) -> ActivationGap:
    """Are features labelled as task-related more active where the predicted feedback is high?

    active% = 100 * sum over inputs and k of 1[f_k > 0] / (n |F|), as the paper validates its labels.

    Args:
        features: codes [n, F].
        chosen: columns labelled as task-related.
        rewards: predicted feedback [n], rescaled to the range of the true one.
        threshold: an input is high from here on.

    Raises:
        ValueError: nothing chosen, a column that isn't there, or all inputs on one side of the threshold.
    """
    if len(features) != len(rewards):
        raise ValueError(f"features has {len(features)} rows, rewards {len(rewards)}: one per input each")
    if not len(chosen):
        raise ValueError("chosen is empty: no feature was labelled as task-related")
    if not all(0 <= k < features.shape[1] for k in chosen):
        raise ValueError(f"chosen = {list(chosen)}: there are {features.shape[1]} columns")
    high = np.asarray(rewards) >= threshold
    if high.all() or not high.any():
        raise ValueError(
            f"threshold = {threshold}: the rewards reach from {np.min(rewards):.3g} to {np.max(rewards):.3g}, so "
            "there is nothing on one side of it"
        )
    active = 100.0 * (np.asarray(features) > 0)
    return ActivationGap(
        float(active[high][:, list(chosen)].mean()),
        float(active[~high][:, list(chosen)].mean()),
        float(active[high].mean()),
        int(high.sum()),
        int((~high).sum()),
    )
