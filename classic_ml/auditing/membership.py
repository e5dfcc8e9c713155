"""Which rows lie in which of many regions: the cost of an audit.

Balls in few columns go through a tree, in many through one matrix product, both checked at the rim by the region's
own arithmetic, so that the answer is `region.contains` to the bit; other regions are asked one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.neighbors import KDTree

from classic_ml.auditing.regions import (
    BallRegion,
    BoolArray,
    FloatArray,
    Region,
    distances,
    row_chunks,
    rows_of,
)

IntArray = npt.NDArray[np.int64]

TREE_UP_TO = 8  # columns; beyond, a tree looks at nearly every row
_FEW_ROWS = 64


def members(regions: Sequence[Region], Z: Any) -> Iterator[tuple[int, IntArray]]:
    """(i, the rows of Z [n, d] in regions[i], rising), every region once, in any order."""
    balls = [i for i, region in enumerate(regions) if isinstance(region, BallRegion)]
    groups = {metric: [i for i in balls if regions[i].metric == metric] for metric in ("l2", "linf")}  # type: ignore[attr-defined]
    batched: set[int] = set()
    for metric, group in groups.items():
        if len(group) > 1 and len(Z) >= _FEW_ROWS and (metric == "l2" or Z.shape[1] <= TREE_UP_TO):
            batched |= set(group)
            yield from _balls(group, [regions[i] for i in group], Z, metric)  # type: ignore[misc]
    for i, region in enumerate(regions):
        if i not in batched:
            yield i, np.flatnonzero(region.contains(Z))


def _balls(
    group: Sequence[int], balls: Sequence[BallRegion], Z: Any, metric: str
) -> Iterator[tuple[int, IntArray]]:
    d = len(balls[0].center)
    if other := {len(ball.center) for ball in balls} - {d}:
        raise ValueError(f"regions of {d} and of {other.pop()} columns are audited together")
    Z = rows_of(Z, d, "BallRegion")
    centers, radii = np.stack([ball.center for ball in balls]), np.array([ball.radius for ball in balls])
    search = _by_tree if d <= TREE_UP_TO else _by_product
    for j, rows in search(Z, centers, radii, metric):
        yield group[j], rows


def _by_tree(
    Z: FloatArray, centers: FloatArray, radii: FloatArray, metric: str
) -> Iterator[tuple[int, IntArray]]:
    tree = KDTree(Z, metric="euclidean" if metric == "l2" else "chebyshev")
    scale = np.abs(Z).max() + np.abs(centers).max(1)
    wide = np.minimum(radii * (1 + 1e-9) + 1e-9 * scale, np.finfo(float).max ** 0.5 / 2)
    for part in row_chunks(len(centers), 8 * len(Z)):
        for j, candidates in enumerate(tree.query_radius(centers[part], wide[part]), part.start):
            rows = np.sort(candidates)
            yield j, rows[distances(Z[rows], centers[j], metric) <= radii[j]]


def _by_product(
    Z: FloatArray, centers: FloatArray, radii: FloatArray, metric: str
) -> Iterator[tuple[int, IntArray]]:
    """|z - c|^2 = |z|^2 - 2 z.c + |c|^2 about the rows' mean; where rounding could decide, the distance itself."""
    mean = Z.mean(0)
    Zm, C = Z - mean, centers - mean
    z2, c2 = np.einsum("ij,ij->i", Zm, Zm), np.einsum("ij,ij->i", C, C)
    far = mean @ mean  # taking the mean off rounds too
    slack = 8 * (Z.shape[1] + 8) * np.finfo(float).eps
    for part in row_chunks(len(C), 4 * 8 * len(Z)):
        gap = C[part] @ Zm.T
        gap *= -2
        gap += z2
        gap += (c2[part] - radii[part] ** 2)[:, None]  # |z - c|^2 - r^2
        room = slack * (z2 + (c2[part] + np.minimum(radii[part] ** 2, 1e300))[:, None] + far)
        inside: BoolArray = gap <= 0
        at_rim = np.abs(gap) <= room
        for j, (row, rim) in enumerate(zip(inside, at_rim, strict=True), part.start):
            near = np.flatnonzero(rim)
            row[near] = distances(Z[near], centers[j], metric) <= radii[j]
            yield j, np.flatnonzero(row)
