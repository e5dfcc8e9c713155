"""Tuned against base: the paired gain in tau, and both models read through their own dictionaries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import kendalltau

from interp.probes.lfp.comparison import ReadModel, compare_feedback, compare_pairs, tau_gain
from interp.probes.lfp.config import ProbeSettings
from interp.probes.lfp.features import collect_triples
from interp.probes.lfp.held_out_words import FeedbackReading, PairReading, cross_validated_feedback
from interp.probes.lfp.tuning import PreferencePair
from tests.probes.lfp.small_world import (
    LEXICON,
    NEGATIVE,
    POSITIVE,
    moved,
    random_saes,
    small_data,
    small_model,
)

SETTINGS = ProbeSettings(n_folds=4, n_draws=2, n_bootstrap=50)


def reading(predicted: np.ndarray, true: np.ndarray) -> FeedbackReading:
    words = tuple(f"w{k:03d}" for k in range(len(true)))
    return FeedbackReading(words, predicted, true, np.ones(len(true), dtype=int), predicted)


def test_the_gain_is_the_difference_of_the_taus() -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(size=60)
    good, poor = reading(true + 0.3 * rng.normal(size=60), true), reading(rng.normal(size=60), true)
    gain, low, high = tau_gain(good, poor, n_bootstrap=200)
    expected = kendalltau(good.predicted, true)[0] - kendalltau(poor.predicted, true)[0]
    assert gain == pytest.approx(expected)
    assert 0 < low < gain < high
    assert tau_gain(good, good) == [0.0, 0.0, 0.0]
    back = tau_gain(poor, good, n_bootstrap=200)
    assert back == pytest.approx([-gain, -high, -low])


def test_readings_of_other_words_are_refused() -> None:
    a, b = reading(np.arange(3.0), np.arange(3.0)), reading(np.arange(4.0), np.arange(4.0))
    with pytest.raises(ValueError, match="different words"):
        tau_gain(a, b)


def test_each_model_is_read_through_its_own_dictionaries() -> None:
    base = small_model()
    tuned, triples = moved(base), small_data(base).triples
    of_tuned, of_base = random_saes(tuned), random_saes(base)
    found = compare_feedback(
        ReadModel(tuned, of_tuned), ReadModel(base, of_base), triples, LEXICON, SETTINGS, seed=3
    )
    for read, model, saes in ((found.tuned, tuned, of_tuned), (found.base, base, of_base)):
        alone = cross_validated_feedback(
            collect_triples(model, triples, saes), triples, lexicon=LEXICON, n_folds=4, seed=3
        )
        assert (read.predicted == alone.predicted).all()
    rows = {row["word"]: row for row in found.words()}
    assert rows["great"]["true"] == LEXICON["great"]
    assert rows["great"]["count"] == sum(t.target_positive == "great" for t in triples)
    assert len(found.probe.coef_) == sum(sae.cfg.d_sae for sae in of_tuned.values())
    assert "tau, tuned minus base" in str(found)


def test_dictionaries_of_other_layers_are_refused() -> None:
    base = small_model()
    with pytest.raises(ValueError, match="give the same"):
        compare_feedback(
            ReadModel(base, random_saes(base)),
            ReadModel(base, random_saes(base, [0])),
            small_data(base).triples,
            LEXICON,
        )


def test_pairs_are_told_apart_by_what_their_answers_share_and_by_nothing_else() -> None:
    """Every chosen answer ends in "film", every rejected one in "song"; or words stand at random."""
    model = small_model()
    side = ReadModel(model, random_saes(model))
    words = [*POSITIVE, *NEGATIVE, "old", "red", "round", "wooden"]

    def read(ends: Callable[[int], tuple[str, str]]) -> dict[str, PairReading]:
        pairs = [
            PreferencePair(
                "the meal was",
                f" {word} and the {subject}" + f" {ends(k)[0]}" * 3,
                f" {words[k - 1]} and the {subject}" + f" {ends(k)[1]}" * 3,
            )
            for subject in ("house", "meal")
            for k, word in enumerate(words)
        ]
        return compare_pairs(side, side, pairs, n_folds=4)

    shared = read(lambda k: ("film", "song"))
    assert list(shared) == ["tuned", "base model", "raw activations", "raw activations, base model"]
    assert shared["tuned"].accuracy == shared["base model"].accuracy
    assert all(float(found.accuracy) > 0.9 for found in shared.values())
    rng = np.random.default_rng(0)
    ends = [tuple(rng.permutation(["film", "song"]).tolist()) for _ in words]
    at_random = read(lambda k: ends[k])
    assert all(float(found.accuracy) < 0.75 for found in at_random.values())
