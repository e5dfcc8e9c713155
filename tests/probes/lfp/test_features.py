"""Features read in batches against the same read text by text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.probes.lfp.features import (
    collect_activations,
    collect_features,
    collect_triples,
    encode_activations,
    feature_places,
)
from interp.probes.lfp.triples import ContrastiveTriple
from interp.sae.architectures.tied import TiedSAE, TiedSAEConfig
from interp.sae.metadata import SAEMetadata
from tests.models.tiny import D_MODEL, byte_tokenizer, tiny_model

TEXTS = ["it was good", "the film and the long meal were bad", "so", "he said nothing of the kind", "he he"]


def random_sae(width: int, seed: int, **metadata: Any) -> TiedSAE:
    sae = TiedSAE(TiedSAEConfig(D_MODEL, width), seed=seed)
    with torch.no_grad():
        sae.b_enc.fill_(-0.02)
    sae.metadata = SAEMetadata(**metadata)
    return sae


@pytest.fixture(scope="module")
def deep() -> LanguageModel:
    """Twelve layers: as strings, 10 would come before 2."""
    return load_model(tiny_model("llama", num_hidden_layers=12), tokenizer=byte_tokenizer())


SAES = {10: random_sae(8, 0), 2: random_sae(5, 1), 11: random_sae(3, 2)}


def by_hand(model: LanguageModel, text: str, layer: int, add_bos: bool) -> torch.Tensor:
    """MLP outputs [s d] of one text alone, by a plain hook."""
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = [256, *ids] if add_bos else ids
    seen = []
    hook = model.module.model.layers[layer].mlp.register_forward_hook(lambda m, a, out: seen.append(out[0]))
    with torch.no_grad():
        model.module(torch.tensor([ids]))
    hook.remove()
    return seen[0]


@torch.no_grad()
@pytest.mark.parametrize("pool", ["last", "mean"])
def test_features_are_those_of_each_text_alone_by_ascending_layer(deep: LanguageModel, pool: str) -> None:
    found = collect_features(deep, TEXTS, SAES, pool)
    assert found.shape == (5, 16)
    assert found.dtype == np.float32
    for row, text in zip(found, TEXTS, strict=True):
        parts = []
        for layer in (2, 10, 11):
            codes = SAES[layer].encode(by_hand(deep, text, layer, add_bos=False))
            parts.append(codes[-1] if pool == "last" else codes[1:].mean(0))  # position 0 doesn't count
        assert np.allclose(row, torch.cat(parts).numpy(), atol=1e-5)


def test_places_name_the_columns() -> None:
    places = feature_places(SAES)
    assert places[:6] == [(2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (10, 0)]
    assert places[-1] == (11, 2)


def test_raw_activations(deep: LanguageModel) -> None:
    found = collect_activations(deep, TEXTS, [10, 2])
    expected = [torch.cat([by_hand(deep, t, layer, False)[-1] for layer in (2, 10)]).numpy() for t in TEXTS]
    assert np.allclose(found, expected, atol=1e-5)
    mean = collect_activations(deep, TEXTS[:2], [2], "mean")
    assert np.allclose(mean[1], by_hand(deep, TEXTS[1], 2, False)[1:].mean(0).numpy(), atol=1e-5)


def test_features_of_activations_that_were_read_before(deep: LanguageModel) -> None:
    raw = collect_activations(deep, TEXTS, list(SAES))
    assert np.allclose(encode_activations(raw, SAES), collect_features(deep, TEXTS, SAES), atol=1e-6)
    with pytest.raises(ValueError, match=r"layers \[2, 10\] ask for \[n 64\]"):
        encode_activations(raw, {2: SAES[2], 10: SAES[10]})


def test_special_tokens_do_not_count() -> None:
    """A tokenizer that puts <s> before and </s> behind each text: the last word is still what is read."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 256), ("</s>", 257)]
    )
    model = load_model(tiny_model("llama"), tokenizer=tokenizer)
    for pool in ("last", "mean"):
        found = collect_activations(model, ["it was good", "so"], [1], pool)
        for row, text in zip(found, ("it was good", "so"), strict=True):
            words = by_hand(model, text, 1, add_bos=True)[1:]
            assert np.allclose(row, (words[-1] if pool == "last" else words.mean(0)).numpy(), atol=1e-5)


def test_batch_mates_and_hooks_leave_no_trace(deep: LanguageModel) -> None:
    alone = np.concatenate([collect_features(deep, [text], SAES, "mean") for text in TEXTS])
    together = collect_features(deep, TEXTS, SAES, "mean")
    assert np.allclose(alone, together, atol=1e-5)
    assert np.array_equal(together, collect_features(deep, TEXTS, SAES, "mean"))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in deep.module.modules())


def test_triples_are_read_in_their_order_and_repeated_texts_once(
    deep: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    triples = [
        ContrastiveTriple("it was good", "it was bad", "it was so", "good", "bad"),
        ContrastiveTriple("it was fine", "it was bad", "it was so", "fine", "bad"),
    ]
    seen: list[int] = []
    tokenize = LanguageModel.tokenize
    monkeypatch.setattr(
        LanguageModel,
        "tokenize",
        lambda self, texts, **k: seen.append(len(texts)) or tokenize(self, texts, **k),
    )
    found = collect_triples(deep, triples, SAES)
    assert seen == [4]
    assert np.array_equal(found.positive, collect_features(deep, ["it was good", "it was fine"], SAES))
    assert np.array_equal(found.negative[0], found.negative[1])
    assert np.array_equal(
        collect_triples(deep, triples, [2]).neutral, collect_activations(deep, ["it was so"] * 2, [2])
    )


def test_what_cannot_be_read_is_named(deep: LanguageModel, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match=r"text 1 \('x'\) has no token that counts"):
        collect_features(deep, ["it was", "x"], SAES)
    with pytest.raises(ValueError, match="texts = "):
        collect_features(deep, [], SAES)
    with pytest.raises(ValueError, match="texts = "):
        collect_features(deep, "it was", SAES)
    with pytest.raises(ValueError, match="pool"):
        collect_features(deep, TEXTS, SAES, "max")
    with pytest.raises(ValueError, match="no layers"):
        collect_features(deep, TEXTS, {})
    with pytest.raises(TypeError, match="10 would come before 2"):
        collect_features(deep, TEXTS, {"2": SAES[2]})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"trained at mlp_out\.3, not at mlp_out\.2"):
        collect_features(deep, TEXTS, {2: random_sae(4, 0, site="mlp_out.3")})
    with pytest.raises(ValueError, match="triples is empty"):
        collect_triples(deep, [], SAES)
    with pytest.raises(ValueError, match="layer 12"):
        collect_activations(deep, TEXTS, [12])
    with pytest.raises(ValueError, match="d_in = 7"):
        collect_features(deep, TEXTS, {2: TiedSAE(TiedSAEConfig(7, 4))})


def test_a_dictionary_of_another_model_is_warned_of(
    deep: LanguageModel, caplog: pytest.LogCaptureFixture
) -> None:
    other = load_model(tiny_model("llama", seed=1, num_hidden_layers=12), tokenizer=byte_tokenizer())
    own = random_sae(4, 0, site="mlp_out.2", model_fingerprint=deep.fingerprint())
    collect_features(deep, TEXTS, {2: own})
    assert not caplog.records
    collect_features(other, TEXTS, {2: own})
    assert "other weights" in caplog.text
