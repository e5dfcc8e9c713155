"""Recalled graphs with as many errors as the real ones, in random places: the null of every pattern in the errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from interp.core.device import derive_seed
from interp.recall.ergm_statistics import as_adjacency

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

Count = Callable[[ndarray], ndarray]  # [b n n] -> [b k]


def aligned(
    true_graphs: Sequence[nx.Graph], recalled_graphs: Sequence[nx.Graph]
) -> list[tuple[ndarray, ndarray]]:
    """Pairs of 0/1 matrices with rows in the true graph's node order.

    Raises:
        ValueError: lists of different or no length, or graphs on different nodes.
    """
    import networkx as nx

    if not true_graphs or len(true_graphs) != len(recalled_graphs):
        raise ValueError(
            f"true_graphs and recalled_graphs: expected as many of each, at least one, got {len(true_graphs)} and "
            f"{len(recalled_graphs)}"
        )
    pairs = []
    for index, (true, recalled) in enumerate(zip(true_graphs, recalled_graphs, strict=True)):
        if set(true) != set(recalled):
            raise ValueError(f"recalled_graphs[{index}] has other nodes than true_graphs[{index}]")
        same_order = nx.Graph()
        same_order.add_nodes_from(true)
        same_order.add_edges_from(recalled.edges)
        pairs.append((as_adjacency(true), as_adjacency(same_order)))
    return pairs


def shuffled_errors(
    true: Int[ndarray, "n n"], recalled: Int[ndarray, "n n"], size: int, seed: int
) -> Int[ndarray, "size n n"]:
    """Recalls with the same numbers of false and of missed edges, placed at random among non-edges and edges."""
    rng = np.random.default_rng(seed)
    rows, cols = np.triu_indices(len(true), k=1)
    y, r = true[rows, cols], recalled[rows, cols]
    drawn = np.tile(y, (size, 1))
    for state, count in ((0, int((r > y).sum())), (1, int((r < y).sum()))):
        places = np.flatnonzero(y == state)
        ranks = rng.random((size, len(places))).argsort(axis=1)[:, :count]
        np.put_along_axis(drawn, places[ranks], 1 - state, axis=1)
    out = np.zeros((size, *true.shape), int)
    out[:, rows, cols] = drawn
    return out + out.transpose(0, 2, 1)


def against_shuffled(
    true_graphs: Sequence[nx.Graph],
    recalled_graphs: Sequence[nx.Graph],
    count: Count,
    names: Sequence[str],
    *,
    n_permutations: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Counts in the true and the recalled graphs, summed over graphs, beside those of recalls with shuffled errors.

    Columns: true, recalled, difference, null_mean and null_sd (of the recalled count under shuffling), z (NaN where
    shuffling changes nothing).
    """
    import pandas as pd

    if n_permutations < 2:
        raise ValueError(f"n_permutations = {n_permutations}: at least 2")
    total = np.zeros((2, len(names)))
    null: Float[ndarray, "b k"] = np.zeros((n_permutations, len(names)))
    for index, (true, recalled) in enumerate(aligned(true_graphs, recalled_graphs)):
        total += count(np.stack([true, recalled]))
        null += count(shuffled_errors(true, recalled, n_permutations, derive_seed(seed, index)))
    sd = null.std(0, ddof=1)
    z = np.where(sd > 1e-12, (total[1] - null.mean(0)) / np.where(sd > 1e-12, sd, 1), np.nan)
    columns: dict[str, Any] = {"true": total[0], "recalled": total[1], "difference": total[1] - total[0]}
    columns |= {"null_mean": null.mean(0), "null_sd": sd, "z": z}
    return pd.DataFrame(columns, index=list(names))
