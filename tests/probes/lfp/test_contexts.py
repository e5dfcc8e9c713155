"""Top contexts, against activations read one text at a time by a hook of our own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.probes.lfp.contexts import Context, top_contexts
from tests.probes.lfp.small_world import random_saes, sentences, small_model

FEATURES = {1: [3, 7], 0: [5]}


def peaks_one_by_one() -> dict[tuple[int, int], np.ndarray]:
    """The highest activation in each text behind position 0, from plain transformers."""
    model = small_model()
    saes = random_saes(model)
    found: dict[tuple[int, int], list[float]] = {(l, k): [] for l in (0, 1) for k in FEATURES[l]}
    for text in sentences():
        seen: dict[int, torch.Tensor] = {}
        hooks = [
            block.mlp.register_forward_hook(lambda m, a, out, l=l, seen=seen: seen.__setitem__(l, out))
            for l, block in enumerate(model.module.model.layers)
        ]
        with torch.no_grad():
            model.module(input_ids=torch.tensor([model.tokenizer(text)["input_ids"]]))
        for hook in hooks:
            hook.remove()
        for (layer, latent), values in found.items():
            sae = saes[layer]
            rows = sae.W / sae.W.norm(dim=1, keepdim=True)
            codes = torch.relu(seen[layer][0] @ rows.T + sae.b_enc)[1:, latent]
            values.append(codes.max().item())
    return {key: np.array(values) for key, values in found.items()}


def test_the_strongest_texts_come_first_and_quiet_ones_are_quieter() -> None:
    model = small_model()
    found = top_contexts(
        model,
        sentences() * 2,
        random_saes(model),
        FEATURES,
        n_top=6,
        n_quiet=5,
        batch_size=7,
        show_progress=False,
    )
    expected = peaks_one_by_one()
    assert [(f.layer, f.latent) for f in found.features] == [(0, 5), (1, 3), (1, 7)]
    texts = sentences()
    for feature in found.features:
        peaks = expected[feature.layer, feature.latent]
        n = min(6, int((peaks > 0).sum()))
        assert n
        assert [c.peak for c in feature.top] == pytest.approx(sorted(peaks, reverse=True)[:n], abs=1e-4)
        for context in feature.top:
            assert context.peak == pytest.approx(peaks[texts.index(context.text)], abs=1e-4)
            assert " ".join(context.tokens) == context.text
            assert context.activations[0] == 0
        weak = np.sort(peaks)[: len(texts) // 4]
        assert len(feature.quiet) == 5
        assert all(c.peak <= weak[-1] + 1e-4 for c in feature.quiet)
        assert not {c.text for c in feature.top} & {c.text for c in feature.quiet}
        assert {c.text for c in feature.shown}.isdisjoint(c.text for c in feature.held_out)
    assert found.background["film"] == sum(text.split().count("film") for text in texts)


def test_the_density_counts_tokens() -> None:
    model = small_model()
    texts = sentences()
    all_of_it = top_contexts(model, texts, random_saes(model), {0: [5]}, n_top=99, show_progress=False)
    feature = all_of_it.features[0]
    active = sum(a > 0 for c in feature.top for a in c.activations)
    assert feature.density == pytest.approx(active / sum(len(text.split()) for text in texts))


def test_levels_are_whole_numbers_of_ten() -> None:
    context = Context("a b c d", ("a", "b", "c", "d"), (-1.0, 0.0, 1.26, 5.0))
    assert context.levels(5.0) == (0, 0, 3, 10)
    assert context.levels(0.0) == (0, 0, 0, 0)
    assert (context.peak, context.peak_token) == (5.0, "d")
    assert Context("a\n", (" a", "\n"), (2.0, 1.0)).peak_token == "a"
    assert Context("a\n", ("a", "\n"), (0.0, 1.0)).peak_token == "\\n"


def test_the_same_seed_draws_the_same_quiet_contexts() -> None:
    model = small_model()
    a, b, c = (
        top_contexts(model, sentences(), random_saes(model), {0: [5]}, n_quiet=4, seed=s, show_progress=False)
        for s in (0, 0, 1)
    )
    assert a == b
    assert a.features[0].top == c.features[0].top
    assert a.features[0].quiet != c.features[0].quiet


def test_what_makes_no_sense_is_refused() -> None:
    model = small_model()
    saes = random_saes(model)
    with pytest.raises(ValueError, match="texts is empty"):
        top_contexts(model, [], saes, {0: [1]})
    with pytest.raises(ValueError, match="features is empty"):
        top_contexts(model, ["the film"], saes, {0: []})
    with pytest.raises(ValueError, match="latents 0 to 47"):
        top_contexts(model, ["the film"], saes, {0: [48]})
    with pytest.raises(ValueError, match=r"SAEs of layers \[0, 1\]"):
        top_contexts(model, ["the film"], saes, {2: [0]})
