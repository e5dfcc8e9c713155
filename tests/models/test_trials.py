"""Architectures outside the family table: as transformers runs them, or a refusal that says what doesn't work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from interp.activations.harvest import harvest
from interp.activations.packing import TokenContexts, pack
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from tests.models.tiny import tiny_ids, tiny_model

FIRST, SECOND = tiny_ids(1, 7, seed=1), tiny_ids(1, 5, seed=2)
BOTH = torch.cat([FIRST, SECOND], dim=1)
SEGMENTS = torch.tensor([[0] * 7 + [1] * 5])
_SIZES = {"vocab_size": 260, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
CONFIGS: dict[str, dict[str, Any]] = {
    "bloom": {"vocab_size": 260, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "falcon-alibi": {**_SIZES, "alibi": True, "new_decoder_architecture": False},
    "falcon": {**_SIZES, "alibi": False},
    "mamba": {"vocab_size": 260, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "mamba2": {
        "vocab_size": 260,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "state_size": 4,
        "num_heads": 8,
        "head_dim": 8,
        "n_groups": 1,
    },
    "rwkv": {
        "vocab_size": 260,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "attention_hidden_size": 32,
        "intermediate_size": 64,
    },
    "gptj": {"vocab_size": 260, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 16},
    "opt": {**_SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 16},
    "bert": {**_SIZES, "intermediate_size": 48, "max_position_embeddings": 16},
    "roberta": {**_SIZES, "intermediate_size": 48, "max_position_embeddings": 18, "pad_token_id": 1},
    "modernbert": {**_SIZES, "intermediate_size": 48, "pad_token_id": 0},
}
ENCODERS = ("bert", "roberta", "modernbert")
RECURRENT = ("mamba", "mamba2", "rwkv")


def module_of(name: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    family = AutoModelForMaskedLM if name in ENCODERS else AutoModelForCausalLM
    module = family.from_config(AutoConfig.for_model(name.split("-")[0], **CONFIGS[name])).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.copy_(0.15 * torch.randn(parameter.shape, generator=generator))
    return module


@pytest.fixture(scope="module", params=CONFIGS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(name: str) -> LanguageModel:
    return load_model(module_of(name))


def plain(model: LanguageModel, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.module(ids).logits


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


def test_a_plain_pass_is_transformers_own(model: LanguageModel) -> None:
    """RoBERTa counts positions from 2 on: handing it ours was an error."""
    assert torch.equal(model.logits(BOTH), plain(model, BOTH))


def test_texts_packed_into_one_row(model: LanguageModel, name: str) -> None:
    """The faults they had: a causal mask laid on encoders, masks left aside, errors from deep inside."""
    if name in ("falcon", "gptj", "opt"):
        logits = model.logits(BOTH, segment_ids=SEGMENTS)
        assert relative(logits[:, :7], plain(model, FIRST)) < 1e-5
        assert relative(logits[:, 7:], plain(model, SECOND)) < 1e-5
    else:
        for run in (model.logits, model.loss):
            with pytest.raises(ValueError, match=r"doesn't keep texts packed into one row apart.*mode='pad'"):
                run(BOTH, segment_ids=SEGMENTS)


def test_padding_on_either_side(model: LanguageModel, name: str) -> None:
    wanted = plain(model, SECOND)
    pad = torch.full((1, 2), 7)
    mask = torch.tensor([[1] * 5 + [0] * 2])
    after = model.logits(torch.cat([SECOND, pad], dim=1), attention_mask=mask)[:, :5]
    assert relative(after, wanted) < 1e-5
    before = torch.cat([pad, SECOND], dim=1)
    if name in ("rwkv", "roberta"):
        with pytest.raises(ValueError, match=r"doesn't leave padding before a text aside.*pad behind"):
            model.logits(before, attention_mask=mask.flip(1))
    else:
        assert relative(model.logits(before, attention_mask=mask.flip(1))[:, 2:], wanted) < 1e-5


def test_decoding(model: LanguageModel, name: str) -> None:
    if name in (*ENCODERS, "mamba", "rwkv"):
        with pytest.raises(ValueError, match="doesn't continue a text from a cache"):
            model.generate(FIRST, 3)
        return
    ids = FIRST
    for _ in range(3):
        ids = torch.cat([ids, plain(model, ids)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(model.generate(FIRST, 3, stop_at_eos=False), ids[:, 7:])


def test_continuing_with_several_tokens(model: LanguageModel, name: str) -> None:
    if name in ENCODERS + RECURRENT:
        with pytest.raises(ValueError, match=r"run (the )?whole texts with `logits`"):
            model.prefix(FIRST).logits(SECOND)
    else:
        assert relative(model.prefix(FIRST).logits(SECOND), plain(model, BOTH)[:, 7:]) < 1e-5


@pytest.mark.parametrize("family", ["gpt2", "gptj", "opt"])
def test_no_decoding_past_the_last_position(family: str) -> None:
    """The fault it had: an IndexError after a while (on a GPU, a device that answers no more)."""
    model = load_model(tiny_model("gpt2", n_positions=16) if family == "gpt2" else module_of(family))
    prompts = tiny_ids(2, 12)
    assert model.generate(prompts, 5, stop_at_eos=False).shape == (2, 5)
    with pytest.raises(ValueError, match=r"max_new_tokens=6: behind 12 tokens.*room for 5 more"):
        model.generate(prompts, 6)
    mask = torch.tensor([[1] * 12, [1] * 3 + [0] * 9])
    with pytest.raises(ValueError, match="max_new_tokens=6: behind 12 tokens"):
        model.generate(prompts, 6, attention_mask=mask)
    prefix = model.prefix(prompts[:1])
    assert prefix.logits(tiny_ids(1, 4)).shape == (1, 4, 260)
    with pytest.raises(ValueError, match="text and tail make 17 tokens"):
        prefix.logits(tiny_ids(1, 5))
    with pytest.raises(ValueError, match="position 16 is beyond the 16"):
        model.logits(tiny_ids(1, 17))


def test_an_encoder_is_not_packed(tiny_tokenizer: Any, tmp_path: Any) -> None:
    model = load_model(module_of("bert"), tokenizer=tiny_tokenizer)
    texts = ["he the", "the he"]
    with pytest.raises(ValueError, match="doesn't keep texts packed"):
        pack(texts, model, context_size=16, mode="pack")
    contexts = pack(texts, tiny_tokenizer, context_size=16, mode="pack")
    with pytest.raises(ValueError, match="doesn't keep texts packed"):
        harvest(model, contexts, "bert.encoder.layer.1:out", tmp_path / "packed", progress=False)
    assert not (tmp_path / "packed").exists()
    site = "bert.encoder.layer.1:out"
    rows = [tiny_ids(1, n, seed=n)[0] for n in (5, 9)]
    contexts = TokenContexts.from_ids([row.tolist() for row in rows])
    store = harvest(model, contexts, site, tmp_path / "padded", dtype="float32", progress=False)
    with torch.no_grad():
        alone = [model.module(row[None], output_hidden_states=True).hidden_states[2][0] for row in rows]
    torch.testing.assert_close(store.read(site, slice(None)), torch.cat(alone), rtol=1e-5, atol=1e-5)  # type: ignore[arg-type]


def test_a_trial_is_not_seen_by_edits() -> None:
    model = load_model(module_of("falcon"))
    lengths = []

    def edit(act: torch.Tensor, positions: torch.Tensor) -> None:
        lengths.append(positions[0].tolist())

    with model.edit({"transformer.h.0:out": edit}):
        model.logits(BOTH, segment_ids=SEGMENTS)
    assert lengths == [[*range(7), *range(5)]]


def test_a_bare_module_is_no_language_model(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match=r"model is a Linear, a bare module: give interp.load_model"):
        harvest(nn.Linear(2, 2), BOTH, "resid_post.0", tmp_path)  # type: ignore[arg-type]
