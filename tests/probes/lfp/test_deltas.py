"""Feature deltas: by hand, and the planted features on top."""

from __future__ import annotations

import numpy as np
import pytest

from interp.probes.lfp.deltas import feature_deltas
from interp.probes.lfp.probe import TripleFeatures
from tests.probes.lfp.sparse_codes import DOWN, UP, coded


def test_two_triples_by_hand() -> None:
    P = np.array([[3.0, 1.0, 0.0, 2.0], [5.0, 1.0, 0.0, 3.0]])
    N = np.array([[1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 2.0]])
    Z = np.array([[2.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 1.0]])
    found = feature_deltas(TripleFeatures(P, N, Z), [(0, 0), (0, 1), (0, 2), (1, 0)])
    assert found.positive.tolist() == [2.0, 1.0, 0.0, 2.0]
    assert found.negative.tolist() == [-1.0, 1.0, 0.0, 1.0]
    assert found.contrast.tolist() == [3.0, 0.0, 0.0, 1.0]
    # Differences 2 and 4: mean 3, standard deviation sqrt 2; the last column always differs by 1.
    assert found.effect[:3] == pytest.approx([3 / 2**0.5, 0.0, 0.0])
    assert np.isinf(found.effect[3])
    assert found.top(2) == [3, 0]
    assert found.rows(1) == [
        {"layer": 1, "latent": 0, "positive": 2.0, "negative": 1.0, "contrast": 1.0, "effect": None}
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_planted_features_move_most(seed: int) -> None:
    world = coded(seed=seed, noise=0.1)
    found = feature_deltas(world.features, world.places)
    assert {world.places[i] for i in found.top(4)} == {*UP, *DOWN}
    frame = found.to_frame()
    rows = frame.iloc[:4]
    assert {(row.layer, row.latent) for row in rows[rows.effect > 0].itertuples()} == set(UP)
    assert {(row.layer, row.latent) for row in rows[rows.effect < 0].itertuples()} == set(DOWN)
    assert str(found).splitlines()[0].split() == [
        "layer",
        "latent",
        "positive",
        "negative",
        "contrast",
        "effect",
    ]
    assert len(found.plot().axes[0].collections) == 2


def test_bad_input_is_named() -> None:
    world = coded(n=3)
    with pytest.raises(ValueError, match="places names 1"):
        feature_deltas(world.features, [(0, 0)])
    with pytest.raises(ValueError, match="two or more"):
        feature_deltas(TripleFeatures(*(part[:1] for part in world.features)), world.places)
