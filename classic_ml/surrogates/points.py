"""What the package takes: points, class numbers and label distributions, checked once."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int


def as_points(U: Any, dimension: int | None, name: str = "U") -> Float[np.ndarray, "N d"]:
    """U as finite float64 of shape (N, d).  Raises ValueError for another shape, NaN or infinity."""
    points = np.asarray(U, np.float64)
    if points.ndim != 2 or points.shape[1] == 0 or (dimension is not None and points.shape[1] != dimension):
        wanted = "(N, d)" if dimension is None else f"(N, {dimension})"
        raise ValueError(f"{name} has shape {points.shape}; give {wanted}")
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(1))[0])
        raise ValueError(f"{name} is not finite in row {row}; leave such rows out")
    return points


def as_labels(y: Any, n_classes: int) -> Int[np.ndarray, " N"]:
    """y as class numbers (N,).  Raises TypeError for other than integers, ValueError for one outside 0..n-1."""
    labels = np.asarray(y)
    if labels.ndim != 1 or (labels.dtype.kind not in "iu" and labels.size):
        raise TypeError(
            f"y has dtype {labels.dtype} and shape {labels.shape}: give class numbers of shape (N,)"
        )
    bad = (labels < 0) | (labels >= n_classes)
    if bad.any():
        raise ValueError(f"y holds {labels[bad][0]}; classes are 0..{n_classes - 1}")
    return labels.astype(np.int64)


def as_distributions(P: Any, n_classes: int | None = None) -> Float[np.ndarray, "N n"]:
    """P as float64 rows of probabilities (N, n).  Raises ValueError unless each is >= 0 and sums to 1 within 1e-5."""
    probabilities = as_points(P, n_classes, "P")
    sums = probabilities.sum(1)
    bad = (probabilities < 0).any(1) | (np.abs(sums - 1) > 1e-5)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"P row {row} is no distribution: it sums to {sums[row]:.6g}, its least entry is "
            f"{probabilities[row].min():.3g}; give probabilities"
        )
    return probabilities
