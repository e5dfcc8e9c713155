"""Rank correlations between tree and probe: of distances (DSpr) and of depths (NSpr)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.core.messages import one_of
from interp.probes.scores import kept_words
from interp.probes.treebank import DependencyTree

LENGTHS = range(5, 51)  # of sentences that count (Hewitt and Manning 2019)
PER = ("word", "sentence")


def distance_spearman(
    distances: Sequence[Float[np.ndarray, "n n"]],
    trees: Sequence[DependencyTree],
    *,
    per: str = "word",
    keep: np.ndarray | None = None,
) -> float:
    """Spearman correlation of predicted distances with tree distances.

    Args:
        distances: predicted, one matrix a sentence; any increasing function of them gives the same.
        per: "word": of each word's row, averaged over the words of all sentences of a length, then over the
            lengths 5 to 50 (Hewitt and Manning 2019); "sentence": of each whole matrix, averaged over sentences.
        keep: [N] false at words left out (punctuation): as if the sentences had only the others. None is
            Hewitt and Manning's way.

    Returns NaN where no sentence qualifies.
    """
    one_of("per", per, PER)
    by_length: dict[int, list[float]] = {}
    for predicted, tree, words in zip(distances, trees, kept_words(trees, keep), strict=True):
        parts = [matrix[np.ix_(words, words)] for matrix in (predicted, tree.distances())]
        rows = parts if per == "word" else [part.reshape(1, -1) for part in parts]
        by_length.setdefault(len(words), []).extend(_spearman(*rows))
    return _average(by_length, per)


def depth_spearman(
    depths: Sequence[Float[np.ndarray, " n"]],
    trees: Sequence[DependencyTree],
    *,
    per: str = "word",
    keep: np.ndarray | None = None,
) -> float:
    """Spearman correlation of predicted depths with tree depths in each sentence.

    Args:
        per: "word": averaged over the sentences of a length, then over the lengths 5 to 50; "sentence": averaged
            over all sentences.
        keep: as in `distance_spearman`.
    """
    one_of("per", per, PER)
    by_length: dict[int, list[float]] = {}
    for predicted, tree, words in zip(depths, trees, kept_words(trees, keep), strict=True):
        by_length.setdefault(len(words), []).extend(
            _spearman(predicted[None, words], tree.depths[None, words])
        )
    return _average(by_length, per)


def _spearman(x: np.ndarray, y: np.ndarray) -> list[float]:
    """Of every row of x with that of y; rows without any variation are left out."""
    from scipy.stats import rankdata

    if x.shape[1] < 2:
        return []
    a, b = (rankdata(part, axis=1) for part in (x, y))
    a, b = (part - part.mean(1, keepdims=True) for part in (a, b))
    scale = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return ((a * b).sum(1)[scale > 0] / scale[scale > 0]).tolist()


def _average(by_length: dict[int, list[float]], per: str) -> float:
    if per == "sentence":
        values = [value for group in by_length.values() for value in group]
    else:
        values = [float(np.mean(group)) for n, group in by_length.items() if n in LENGTHS and group]
    return float(np.mean(values)) if values else float("nan")
