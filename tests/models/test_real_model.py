"""The packaged SmolLM2-135M-Instruct: known facts about it, few and short passes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model

pytestmark = pytest.mark.real_model
TEXT = "Paris is the capital of France, and Berlin is the capital of"
TRICKY = "Ça coûte 3 €, 日本語 🙂 naïve\n\tend"


def test_what_it_is(smollm2: LanguageModel) -> None:
    assert sum(p.numel() for p in smollm2.module.parameters()) == 134_515_008
    assert (smollm2.n_layers, smollm2.d_model, smollm2.d_vocab, smollm2.n_ctx) == (30, 576, 49152, 8192)
    assert smollm2.tokenize("The capital").input_ids.shape == (1, 2)  # no BOS by itself
    assert {0, 1, 2} <= smollm2.special_token_ids


def test_it_knows_a_capital(smollm2: LanguageModel) -> None:
    new = smollm2.generate("The capital of France is", 2)
    assert "".join(smollm2.decode_tokens(new[0])) == " Paris."


def test_the_sink_at_position_zero(smollm2: LanguageModel) -> None:
    acts = smollm2.activations(TEXT, ["resid_post.15", "attn_z.15", "mlp_post.15"])
    norms = acts["resid_post.15"][0].norm(dim=-1)
    assert 22_000 < norms[0] < 23_500
    assert norms[1:].max() < 400
    assert acts["attn_z.15"].shape[-1] == smollm2.width("attn_z.15") == 576
    assert acts["mlp_post.15"].shape[-1] == smollm2.width("mlp_post.15") == 1536


def test_sum_rule(smollm2: LanguageModel) -> None:
    acts = smollm2.activations(TEXT, [f"{n}.20" for n in ("resid_pre", "attn_out", "mlp_out", "resid_post")])
    whole = acts["resid_pre.20"] + acts["attn_out.20"] + acts["mlp_out.20"]
    assert torch.equal(whole, acts["resid_post.20"]) or float(
        (whole - acts["resid_post.20"]).abs().max()
    ) < 1e-6 * float(acts["resid_post.20"].abs().max())


def test_loss_in_nats(smollm2: LanguageModel) -> None:
    ids = smollm2.tokenize(TEXT).input_ids
    with torch.no_grad():
        expected = smollm2.module(ids, labels=ids).loss
    assert float(smollm2.loss(TEXT).mean()) == pytest.approx(float(expected), rel=1e-5)


def test_tokens_are_legible_and_complete(smollm2: LanguageModel) -> None:
    """Joined they give the text back: bytes shown as ⟨..⟩ are turned into bytes again."""
    ids = smollm2.tokenizer(TRICKY, add_special_tokens=False)["input_ids"]
    shown = smollm2.decode_tokens(ids)
    assert not any(c in "".join(shown) for c in "ĠĊĉâĢ")
    raw = b"".join(
        bytes.fromhex(part[1:3]) if part.startswith("⟨") else part.encode()
        for piece in shown
        for part in _parts(piece)
    )
    assert raw.decode() == TRICKY
    assert smollm2.decode_tokens([1, 2]) == ["<|im_start|>", "<|im_end|>"]


def _parts(piece: str) -> list[str]:
    import re

    return re.findall(r"⟨[0-9A-F]{2}⟩|[^⟨]+", piece)


def test_both_engines_agree(smollm2: LanguageModel) -> None:
    """On the first six layers: each site within 1e-5 of its largest entry."""
    plain, bridged = (
        load_model("smollm2-135m", n_layers=6, engine=e) for e in ("huggingface", "transformer_lens")
    )
    ours, theirs = plain.activations(TEXT, plain.sites()), bridged.activations(TEXT, plain.sites())
    whole = smollm2.activations(TEXT, ["resid_post.5"])
    for site, value in ours.items():
        assert float((theirs[site] - value).abs().max()) <= 1e-5 * float(value.abs().max()), site
    assert torch.equal(ours["resid_post.5"], whole["resid_post.5"])


def test_fingerprint_is_stable_and_sensitive(smollm2: LanguageModel) -> None:
    first = smollm2.fingerprint()
    assert first == smollm2.fingerprint()
    norm = smollm2.module.model.layers[7].input_layernorm.weight
    with torch.no_grad():
        norm[100] += 1
        changed = smollm2.fingerprint()
        norm[100] -= 1
    assert changed["weights"] != first["weights"]


def test_it_lies_converted_in_the_cache(smollm2: LanguageModel) -> None:
    folder = Path(smollm2.module.config._name_or_path)
    assert (folder / "model.safetensors").is_file()
    assert (folder / "tokenizer.json").is_file()
    assert not hasattr(smollm2.module.config, "quantization_config")
