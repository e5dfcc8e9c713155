"""Contrastive inputs: the same text ending in a positive, a negative and a neutral word."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ContrastiveTriple:
    """Three texts that end in their target word and are alike but for it.

    Attributes:
        positive, negative, neutral: the texts.
        target_positive, target_negative: the words that the first two end in, as they stand in the lexicon.
    """

    positive: str
    negative: str
    neutral: str
    target_positive: str
    target_negative: str
