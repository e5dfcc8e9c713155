"""Features described and scored: contexts in, descriptions and a judge's verdict on them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interp.core.config import to_dict
from interp.probes.lfp.contexts import TopContexts
from interp.probes.lfp.explain import Explainer, Explanation
from interp.probes.lfp.judge import Judge, JudgeReport, score_descriptions


@dataclass(frozen=True)
class FeatureDescriptions:
    """What features are about, and how well a judge finds their texts by that; prints as a table."""

    explainer: str
    explanations: tuple[Explanation, ...]
    scores: JudgeReport
    contexts: TopContexts

    @property
    def related(self) -> list[tuple[int, int]]:
        """(layer, latent) of the features that have to do with the task."""
        return [(e.layer, e.latent) for e in self.explanations if e.task_related]

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without the contexts."""
        return {
            "explainer": self.explainer,
            "explanations": [to_dict(e) for e in self.explanations],
            "judge": self.scores.to_dict(),
        }

    def __str__(self) -> str:
        told = "\n".join(
            f"{e.name:<9} {'related' if e.task_related else '':<8} {e.description}" for e in self.explanations
        )
        return f"{told}\n{self.scores}"


def describe_features(
    contexts: TopContexts, explainer: Explainer, judge: Judge, *, n_each: int = 10, seed: int = 0
) -> FeatureDescriptions:
    """Describe features by their `top_contexts`, and let a judge score the descriptions on held-out ones.

    Args:
        n_each: active and quiet texts per question to the judge.
    """
    explanations = explainer.explain(contexts)
    scores = score_descriptions(explanations, contexts, judge, n_each=n_each, seed=seed)
    return FeatureDescriptions(explainer.name, tuple(explanations), scores, contexts)
