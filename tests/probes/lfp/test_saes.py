"""Dictionaries of several layers: what they were trained on, their figures, resuming, refusing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import interp.probes.lfp.saes as saes_module
from interp.models.language_model import LanguageModel
from interp.probes.lfp.saes import load_feedback_saes, train_feedback_saes
from interp.sae.architectures.tied import TiedSAE
from interp.sae.loading import load_sae

TEXTS = [f"the film number {i} was {w} and the meal was {w}" for i in range(40) for w in ("good", "bad")]
HOW = {
    "d_sae": 24,
    "l1_coefficient": 0.01,
    "steps": 60,
    "batch_size": 128,
    "context_size": 32,
    "progress": False,
}


def activations(model: LanguageModel, layer: int) -> torch.Tensor:
    """MLP outputs of all texts' tokens but the first, cut into contexts of 32, by a plain hook."""
    rows = []
    for text in TEXTS:
        ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
        for start in range(0, len(ids), 32):
            seen: list[torch.Tensor] = []
            hook = model.module.model.layers[layer].mlp.register_forward_hook(
                lambda m, a, out, seen=seen: seen.append(out[0])
            )
            with torch.no_grad():
                model.module(torch.tensor([ids[start : start + 32]]))
            hook.remove()
            rows.append(seen[0][1:])
    return torch.cat(rows)


def test_figures_are_of_all_tokens_but_the_first_of_each_context(tiny_llama: LanguageModel) -> None:
    found = train_feedback_saes(tiny_llama, TEXTS, [2, 0], **HOW)
    assert list(found) == [0, 2]
    for row, (layer, sae) in zip(found.quality, found.items(), strict=True):
        assert isinstance(sae, TiedSAE)
        assert (row.layer, row.d_sae) == (layer, 24)
        assert sae.metadata.site == f"mlp_out.{layer}"
        x = activations(tiny_llama, layer)
        assert row.n_tokens == len(x)
        with torch.no_grad():
            out = sae(x)
        fvu = float((out.x_hat - x).pow(2).sum() / (x - x.mean(0)).pow(2).sum())
        assert row.fvu == pytest.approx(fvu, rel=1e-3)
        assert row.l0 == pytest.approx(float((out.codes > 0).sum(1).float().mean()), rel=1e-3)
        assert row.dead == pytest.approx(float((out.codes == 0).all(0).float().mean()))
    assert str(found).splitlines()[1].startswith("0 ")
    assert found.to_frame().loc[2, "d_sae"] == 24


def test_training_lowers_the_error_and_the_scale_is_folded(tiny_llama: LanguageModel) -> None:
    longer = train_feedback_saes(tiny_llama, TEXTS, [1], **{**HOW, "steps": 400})
    shorter = train_feedback_saes(tiny_llama, TEXTS, [1], **{**HOW, "steps": 20})
    assert longer.quality[0].fvu < 0.5 * shorter.quality[0].fvu
    x = activations(tiny_llama, 1)
    expected = x.shape[1] ** 0.5 / float(x.norm(dim=1).mean())
    assert longer[1].metadata.activation_scale == pytest.approx(expected, rel=1e-4)
    assert longer[1].metadata.activation_scale_folded


def test_a_killed_call_goes_on_to_the_same_bits(
    tiny_llama: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_feedback_saes(tiny_llama, TEXTS, [0, 2], **HOW, out=tmp_path / "whole")
    real, calls = saes_module.train, []

    def killed(store, **options):
        calls.append(options["site"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(store, **options)

    monkeypatch.setattr(saes_module, "train", killed)
    with pytest.raises(KeyboardInterrupt):
        train_feedback_saes(tiny_llama, TEXTS, [0, 2], **HOW, out=tmp_path / "cut")
    with pytest.raises(ValueError, match="didn't finish"):
        load_feedback_saes(tmp_path / "cut")
    resumed = train_feedback_saes(tiny_llama, TEXTS, [0, 2], **HOW, out=tmp_path / "cut")
    for layer in (0, 2):
        assert torch.equal(resumed[layer].W, whole[layer].W)
    assert resumed.quality == whole.quality
    assert not (tmp_path / "cut" / "activations").exists()


def test_what_is_there_is_used_and_other_settings_are_refused(
    tiny_llama: LanguageModel, tiny_gpt2: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train_feedback_saes(tiny_llama, TEXTS, [1], **HOW, out=tmp_path)
    monkeypatch.setattr(saes_module, "harvest", None)  # must not be called again
    again = train_feedback_saes(tiny_llama, TEXTS, [1], **HOW, out=tmp_path)
    assert torch.equal(again[1].W, first[1].W)
    assert again.quality == first.quality
    assert torch.equal(load_sae(tmp_path / "layer-1").W, first[1].W)
    assert load_feedback_saes(tmp_path).quality == first.quality
    with pytest.raises(ValueError, match="steps was 60 there and is 61 here"):
        train_feedback_saes(tiny_llama, TEXTS, [1], **{**HOW, "steps": 61}, out=tmp_path)
    with pytest.raises(ValueError, match="text was "):
        train_feedback_saes(tiny_llama, TEXTS[1:], [1], **HOW, out=tmp_path)
    with pytest.raises(ValueError, match="weights was "):
        train_feedback_saes(tiny_gpt2, TEXTS, [1], **HOW, out=tmp_path)


def test_bad_layers_are_named(tiny_llama: LanguageModel) -> None:
    with pytest.raises(ValueError, match="layers is empty"):
        train_feedback_saes(tiny_llama, TEXTS, [], **HOW)
    with pytest.raises(ValueError, match="layer 3 is out of range"):
        train_feedback_saes(tiny_llama, TEXTS, [3], **HOW)
