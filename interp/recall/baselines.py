"""What recallers that know nothing of the graph, or only the end of the story, score on the same graphs; and whether a
run is better than the best of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from interp.recall.metrics import bounded_ci, mean_ci, proportion_ci

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

RECENT = 3
BASELINES = ("all zero", "always one", "random", "matched density", "recency")
JUDGED = ("accuracy", "f1")
ROUNDING = 1e-9


class Scores(NamedTuple):
    """Scores of a recaller, in expectation where it draws pairs at random."""

    accuracy: float
    precision: float
    recall: float
    f1: float


def baselines(true_graph: nx.Graph, n_recalled: int) -> dict[str, Scores]:
    """Scores of the baselines (`BASELINES`) on one graph, and of a perfect recall.

    - all zero: says 0 to every pair.
    - always one: says 1 to every pair.
    - random: says 1 to each pair with the probability p = edges / pairs. Accuracy p^2 + (1 - p)^2; precision, recall
      and F1 p (the last to first order).
    - matched density: says 1 to `n_recalled` pairs at random, as many as the recaller it stands beside. Exact
      expectations: precision p, recall n_recalled / pairs, F1 2 p n_recalled / (n_recalled + edges).
    - recency: says 1 to the three ties that the story tells last (`RECENT`; all, where it tells fewer) and 0 to
      all others, as `RecencyRecaller(3)` does. Not to as many as were recalled: nobody could score above that.

    Args:
        n_recalled: pairs that the recaller says 1 to.

    Raises:
        ValueError: a number of pairs that the graph doesn't have.
    """
    n = len(true_graph)
    return expected_scores(n * (n - 1) // 2, true_graph.number_of_edges(), n_recalled)


def expected_scores(n_pairs: int, n_edges: int, n_recalled: int) -> dict[str, Scores]:
    """`baselines` from the numbers of pairs, edges and recalled pairs, which are all they depend on."""
    if not (0 <= n_recalled <= n_pairs and 0 <= n_edges <= n_pairs):
        raise ValueError(
            f"n_recalled = {n_recalled}, n_edges = {n_edges}: expected at most the {n_pairs} pairs of the graph"
        )
    p = n_edges / n_pairs

    def hits(recalled: int, expected: float) -> Scores:
        """For `recalled` pairs of which `expected` are edges."""
        accuracy = (n_pairs - recalled - n_edges + 2 * expected) / n_pairs
        f1 = 2 * expected / (recalled + n_edges) if recalled + n_edges else 1.0
        precision, recall = (expected / k if k else 0.0 for k in (recalled, n_edges))
        return Scores(accuracy, precision, recall, f1)

    recent = min(RECENT, n_edges)
    return {
        "all zero": hits(0, 0),
        "always one": hits(n_pairs, n_edges),
        "random": Scores(p**2 + (1 - p) ** 2, p, p, p),
        "matched density": hits(n_recalled, p * n_recalled),
        "recency": hits(recent, recent),
        "perfect": hits(n_edges, n_edges),
    }


def with_baselines(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of cases (`RecallRun.to_frame`) with columns `accuracy of always one`, `f1 of recency` and so on.

    NaN where the case has no scores.
    """
    columns: dict[str, list[float]] = {f"{m} of {name}": [] for m in JUDGED for name in BASELINES}
    for case in frame.itertuples():
        scores = None
        if np.isfinite(case.accuracy):
            scores = expected_scores(case.nodes * (case.nodes - 1) // 2, case.edges, int(case.tp + case.fp))
        for metric in JUDGED:
            for name in BASELINES:
                columns[f"{metric} of {name}"].append(getattr(scores[name], metric) if scores else np.nan)
    return frame.assign(**columns)


def groups_of(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """All cases, and where there are several the groups by columns, with their labels."""
    yield "all", frame
    parts = list(frame.groupby(list(by), sort=True))
    if len(parts) > 1:
        yield from ((" ".join(map(str, key)), part) for key, part in parts)


def baseline_table(frame: pd.DataFrame, by: Sequence[str] = ("dataset",)) -> pd.DataFrame:
    """Means by group: one row a group and metric, the run's own beside those of the baselines."""
    import pandas as pd

    rows = []
    for label, part in groups_of(with_baselines(frame), by):
        for metric in JUDGED:
            mean, low, high, n = proportion_ci(part[metric].tolist())
            row: dict[str, Any] = {"group": label, "metric": metric, "graphs": n}
            row |= {"recalled": mean, "low": low, "high": high}
            rows.append(row | {name: mean_ci(part[f"{metric} of {name}"].tolist())[0] for name in BASELINES})
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Verdict:
    """A group's mean score beside the best baseline's, over the same graphs.

    Attributes:
        best: the baseline with the highest mean; `difference` is the run's mean minus its, `low` and `high` the 95 %
            interval of that over graphs (NaN for one graph).
        every_pair, no_pair: graphs in which every pair was recalled, or none.
    """

    group: str
    metric: str
    recalled: float
    best: str
    baseline: float
    difference: float
    low: float
    high: float
    n_graphs: int
    every_pair: int
    no_pair: int

    @property
    def better(self) -> bool:
        return self.low > ROUNDING

    def __str__(self) -> str:
        name = {"f1": "F1"}.get(self.metric, self.metric)
        text = f"{self.group}: {name} {self.recalled:.3f}, best baseline {self.baseline:.3f} ({self.best}): "
        if not np.isfinite(self.low):
            return f"{text}{self.n_graphs} graph can't tell"
        found = "better" if self.better else "worse" if self.high < -ROUNDING else "not shown to be better"
        return f"{text}{found}, difference {self.difference:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def verdicts(frame: pd.DataFrame, by: Sequence[str] = ("dataset",)) -> list[Verdict]:
    """Is the run better than every baseline? By group and metric; groups without scores are left out."""
    found = []
    for label, part in groups_of(with_baselines(frame), by):
        scored = part[part["accuracy"].notna()]
        said = scored["tp"] + scored["fp"]
        pairs = scored["nodes"] * (scored["nodes"] - 1) // 2
        for metric in JUDGED if len(scored) else ():
            means = {name: float(scored[f"{metric} of {name}"].mean()) for name in BASELINES}
            best = max(means, key=lambda name: means[name])
            difference, low, high, n = bounded_ci(
                (scored[metric] - scored[f"{metric} of {best}"]).tolist(), -1, 1
            )
            own = float(scored[metric].mean())
            counts = int((said == pairs).sum()), int((said == 0).sum())
            found.append(Verdict(label, metric, own, best, means[best], difference, low, high, n, *counts))
    return found


def spell_verdicts(found: Sequence[Verdict]) -> str:
    """The verdicts as lines of text, and what a recaller does that says the same to every pair."""
    lines = [str(verdict) for verdict in found]
    for whole in found[:1]:
        for count, which, word in (
            (whole.every_pair, "every pair was", "1"),
            (whole.no_pair, "no pair was", "0"),
        ):
            if count:
                same = f"who always says {word} scores the same there"
                lines.append(f"{which} recalled in {count} of {whole.n_graphs} graphs: {same}")
    return "\n".join(lines)
