"""The one-pass accumulators against sorting and counting everything at once."""

from __future__ import annotations

import numpy as np
import pytest

from interp.sae.dashboard.accumulators import (
    Histograms,
    TopPerLatent,
    rank_within_groups,
    strongest_per_context,
)


@pytest.fixture
def firings() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    latents = np.concatenate([rng.integers(0, 7, 3000), [8]])
    values = rng.exponential(size=3001).astype(np.float32) * 10.0 ** rng.uniform(-2, 2, 3001).astype(
        np.float32
    )
    return latents, values, rng.permutation(3001)


@pytest.mark.parametrize("cuts", [(), (5, 6, 900, 2999), tuple(range(50, 3000, 50))])
def test_top_per_latent_equals_a_full_sort(firings: tuple[np.ndarray, ...], cuts: tuple[int, ...]) -> None:
    latents, values, rows = firings
    top = TopPerLatent(9, 12)
    for part in np.split(np.arange(len(latents)), cuts):
        top.update(latents[part], values[part].astype(np.float64), rows[part], values[part])
    for latent in range(9):
        mine = np.flatnonzero(latents == latent)
        want = mine[np.argsort(-values[mine], kind="stable")][:12]
        got_rows, got_values = top.of(latent)
        np.testing.assert_array_equal(got_rows, rows[want])
        np.testing.assert_array_equal(got_values, values[want])
    assert len(top.of(7)[0]) == 0
    assert len(top.of(8)[0]) == 1


def test_equal_keys_keep_their_order() -> None:
    top = TopPerLatent(1, 2)
    top.update(np.zeros(3, int), np.ones(3), np.array([5, 3, 9]), np.ones(3))
    top.update(np.zeros(1, int), np.ones(1), np.array([1]), np.ones(1))
    assert top.of(0)[0].tolist() == [5, 3]


def test_random_keys_sample_every_firing_equally_often() -> None:
    drawn = np.zeros(20)
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        top = TopPerLatent(1, 5)
        for part in np.array_split(np.arange(20), 4):
            top.update(np.zeros(len(part), int), rng.random(len(part)), part, np.ones(len(part)))
        drawn[top.of(0)[0]] += 1
    # Expected 500 times each, standard deviation 19.
    assert drawn.sum() == 10_000
    assert np.abs(drawn - 500).max() < 90


@pytest.mark.parametrize("cuts", [(), (1, 2, 3, 1500)])
def test_doubling_histograms_equal_a_histogram_made_at_the_end(
    firings: tuple[np.ndarray, ...], cuts: tuple[int, ...]
) -> None:
    latents, values, _ = firings
    histograms = Histograms(9, bins=16)
    for part in np.split(np.arange(len(latents)), cuts):
        histograms.update(latents[part], values[part])
    for latent in range(9):
        mine = values[latents == latent].astype(np.float64)
        counts, width = histograms.of(latent)
        assert sum(counts) == len(mine)
        if len(mine):
            limit = 2 ** np.ceil(np.log2(mine.max()))
            assert width == limit / 16
            want, _ = np.histogram(mine, bins=16, range=(0, limit))
            assert counts == np.trim_zeros(want, "b").tolist()


def test_strongest_per_context_keeps_one_of_each() -> None:
    latents = np.array([0, 0, 0, 1, 0])
    contexts = np.array([4, 4, 5, 4, 4])
    values = np.array([1.0, 3.0, 2.0, 1.0, 3.0])
    assert strongest_per_context(latents, contexts, values).tolist() == [1, 2, 3]
    assert len(strongest_per_context(latents[:0], contexts[:0], values[:0])) == 0


def test_rank_within_groups() -> None:
    assert rank_within_groups(np.array([3, 3, 5, 5, 5, 9])).tolist() == [0, 1, 0, 1, 2, 0]


def test_nonsense_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="k=0"):
        TopPerLatent(3, 0)
    with pytest.raises(ValueError, match="bins=7"):
        Histograms(3, 7)
