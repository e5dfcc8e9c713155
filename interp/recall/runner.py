"""Running an experiment: prompts out, replies into the transcript file, probabilities and scores back."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.files import read_json, write_json
from interp.core.identity import Identity
from interp.core.messages import at_least, one_of
from interp.core.transcripts import ask_and_keep
from interp.recall.answers import Answer, Recaller, RecallResult, read_answers
from interp.recall.metrics import METRICS, recall_metrics, summarise
from interp.recall.narration import GraphVignette
from interp.recall.prompts import PRIMING, STRENGTHS, RecallPrompt, build_messages
from interp.recall.transcripts import Transcripts, recall_question

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from matplotlib.figure import Figure

SETTINGS, TRANSCRIPTS = "run.json", "transcripts.jsonl"
CONSENSUS = 0.1

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Case:
    """One story under one condition; `seed` draws the word-span sentences and permutes pairs.

    Raises:
        ValueError: an unknown clearance or priming.
    """

    vignette: GraphVignette
    clearance: int = 7
    priming: str = "none"
    permute_pairs: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("clearance", self.clearance, STRENGTHS)
        one_of("priming", self.priming, PRIMING)

    def prompt(self) -> RecallPrompt:
        return build_messages(
            self.vignette,
            self.clearance,
            self.priming,
            permute_pairs=self.permute_pairs,
            random_state=self.seed,
        )

    def to_dict(self) -> dict[str, Any]:
        rest = ("clearance", "priming", "permute_pairs", "seed")
        return {"vignette": self.vignette.to_dict(), **{name: getattr(self, name) for name in rest}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Case:
        return cls(**{**values, "vignette": GraphVignette.from_dict(values["vignette"])})


@dataclass
class RecallRun:
    """Cases with their recalled graphs.

    A pair that an answer says nothing about counts as no edge (`coverage` is the share that it speaks of); where
    nothing at all could be read there is no recall and all scores are NaN.

    Attributes:
        recaller: its name.
        threshold: w above it counts as recalled in the scores.
    """

    cases: list[Case]
    results: list[RecallResult]
    recaller: str
    threshold: float = 0.5

    def to_frame(self) -> pd.DataFrame:
        """One row a case: its condition, the graph's size, the scores, what could be read and what it cost."""
        import pandas as pd

        rows = []
        for case, result in zip(self.cases, self.results, strict=True):
            story = case.vignette
            row: dict[str, Any] = {"recaller": self.recaller, "dataset": story.dataset}
            row |= {"narrative": story.narrative, "clearance": case.clearance, "priming": case.priming}
            row |= {"nodes": len(story.nodes), "edges": len(story.edges)}
            row["density"] = len(story.edges) / len(story.pair_order)
            scores = recall_metrics(story.graph, result.probabilities, story.nodes, threshold=self.threshold)
            row |= {name: value if result.coverage else math.nan for name, value in scores.to_dict().items()}
            row |= {"coverage": result.coverage, "unread": result.n_unread, "unparsed": result.n_unparsed}
            row |= {"conflicts": result.n_conflicts, "refusal": result.refusal}
            row |= {"prompt_tokens": result.prompt_tokens, "completion_tokens": result.completion_tokens}
            row |= {"cost": result.cost}
            rows.append(row)
        return pd.DataFrame(rows)

    def summary(self, by: Sequence[str] = ("dataset",), metrics: Sequence[str] = METRICS) -> pd.DataFrame:
        """Means with 95 % intervals by group, see `metrics.summarise`."""
        return summarise(self.to_frame(), by, metrics)

    def true_graphs(self) -> list[nx.Graph]:
        return [case.vignette.graph for case in self.cases]

    def recalled_graphs(self, consensus: float = CONSENSUS) -> list[nx.Graph]:
        """Graphs of the pairs with w >= consensus, for the analysis of patterns (scores use `threshold`)."""
        import networkx as nx

        graphs = []
        for case, result in zip(self.cases, self.results, strict=True):
            graph = nx.Graph()
            graph.add_nodes_from(case.vignette.graph)
            graph.add_edges_from(pair for pair, w in result.probabilities.items() if w >= consensus)
            graphs.append(graph)
        return graphs

    def select(self, **conditions: Any) -> RecallRun:
        """The cases whose row in `to_frame` has these values, e.g. `run.select(dataset="road")`."""
        frame = self.to_frame()
        if unknown := set(conditions) - set(frame.columns):
            raise ValueError(
                f"select: no column {', '.join(sorted(unknown))}; there are: {', '.join(frame.columns)}"
            )
        chosen = np.logical_and.reduce([frame[name] == value for name, value in conditions.items()])
        kept = np.flatnonzero(chosen)
        if not len(kept):
            raise ValueError(f"select: no case with {conditions}")
        return RecallRun(
            [self.cases[k] for k in kept], [self.results[k] for k in kept], self.recaller, self.threshold
        )

    def legible(self) -> RecallRun:
        """The cases of which at least one pair could be read.

        Raises:
            ValueError: there is none.
        """
        if not any(result.coverage for result in self.results):
            raise ValueError(
                f"{self.recaller}: not one answer to {len(self.cases)} cases could be read; look at the replies, and "
                "ask again (local models: mode='forced_choice' always answers)"
            )
        kept = [k for k, result in enumerate(self.results) if result.coverage]
        return RecallRun(
            [self.cases[k] for k in kept], [self.results[k] for k in kept], self.recaller, self.threshold
        )

    def plot(self) -> Figure:
        """Accuracy, F1 and AUROC by data set beside the baselines."""
        from interp.recall.score_plots import plot_scores

        return plot_scores(self.to_frame())

    def __str__(self) -> str:
        from interp.recall.reports import spell_run

        return spell_run(self)


@dataclass
class GraphRecallExperiment:
    """Asks a recaller about stories.

    Args:
        recaller: see `Recaller`.
        clearance, priming, permute_pairs: the condition of vignettes given bare; `Case`s bring their own.
        samples: replies per case, whose answers are averaged (more than one makes sense with a temperature).
        threshold: for the scores.
        transcripts: a file that keeps replies and answers repeated questions; None: the experiment itself does.
        random_state: seeds the word-span sentences and the order of permuted pairs.
    """

    recaller: Recaller
    clearance: int = 7
    priming: str = "none"
    permute_pairs: bool = False
    samples: int = 1
    threshold: float = 0.5
    transcripts: str | os.PathLike[str] | Transcripts | None = None
    random_state: int = 0
    show_progress: bool = field(default=True, repr=False)

    def run(self, vignettes: Iterable[GraphVignette | Case]) -> RecallRun:
        """Ask about every story.

        Raises:
            ValueError: no story, fewer than one sample, or what the prompt or recaller refuses.
            ConnectionError: some replies failed; the others are kept, so that running again asks for the rest only.
        """
        cases = [
            v
            if isinstance(v, Case)
            else Case(v, self.clearance, self.priming, self.permute_pairs, self.random_state + k)
            for k, v in enumerate(vignettes)
        ]
        if not cases:
            raise ValueError("vignettes is empty; give at least one")
        if not isinstance(self.transcripts, Transcripts):
            self.transcripts = Transcripts(self.transcripts)
        prompts = [case.prompt() for case in cases]
        replies = collect(
            self.recaller, prompts, self.transcripts, samples=self.samples, show_progress=self.show_progress
        )
        results = [read_answers(answers, prompt) for answers, prompt in zip(replies, prompts, strict=True)]
        if illegible := sum(not result.coverage for result in results):
            logger.warning(
                "%s: nothing could be read in %d of %d cases; they have no scores",
                self.recaller.name,
                illegible,
                len(cases),
            )
        return RecallRun(cases, results, self.recaller.name, self.threshold)


def collect(
    recaller: Recaller,
    prompts: Sequence[RecallPrompt],
    store: Transcripts,
    *,
    samples: int = 1,
    show_progress: bool = True,
) -> list[list[Answer]]:
    """`samples` replies to every prompt, from the store where it has them; see `ask_and_keep` for errors.

    Raises:
        ValueError: fewer than one sample.
    """
    at_least("samples", samples, 1)
    questions = [recall_question(recaller, prompt, k) for prompt in prompts for k in range(samples)]
    found = ask_and_keep(questions, store, recaller.workers, desc=recaller.name, show_progress=show_progress)
    return [found[start : start + samples] for start in range(0, len(found), samples)]


@dataclass
class Replay:
    """Stands in for the recaller of a saved run: everything must be in the transcripts."""

    name: str
    parameters: dict[str, Any]
    workers: int = 1

    def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
        return Answer(error="not in the transcripts: the run was not finished")


def save_settings(
    folder: str | os.PathLike[str], recaller: Recaller, cases: Sequence[Case], samples: int
) -> None:
    """Write what `load_run` needs beside the transcripts; a folder with replies of another run is refused.

    Raises:
        ValueError: fewer than one sample, or replies of a run with other settings (which are named).
    """
    at_least("samples", samples, 1)
    path = Path(folder) / SETTINGS
    run = Identity.of(
        "recall run",
        recaller={"name": recaller.name, "parameters": recaller.parameters},
        samples=samples,
        n_cases=len(cases),
        cases=[case.to_dict() for case in cases],
    )
    if path.is_file() and (Path(folder) / TRANSCRIPTS).is_file():
        kept = Identity.from_dict(read_json(path), path)
        run.check(kept, folder, "repeat its settings or choose another folder")
    else:
        write_json(path, run.to_dict())


def load_run(folder: str | os.PathLike[str], *, threshold: float = 0.5) -> RecallRun:
    """A saved run, finished or not: cases without a complete set of replies are left out with a warning.

    Raises:
        ValueError: no run there, a damaged one, or not one reply.
    """
    path = Path(folder) / SETTINGS
    if not path.is_file():
        raise ValueError(f"{folder} holds no {SETTINGS}; make a run with 'interp recall run --out {folder}'")
    settings = Identity.from_dict(read_json(path), path).covers
    recaller = Replay(**settings["recaller"])
    store = Transcripts(Path(folder) / TRANSCRIPTS)
    cases = [Case.from_dict(values) for values in settings["cases"]]
    finished = []
    for case in cases:
        prompt = case.prompt()
        asked = [recall_question(recaller, prompt, sample) for sample in range(settings["samples"])]
        if all(store.get(question) is not None for question in asked):
            finished.append(case)
    if not finished:
        raise ValueError(f"{folder}: not one of the {len(cases)} cases has its replies in {TRANSCRIPTS}")
    if len(finished) < len(cases):
        logger.warning(
            "%s: %d of %d cases are answered; the others are left out", folder, len(finished), len(cases)
        )
    experiment = GraphRecallExperiment(
        recaller, samples=settings["samples"], threshold=threshold, transcripts=store, show_progress=False
    )
    return experiment.run(finished)
