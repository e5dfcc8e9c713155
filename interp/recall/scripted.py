"""Recallers whose behaviour is known: for tests of everything behind them, and as baselines beside real models."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from interp.recall.answers import Answer
from interp.recall.narration import Pair
from interp.recall.prompts import RecallPrompt


class ScriptedRecaller:
    """Answers every pair by a function of the prompt: `fn(prompt) -> {pair: 0 or 1}`; unnamed pairs get 0."""

    def __init__(
        self,
        fn: Callable[[RecallPrompt], Mapping[Pair, float]],
        name: str = "scripted",
        parameters: dict[str, Any] | None = None,
    ) -> None:
        self.name, self.parameters, self.workers = name, dict(parameters or {}), 1
        self._fn = fn

    def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
        said = self._fn(prompt)
        return Answer(", ".join(f"({u},{v}): {int(said.get((u, v), 0))}" for u, v in prompt.pairs))


def rng_for(prompt: RecallPrompt, seed: int) -> np.random.Generator:
    """A generator for one story under one condition, wherever in a run it stands and however its pairs are asked."""
    content = f"{prompt.vignette.text}\n{len(prompt.messages)}\n{prompt.task}"
    return np.random.default_rng([seed, int(hashlib.sha256(content.encode()).hexdigest()[:15], 16)])


class NoisyRecaller(ScriptedRecaller):
    """Forgets and invents at known rates.

    A true edge is kept with probability 1 - miss. Another pair is reported with probability `closed` where the two
    have a common neighbour in the true graph, else `base`: `closed` above `base` is a bias towards triangles. Its name
    is noisy, or biased where the two differ.

    Raises:
        ValueError: a rate outside [0, 1].
    """

    def __init__(self, miss: float = 0.15, base: float = 0.05, closed: float = 0.05, seed: int = 0) -> None:
        rates = {"miss": miss, "base": base, "closed": closed}
        for rate, value in rates.items():
            if not 0 <= value <= 1:
                raise ValueError(f"{rate} = {value}: expected a probability between 0 and 1")

        def recall(prompt: RecallPrompt) -> dict[Pair, float]:
            graph, rng, said = prompt.vignette.graph, rng_for(prompt, seed), {}
            for u, v in prompt.vignette.pair_order:
                if graph.has_edge(u, v):
                    rate = 1 - miss
                else:
                    rate = base if set(graph[u]).isdisjoint(graph[v]) else closed
                said[u, v] = said[v, u] = float(rng.random() < rate)
            return said

        super().__init__(recall, "noisy" if base == closed else "biased", {**rates, "seed": seed})


class PerfectRecaller(ScriptedRecaller):
    """Reads the edges off the messages: in a sentence the first name is tied to the others."""

    def __init__(self) -> None:
        super().__init__(lambda prompt: {p: 1.0 for e in told_edges(prompt) for p in (e, e[::-1])}, "perfect")


class RecencyRecaller(ScriptedRecaller):
    """Remembers the last `clauses` ties of the story and nothing else."""

    def __init__(self, clauses: int) -> None:
        if clauses < 1:
            raise ValueError(f"clauses = {clauses}: must be at least 1")

        def recall(prompt: RecallPrompt) -> dict[Pair, float]:
            return {p: 1.0 for e in told_edges(prompt)[-clauses:] for p in (e, e[::-1])}

        super().__init__(recall, "recency", {"clauses": clauses})


def told_edges(prompt: RecallPrompt) -> list[Pair]:
    """The edges that the messages tell, in their order."""
    names = "|".join(map(re.escape, sorted(prompt.vignette.nodes, key=len, reverse=True)))
    story = next(m["content"] for m in prompt.messages if m["content"].startswith("Narrative: "))
    story = story.removeprefix("Narrative: ").split("\n\n")[0]
    edges = []
    for sentence in story.split("."):
        first, *others = re.findall(rf"\b(?:{names})\b", sentence) or [""]
        edges += [(first, other) for other in others]
    return edges
