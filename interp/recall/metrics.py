"""How accurate a recalled graph is, and tables of it with confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.recall.narration import Pair

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

METRICS = ("accuracy", "precision", "recall", "f1", "brier", "auroc")
MIN_NORMAL = 30


@dataclass(frozen=True)
class RecallMetrics:
    """Scores over all n(n-1)/2 pairs of one graph.

    precision, recall and F1 are 0 where their denominator is; two empty graphs agree with F1 = 1. `brier` and `auroc`
    need probabilities (`auroc` also an edge and a non-edge) and are NaN otherwise.
    """

    tp: int
    fp: int
    fn: int
    tn: int
    accuracy: float
    precision: float
    recall: float
    f1: float
    brier: float = float("nan")
    auroc: float = float("nan")

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def recall_metrics(
    true_graph: nx.Graph,
    recalled: nx.Graph | Mapping[Pair, float],
    nodes: Sequence[Any] | None = None,
    *,
    threshold: float = 0.5,
) -> RecallMetrics:
    """Compare a recalled graph, or probabilities of its edges (w > threshold counts), with the true one.

    Args:
        nodes: whose pairs are scored; the true graph's where not given.

    Raises:
        ValueError: fewer than two nodes, a node in the recall that isn't among them, or a threshold outside [0, 1).
    """
    import networkx as nx

    if not 0 <= threshold < 1:
        raise ValueError(f"threshold = {threshold}: expected 0 <= threshold < 1")
    names = list(true_graph if nodes is None else nodes)
    if len(names) < 2:
        raise ValueError(f"nodes: at least two are needed, got {len(names)}")
    given = recalled.nodes if isinstance(recalled, nx.Graph) else {name for pair in recalled for name in pair}
    if strangers := sorted(map(str, set(given) - set(names))):
        raise ValueError(f"recalled has nodes that the true graph doesn't: {', '.join(strangers)}")
    if isinstance(recalled, nx.Graph):
        weights = {frozenset(edge): 1.0 for edge in recalled.edges}
    else:
        weights = {frozenset(pair): float(w) for pair, w in recalled.items()}
    pairs = list(combinations(names, 2))
    y = np.array([true_graph.has_edge(u, v) for u, v in pairs])
    w = np.array([weights.get(frozenset(pair), 0.0) for pair in pairs])
    said = w > threshold
    tp, fp, fn = int((y & said).sum()), int((~y & said).sum()), int((y & ~said).sum())
    tn = len(pairs) - tp - fp - fn
    f1 = _ratio(2 * tp, 2 * tp + fp + fn) if tp + fp + fn else 1.0
    scores = (_ratio(tp + tn, len(pairs)), _ratio(tp, tp + fp), _ratio(tp, tp + fn), f1)
    if isinstance(recalled, nx.Graph):
        return RecallMetrics(tp, fp, fn, tn, *scores)
    return RecallMetrics(tp, fp, fn, tn, *scores, float(np.mean((w - y) ** 2)), auroc(y, w))


def _ratio(a: float, b: float) -> float:
    return a / b if b else 0.0


def auroc(y: np.ndarray, w: np.ndarray) -> float:
    """The chance that an edge has a higher probability than a non-edge, ties counting half; NaN without both."""
    from scipy.stats import rankdata

    n1, n0 = int(y.sum()), int((~y).sum())
    if not n1 or not n0:
        return float("nan")
    return float((rankdata(w)[y].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def mean_ci(values: Sequence[float]) -> tuple[float, float, int]:
    """Mean, half-width of its 95 % interval and number of finite values; Student's t below 30, else 1.96."""
    from scipy.stats import t

    finite = np.asarray([v for v in values if np.isfinite(v)], float)
    n = len(finite)
    if n == 0:
        return float("nan"), float("nan"), 0
    if n == 1:
        return float(finite[0]), float("nan"), 1
    quantile = t.ppf(0.975, n - 1) if n < MIN_NORMAL else 1.96
    return float(finite.mean()), float(quantile * finite.std(ddof=1) / np.sqrt(n)), n


def proportion_ci(values: Sequence[float]) -> tuple[float, float, float, int]:
    """Mean of values in [0, 1], the ends of its 95 % interval, which stay there too, and the number of finite values.

    Wilson's score interval for n_eff = mean (1 - mean) / se^2 trials, the effective sample size of surveys, with
    Student's t in place of 1.96 below 30 (Dean and Pagano 2015); the mean itself where all values are the same, NaN
    ends for one value.
    """
    mean, half, n = mean_ci(values)
    if n < 2 or half == 0 or not 0 < mean < 1:
        return mean, mean - half, mean + half, n
    shrunk = half**2 / (mean * (1 - mean))  # q^2 / n_eff
    centre = (mean + shrunk / 2) / (1 + shrunk)
    width = np.sqrt(half**2 + (shrunk / 2) ** 2) / (1 + shrunk)
    return mean, max(0.0, float(centre - width)), min(1.0, float(centre + width)), n


def bounded_ci(values: Sequence[float], least: float, most: float) -> tuple[float, float, float, int]:
    """`proportion_ci` for values in [least, most]."""
    scale = most - least
    mean, low, high, n = proportion_ci([(v - least) / scale for v in values])
    return least + scale * mean, least + scale * low, least + scale * high, n


def summarise(
    frame: pd.DataFrame, by: Sequence[str] = ("dataset",), metrics: Sequence[str] = METRICS
) -> pd.DataFrame:
    """Mean and 95 % interval (`<metric>_low`, `<metric>_high`, see `proportion_ci`) of each metric by group.

    Raises:
        ValueError: a column that isn't there.
    """
    import pandas as pd

    if missing := [c for c in (*by, *metrics) if c not in frame]:
        raise ValueError(f"no column {', '.join(missing)}; there are: {', '.join(map(str, frame.columns))}")
    rows = []
    for key, group in frame.groupby(list(by), sort=True):
        row: dict[str, Any] = dict(zip(by, key, strict=True)) | {"graphs": len(group)}
        for metric in metrics:
            row[metric], row[f"{metric}_low"], row[f"{metric}_high"], _ = proportion_ci(
                group[metric].tolist()
            )
        rows.append(row)
    return pd.DataFrame(rows)


def spell_summary(table: pd.DataFrame, metrics: Sequence[str]) -> str:
    """A table of `summarise` for people: `mean [low, high]`."""
    shown = table.drop(columns=[f"{m}_{end}" for m in metrics for end in ("low", "high")]).astype(object)
    for m in metrics:
        ends = zip(table[m], table[f"{m}_low"], table[f"{m}_high"], strict=True)
        shown[m] = [f"{a:.3f} [{b:.3f}, {c:.3f}]" if np.isfinite(b) else f"{a:.3f}" for a, b, c in ends]
    return shown.to_string(index=False)
