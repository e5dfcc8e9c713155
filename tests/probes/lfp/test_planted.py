"""The gate: planted feedback is read, nothing is read where there is none, and every known fault breaks it."""

from __future__ import annotations

import numpy as np
import pytest

from interp.probes.lfp.held_out_words import by_word, cross_validated_feedback, out_of_fold
from interp.probes.lfp.planted import PlantedFeedback, plant_feedback, planted_gate
from interp.probes.lfp.probe import TripleFeatures

GAMMA = 0.6


@pytest.fixture(scope="module")
def planted() -> PlantedFeedback:
    return plant_feedback(0)


@pytest.mark.slow
def test_planted_feedback_is_read_and_absent_feedback_is_not() -> None:
    gate = planted_gate(seed=0)
    assert gate.passed, str(gate)
    assert str(gate).count("pass") == 5
    assert gate.tuned.tau_positive.interval.low < 0.75 < gate.tuned.tau.interval.high


def test_what_is_planted(planted: PlantedFeedback) -> None:
    assert np.linalg.norm(planted.direction) == pytest.approx(1.0)
    assert sorted(np.sign(list(planted.lexicon.values()))) == [-1.0] * 100 + [1.0] * 100
    assert all(0.5 <= abs(v) <= 3.5 for v in planted.lexicon.values())
    base, tuned = planted.tuned(0.0), planted.tuned(GAMMA)
    for t, before, after in zip(planted.triples[:20], base.positive, tuned.positive, strict=False):
        expected = GAMMA * planted.lexicon[t.target_positive] * planted.direction
        assert np.allclose(after - before, expected)
    assert np.array_equal(base.neutral, tuned.neutral)
    moved = planted.tokens(GAMMA) - planted.tokens(0.0)
    assert np.linalg.matrix_rank(moved, tol=1e-8) == 1
    again = plant_feedback(0)
    assert np.array_equal(again.tokens(GAMMA), planted.tokens(GAMMA))
    assert not np.array_equal(plant_feedback(1).direction, planted.direction)


def tau(
    planted: PlantedFeedback, features: TripleFeatures, y: np.ndarray, groups: np.ndarray | None = None
) -> float:
    words = np.asarray(
        [t.target_positive for t in planted.triples] + [t.target_negative for t in planted.triples]
    )
    raw = out_of_fold(features.rows(), y, words if groups is None else groups)
    return by_word(raw, words, planted.lexicon).agreement(n_bootstrap=5).tau.value


def test_on_raw_activations_the_right_reading_passes(planted: PlantedFeedback) -> None:
    features = planted.tuned(GAMMA)
    read = cross_validated_feedback(features, planted.triples, lexicon=planted.lexicon).agreement(
        n_bootstrap=5
    )
    assert read.tau.value >= 0.75
    assert tau(planted, features, features.signs() * features.divergences()) == pytest.approx(read.tau.value)


def test_known_faults_break_it(planted: PlantedFeedback) -> None:
    features, base = planted.tuned(GAMMA), planted.tuned(0.0)
    y = features.signs() * features.divergences()
    assert tau(planted, features, -y) < -0.7  # the wrong sign
    assert tau(planted, features, features.divergences()) < 0.5  # no sign
    assert abs(tau(planted, base, base.signs() * base.divergences())) <= 0.3  # the base model read instead
    shuffled = np.random.default_rng(0).permutation(features.positive.shape[1])
    mixed = TripleFeatures(features.positive[:, shuffled], *features[1:])  # columns in different orders
    assert tau(planted, mixed, y) < 0.75


def test_a_split_by_texts_leaks_words_into_the_base_model(planted: PlantedFeedback) -> None:
    """With one column a word, as a wide dictionary may come close to, the base model seems to know the feedback."""
    words = [t.target_positive for t in planted.triples] + [t.target_negative for t in planted.triples]
    one_hot = np.equal.outer(words, sorted(planted.lexicon)).astype(float)
    half = len(planted.triples)
    base = planted.tuned(0.0)
    y = base.signs() * base.divergences()
    coded = TripleFeatures(one_hot[:half], one_hot[half:], np.zeros((half, len(planted.lexicon))))
    assert tau(planted, coded, y, np.arange(2 * half)) > 0.4
    assert abs(tau(planted, coded, y)) <= 0.3
