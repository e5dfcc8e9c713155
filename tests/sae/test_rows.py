"""Which rows an SAE is for: training, evaluation, splicing and the readers of features agree on every token."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from interp.activations.stream import StoreStream
from interp.activations.text import TokenContexts
from interp.probes.lfp.ablation import ablate_features, active_shares
from interp.probes.lfp.contexts import top_contexts
from interp.probes.lfp.features import collect_activations, collect_features, encode_activations
from interp.probes.lfp.sampling import Continuations
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.evaluate import evaluate
from interp.sae.metadata import SAEMetadata
from interp.sae.rows import TrainedRows
from interp.sae.splice import spliced
from tests.sae import tiny_world as world

LAYER = 1
SITE = f"mlp_out.{LAYER}"
EOS = 0
SEEDS = range(6)


def drawn_texts(rng: random.Random, n: int = 5) -> list[str]:
    """Of different lengths, with the special token inside."""
    texts = []
    for text in rng.sample(world.TEXTS, n):
        words = text.split(" ")[: rng.randint(4, 14)]
        for _ in range(rng.randint(0, 2)):
            words.insert(rng.randint(1, len(words)), "<eos>")
        texts.append(" ".join(words))
    return texts


def drawn_metadata(rng: random.Random, norms: torch.Tensor) -> SAEMetadata:
    return SAEMetadata(
        site=SITE,
        skip_positions=rng.choice([(), (0,), (0, 2), (1, 3)]),
        special_tokens_excluded=rng.choice([True, False, None]),
        max_norm=rng.choice([None, float(norms.quantile(rng.uniform(0.5, 0.9)))]),
    )


def marking_sae(metadata: SAEMetadata) -> StandardSAE:
    """One latent is w·x + 100, another ReLU(w·x); the reconstruction is zero."""
    sae = StandardSAE(StandardSAEConfig(16, 2, False), seed=None)
    with torch.no_grad():
        sae.W_enc.copy_(torch.randn(1, 16, generator=torch.Generator().manual_seed(4)).expand(2, 16))
        sae.b_enc[0] = 100.0
    sae.metadata = metadata
    return sae


def is_for(metadata: SAEMetadata, token: int, position: int, x: torch.Tensor) -> bool:
    """The rule in words, one token at a time."""
    if position in metadata.skip_positions or (
        metadata.special_tokens_excluded is not False and token == EOS
    ):
        return False
    return metadata.max_norm is None or float(x.norm()) <= metadata.max_norm


def world_of(seed: int):
    lm, rng = world.model(), random.Random(seed)
    texts = drawn_texts(rng)
    batch = lm.tokenize(texts)
    act = lm.activations(batch, SITE)[SITE]
    real = batch.attention_mask.bool()
    metadata = drawn_metadata(rng, act[real].norm(dim=1))
    mask = torch.zeros_like(real)
    for i, j in real.nonzero().tolist():
        mask[i, j] = is_for(metadata, int(batch.input_ids[i, j]), j, act[i, j])
    return lm, texts, batch, act, mask, marking_sae(metadata)


def replaced_rows(lm, context, inputs, act) -> torch.Tensor:
    """Where an edit to zero took place."""
    with context:
        after = lm.activations(inputs, SITE)[SITE]
    assert bool(((after == act) | (after == 0)).all())
    return (after == 0).all(-1) & (act != 0).any(-1)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_agree_with_the_rule_on_texts(seed):
    lm, texts, batch, act, mask, sae = world_of(seed)
    positions = torch.arange(mask.shape[1]).expand(mask.shape)
    rule = TrainedRows.of(sae, lm.special_token_ids)
    assert torch.equal(rule.mask(batch.input_ids, positions, act, batch.attention_mask), mask)
    # Splicing, and the ablation that rebuilds all but some latents.
    assert torch.equal(replaced_rows(lm, spliced(lm, sae, SITE), batch, act), mask)
    ablated = ablate_features(lm, {LAYER: sae}, {LAYER: [0]}, mode="reconstruct")
    assert torch.equal(replaced_rows(lm, ablated, batch, act), mask)
    # Contexts show a code where the SAE reads.
    found = top_contexts(
        lm,
        texts,
        {LAYER: sae},
        {LAYER: [0]},
        n_top=len(texts),
        max_length=99,
        batch_size=2,
        show_progress=False,
    )
    shown = {c.text: c.activations for c in found.features[0].top}
    for text, row, real in zip(texts, mask, batch.attention_mask.bool(), strict=True):
        assert [a > 0 for a in shown.get(text, [0] * int(real.sum()))] == row[real].tolist()
    # Shares of tokens on which a latent fires, prompts and what follows together.
    ids = [tuple(row) for row in batch.rows()]
    written = Continuations(
        tuple(texts), tuple(texts), tuple(i[:1] for i in ids), tuple(i[1:] for i in ids), 1
    )
    share = active_shares(lm, {LAYER: sae}, written, batch_size=2)[LAYER]
    fires = sae.encode(act)[..., 1] > 0
    assert share == pytest.approx([1.0, float(fires[mask].double().mean())])


@pytest.mark.parametrize("seed", SEEDS)
def test_features_are_read_where_the_sae_is_for(seed):
    lm, texts, batch, act, mask, sae = world_of(seed)
    codes = sae.encode(act).detach() * mask[..., None]
    if mask.any(1).all():
        mean = collect_features(lm, texts, {LAYER: sae}, "mean")
        expected = codes.sum(1) / mask.sum(1, keepdim=True)
        np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-4)
    positions = torch.arange(mask.shape[1]).expand(mask.shape)
    any_norm = TrainedRows(sae.metadata.skip_positions, TrainedRows.of(sae, [EOS]).special_token_ids)
    counts = any_norm.mask(batch.input_ids, positions, act, batch.attention_mask)
    if counts.any(1).all():
        last = torch.where(counts, positions, -1).amax(1)
        read = collect_features(lm, texts, {LAYER: sae})
        np.testing.assert_allclose(read, codes[torch.arange(len(texts)), last], rtol=1e-5, atol=1e-4)


def test_raw_activations_encode_to_the_features_that_are_read():
    lm, rng = world.model(), random.Random(1)
    texts = drawn_texts(rng, 12)
    raw = collect_activations(lm, texts, [LAYER])
    bound = float(np.median(np.linalg.norm(raw, axis=1)))
    sae = marking_sae(SAEMetadata(site=SITE, max_norm=bound))
    features = collect_features(lm, texts, {LAYER: sae})
    np.testing.assert_allclose(encode_activations(raw, {LAYER: sae}), features, rtol=1e-5, atol=1e-4)
    assert [row.any() for row in features] == (np.linalg.norm(raw, axis=1) <= bound).tolist()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["pad", "pack"])
def test_evaluation_and_splicing_agree_on_contexts(seed, mode):
    lm, rng = world.model(), random.Random(seed)
    contexts: TokenContexts = world.contexts(8, mode=mode)
    inside = rng.sample(range(len(contexts.tokens)), 12)
    contexts.tokens[inside] = EOS
    found, expected, entropy, count = [], 0, 0.0, 0
    batches = [contexts.batch([i]) for i in range(len(contexts))]
    acts = [
        lm.activations(b.input_ids, SITE, position_ids=b.position_ids, segment_ids=b.segment_ids)[SITE]
        for b in batches
    ]
    metadata = drawn_metadata(rng, torch.cat([a[0] for a in acts]).norm(dim=1))
    sae = marking_sae(metadata)
    for b, act in zip(batches, acts, strict=True):
        kept = [
            is_for(metadata, int(t), int(p), x)
            for t, p, x in zip(b.input_ids[0], b.position_ids[0], act[0], strict=True)
        ]
        expected += sum(kept)
        with spliced(lm, sae, SITE):
            after = lm.activations(b.input_ids, SITE, position_ids=b.position_ids, segment_ids=b.segment_ids)
            loss = lm.loss(b.input_ids, position_ids=b.position_ids, segment_ids=b.segment_ids)
        found.append(((after[SITE] == 0).all(-1) & (act != 0).any(-1))[0].tolist() == kept)
        entropy, count = entropy + float(loss.values.double().sum()), count + int(loss.mask.sum())
    assert all(found)
    result = evaluate(sae, lm, contexts, ablation="zero", progress=False)
    assert result.n_tokens == expected
    assert result.ce_spliced == pytest.approx(entropy / count, abs=1e-6)
    assert result.ce_spliced == result.ce_zero


def test_training_and_use_have_the_same_rows(tmp_path):
    store = world.store(tmp_path / "s", 20)
    stream = StoreStream(store, world.SITE, max_norm_multiple=1.2)
    metadata = SAEMetadata(site=world.SITE, special_tokens_excluded=True, max_norm=stream.max_norm)
    sae = StandardSAE(StandardSAEConfig(16, 4), seed=0)
    sae.metadata = metadata
    assert stream.counts.dropped_norm > 0
    result = evaluate(sae, world.model(), world.contexts(20), ablation="zero", progress=False)
    assert result.n_tokens == stream.counts.kept


def test_an_ablation_of_nothing_changes_no_bit():
    lm = world.model()
    sae = world.random_sae()
    sae.metadata = SAEMetadata(site=SITE)
    batch = lm.tokenize(world.TEXTS[:4])
    before = lm.logits(batch)
    codes = sae.encode(lm.activations(batch, SITE)[SITE])
    assert not codes[..., [5, 11]].any()  # latents that never fire
    for features in ({}, {LAYER: []}, {LAYER: [5, 11]}):
        with ablate_features(lm, {LAYER: sae}, features):
            assert torch.equal(lm.logits(batch), before)
    with spliced(lm, sae, SITE, with_error_term=True):
        assert torch.equal(lm.logits(batch), before)
    with spliced(lm, sae, SITE, with_error_term=True, edit_codes=lambda c: c.select(range(40))):
        assert torch.equal(lm.logits(batch), before)
    with ablate_features(lm, {LAYER: sae}, {LAYER: list(range(40))}):
        assert not torch.allclose(lm.logits(batch), before, atol=1e-3)


def test_all_rows_may_be_asked_for():
    lm, _, batch, act, mask, sae = world_of(0)
    real = batch.attention_mask.bool()
    assert torch.equal(replaced_rows(lm, spliced(lm, sae, SITE, rows=TrainedRows()), batch, act), real)
    assert not torch.equal(mask, real)
