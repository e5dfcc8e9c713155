"""Held-out words: what leaks and what doesn't."""

from __future__ import annotations

import numpy as np
import pytest

from interp.probes.lfp.held_out_words import cross_validated_feedback, cross_validated_pairs, out_of_fold
from interp.probes.lfp.probe import TripleFeatures
from tests.probes.lfp.sparse_codes import coded


def test_planted_feedback_is_read_from_held_out_words() -> None:
    world = coded(noise=0.1)
    reading = cross_validated_feedback(world.features, world.triples, lexicon=world.lexicon)
    a = reading.agreement()
    assert a.n_words == 120
    assert a.sign_accuracy.value == 1.0
    assert a.tau.value >= 0.85
    assert min(a.tau_positive.value, a.tau_negative.value) >= 0.7
    assert a.tau.interval.low > 0.8
    frame = reading.to_frame()
    assert frame["count"].sum() == 1200
    assert frame["true"].is_monotonic_decreasing
    assert frame["error"].mean() == pytest.approx(a.absolute_error.value)
    assert reading.plot().axes[0].get_xlabel() == "true feedback"


def test_every_row_is_read_by_a_probe_that_never_saw_its_word() -> None:
    """With one feature a word, and a target that is the word's alone, an unseen word's weight stays 0."""
    words = np.repeat(np.arange(30), 10)
    X = np.eye(30)[words]
    y = np.random.default_rng(0).standard_normal(30)[words]
    held_out = out_of_fold(X, y, words, alpha=1e-6, n_folds=5)
    for word in range(30):
        assert np.ptp(held_out[words == word]) < 1e-9  # the intercept of its fold
    assert abs(np.corrcoef(held_out, y)[0, 1]) < 0.5
    leaking = out_of_fold(X, y, np.arange(300), alpha=1e-6, n_folds=5)
    assert np.corrcoef(leaking, y)[0, 1] > 0.999


def test_folds_hold_equal_shares_of_both_signs() -> None:
    """Features that say nothing give predictions without a lean against the truth, as uneven folds would."""
    words = np.repeat(np.arange(40), 5)
    y = np.where(words % 2 == 0, 1.0, -1.0)
    predictions = out_of_fold(np.zeros((200, 1)), y, words, n_folds=5)
    assert np.allclose(predictions, 0.0, atol=1e-12)


def test_a_wrong_order_of_layers_between_fit_and_use_breaks_it() -> None:
    world = coded(noise=0.1)
    swapped = np.r_[30:60, 0:30]
    from interp.probes.lfp.probe import FeedbackProbe

    probe = FeedbackProbe().fit(*world.features)
    rows, signs = world.features.rows(), world.features.signs()
    assert (np.sign(probe.predict(rows)) == signs).mean() == 1.0
    assert (np.sign(probe.predict(rows[:, swapped])) == signs).mean() < 0.7


def test_the_seed_decides_the_folds() -> None:
    world = coded(n=200, noise=0.3)
    first, same, other = (
        cross_validated_feedback(world.features, world.triples, lexicon=world.lexicon, seed=seed)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first.predicted, same.predicted)
    assert not np.array_equal(first.predicted, other.predicted)


def test_pairs_by_group() -> None:
    random = np.random.default_rng(0)
    words = np.repeat(np.arange(25), 4)
    of_word = random.standard_normal((25, 6))
    chosen = of_word[words] + [2.5, 0, 0, 0, 0, 0]
    rejected = of_word[words] - [2.5, 0, 0, 0, 0, 0]
    noise = random.normal(0, 0.1, (2, 100, 6))
    reading = cross_validated_pairs(chosen + noise[0], rejected + noise[1], words.tolist())
    assert reading.pair_accuracy.value == 1.0
    assert reading.accuracy.value > 0.95
    assert reading.accuracy.interval.low < reading.accuracy.value
    nothing = cross_validated_pairs(*random.standard_normal((2, 100, 6)), words.tolist())
    assert 0.3 < nothing.accuracy.value < 0.7
    assert "100 pairs" in str(nothing)


def test_bad_input_is_named() -> None:
    world = coded(n=100)
    few = {**world.lexicon}
    missing = few.pop(world.triples[0].target_positive)
    assert missing > 0
    with pytest.raises(ValueError, match="outside the lexicon: up"):
        cross_validated_feedback(world.features, world.triples, lexicon=few)
    with pytest.raises(ValueError, match="99"):
        cross_validated_feedback(world.features, world.triples[:99], lexicon=world.lexicon)
    with pytest.raises(ValueError, match="target"):
        cross_validated_feedback(world.features, world.triples, lexicon=world.lexicon, target="sign")
    one = TripleFeatures(*(part[:1] for part in world.features))
    with pytest.raises(ValueError, match="2 distinct words, or answers of pairs, for 5 folds"):
        cross_validated_feedback(one, world.triples[:1], lexicon=world.lexicon)
    constant = TripleFeatures(*(np.ones((100, 3)) for _ in range(3)))
    with pytest.raises(ValueError, match="says the same"):
        cross_validated_feedback(constant, world.triples, lexicon=world.lexicon)
    with pytest.raises(ValueError, match="groups are of"):
        cross_validated_pairs(world.features.positive, world.features.negative, [1, 2])
