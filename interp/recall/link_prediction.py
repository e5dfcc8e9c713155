"""Link prediction from an incomplete story, and whether who recalls well also predicts well."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.device import derive_seed
from interp.recall.answers import Recaller, read_answers
from interp.recall.metrics import auroc
from interp.recall.narration import GraphVignette, Pair, make_vignette
from interp.recall.prompts import RecallPrompt, conversation, spell_pairs
from interp.recall.runner import collect
from interp.recall.scripted import ScriptedRecaller
from interp.recall.transcripts import Transcripts

if TYPE_CHECKING:
    import pandas as pd

HIDDEN_SHARE = 0.2
QUESTION = (
    "The narrative left some ties out. It mentions none of the pairs below, but about half of them are tied. For "
    "EVERY pair write 1 if you think that the two are tied and 0 if not, judging by the ties you know. Repeat each "
    "pair with its answer. For three entities a, b, c the answer could read: (a,b): 1, (a,c): 0, (b,c): 0.\n"
    "Pairs: {pairs}"
)


@dataclass(frozen=True)
class LinkCase:
    """A story without some of its graph's edges; `hidden` were left out, `absent` are as many true non-edges."""

    vignette: GraphVignette
    hidden: tuple[Pair, ...]
    absent: tuple[Pair, ...]
    clearance: int = 0
    seed: int = 0

    def prompt(self) -> RecallPrompt:
        pairs = [*self.hidden, *self.absent]
        order = np.random.default_rng(self.seed).permutation(len(pairs))
        asked = tuple(pairs[k] for k in order)
        question = QUESTION.format(pairs=spell_pairs(asked))
        messages = conversation(self.vignette, question, self.clearance, "none", self.seed)
        return RecallPrompt(tuple(messages), asked, self.vignette, task="link_prediction")


def hide_links(
    vignette: GraphVignette, share: float = HIDDEN_SHARE, *, clearance: int = 0, random_state: int = 0
) -> LinkCase:
    """Tell a vignette's graph anew with a share of its edges (at least one) left out.

    Raises:
        ValueError: a share outside (0, 1), fewer than two edges, or a complete graph, which has no non-edge to ask.
    """
    if not 0 < share < 1:
        raise ValueError(f"share = {share}: expected a number between 0 and 1")
    graph = vignette.graph
    absent = [pair for pair in vignette.pair_order if not graph.has_edge(*pair)]
    if len(vignette.edges) < 2 or not absent:
        raise ValueError("vignette: link prediction needs at least two edges and one pair without")
    rng = np.random.default_rng(random_state)
    count = min(max(1, round(share * len(vignette.edges))), len(vignette.edges) - 1, len(absent))
    hidden = [vignette.edges[k] for k in rng.choice(len(vignette.edges), count, replace=False)]
    others = [absent[k] for k in rng.choice(len(absent), count, replace=False)]
    graph.remove_edges_from(hidden)
    told = make_vignette(graph, vignette.narrative, random_state, dataset=vignette.dataset, names=list(graph))
    return LinkCase(told, tuple(hidden), tuple(others), clearance, random_state)


def predict_links(
    recaller: Recaller,
    vignettes: Iterable[GraphVignette],
    *,
    share: float = HIDDEN_SHARE,
    clearance: int = 0,
    transcripts: str | os.PathLike[str] | Transcripts | None = None,
    random_state: int = 0,
    show_progress: bool = True,
) -> pd.DataFrame:
    """Ask for the hidden edges of every story.

    Returns one row a story: dataset, nodes, hidden, accuracy over hidden and as many absent pairs (chance 0.5),
    auroc, coverage, unread; accuracy and auroc are NaN where nothing could be read.
    """
    import pandas as pd

    cases = [
        hide_links(v, share, clearance=clearance, random_state=derive_seed(random_state, k) % 2**31)
        for k, v in enumerate(vignettes)
    ]
    store = transcripts if isinstance(transcripts, Transcripts) else Transcripts(transcripts)
    prompts = [case.prompt() for case in cases]
    rows = []
    for case, prompt, answers in zip(
        cases, prompts, collect(recaller, prompts, store, show_progress=show_progress), strict=True
    ):
        result = read_answers(answers, prompt)
        hidden = {frozenset(pair) for pair in case.hidden}
        y = np.array([frozenset(pair) in hidden for pair in prompt.pairs])
        w = np.array([result.probabilities[pair] for pair in prompt.pairs])
        row: dict[str, Any] = {"dataset": case.vignette.dataset, "nodes": len(case.vignette.nodes)}
        scores = {"accuracy": float(((w > 0.5) == y).mean()), "auroc": auroc(y, w)}
        row |= {"hidden": len(hidden)}
        row |= {name: value if result.coverage else np.nan for name, value in scores.items()}
        rows.append(row | {"coverage": result.coverage, "unread": result.n_unread})
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Correlation:
    """Pearson's r of two accuracies over graphs with a 95 % bootstrap interval; NaN where one doesn't vary."""

    r: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"r = {self.r:.2f} [{self.low:.2f}, {self.high:.2f}], n = {self.n}"


def accuracy_correlation(
    recall: Sequence[float], prediction: Sequence[float], *, n_bootstrap: int = 2000, seed: int = 0
) -> Correlation:
    """How recall accuracy and link-prediction accuracy of the same graphs go together; NaN in either leaves one out.

    Raises:
        ValueError: lists of different lengths, or fewer than three graphs with both.
    """
    x, y = np.asarray(recall, float), np.asarray(prediction, float)
    if len(x) != len(y):
        raise ValueError(f"recall and prediction: expected as many of each, got {len(x)} and {len(y)}")
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) < 3:
        raise ValueError(f"recall and prediction: expected at least 3 graphs with both, got {len(x)}")
    draws = np.random.default_rng(seed).integers(len(x), size=(n_bootstrap, len(x)))
    r = _pearson(x[None], y[None])[0]
    resampled = _pearson(x[draws], y[draws])
    resampled = resampled[np.isfinite(resampled)]
    low, high = np.quantile(resampled, [0.025, 0.975]) if len(resampled) else (np.nan, np.nan)
    return Correlation(float(r), float(low), float(high), len(x))


def _pearson(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    dx, dy = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    scale = np.sqrt((dx**2).sum(1) * (dy**2).sum(1))
    return np.where(scale > 1e-12, (dx * dy).sum(1) / np.where(scale > 1e-12, scale, 1), np.nan)


class CommonNeighbourRecaller(ScriptedRecaller):
    """The classic predictor: of the pairs asked, the half with the most common neighbours in the story."""

    def __init__(self) -> None:
        def predict(prompt: RecallPrompt) -> dict[Pair, float]:
            import networkx as nx

            graph = prompt.vignette.graph
            count = {pair: len(list(nx.common_neighbors(graph, *pair))) for pair in prompt.pairs}
            best = sorted(count, key=lambda pair: -count[pair])[: len(count) // 2]
            return {pair: float(pair in best) for pair in count}

        super().__init__(predict, "common_neighbours")
