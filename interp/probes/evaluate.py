"""Scores of probes on a treebank, one row a probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from interp.probes.bank import ProbeBank
from interp.probes.correlation import depth_spearman, distance_spearman
from interp.probes.decoded_trees import ReadOut, read_out
from interp.probes.treebank import DependencyTree
from interp.probes.words import WordActivations

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ProbeScore:
    """One probe on one treebank. A score that the treebank or the probe does not allow is NaN.

    Attributes:
        probe, layer, rank, distance, angular: what it is (`ProbeSpec`; `probe` is its kind).
        uuas, uas, las: of whole trees read out of the activations alone (`AttachmentScores`).
        label_accuracy, balanced_label_accuracy: of the relation of gold edges whose direction is known.
        label_auc: one-vs-rest area under the ROC curve of cos(edge, prototype) over gold edges, averaged over
            the types.
        distance_spearman: `correlation.distance_spearman`, per word.
        depth_spearman, root_accuracy: of the squared norm, and how often its smallest is at the root; only of
            probes with a depth term.
    """

    probe: str
    layer: int
    rank: int
    distance: float
    angular: float
    uuas: float
    uas: float
    las: float
    label_accuracy: float
    balanced_label_accuracy: float
    label_auc: float
    distance_spearman: float
    depth_spearman: float
    root_accuracy: float


@dataclass(frozen=True)
class ProbeReport:
    """Scores of several probes on one treebank; prints as a table.

    Attributes:
        treebank: its name, with "gold" or "silver".
        average: attachment scores are means over sentences ("macro") or shares of all edges ("micro").
    """

    treebank: str
    n_sentences: int
    n_edges: int
    rows: tuple[ProbeScore, ...]
    average: str = "macro"

    def to_frame(self) -> pd.DataFrame:
        """One row a probe."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows]).assign(treebank=self.treebank)

    def best(self, by: str = "las") -> ProbeScore:
        return max(self.rows, key=lambda row: getattr(row, by))

    def plot(self, metrics: Sequence[str] = ("uuas", "las", "label_accuracy")) -> Figure:
        """Scores against the layer."""
        from interp.probes.syntax_plots import plot_layers

        return plot_layers({name: [(row.layer, getattr(row, name)) for row in self.rows] for name in metrics})

    def __str__(self) -> str:
        shown = [f.name for f in fields(ProbeScore) if any(_known(getattr(r, f.name)) for r in self.rows)]
        over = "sentences" if self.average == "macro" else "edges"
        head = (
            f"{self.treebank}: {self.n_sentences} sentences, {self.n_edges} edges; uuas, uas and las are means "
            f"over {over}"
        )
        return head + "\n" + self.to_frame()[shown].to_string(index=False, float_format=lambda x: f"{x:.3f}")


def _known(value: float | str) -> bool:
    return isinstance(value, str) or not np.isnan(value)


def evaluate_probes(
    bank: ProbeBank,
    words: WordActivations,
    trees: Sequence[DependencyTree],
    *,
    treebank: str = "treebank",
    average: str = "macro",
    rooted: bool = False,
    exclude_punct: bool = False,
) -> ProbeReport:
    """Score every probe of a bank on held-out sentences.

    Args:
        treebank: a name for the report; say there whether its trees are gold or silver.
        average: attachment scores by "macro" (over sentences) or "micro" (over edges).
        rooted, exclude_punct: as in `read_out`.
    """
    readings = read_out(bank, words, trees, rooted=rooted, exclude_punct=exclude_punct)
    rows = tuple(score_of(reading, average) for reading in readings)
    return ProbeReport(treebank, len(trees), len(readings[0].matches.dependents), rows, average)


def score_of(reading: ReadOut, average: str = "macro") -> ProbeScore:
    """All scores of one probe."""
    spec, nan = reading.spec, float("nan")
    return ProbeScore(
        probe=spec.kind,
        layer=spec.layer,
        rank=spec.rank,
        distance=spec.distance,
        angular=spec.angular,
        **asdict(reading.scores(average)),
        label_accuracy=float(reading.label_hits.mean()),
        balanced_label_accuracy=reading.balanced_label_accuracy,
        label_auc=reading.label_auc,
        distance_spearman=distance_spearman(reading.distance_matrices(), reading.trees, keep=reading.keep),
        depth_spearman=depth_spearman(reading.depths(), reading.trees, keep=reading.keep)
        if spec.depth
        else nan,
        root_accuracy=reading.root_accuracy if spec.depth else nan,
    )
