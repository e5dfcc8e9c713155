"""Are the descriptions any good? A judge sees one and some texts, and says in which the feature is active.

The texts are top contexts that the description was not made from, and quiet ones. The same judge is given another
feature's description as well: a description that says something of its own feature scores higher than that.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from interp.core.config import to_dict
from interp.core.device import derive_seed
from interp.core.messages import at_least
from interp.models.chat import ChatModel, Message, ask_all
from interp.probes.lfp.contexts import FeatureContexts, TopContexts
from interp.probes.lfp.explain import Explanation
from interp.probes.lfp.lexicon import word_valence

if TYPE_CHECKING:
    import pandas as pd

JUDGE = (
    "A feature of a language model has been described. You are given numbered texts; in some of them the feature is "
    "active, in others it isn't. Reply with the numbers of the texts in which you expect it to be active, separated "
    "by commas, or with the word none. Write nothing else."
)
ACTIVE = 0.5  # the chance from which a text counts as judged active
STRONG = 1.0  # |valence| from which a word counts as positive or negative
_WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")


@dataclass(frozen=True)
class Question:
    """A description and the texts to decide about."""

    description: str
    texts: tuple[str, ...]


class Judge(Protocol):
    """Whatever tells from a description in which texts a feature is active; all questions come at once.

    Attributes:
        name, settings: what verdicts depend on beside the questions, as JSON values.
    """

    name: str
    settings: dict[str, Any]

    def judge(self, questions: Sequence[Question]) -> list[np.ndarray | None]:
        """For every question the chance that the feature is active, by text; None where no answer can be read."""
        ...


class LexiconJudge:
    """Deterministic and offline: finds the listed words, or words of the feeling that the description names.

    A word listed in quotation marks counts 1; in a description that speaks of positive or negative words, a word of
    that feeling counts 0.75; the text gets the count of its strongest word. Descriptions in free form are taken to
    list all of their own words of four letters or more.
    """

    def __init__(self, valence: Callable[[str], float] = word_valence) -> None:
        self.name, self._valence = "lexicon", valence
        self.settings: dict[str, Any] = {}

    def judge(self, questions: Sequence[Question]) -> list[np.ndarray | None]:
        """See `Judge`."""
        return [np.array([self._chance(q.description, text) for text in q.texts]) for q in questions]

    def _chance(self, description: str, text: str) -> float:
        description = description.lower()
        signs = [sign for word, sign in (("positive", 1), ("negative", -1)) if word in description]
        listed = set(re.findall(r'"([^"]+)"', description))
        if not listed and not signs:
            listed = {word for word in _WORD.findall(description) if len(word) > 3}
        words = _WORD.findall(text.lower())
        if listed & set(words):
            return 1.0
        return 0.75 * any(sign * self._valence(word) >= STRONG for sign in signs for word in words)


class ChatJudge:
    """A chat model as judge; one request per question.

    Args:
        chat: such as `ChatEndpoint(base_url, model)`.
        transcripts: file of the replies: nothing in it is asked for again.

    Raises (while judging):
        ConnectionError: some replies failed; those that came are kept, so run again.
    """

    def __init__(self, chat: ChatModel, transcripts: str | os.PathLike[str] | None = None) -> None:
        self.name, self.settings = chat.name, dict(chat.parameters)
        self._chat, self._transcripts = chat, transcripts

    def judge(self, questions: Sequence[Question]) -> list[np.ndarray | None]:
        """See `Judge`."""
        replies = ask_all(self._chat, [judge_messages(q) for q in questions], self._transcripts)
        return [read_numbers(reply.text, len(q.texts)) for reply, q in zip(replies, questions, strict=True)]


def judge_messages(question: Question) -> list[Message]:
    """The request to judge: the description, then the texts by number."""
    numbered = "\n".join(f"{k}. {text}" for k, text in enumerate(question.texts, 1))
    content = f"The feature: {question.description}\n\nTexts:\n{numbered}"
    return [{"role": "system", "content": JUDGE}, {"role": "user", "content": content}]


def read_numbers(reply: str, n_texts: int) -> np.ndarray | None:
    """1 at the numbers of a reply such as "1, 4 and 7", zeros for "none"; None for anything else."""
    reply = reply.strip().lower().rstrip(".")
    if reply == "none":
        return np.zeros(n_texts)
    if not re.fullmatch(r"\[?\s*\d+(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+|\s+)\d+)*\s*\]?", reply):
        return None
    numbers = [int(number) for number in re.findall(r"\d+", reply)]
    if not all(1 <= number <= n_texts for number in numbers):
        return None
    verdict = np.zeros(n_texts)
    verdict[[number - 1 for number in numbers]] = 1
    return verdict


@dataclass(frozen=True)
class DescriptionScore:
    """How well a description tells a feature's texts.

    Attributes:
        balanced_accuracy: mean of the shares of active and of quiet texts judged rightly; 0.5 is chance.
        correlation: Pearson, of the judge's chances with the peaks; None where either is constant.
        other_description: balanced accuracy with another feature's description.
        n_active, n_quiet: texts judged.
    """

    layer: int
    latent: int
    balanced_accuracy: float
    correlation: float | None
    other_description: float | None
    n_active: int
    n_quiet: int


@dataclass(frozen=True)
class Judgement:
    """One question put to the judge about a feature, and what it said.

    Attributes:
        description: the feature's own, or another one's.
        texts, active: what was asked about, and the truth.
        chances: the judge's, by text; None where its answer could not be read.
    """

    layer: int
    latent: int
    own_description: bool
    description: str
    texts: tuple[str, ...]
    active: tuple[bool, ...]
    chances: tuple[float, ...] | None


@dataclass(frozen=True)
class JudgeReport:
    """Scores of descriptions; prints as a table.

    Attributes:
        judge: its name.
        scores: of the features that could be judged.
        judgements: everything that was asked and said.
        n_unreadable, n_skipped: questions whose answer could not be read; features without held-out contexts.
    """

    judge: str
    scores: tuple[DescriptionScore, ...]
    judgements: tuple[Judgement, ...] = field(default=(), repr=False)
    n_unreadable: int = 0
    n_skipped: int = 0

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without the judgements."""
        return to_dict(replace(self, judgements=()))

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean over features."""
        return _mean([s.balanced_accuracy for s in self.scores])

    @property
    def other_description(self) -> float | None:
        """Mean balanced accuracy with another feature's description."""
        return _mean([s.other_description for s in self.scores if s.other_description is not None])

    def to_frame(self) -> pd.DataFrame:
        """One row a feature."""
        import pandas as pd

        return pd.DataFrame([asdict(score) for score in self.scores])

    def __str__(self) -> str:
        if not self.scores:
            return f"judge {self.judge}: nothing to score ({self.n_skipped} features without contexts)"
        mean, other = self.balanced_accuracy, self.other_description
        lines = [
            f"judge {self.judge}: balanced accuracy {mean:.3f} over {len(self.scores)} features"
            + ("" if other is None else f", {other:.3f} with another feature's description"),
            f"unreadable answers {self.n_unreadable}, features without held-out contexts {self.n_skipped}",
            self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.3f}"),
        ]
        return "\n".join(lines)


def score_descriptions(
    explanations: Sequence[Explanation],
    contexts: TopContexts,
    judge: Judge,
    *,
    n_each: int = 10,
    seed: int = 0,
) -> JudgeReport:
    """Let a judge find each feature's active texts by its description.

    Args:
        explanations: of `contexts.features`, in that order.
        n_each: at most so many active texts and as many quiet ones.
        seed: of the texts' order, and of whose description is the other one.

    Raises:
        ValueError: explanations that are not of these features.
    """
    at_least("n_each", n_each, 1)
    if [e.name for e in explanations] != [f.name for f in contexts.features]:
        raise ValueError("explanations are not of contexts.features, in their order: explain these contexts")
    usable = [k for k, f in enumerate(contexts.features) if f.held_out and f.quiet]
    rng = random.Random(derive_seed(seed, "judge"))
    asked: list[tuple[int, bool, Question, np.ndarray, np.ndarray]] = []
    for k in usable:
        texts, active, peaks = _texts(contexts.features[k], n_each, rng)
        own = explanations[k].description
        others = [e.description for e in explanations if e.description != own]
        for description in (own, *rng.sample(others, min(1, len(others)))):
            asked.append((k, description == own, Question(description, texts), active, peaks))
    verdicts = judge.judge([question for _, _, question, _, _ in asked])
    scores: dict[int, DescriptionScore] = {}
    judgements = []
    for (k, is_own, question, active, peaks), chances in zip(asked, verdicts, strict=True):
        at = (contexts.features[k].layer, contexts.features[k].latent)
        said = None if chances is None else tuple(map(float, chances))
        truth = tuple(map(bool, active))
        judgements.append(Judgement(*at, is_own, question.description, question.texts, truth, said))
        if chances is None:
            continue
        accuracy = balanced_accuracy(active, chances >= ACTIVE)
        if is_own:
            counts = (int(active.sum()), int((~active).sum()))
            scores[k] = DescriptionScore(*at, accuracy, _correlation(chances, peaks), None, *counts)
        elif k in scores:
            scores[k] = replace(scores[k], other_description=accuracy)
    unreadable = sum(judgement.chances is None for judgement in judgements)
    skipped = len(contexts.features) - len(usable)
    return JudgeReport(judge.name, tuple(scores.values()), tuple(judgements), unreadable, skipped)


def _texts(
    feature: FeatureContexts, n_each: int, rng: random.Random
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Texts in random order, whether each is active, and its peak; as many active as quiet ones."""
    n = min(n_each, len(feature.held_out), len(feature.quiet))
    mixed = [(context, True) for context in feature.held_out[:n]]
    mixed += [(context, False) for context in feature.quiet[:n]]
    rng.shuffle(mixed)
    return (
        tuple(context.text for context, _ in mixed),
        np.array([active for _, active in mixed]),
        np.array([context.peak for context, _ in mixed]),
    )


def balanced_accuracy(truth: np.ndarray, judged: np.ndarray) -> float:
    """Mean of the shares judged rightly of the true and of the false ones; bool [n] each, both kinds present."""
    return float((judged[truth].mean() + (~judged[~truth]).mean()) / 2)


def _correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    return None if a.std() == 0 or b.std() == 0 else float(np.corrcoef(a, b)[0, 1])


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
