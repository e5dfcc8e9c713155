"""What is compared in a pair: which tokens' logits, at which positions, with which sign.

Tan et al. 2024, arXiv 2407.12404, section 3.2: the propensity of a behaviour is the logit of the answer that shows
it minus the logit of the one that does not.  The answers are found by comparing the tokens of the two whole
texts, so that a tokenizer which merges "(" and "A", or a blank and the letter, is scored where the texts really part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.messages import nearest
from interp.steering.pairs import ContrastivePair, as_pairs
from interp.steering.prompts import BASE, PromptVariation, render

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel


@dataclass(frozen=True)
class TokenGroups:
    """Two sets of next tokens: the propensity is logsumexp(positive) - logsumexp(negative) behind the prompt.

    Measures an open-ended behaviour by the words that come next; the pair's own answers are not looked at.
    """

    positive: tuple[int, ...]
    negative: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "positive", tuple(self.positive))
        object.__setattr__(self, "negative", tuple(self.negative))
        if not self.positive or not self.negative:
            raise ValueError("TokenGroups: each of the two groups needs at least one token id")
        if shared := set(self.positive) & set(self.negative):
            raise ValueError(f"TokenGroups: ids {sorted(shared)} are in both groups")


Score: TypeAlias = str | TokenGroups  # one of SCORES, or two groups of tokens
SCORES = ("answer_token", "sum")


@dataclass(frozen=True)
class Term:
    """`sign` times the logsumexp of the logits of `ids`, predicted at `position` of the item's text `text`."""

    text: int
    position: int
    ids: tuple[int, ...]
    sign: int


@dataclass(frozen=True)
class Item:
    """One pair, ready to be run.

    Attributes:
        texts: one or two lists of token ids; what stands behind the last scored position is left off.
        start: the first position that is steered; up to there the texts are the same.
        terms: what to add up.
        whole: the tokens of both whole texts, which two full passes would run.
    """

    texts: tuple[list[int], ...]
    start: int
    terms: tuple[Term, ...] = field(repr=False)
    whole: int

    def propensity(
        self, logits: Sequence[Float[Tensor, "r t vocab"]], offset: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """For each of r ways to run the texts [r]: the difference of logits, that of log-probabilities, and the sum of
        the logits' sizes, by which the first is rounded.

        Args:
            logits: of each text, from position `offset` on.
        """
        raw, normalised = [], []
        for term in self.terms:
            here = logits[term.text][:, term.position - offset].float()
            raw.append(term.sign * here[:, list(term.ids)].logsumexp(-1))
            normalised.append(raw[-1] - term.sign * here.logsumexp(-1))
        parts = torch.stack(raw)
        return parts.sum(0), torch.stack(normalised).sum(0), parts.abs().sum(0)


def prepare(
    model: LanguageModel,
    pairs: Sequence[ContrastivePair],
    *,
    score: Score = "answer_token",
    variation: PromptVariation = BASE,
    chat: bool | None = None,
    skip_first_n: int = 0,
) -> list[Item]:
    """Tokenise pairs, find where their answers part, and say what is to be scored there.

    Args:
        skip_first_n: steering begins so many tokens behind the last token of the prompt.

    Raises:
        ValueError: no pairs, an unknown score, answers of which one begins with the whole other one, or a
            steering that would begin behind the scored token; the pair is named.
    """
    if not len(pairs):
        raise ValueError("pairs=[]: give at least one pair")
    if not isinstance(score, TokenGroups) and score not in SCORES:
        raise ValueError(f"score={score!r}: {nearest(score, SCORES)}, or a TokenGroups")
    if skip_first_n < 0:
        raise ValueError(f"skip_first_n={skip_first_n}: must not be negative")
    items = []
    for i, pair in enumerate(as_pairs(pairs)):
        positive, negative = (
            render(model, pair.prompt, r, variation, chat) for r in (pair.positive, pair.negative)
        )
        length = min(positive.prompt_length, negative.prompt_length)
        start = length - 1 + skip_first_n
        if isinstance(score, TokenGroups):
            item = _groups(score, positive.ids[:length], start, len(positive) + len(negative))
        else:
            item = _answers(
                positive.ids, negative.ids, start, score == "sum", model.special_token_ids, i, pair
            )
        first = min(term.position for term in item.terms)
        if start > first:
            raise ValueError(
                f"skip_first_n={skip_first_n}: steering would begin at token {start} of pair {i} "
                f"({pair.prompt[:40]!r}), behind token {first} which predicts the answer; choose a smaller one"
            )
        items.append(item)
    return items


def _groups(score: TokenGroups, prompt: list[int], start: int, whole: int) -> Item:
    last = len(prompt) - 1
    return Item(
        (prompt,), start, (Term(0, last, score.positive, 1), Term(0, last, score.negative, -1)), whole
    )


def _answers(
    positive: list[int],
    negative: list[int],
    start: int,
    whole_answer: bool,
    special: frozenset[int],
    index: int,
    pair: ContrastivePair,
) -> Item:
    parting = next((j for j, (p, n) in enumerate(zip(positive, negative, strict=False)) if p != n), None)
    if parting is None:
        raise ValueError(
            f"pair {index} ({pair.prompt[:40]!r}): the tokens of {pair.positive!r} and {pair.negative!r} don't "
            "differ before one of them ends, so that no token tells them apart; make neither begin with the other"
        )
    whole = len(positive) + len(negative)
    if not whole_answer:
        text, at = positive[:parting], parting - 1
        terms = (Term(0, at, (positive[parting],), 1), Term(0, at, (negative[parting],), -1))
        return Item((text,), start, terms, whole)
    summed = tuple(
        Term(text, position - 1, (ids[position],), sign)
        for text, ids, sign in ((0, positive, 1), (1, negative, -1))
        for position in range(parting, len(ids))
        if ids[position] not in special
    )
    return Item((positive[:-1], negative[:-1]), start, summed, whole)
