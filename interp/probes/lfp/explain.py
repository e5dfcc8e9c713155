"""What features are about: a lexicon's answer, which needs nobody, and a chat model's.

After Marks et al. 2024 (arXiv 2310.08164), who describe features by a chat model from five of their twenty strongest
contexts, and let the same model say whether the description has to do with the task.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from interp.core.device import derive_seed
from interp.core.messages import at_least
from interp.models.chat import ChatModel, Message, ask_all
from interp.probes.lfp.contexts import Context, FeatureContexts, TopContexts
from interp.probes.lfp.lexicon import word_valence

NEVER = "never active in the texts that were read"
LISTED_WORDS = 8
CLEAR_VALENCE = (
    1.0  # of the weighted mean, from which a feature counts as one of positive or of negative words
)
MANY_ACTIVE = 0.2  # share of active tokens below which the prompt lists them once more

DESCRIBE = (
    "You look at one feature of a language model. You are given short texts, one token a line, each with the strength "
    "of the feature at it: a whole number from 0 (silent) to 10 (strongest). Say in one sentence what the feature "
    "responds to. Name the common property of the tokens where it is strong; do not list the texts."
)
CLASSIFY = (
    "Here is what a feature of a language model responds to:\n\n{description}\n\nHas this to do with {task}? "
    "Reply with 1 if it has, with 0 if it hasn't, and with nothing else."
)


@dataclass(frozen=True)
class Explanation:
    """What a feature is about; `p_value` and `valence` where a lexicon told it."""

    layer: int
    latent: int
    description: str
    task_related: bool
    p_value: float | None = None
    valence: float | None = None

    @property
    def name(self) -> str:
        return f"{self.layer}/{self.latent}"


class Explainer(Protocol):
    """Whatever describes features, all of them at once: some tests and requests belong together.

    Attributes:
        name, settings: what explanations depend on beside the contexts, as JSON values.
    """

    name: str
    settings: dict[str, Any]

    def explain(self, contexts: TopContexts) -> list[Explanation]:
        """One explanation per feature, in order."""
        ...


class LexiconExplainer:
    """Lists what a feature fires on, and tests whether those words carry more feeling than the texts' words do.

    A feature is task-related if the mean |valence| of the peak tokens of its top contexts, weighted by the peaks,
    exceeds what as many random tokens of the texts give: a permutation test per feature, Benjamini-Hochberg over
    the features. The words in the description come from the contexts that are `shown`.

    Args:
        valence: of a word, 0 for one without feeling; VADER's by default.
        n_shuffles: random draws per feature.
        level: false discovery rate.
    """

    def __init__(
        self,
        valence: Callable[[str], float] = word_valence,
        *,
        n_shuffles: int = 1000,
        level: float = 0.05,
        seed: int = 0,
    ) -> None:
        at_least("n_shuffles", n_shuffles, 1)
        if not 0 < level < 1:
            raise ValueError(f"level = {level} must lie between 0 and 1")
        self.name = "lexicon"
        self.settings: dict[str, Any] = {"n_shuffles": n_shuffles, "level": level, "seed": seed}
        self._valence, self._n_shuffles, self._level, self._seed = valence, n_shuffles, level, seed

    def explain(self, contexts: TopContexts) -> list[Explanation]:
        """See `Explainer`."""
        from scipy.stats import false_discovery_control

        words = list(contexts.background)
        strength = np.array([abs(self._valence(word)) for word in words])
        share = np.array(list(contexts.background.values()), dtype=float)
        p = np.array([self._p_value(f, strength, share / share.sum()) for f in contexts.features])
        related = false_discovery_control(p) <= self._level if len(p) else p
        return [
            self._describe(f, float(p_value), bool(is_related))
            for f, p_value, is_related in zip(contexts.features, p, related, strict=True)
        ]

    def _p_value(self, feature: FeatureContexts, strength: np.ndarray, share: np.ndarray) -> float:
        if not feature.top:
            return 1.0
        weights = np.array([context.peak for context in feature.top])
        found = np.array([abs(self._valence(context.peak_token)) for context in feature.top])
        rng = np.random.default_rng(derive_seed(self._seed, "lexicon", feature.layer, feature.latent))
        drawn = strength[rng.choice(len(strength), (self._n_shuffles, len(weights)), p=share)]
        as_strong = (drawn @ weights >= found @ weights - 1e-12).sum()
        return float((1 + as_strong) / (1 + self._n_shuffles))

    def _describe(self, feature: FeatureContexts, p_value: float, related: bool) -> Explanation:
        if not feature.top:
            return Explanation(feature.layer, feature.latent, NEVER, False, p_value)
        total: dict[str, float] = defaultdict(float)
        for context in feature.shown:
            total[context.peak_token] += context.peak
        valence = sum(w * self._valence(word) for word, w in total.items()) / sum(total.values())
        listed = ", ".join(f'"{word}"' for word in sorted(total, key=lambda w: -total[w])[:LISTED_WORDS])
        if not related:
            kind = "not shown to have more feeling than the texts"
        elif abs(valence) < CLEAR_VALENCE:
            kind = "words of feeling, for and against"
        else:
            kind = f"{'positive' if valence > 0 else 'negative'} words (mean valence {valence:+.1f})"
        return Explanation(
            feature.layer, feature.latent, f"fires on {listed}: {kind}", related, p_value, valence
        )


class ChatExplainer:
    """Descriptions by a chat model: one request to describe each feature, one to say whether it concerns the task.

    Args:
        chat: such as `ChatEndpoint(base_url, model)`.
        transcripts: file of the replies: nothing in it is asked for again.
        task: what the feedback is about.
        n_records: of a feature's shown contexts, how many the model sees.

    Raises (while explaining):
        ConnectionError: some replies failed; those that came are kept, so run again.
    """

    def __init__(
        self,
        chat: ChatModel,
        transcripts: str | os.PathLike[str] | None = None,
        *,
        task: str = "sentiment, or good and bad feelings",
        n_records: int = 5,
        seed: int = 0,
    ) -> None:
        at_least("n_records", n_records, 1)
        self.name = chat.name
        self.settings: dict[str, Any] = {
            **chat.parameters,
            "task": task,
            "n_records": n_records,
            "seed": seed,
        }
        self._chat, self._transcripts, self._task = chat, transcripts, task
        self._n_records, self._seed = n_records, seed

    def explain(self, contexts: TopContexts) -> list[Explanation]:
        """See `Explainer`."""
        active = [f for f in contexts.features if f.top]
        asked = [describe_messages(f, n_records=self._n_records, seed=self._seed) for f in active]
        texts = [" ".join(r.text.split()) for r in ask_all(self._chat, asked, self._transcripts)]
        verdicts = ask_all(
            self._chat, [classify_messages(text, self._task) for text in texts], self._transcripts
        )
        told = {
            f.name: Explanation(f.layer, f.latent, text, verdict.text.strip().startswith("1"))
            for f, text, verdict in zip(active, texts, verdicts, strict=True)
        }
        return [told.get(f.name, Explanation(f.layer, f.latent, NEVER, False)) for f in contexts.features]


def describe_messages(feature: FeatureContexts, *, n_records: int = 5, seed: int = 0) -> list[Message]:
    """The request to describe a feature: token and level a line, records in random order."""
    rng = random.Random(f"records {seed} {feature.name}")
    chosen = rng.sample(feature.shown, min(n_records, len(feature.shown)))
    records = "\n\n".join(_record(context, feature.maximum) for context in chosen)
    return [{"role": "system", "content": DESCRIBE}, {"role": "user", "content": records}]


def _record(context: Context, maximum: float) -> str:
    lines = [
        f"{token}\t{level}" for token, level in zip(context.tokens, context.levels(maximum), strict=True)
    ]
    active = [line for line in lines if not line.endswith("\t0")]
    if len(active) < MANY_ACTIVE * len(lines):
        lines += ["Active tokens again:", *active]
    return "\n".join(lines)


def classify_messages(description: str, task: str) -> list[Message]:
    """The request to say whether a description concerns the task: 1 or 0."""
    return [{"role": "user", "content": CLASSIFY.format(description=description, task=task)}]
