"""The same feedback read from the tuned model, from the base model and from all controls; never from one alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from interp.probes.lfp.agreement import kendall
from interp.probes.lfp.config import ProbeSettings
from interp.probes.lfp.controls import FeedbackControls, feedback_controls
from interp.probes.lfp.deltas import FeatureDeltas, feature_deltas
from interp.probes.lfp.features import collect_activations, collect_features, feature_places, read_triples
from interp.probes.lfp.held_out_words import (
    FeedbackReading,
    PairReading,
    cross_validated_feedback,
    cross_validated_pairs,
)
from interp.probes.lfp.probe import FeedbackProbe
from interp.probes.lfp.triples import ContrastiveTriple
from interp.probes.lfp.tuning import PreferencePair

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel
    from interp.sae.dictionary import Dictionary


class ReadModel(NamedTuple):
    """A model and its own dictionaries by layer."""

    model: LanguageModel
    saes: Mapping[int, Dictionary]


@dataclass(frozen=True)
class FeedbackComparison:
    """What was read of held-out words.

    Attributes:
        controls: agreement with the true feedback, "tuned" and "base model" among them.
        tuned, base: the two readings, word by word.
        probe: fitted on all words of the tuned model, to ask which features it relies on.
        tau_gain: Kendall's tau of the tuned minus that of the base model, [value, low, high], 95 % over words.
        deltas: how the tuned model's features change from the neutral texts to the others.
    """

    controls: FeedbackControls
    tuned: FeedbackReading
    base: FeedbackReading
    probe: FeedbackProbe
    tau_gain: list[float]
    deltas: FeatureDeltas

    def words(self) -> list[dict[str, Any]]:
        """One row a word: true feedback, occurrences, read from the tuned and from the base model."""
        columns = (
            self.tuned.true.tolist(),
            self.tuned.counts.tolist(),
            self.tuned.predicted.tolist(),
            self.base.predicted.tolist(),
        )
        names = ("word", "true", "count", "tuned", "base")
        return [dict(zip(names, row, strict=True)) for row in zip(self.tuned.words, *columns, strict=True)]

    def __str__(self) -> str:
        value, low, high = self.tau_gain
        return f"{self.controls}\ntau, tuned minus base: {value:.3f} [{low:.3f}, {high:.3f}]"


def compare_feedback(
    tuned: ReadModel,
    base: ReadModel,
    triples: Sequence[ContrastiveTriple],
    lexicon: Mapping[str, float],
    settings: ProbeSettings | None = None,
    *,
    seed: int = 0,
) -> FeedbackComparison:
    """Read the feedback of the triples' target words from both models, each through its own dictionaries.

    Raises ValueError for dictionaries of different layers, and as `feedback_controls`.
    """
    settings = ProbeSettings() if settings is None else settings
    layers = sorted(tuned.saes)
    if sorted(base.saes) != layers:
        raise ValueError(
            f"saes: layers {layers} of the tuned model, {sorted(base.saes)} of the base; give the same"
        )
    features, raw = read_triples(tuned.model, triples, tuned.saes)
    of_base, raw_base = read_triples(base.model, triples, base.saes)
    folds: dict[str, Any] = {"alpha": settings.alpha, "n_folds": settings.n_folds, "seed": seed}
    controls = feedback_controls(
        triples,
        features,
        base=of_base,
        raw=raw,
        raw_base=raw_base,
        lexicon=lexicon,
        n_draws=settings.n_draws,
        n_bootstrap=settings.n_bootstrap,
        **folds,
    )
    read = [cross_validated_feedback(part, triples, lexicon=lexicon, **folds) for part in (features, of_base)]
    places = feature_places(tuned.saes)
    probe = FeedbackProbe(settings.alpha).fit(*features, places=places)
    gain = tau_gain(*read, n_bootstrap=settings.n_bootstrap, seed=seed)
    return FeedbackComparison(controls, read[0], read[1], probe, gain, feature_deltas(features, places))


def tau_gain(
    tuned: FeedbackReading, base: FeedbackReading, *, n_bootstrap: int = 1000, seed: int = 0
) -> list[float]:
    """Kendall's tau of the tuned model minus that of the base, [value, low, high] over the same resampled words.

    Raises ValueError for readings of different words.
    """
    if tuned.words != base.words:
        raise ValueError("tuned and base are readings of different words: read both from the same triples")
    n = len(tuned.words)
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=n_bootstrap).astype(float)
    weights = np.concatenate([np.ones((1, n)), drawn])
    gain = kendall(tuned.predicted, tuned.true, weights) - kendall(base.predicted, base.true, weights)
    low, high = np.nanpercentile(gain[1:], [2.5, 97.5])
    return [float(gain[0]), float(low), float(high)]


def compare_pairs(
    tuned: ReadModel,
    base: ReadModel,
    pairs: Sequence[PreferencePair],
    *,
    n_folds: int = 5,
    seed: int = 0,
) -> dict[str, PairReading]:
    """Tell chosen from rejected answers by token-mean features of both models; no answer on both sides of a split."""
    sides = [[pair.prompt + pair.chosen for pair in pairs], [pair.prompt + pair.rejected for pair in pairs]]
    answers = [pair.chosen for pair in pairs], [pair.rejected for pair in pairs]
    found = {}
    for name, model, source in (
        ("tuned", tuned.model, tuned.saes),
        ("base model", base.model, base.saes),
        ("raw activations", tuned.model, sorted(tuned.saes)),
        ("raw activations, base model", base.model, sorted(base.saes)),
    ):
        chosen, rejected = (_token_means(model, texts, source) for texts in sides)
        found[name] = cross_validated_pairs(chosen, rejected, *answers, n_folds=n_folds, seed=seed)
    return found


def _token_means(
    model: LanguageModel, texts: Sequence[str], source: Mapping[int, Dictionary] | Sequence[int]
) -> np.ndarray:
    if isinstance(source, Mapping):
        return collect_features(model, texts, source, "mean")
    return collect_activations(model, texts, source, "mean")
