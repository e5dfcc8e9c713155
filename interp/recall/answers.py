"""What a recaller gives back, and how it becomes a probability for every pair."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from interp.models.chat import ChatReply
from interp.recall.narration import Pair
from interp.recall.parsing import ParsedAnswer, parse_answer
from interp.recall.prompts import RecallPrompt

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Answer(ChatReply):
    """One reply to a recall prompt.

    Attributes:
        choices: P(1) for every pair asked, where the backend chose between 1 and 0 instead of writing freely.
    """

    choices: tuple[float, ...] = ()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return super().from_dict({**values, "choices": tuple(values["choices"])})


class Recaller(Protocol):
    """Whatever answers a prompt.

    Attributes:
        name, parameters: what the answers depend on beside the messages; keys of the transcript cache.
        workers: how many prompts may be asked at the same time.
    """

    name: str
    parameters: dict[str, Any]
    workers: int

    def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
        """Reply to a prompt; `sample` numbers the repetitions."""
        ...


@dataclass(frozen=True)
class RecallResult:
    """A recalled graph.

    Attributes:
        probabilities: for every pair asked; 0 where no answer could be read.
        coverage: share of the pairs that were answered in at least one reply.
        raw_text: the replies, separated by a line of dashes.
        positional: whether a reply could only be read by position.
        n_unparsed, n_conflicts, n_unread, unread, refusal: see `ParsedAnswer`; summed or joined over the replies.
        errors: of replies that failed.
    """

    probabilities: dict[Pair, float]
    coverage: float
    raw_text: str
    positional: bool
    n_unparsed: int
    n_conflicts: int = 0
    n_unread: int = 0
    unread: tuple[str, ...] = ()
    refusal: bool = False
    errors: tuple[str, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


def read_answers(answers: Sequence[Answer], prompt: RecallPrompt) -> RecallResult:
    """Probabilities from one reply (0 and 1, or the digits' probabilities) or, averaged, from several."""
    values: dict[Pair, list[float]] = {pair: [] for pair in prompt.pairs}
    parsed: list[ParsedAnswer] = []
    for answer in answers:
        if answer.choices:
            for pair, w in zip(prompt.pairs, answer.choices, strict=True):
                values[pair].append(w)
            continue
        read = parse_answer(answer.text, prompt.pairs, prompt.vignette.nodes)
        parsed.append(read)
        for pair, w in (read.answers | digit_probabilities(answer, read)).items():
            values[pair].append(w)
    answered = [pair for pair in prompt.pairs if values[pair]]
    return RecallResult(
        {pair: float(np.mean(v)) if v else 0.0 for pair, v in values.items()},
        len(answered) / len(prompt.pairs),
        "\n---\n".join(answer.text for answer in answers),
        any(p.positional for p in parsed),
        sum(p.n_unparsed for p in parsed),
        sum(p.n_conflicts for p in parsed),
        sum(p.n_unread for p in parsed),
        tuple(piece for p in parsed for piece in p.unread),
        bool(parsed) and all(p.refusal for p in parsed),
        tuple(answer.error for answer in answers if answer.error),
        sum(answer.prompt_tokens for answer in answers),
        sum(answer.completion_tokens for answer in answers),
        sum(answer.cost for answer in answers),
    )


def digit_probabilities(answer: Answer, read: ParsedAnswer) -> dict[Pair, float]:
    """P(1) of the pairs whose digit is a token of its own: its probability against the other digit's.

    Where the other digit is not among the alternatives, the token's own probability stands.
    """
    if not answer.tokens:
        return {}
    starts = [0, *accumulate(len(token.text) for token in answer.tokens)]
    found = {}
    for pair, (start, _) in read.spans.items():
        token = answer.tokens[min(bisect_right(starts, start) - 1, len(answer.tokens) - 1)]
        digit = token.text.strip()
        if digit not in ("0", "1"):
            continue
        p = math.exp(token.logprob)
        other = [math.exp(lp) for text, lp in token.top.items() if text.strip() == str(1 - int(digit))]
        if other:
            p /= p + max(other)
        found[pair] = p if digit == "1" else 1 - p
    return found
