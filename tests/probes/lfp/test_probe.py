"""Probes: the ridge's closed form, recovery of planted features, rescaling, pairs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from interp.probes.lfp.probe import FeedbackProbe, PairFeedbackProbe, TripleFeatures, rescale_to_range
from tests.probes.lfp.sparse_codes import DOWN, UP, coded


def random_triples(n: int = 40, width: int = 7, seed: int = 0) -> TripleFeatures:
    random = np.random.default_rng(seed)
    return TripleFeatures(*(random.standard_normal((n, width)) for _ in range(3)))


@pytest.mark.parametrize("alpha", [0.1, 1.0, 30.0])
def test_the_regression_is_ridge_on_signed_divergences(alpha: float) -> None:
    P, N, Z = features = random_triples()
    probe = FeedbackProbe(alpha).fit(*features)
    X = np.concatenate([P, N])
    y = np.concatenate([np.linalg.norm(P - Z, axis=1), -np.linalg.norm(N - Z, axis=1)])
    Xc, yc = X - X.mean(0), y - y.mean()
    weights = np.linalg.solve(Xc.T @ Xc + alpha * np.eye(7), Xc.T @ yc)
    assert np.allclose(probe.coef_, weights)
    assert np.allclose(probe.predict(X), (X - X.mean(0)) @ weights + y.mean())
    assert np.allclose(probe.importance, np.abs(weights) * X.std(0))


def test_direct_supervision_recovers_the_planted_function_exactly() -> None:
    world = coded(noise=0.5)
    expected = np.zeros(len(world.places))
    for k, place in enumerate((*UP, *DOWN)):
        expected[world.places.index(place)] = (0.7, 0.4, -0.2, -0.9)[k]
    valence = world.features.positive @ expected + 0.3, world.features.negative @ expected + 0.3
    probe = FeedbackProbe(1e-9, "valence").fit(*world.features, valence=valence, places=world.places)
    assert np.allclose(probe.coef_, expected, atol=1e-8)
    assert probe.intercept_ == pytest.approx(0.3, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_the_signed_divergence_finds_exactly_the_planted_features(seed: int) -> None:
    world = coded(seed=seed, noise=0.1)
    probe = FeedbackProbe().fit(*world.features, places=world.places)
    found = probe.top_features(4)
    assert {(layer, k) for layer, latents in found.items() for k in latents} == {*UP, *DOWN}
    assert list(found) == [2, 10]
    signs = {place: np.sign(probe.coef_[world.places.index(place)]) for place in (*UP, *DOWN)}
    assert all(signs[place] == 1 for place in UP)
    assert all(signs[place] == -1 for place in DOWN)


def test_a_saved_probe_says_the_same() -> None:
    world = coded(n=100)
    probe = FeedbackProbe(2.0).fit(*world.features, places=world.places)
    again = FeedbackProbe.from_state(json.loads(json.dumps(probe.state())))
    X = world.features.rows()
    assert np.array_equal(again.predict(X), probe.predict(X))
    assert again.top_features(6) == probe.top_features(6)


def test_rescaling_by_hand() -> None:
    predictions = np.arange(11.0)  # percentiles 10 and 90 are 1 and 9
    scaled = rescale_to_range(predictions, -3.9, 3.4)
    assert scaled[0] == -3.9
    assert scaled[-1] == 3.4
    assert scaled[5] == pytest.approx(-0.25)
    assert scaled[2] == pytest.approx(-3.9 + 7.3 / 8)
    assert np.allclose(rescale_to_range(3 * predictions - 8, -3.9, 3.4), scaled)
    with pytest.raises(ValueError, match="same of nearly every text"):
        rescale_to_range(np.array([1.0] * 20 + [2.0]), -1, 1)
    with pytest.raises(ValueError, match="below"):
        rescale_to_range(predictions, 1, -1)


def test_pairs_are_told_apart_and_duplicates_count_once() -> None:
    random = np.random.default_rng(0)
    chosen, rejected = random.normal(0, 1, (2, 60, 4))
    chosen[:, 1] += 3
    probe = PairFeedbackProbe().fit(chosen, rejected)
    assert int(np.argmax(np.abs(probe.coef_))) == 1
    assert ((probe.predict(chosen) > 0).mean() + (probe.predict(rejected) < 0).mean()) / 2 > 0.85
    again = PairFeedbackProbe().fit(np.concatenate([chosen, chosen[:20]]), rejected)
    assert np.allclose(again.coef_, probe.coef_, atol=1e-6)


def test_bad_arguments_are_named() -> None:
    features = random_triples()
    with pytest.raises(ValueError, match="target"):
        FeedbackProbe(target="sign")
    with pytest.raises(ValueError, match="alpha"):
        FeedbackProbe(-1.0)
    with pytest.raises(ValueError, match="valence"):
        FeedbackProbe(target="valence").fit(*features)
    with pytest.raises(ValueError, match="shapes"):
        FeedbackProbe().fit(features.positive, features.negative[:-1], features.neutral)
    with pytest.raises(ValueError, match="not fitted"):
        FeedbackProbe().predict(features.positive)
    broken = features.positive.copy()
    broken[3, 2] = np.nan
    with pytest.raises(ValueError, match="positive features hold NaN"):
        FeedbackProbe().fit(broken, features.negative, features.neutral)
    probe = FeedbackProbe().fit(*features)
    with pytest.raises(ValueError, match="without places"):
        probe.top_features(2)
    with pytest.raises(ValueError, match=r"\[m 7\]"):
        probe.predict(features.positive[:, :5])
    with pytest.raises(ValueError, match="places names 3"):
        FeedbackProbe().fit(*features, places=[(0, 0)] * 3)
    with pytest.raises(ValueError, match="chosen and rejected"):
        PairFeedbackProbe().fit_rows(features.positive, np.ones(40))
