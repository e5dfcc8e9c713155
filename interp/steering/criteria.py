"""When a steering vector can be relied on: stated numbers, and a sentence for each that says what was found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from interp.steering.baselines import BaselineComparison
    from interp.steering.decomposition import VarianceDecomposition
    from interp.steering.quality import ConceptQuality
    from interp.steering.side_effects import SideEffects
    from interp.steering.steerability import Steerability
    from interp.steering.transfer import Transfer


@dataclass(frozen=True)
class ReliabilityCriteria:
    """The bounds of a verdict. They are conventions, set where a vector's failures in the literature begin; change
    them, and say so.

    Attributes:
        above_random: the mean slope must be at least so many times the largest |mean slope| of norm-matched random
            directions, and its confidence interval must exclude 0.
        anti_fraction: at most so many samples may go the wrong way. A direction without effect has one half; Tan et
            al. find up to one half for vectors whose mean slope is positive.
        factor_share: no nuisance factor may explain so much of the variance of slopes ...
        factor_size: ... where its standard deviation is at least this share of the |mean slope|. A factor behind
            a spread that is small beside the mean does no harm.
        letter_cosine: |cosine| of the vector with the direction between the answers' letters.
        agreement: the share of training differences that point along the mean of the others (chance: one half).
        relative_ood: mean steerability under other prompts relative to that prompt's own vector.
        perplexity_ratio: on neutral text at |multiplier| <= 1, steered over unsteered.
    """

    above_random: float = 2.0
    anti_fraction: float = 0.25
    factor_share: float = 0.5
    factor_size: float = 0.25
    letter_cosine: float = 0.7
    agreement: float = 0.75
    relative_ood: float = 0.5
    perplexity_ratio: float = 1.5


@dataclass(frozen=True)
class Finding:
    """One criterion: the figure found, the bound, whether it holds, and the sentence that says so."""

    criterion: str
    measured: float
    bound: float
    passed: bool
    sentence: str


def effect(
    s: Steerability, criteria: ReliabilityCriteria, baselines: BaselineComparison | None
) -> list[Finding]:
    """Does it move the mean, and more than a random direction does?"""
    low, high = s.mean_interval
    moves = low > 0
    found = (
        "excludes 0" if low > 0 else "lies below 0, so that it works backwards" if high < 0 else "includes 0"
    )
    findings = [
        Finding(
            "effect",
            low,
            0.0,
            moves,
            f"the mean slope is {s.mean:.3f} logits per unit, with a {s.confidence:.0%} interval "
            f"{s.mean_interval} that {found}",
        )
    ]
    if baselines is not None and not math.isnan(baselines.largest_random):
        bound = criteria.above_random * baselines.largest_random
        times = s.mean / baselines.largest_random if baselines.largest_random else math.inf
        sentence = f"the mean slope is {times:.1f} times the largest of random directions of the same norm"
        findings.append(Finding("above_random", s.mean, bound, s.mean >= bound, sentence))
    return findings


def evenness(s: Steerability, criteria: ReliabilityCriteria) -> list[Finding]:
    """Does it move the samples the same way?"""
    interval = f"{s.confidence:.0%} interval {s.anti_interval}"
    sentence = f"{s.anti_fraction:.0%} of the samples are anti-steerable ({interval})"
    passed = s.anti_fraction <= criteria.anti_fraction
    return [Finding("anti_fraction", s.anti_fraction, criteria.anti_fraction, passed, sentence)]


def bias(
    s: Steerability,
    decomposition: VarianceDecomposition,
    criteria: ReliabilityCriteria,
    labels: dict[str, str],
) -> list[Finding]:
    """Is the spread of slopes due to something that isn't the behaviour?"""
    findings = []
    for factor, share in decomposition.shares.items():
        size = math.sqrt(max(0.0, decomposition.explained[factor]))
        matters = size >= criteria.factor_size * abs(s.mean)
        label = labels.get(factor, factor)
        sentence = f"{share:.0%} of the variance of steerability is explained by {label}"
        if not matters:
            sentence += f" (a spread of {size:.3f} beside a mean of {s.mean:.3f})"
        passed = share < criteria.factor_share or not matters
        findings.append(Finding(f"bias:{factor}", share, criteria.factor_share, passed, sentence))
    return findings


def letter(baselines: BaselineComparison, criteria: ReliabilityCriteria) -> list[Finding]:
    """Is the vector the direction between the letters?"""
    if "letter" not in baselines.cosines:
        return []
    cosine = abs(baselines.cosines["letter"])
    sentence = (
        f"its cosine with the direction between the answers' letters is {baselines.cosines['letter']:.2f}"
    )
    return [
        Finding("letter_cosine", cosine, criteria.letter_cosine, cosine <= criteria.letter_cosine, sentence)
    ]


def agreement(quality: ConceptQuality, criteria: ReliabilityCriteria) -> list[Finding]:
    """Do the training pairs agree on a direction at all?"""
    measured = quality.held_out_agreement
    if math.isnan(measured):
        return []
    sentence = (
        f"{measured:.0%} of the training differences point along the mean of the others "
        f"(mean cosine with the vector {quality.mean_cosine:.2f})"
    )
    return [Finding("agreement", measured, criteria.agreement, measured >= criteria.agreement, sentence)]


def generalises(transfer: Transfer, criteria: ReliabilityCriteria) -> list[Finding]:
    """Does it work under other prompts as well as their own vectors do?"""
    relative = transfer.relative()
    own = [transfer.trained.index(j) for j in transfer.tested]
    off = relative[own][~np.eye(len(own), dtype=bool)]
    known = off[np.isfinite(off)]
    if not len(known):
        sentence = "no prompt's own vector steers it enough to compare others with (see `transfer.MIN_SELF`)"
        return [Finding("relative_ood", 0.0, criteria.relative_ood, False, sentence)]
    measured = float(known.mean())
    sentence = f"under other prompts it keeps {measured:.0%} of the steerability of their own vectors"
    return [
        Finding("relative_ood", measured, criteria.relative_ood, measured >= criteria.relative_ood, sentence)
    ]


def harmless(effects: SideEffects, criteria: ReliabilityCriteria) -> list[Finding]:
    """Does the rest of the model still work?"""
    usual = np.abs(effects.multipliers) <= 1
    if not usual.any():
        return []
    worst = float(effects.ratio[usual].max())
    sentence = (
        f"steering raises the perplexity of neutral text at most {worst:.2f}-fold for multipliers up to 1"
    )
    return [
        Finding(
            "perplexity_ratio", worst, criteria.perplexity_ratio, worst <= criteria.perplexity_ratio, sentence
        )
    ]
