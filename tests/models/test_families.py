"""The map of every family: what the names must add up to, and that both engines mean the same by them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.models.sites import Site
from tests.models.tiny import D_MODEL, D_VOCAB, FAMILIES, LAYER_NORM, WITH_RESID_MID, tiny_ids, tiny_model

IDS = tiny_ids(2, 14)
MODELS = {family: tiny_model(family) for family in FAMILIES}
PAIRS: dict[str, tuple[LanguageModel, LanguageModel]] = {}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def hf(family: str) -> LanguageModel:
    return load_model(MODELS[family])


def both(family: str) -> tuple[LanguageModel, LanguageModel]:
    if family not in PAIRS:
        PAIRS[family] = tuple(
            load_model(MODELS[family], engine=e) for e in ("huggingface", "transformer_lens")
        )  # type: ignore[assignment]
    return PAIRS[family]


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max() / b.detach().abs().max())


def test_sum_rule_and_chaining(hf: LanguageModel) -> None:
    acts = hf.activations(IDS, hf.sites())
    for i in range(hf.n_layers):
        pre, post = acts[f"resid_pre.{i}"], acts[f"resid_post.{i}"]
        attn, mlp = acts[f"attn_out.{i}"], acts[f"mlp_out.{i}"]
        assert attn.abs().max() > 0.01
        assert mlp.abs().max() > 0.01
        assert relative(pre + attn + mlp, post) < 1e-6
        if Site("resid_mid", i) in acts:
            assert relative(pre + attn, acts[f"resid_mid.{i}"]) < 1e-6
        if i + 1 < hf.n_layers:
            assert torch.equal(post, acts[f"resid_pre.{i + 1}"])


def test_widths(hf: LanguageModel) -> None:
    acts = hf.activations(IDS, hf.sites())
    assert {site: hf.width(site) for site in hf.sites()} == {site: a.shape[-1] for site, a in acts.items()}
    assert hf.width("resid_post.0") == D_MODEL
    assert hf.width("attn_z.0") == (64 if hf.family == "qwen3" else D_MODEL)  # heads of 16 there
    assert hf.width("mlp_post.1") == (128 if hf.family in ("gpt2", "gpt_neo") else 48)


def test_attention_and_mlp_inputs_reproduce_their_outputs(hf: LanguageModel, family: str) -> None:
    """`attn_z` and `mlp_post` are what the last linear map of their branch reads."""
    if family.startswith(("gemma2", "gemma3", "olmo")):
        return  # a norm stands between
    acts = hf.activations(IDS, ["attn_z.1", "attn_out.1", "mlp_post.1", "mlp_out.1"])
    paths = {
        "gpt2": ("transformer.h.1.attn.c_proj", "transformer.h.1.mlp.c_proj"),
        "gpt_neo": ("transformer.h.1.attn.attention.out_proj", "transformer.h.1.mlp.c_proj"),
        "gpt_neox": ("gpt_neox.layers.1.attention.dense", "gpt_neox.layers.1.mlp.dense_4h_to_h"),
    }
    default = ("model.layers.1.self_attn.o_proj", "model.layers.1.mlp.down_proj")
    attention, mlp = paths.get(family.split("-")[0], default)
    with torch.no_grad():
        assert torch.equal(MODELS[family].get_submodule(attention)(acts["attn_z.1"]), acts["attn_out.1"])
        assert torch.equal(MODELS[family].get_submodule(mlp)(acts["mlp_post.1"]), acts["mlp_out.1"])


def test_last_block_is_read_before_the_final_norm(hf: LanguageModel, family: str) -> None:
    reference = MODELS[family](IDS, output_hidden_states=True).hidden_states
    acts = hf.activations(IDS, ["resid_pre.0", f"resid_post.{hf.n_layers - 1}", "resid_post.0", "final_norm"])
    assert torch.equal(acts["resid_pre.0"], reference[0])
    assert torch.equal(acts["resid_post.0"], reference[1])
    last = acts[f"resid_post.{hf.n_layers - 1}"]
    assert relative(last, reference[-1]) > 0.1
    assert torch.equal(acts["final_norm"], reference[-1])
    norm = MODELS[family].get_submodule(hf._known_family.norm_path)
    with torch.no_grad():
        assert torch.equal(norm(last), reference[-1])


def test_logits_and_loss_are_the_models_own(hf: LanguageModel, family: str) -> None:
    with torch.no_grad():
        logits = MODELS[family](IDS).logits
    assert torch.equal(hf.logits(IDS), logits)
    expected = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, D_VOCAB), IDS[:, 1:].reshape(-1), reduction="none"
    )
    losses = hf.loss(IDS)
    assert losses.mask.all()
    torch.testing.assert_close(losses.values.reshape(-1), expected, rtol=1e-5, atol=1e-6)
    total, count = losses.sum_count()
    assert count == 26
    torch.testing.assert_close(float(losses.mean()), float(expected.double().mean()), rtol=1e-6, atol=0)
    assert float(total) == pytest.approx(float(losses.mean()) * 26)


def test_logit_directions(hf: LanguageModel, family: str) -> None:
    """Against the model's own head: norm(v) is v times weight over its root mean square, so a difference of logits
    between v and -v is twice the direction over that scale.
    """
    vectors = torch.randn(4, D_MODEL, generator=torch.Generator().manual_seed(1))
    model = MODELS[family]
    norm, head = model.get_submodule(hf._known_family.norm_path), model.get_output_embeddings()
    with torch.no_grad():
        odd = (head(norm(vectors)) - head(norm(-vectors))) / 2
    spread = vectors - vectors.mean(-1, keepdim=True) if family in LAYER_NORM else vectors
    scale = spread.square().mean(-1, keepdim=True).sqrt()
    torch.testing.assert_close(hf.logit_directions(vectors), odd * scale, rtol=1e-3, atol=1e-4)
    assert hf.logit_directions(vectors).dtype == torch.float32


def test_engines_agree(family: str) -> None:
    """States to 2e-6 of the largest entry (attention is computed by other code), logits to 1e-5."""
    plain, bridged = both(family)
    assert plain.sites() == bridged.sites()
    ours, theirs = plain.activations(IDS, plain.sites()), bridged.activations(IDS, plain.sites())
    for site, value in ours.items():
        assert theirs[site].shape == value.shape
        assert relative(theirs[site], value) < 2e-6, site
    torch.testing.assert_close(plain.logits(IDS), bridged.logits(IDS), rtol=0, atol=1e-5)
    torch.testing.assert_close(plain.loss(IDS).values, bridged.loss(IDS).values, rtol=0, atol=1e-5)
    vectors = torch.randn(3, D_MODEL)
    assert torch.equal(plain.logit_directions(vectors), bridged.logit_directions(vectors))
    assert plain.fingerprint()["weights"] == bridged.fingerprint()["weights"]


def test_engines_agree_under_edits_everywhere(family: str) -> None:
    """Zeroing each site (of one layer) has the same effect on the logits, and an effect at all."""
    plain, bridged = both(family)
    clean = plain.logits(IDS)
    for site in (s for s in plain.sites() if s.layer in (None, 1)):
        results = []
        for model in (plain, bridged):
            with model.edit({site: lambda act, positions: torch.zeros_like(act)}):
                results.append(model.logits(IDS))
        torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-5)
        assert not torch.allclose(results[0], clean), site


@pytest.mark.parametrize("family", WITH_RESID_MID)
@pytest.mark.parametrize("engine", [0, 1])
def test_an_edit_between_attention_and_mlp_reaches_the_stream(family: str, engine: int) -> None:
    model = both(family)[engine]
    replacement = torch.randn(2, 14, D_MODEL, generator=torch.Generator().manual_seed(2))
    with model.edit({"resid_mid.1": lambda act, positions: replacement}):
        acts = model.activations(IDS, ["resid_mid.1", "mlp_out.1", "resid_post.1"])
    assert torch.equal(acts["resid_mid.1"], replacement)
    assert relative(replacement + acts["mlp_out.1"], acts["resid_post.1"]) < 1e-6


@pytest.mark.parametrize("engine", [0, 1])
def test_cached_generation_equals_recomputation(family: str, engine: int) -> None:
    """Token for token, under an edit that depends on the position."""
    model = both(family)[engine]

    def edit(act: Tensor, positions: Tensor) -> Tensor:
        return act + 0.2 * torch.sin(positions.float())[..., None]

    ids = tiny_ids(2, 5, seed=3)
    with model.edit({"resid_post.1": edit}):
        new = model.generate(ids, 9, stop_at_eos=False)
        grown = ids
        for _ in range(9):
            grown = torch.cat([grown, model.logits(grown)[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(new, grown[:, 5:])


def test_parallel_residual_has_no_middle() -> None:
    for model in both("gpt_neox"):
        with pytest.raises(ValueError, match="parallel-residual"):
            model.activations(IDS, "resid_mid.0")
        assert "resid_mid" not in {site.name for site in model.sites()}


def test_a_multimodal_wrapper_is_read_through_its_text_model() -> None:
    from transformers import AutoModelForCausalLM, Gemma3Config

    from tests.models.tiny import CONFIGS

    vision: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    config = Gemma3Config(text_config=CONFIGS["gemma3_text"], vision_config=vision)
    model = load_model(AutoModelForCausalLM.from_config(config))
    assert (model.family, model.n_layers, model.d_model, model.d_vocab) == ("gemma3", 3, D_MODEL, D_VOCAB)
    acts = model.activations(IDS, model.sites())
    whole = acts["resid_pre.2"] + acts["attn_out.2"] + acts["mlp_out.2"]
    assert relative(whole, acts["resid_post.2"]) < 1e-6
    with torch.no_grad():
        torch.testing.assert_close(
            model.loss(IDS).values.sum(), _summed_loss(model, IDS), rtol=1e-5, atol=1e-5
        )


def _summed_loss(model: LanguageModel, ids: Tensor) -> Tensor:
    logits = model.logits(ids)[:, :-1]
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="sum")
