"""Which latents are easiest to read: a score anyone can recompute by hand.

A latent is described by one word and its place: the word it fires *on*, right *after*, right *before*, or
*near* (among the 16 tokens before).  For each such description let

    p_top     how often it holds at the latent's strongest firings, one per context;
    p_sample  how often it holds in a uniform random sample of all its firings, weighted by activation;
    q         how often it holds at any token of the text, taken as no less than 1/1024, so that a rare word is
              no better than an uncommon one;
    p         sqrt(p_top * p_sample).

The latent's score is the largest p * log2(p / q) over all descriptions, in bits.  It is high when one simple
description nearly always tells that the latent fires, weak firings included, and is no commonplace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.sae.dashboard.tokens import Vocabulary

KINDS = ("on", "after", "before", "near")
NEAR = 16
RAREST = 1 / 1024


@dataclass(frozen=True)
class Description:
    """The best description of a latent: `kind` of KINDS, the word, p_top, p_sample, q and the score in bits."""

    kind: str
    word: str
    share_top: float
    share_sample: float
    base_rate: float
    score: float


class BaseRates:
    """How often each description holds at the tokens of a text, counted block by block."""

    def __init__(self) -> None:
        self.n = 0
        self._counts: dict[str, Int[np.ndarray, " words"]] = {k: np.zeros(0, np.int64) for k in KINDS}

    def update(
        self,
        words: Int[np.ndarray, " m"],
        contexts: Int[np.ndarray, " m"],
        counted: Bool[np.ndarray, " m"],
    ) -> None:
        """Add whole contexts; only positions where `counted` is true count as places to fire."""
        self.n += int(counted.sum())
        neighbours = contexts[1:] == contexts[:-1]
        self._add("on", words[counted])
        self._add("after", words[:-1][neighbours & counted[1:]])
        self._add("before", words[1:][neighbours & counted[:-1]])
        pairs = []
        for distance in range(1, NEAR + 1):
            together = (contexts[distance:] == contexts[:-distance]) & counted[distance:]
            places = np.flatnonzero(together)
            pairs.append(np.stack([places + distance, words[places]]))
        if pairs:
            near = np.unique(np.concatenate(pairs, axis=1), axis=1)
            self._add("near", near[1])

    def _add(self, kind: str, words: np.ndarray) -> None:
        counts = self._counts[kind]
        new = np.bincount(words, minlength=len(counts))
        new[: len(counts)] += counts
        self._counts[kind] = new

    def rate(self, kind: str, words: Int[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Share of places where the description holds."""
        counts = self._counts[kind]
        known = words < len(counts)
        held = np.where(known, counts[np.minimum(words, max(len(counts) - 1, 0))] if len(counts) else 0, 0)
        return held / max(self.n, 1)


def describe(
    words: Int[np.ndarray, "e w"],
    inside: Bool[np.ndarray, "e w"],
    weights_top: Float[np.ndarray, " e"],
    weights_sample: Float[np.ndarray, " e"],
    latents: Int[np.ndarray, " e"],
    rates: BaseRates,
    vocabulary: Vocabulary,
) -> dict[int, Description]:
    """The best description of every latent that has examples.

    Args:
        words: word numbers in windows of NEAR tokens before the peak, the peak, and one token after.
        inside: which of them belong to the peak's context.
        weights_top, weights_sample: how much an example counts among the strongest and in the sample.
        latents: whose example each row is.
    """
    found: dict[int, Description] = {}
    places = {"on": [NEAR], "after": [NEAR - 1], "before": [NEAR + 1], "near": list(range(NEAR))}
    total_top = np.bincount(latents, weights_top)
    total_sample = np.bincount(latents, weights_sample)
    for kind, columns in places.items():
        example, column = np.nonzero(inside[:, columns])
        word = words[:, columns][example, column]
        example, word = np.unique(np.stack([example, word]), axis=1)
        pairs, place = np.unique(np.stack([latents[example], word]), axis=1, return_inverse=True)
        place = place.ravel()
        latent, word = pairs
        top = np.bincount(place, weights_top[example]) / total_top[latent]
        sample = np.bincount(place, weights_sample[example]) / total_sample[latent]
        p = np.sqrt(top * sample)
        q = rates.rate(kind, word)
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.where(p > 0, p * np.log2(p / np.maximum(q, RAREST)), 0.0)
        order = np.lexsort((word, -score, latent))
        first = order[np.flatnonzero(np.diff(latent[order], prepend=-1))]
        for j in first:
            i = int(latent[j])
            if i not in found or score[j] > found[i].score:
                text = vocabulary.word(int(word[j]))
                shares = float(top[j]), float(sample[j])
                found[i] = Description(kind, text, *shares, float(q[j]), float(score[j]))
    return found


def choose(descriptions: dict[int, Description], n: int) -> list[int]:
    """The n latents to show, best score first, with room for every kind of description.

    What fires on a word is easiest to describe and would take all the places: a tenth of them is kept for each
    kind, for as long as it has latents with a score of at least one bit.
    """
    ranked = sorted(descriptions, key=lambda i: (-descriptions[i].score, i))
    reserved = {
        i
        for kind in KINDS
        for i in [j for j in ranked if descriptions[j].kind == kind and descriptions[j].score >= 1][: n // 10]
    }
    others = [i for i in ranked if i not in reserved]
    shown = reserved | set(others[: max(0, n - len(reserved))])
    return [i for i in ranked if i in shown][:n]
