"""`collect_features` against a dense computation over the whole store."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from interp.activations.store import ActivationStore
from interp.sae.dashboard.collect import FeatureSettings, collect_features, firing_density
from interp.sae.dashboard.features import FeatureTable
from interp.sae.dashboard.ranking import NEAR, RAREST, Description, choose
from interp.sae.dashboard.tokens import Vocabulary
from interp.sae.metrics import density_histogram
from tests.sae import tiny_world as world

SETTINGS = FeatureSettings(
    top_k=6, sample_size=8, n_quantiles=2, examples_per_quantile=4, before=5, after=3,
    density_range=(0.0, 1.0), min_contexts=3, seed=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ActivationStore:
    return world.store(tmp_path_factory.mktemp("store") / "s")


@pytest.fixture(scope="module")
def table(store: ActivationStore) -> FeatureTable:
    return collect_features(
        world.random_sae(),
        store,
        world.model(),
        n_latents=12,
        settings=SETTINGS,
        batch_rows=300,
        progress=False,
    )


@pytest.fixture(scope="module")
def dense(store: ActivationStore) -> np.ndarray:
    """Codes of every row [n F], 0 at position 0."""
    x = store.read(world.SITE, slice(None), torch.float32)
    codes = world.random_sae().encode(x).detach().numpy()
    codes[store.columns().positions.numpy() == 0] = 0
    return codes


def test_statistics_equal_the_dense_ones(
    table: FeatureTable, dense: np.ndarray, store: ActivationStore
) -> None:
    counted = store.columns().positions.numpy() > 0
    assert table.n_tokens == counted.sum()
    assert table.n_contexts == store.n_contexts
    np.testing.assert_array_equal(table.hits, (dense > 0).sum(0))
    np.testing.assert_allclose(table.max_activation, dense.max(0), rtol=1e-6)
    np.testing.assert_allclose(
        table.mean_activation, dense.sum(0) / np.maximum((dense > 0).sum(0), 1), rtol=1e-5
    )
    assert table.dead.tolist() == [5, 11]
    np.testing.assert_allclose(table.density, (dense > 0).sum(0) / counted.sum())


def test_strongest_examples_are_the_best_of_each_context(
    table: FeatureTable, dense: np.ndarray, store: ActivationStore
) -> None:
    contexts = store.columns().context_ids.numpy()
    assert len(table.features) == 12
    for feature in table.features:
        per_context = np.zeros(store.n_contexts)
        np.maximum.at(per_context, contexts, dense[:, feature.index])
        want = np.sort(per_context)[::-1][:6]
        top = feature.groups[0]
        peaks = [e.values[e.peak] for e in top.examples]
        np.testing.assert_allclose(peaks, want, rtol=1e-5)
        assert len({e.context for e in top.examples}) == 6
        assert (top.low, top.high) == pytest.approx((want[-1], want[0]), rel=1e-5)


def test_windows_hold_the_tokens_around_the_peak_with_their_activations(
    table: FeatureTable, dense: np.ndarray, store: ActivationStore
) -> None:
    columns = store.columns()
    for feature in table.features:
        for example in (e for g in feature.groups for e in g.examples):
            rows = np.flatnonzero(columns.context_ids.numpy() == example.context)
            peak_row = rows[columns.positions.numpy()[rows] == example.position].item()
            first = max(rows[0], peak_row - 5)
            window = np.arange(first, min(rows[-1], peak_row + 3) + 1)
            assert example.peak == peak_row - first
            assert example.token_ids == columns.token_ids.numpy()[window].tolist()
            np.testing.assert_allclose(example.values, dense[window, feature.index], rtol=1e-4, atol=1e-6)
            assert example.document == int(columns.doc_ids[peak_row])


def test_quantile_groups_split_a_sample_of_the_firings(table: FeatureTable, dense: np.ndarray) -> None:
    for feature in table.features:
        first, second = feature.groups[1:]
        assert first.low >= second.high
        firings = dense[:, feature.index]
        firings = firings[firings > 0]
        for group in (first, second):
            assert len(group.examples) == 4
            for example in group.examples:
                value = example.values[example.peak]
                assert group.low * 0.999 <= value <= group.high * 1.001
                assert np.isclose(firings, value, rtol=1e-4).any()


def test_histograms_count_every_firing(table: FeatureTable, dense: np.ndarray) -> None:
    for feature in table.features:
        firings = dense[:, feature.index]
        firings = firings[firings > 0]
        edges = np.arange(len(feature.histogram_counts) + 1) * feature.histogram_width
        want, _ = np.histogram(firings, bins=edges)
        # A value within rounding of an edge may fall on either side.
        assert sum(feature.histogram_counts) == len(firings)
        assert np.abs(np.array(feature.histogram_counts) - want).sum() <= 2
        assert feature.max_activation <= edges[-1]


def test_the_score_can_be_recomputed_by_hand(table: FeatureTable, store: ActivationStore) -> None:
    columns = store.columns()
    tokens, positions = columns.token_ids.numpy(), columns.positions.numpy()
    vocabulary = Vocabulary.of(world.model())
    words = vocabulary.word_ids(tokens)

    def holds(kind: str, word: int, row: int) -> bool:
        start = row - positions[row]
        last = row + 1 < len(words) and positions[row + 1] == positions[row] + 1
        return {
            "on": words[row] == word,
            "after": row > start and words[row - 1] == word,
            "before": last and words[row + 1] == word,
            "near": word in words[max(start, row - NEAR) : row],
        }[kind]

    places = np.flatnonzero(positions > 0)
    kinds = set()
    for feature in table.features:
        description = feature.description
        assert description is not None
        word = vocabulary.words.index(description.word)
        base = np.mean([holds(description.kind, word, r) for r in places])
        assert description.base_rate == pytest.approx(base, rel=1e-9)
        top = [row_of(e, columns) for e in feature.groups[0].examples]
        assert description.share_top == pytest.approx(
            np.mean([holds(description.kind, word, r) for r in top])
        )
        sample = [e for group in feature.groups[1:] for e in group.examples]
        assert len(sample) == 8
        weights = np.array([e.values[e.peak] for e in sample])
        held = np.array([holds(description.kind, word, row_of(e, columns)) for e in sample])
        assert description.share_sample == pytest.approx((weights * held).sum() / weights.sum(), rel=1e-4)
        p = math.sqrt(description.share_top * description.share_sample)
        assert description.score == pytest.approx(p * math.log2(p / max(base, RAREST)))
        assert table.score[feature.index] == description.score
        kinds.add(description.kind)
    assert len(kinds) > 1
    order = [f.description.score for f in table.features if f.description]
    assert order == sorted(order, reverse=True)


def test_every_kind_gets_a_tenth_of_the_places() -> None:
    def description(kind: str, score: float) -> Description:
        return Description(kind, "w", 1.0, 1.0, 0.1, score)

    described = {i: description("on", 9 - i / 100) for i in range(100)}
    described |= {100 + i: description("near", 2 - i / 100) for i in range(50)}
    described |= {200: description("after", 0.5), 201: description("before", 1.0)}
    shown = choose(described, 20)
    assert shown == [*range(17), 100, 101, 201]  # best first; no place for what is below one bit
    assert choose(described, 5) == [0, 1, 2, 3, 4]
    assert len(choose(described, 1000)) == len(described)


def row_of(example, columns) -> int:
    here = (columns.context_ids == example.context) & (columns.positions == example.position)
    return int(torch.nonzero(here)[0, 0])


def test_companions_fire_in_the_sample_at_more_than_their_usual_rate(
    table: FeatureTable, dense: np.ndarray
) -> None:
    density = table.density
    for feature in table.features:
        for companion in feature.companions:
            assert companion.latent != feature.index
            assert companion.lift == pytest.approx(companion.share / density[companion.latent])
            assert companion.lift > 1
            assert companion.share * 8 == pytest.approx(round(companion.share * 8))
            both = ((dense[:, feature.index] > 0) & (dense[:, companion.latent] > 0)).sum()
            assert both >= 2


def test_neighbours_are_the_largest_cosines(table: FeatureTable) -> None:
    W = torch.nn.functional.normalize(world.random_sae().W_dec.detach(), dim=1)
    cosines = (W @ W.T).fill_diagonal_(-2)
    for feature in table.features:
        want = cosines[feature.index].topk(6)
        assert [i for i, _ in feature.neighbours] == want.indices.tolist()
        assert [v for _, v in feature.neighbours] == pytest.approx(want.values.tolist(), abs=1e-6)


def test_logit_effects_are_the_models_own_directions(table: FeatureTable) -> None:
    W = world.random_sae().W_dec.detach()
    for feature in table.features[:3]:
        logits = world.model().logit_directions(W[[feature.index]]).flatten()
        assert feature.logits is not None
        assert [t for t, _ in feature.logits.promoted] == logits.topk(10).indices.tolist()
        assert [t for t, _ in feature.logits.suppressed] == logits.topk(10, largest=False).indices.tolist()
        assert sum(feature.logits.histogram_counts) == len(logits)


def test_nothing_depends_on_the_size_of_blocks(store: ActivationStore) -> None:
    def collect(rows: int) -> FeatureTable:
        return collect_features(
            world.random_sae(), store, n_latents=5, settings=FeatureSettings(top_k=6, min_contexts=3,
            density_range=(0.0, 1.0)), batch_rows=rows, progress=False
        )  # fmt: skip

    small, large = collect(50), collect(100_000)
    np.testing.assert_array_equal(small.hits, large.hits)
    np.testing.assert_allclose(small.max_activation, large.max_activation, rtol=1e-6)
    small_best = [f.groups[0].examples[0].values for f in sorted(small.features, key=lambda f: f.index)]
    assert all(max(v) > 0 for v in small_best)
    for latent in range(40):
        assert small.mean_activation[latent] == pytest.approx(large.mean_activation[latent], rel=1e-6)


def test_max_rows_visits_contexts_spread_over_the_store(store: ActivationStore) -> None:
    few = collect_features(world.random_sae(), store, max_rows=1000, settings=SETTINGS, progress=False)
    share = 1000 / store.n_tokens
    assert few.n_contexts == pytest.approx(share * store.n_contexts, abs=1)
    seen = Counter(e.context for f in few.features for g in f.groups for e in g.examples)
    assert max(seen) > 0.8 * store.n_contexts


def test_latents_asked_for_by_number_are_shown_in_that_order(store: ActivationStore) -> None:
    table = collect_features(world.random_sae(), store, latents=[7, 5, 2], settings=SETTINGS, progress=False)
    assert [f.index for f in table.features] == [7, 5, 2]
    dead = table[5]
    assert dead.groups == []
    assert dead.density == 0
    assert dead.description is None
    assert table.vocabulary.string(17) == "#17"
    with pytest.raises(KeyError, match=r"latents=\[3\]"):
        table[3]


def test_firing_densities_are_those_of_the_table(table: FeatureTable, store: ActivationStore) -> None:
    histogram = firing_density(world.random_sae(), store, max_rows=10**9, progress=False)
    assert histogram == density_histogram(torch.from_numpy(table.hits), table.n_tokens)
    assert histogram.n_dead == 2


def test_rows_the_sae_was_not_trained_for_are_shown_but_not_encoded(store: ActivationStore) -> None:
    sae = world.random_sae()
    x = store.read(world.SITE, slice(None), torch.float32)
    positions, tokens = store.columns().positions, store.columns().token_ids
    bound = float(x[positions > 1].norm(dim=1).median())
    sae.metadata = world.metadata(skip_positions=(0, 1), max_norm=bound)
    trained = (positions > 1) & (x.norm(dim=1) <= bound)
    table = collect_features(sae, store, settings=SETTINGS, progress=False)
    assert table.n_tokens == int(trained.sum())
    codes = sae.encode(x).detach()
    np.testing.assert_array_equal(table.hits, (codes[trained] > 0).sum(0).numpy())
    rows = {
        (int(c), int(p)): i
        for i, (c, p) in enumerate(zip(store.columns().context_ids, positions, strict=True))
    }
    shown_but_silent = 0
    for feature in table.features:
        for example in (e for g in feature.groups for e in g.examples):
            for j, (token, value) in enumerate(zip(example.token_ids, example.values, strict=True)):
                row = rows[example.context, example.position - example.peak + j]
                assert token == int(tokens[row])
                fires = float(codes[row, feature.index])
                assert value == pytest.approx(fires if trained[row] else 0.0, rel=1e-4)
                shown_but_silent += fires > 0 and not trained[row]
    assert shown_but_silent > 0


def test_misfits_are_named(store: ActivationStore) -> None:
    from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig

    with pytest.raises(ValueError, match=r"width 4, resid_post.1 has 16"):
        collect_features(StandardSAE(StandardSAEConfig(4, 8)), store, progress=False)
    with pytest.raises(ValueError, match=r"latents: \[40\]"):
        collect_features(world.random_sae(), store, latents=[40], progress=False)
    with pytest.raises(ValueError, match="top_k=0"):
        collect_features(world.random_sae(), store, top_k=0, progress=False)


def test_an_sae_that_never_fires_gives_an_empty_table(store: ActivationStore, tmp_path: Path) -> None:
    table = collect_features(world.zero_sae(), store, progress=False)
    assert table.features == []
    assert len(table.dead) == 8
    table.save(tmp_path / "features.json")
    assert list(table.to_frame()["hits"]) == [0] * 8


def test_where_all_fire_often_all_are_ranked(store: ActivationStore, caplog) -> None:
    often = FeatureSettings(density_range=(0.0, 1e-9), min_contexts=3)
    table = collect_features(world.random_sae(), store, n_latents=5, settings=often, progress=False)
    assert len(table.features) == 5
    assert "no latent fires on 0 to 1e-09 of the tokens: ranking all" in caplog.text
