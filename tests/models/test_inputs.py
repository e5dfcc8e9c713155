"""Padding, packing and positions: what a token's activations may and may not depend on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.models.inputs import TokenBatch
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from tests.models.tiny import FAMILIES, N_CTX, WINDOW, tiny_ids, tiny_model

SITES = ["resid_post.0", "attn_z.1", "resid_post.2"]
LENGTHS = (13, 9, 4)  # longer than the attention window of the windowed families, and shorter
TEXTS = [tiny_ids(1, n, seed=n) for n in LENGTHS]
MODELS = {family: tiny_model(family) for family in FAMILIES}
LEARNED_AND_ROTARY = ("gpt2", "llama")


@pytest.fixture(params=FAMILIES)
def hf(request: pytest.FixtureRequest) -> LanguageModel:
    return load_model(MODELS[request.param])


def padded(side: str, fill: int = 0) -> tuple[Tensor, Tensor]:
    longest = max(LENGTHS)
    ids, mask = torch.full((3, longest), fill), torch.zeros(3, longest, dtype=torch.long)
    for row, text in enumerate(TEXTS):
        n = text.shape[1]
        where = slice(0, n) if side == "right" else slice(longest - n, longest)
        ids[row, where], mask[row, where] = text[0], 1
    return ids, mask


def agree(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    assert float((a - b).abs().max() / b.abs().max()) < tolerance


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_does_not_touch_real_tokens(hf: LanguageModel, side: str) -> None:
    """Not even on the left of learned positions: relative error below 1e-5 against each text alone."""
    ids, mask = padded(side)
    batch = hf.activations(ids, SITES, attention_mask=mask)
    losses = hf.loss(ids, attention_mask=mask)
    for row, text in enumerate(TEXTS):
        alone = hf.activations(text, SITES)
        for site in alone:
            agree(batch[site][row][mask[row].bool()], alone[site][0])
        torch.testing.assert_close(
            losses.values[row][losses.mask[row]], hf.loss(text).values[0], rtol=1e-4, atol=1e-5
        )
    assert losses.mask.sum() == sum(n - 1 for n in LENGTHS)
    assert (losses.values[~losses.mask] == 0).all()


def packed() -> tuple[Tensor, Tensor]:
    """Three documents in a row, then padding."""
    ids = torch.cat([*TEXTS, torch.zeros(1, 3, dtype=torch.long)], dim=1)
    lengths = torch.tensor([*LENGTHS, 3])
    return ids, torch.tensor([0, 1, 2, -1]).repeat_interleave(lengths)[None]


def test_a_segment_is_as_if_alone(hf: LanguageModel) -> None:
    """In every family, those with sliding windows included."""
    ids, segments = packed()
    acts, losses = hf.activations(ids, SITES, segment_ids=segments), hf.loss(ids, segment_ids=segments)
    assert losses.mask.sum() == sum(n - 1 for n in LENGTHS)
    for i, text in enumerate(TEXTS):
        mine = segments[0] == i
        alone = hf.activations(text, SITES)
        for site in alone:
            agree(acts[site][0, mine], alone[site][0])
        inside = mine[:-1] & mine[1:]
        torch.testing.assert_close(losses.values[0, inside], hf.loss(text).values[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", LEARNED_AND_ROTARY)
def test_segments_on_either_attention_and_engine(family: str) -> None:
    ids, segments = packed()
    eager = tiny_model(family)
    eager.set_attn_implementation("eager")
    bridged = load_model(MODELS[family], engine="transformer_lens")
    expected = load_model(MODELS[family]).activations(ids, SITES, segment_ids=segments)
    for model in (load_model(eager), bridged):
        acts = model.activations(ids, SITES, segment_ids=segments)
        assert set(acts) == set(expected)
        for site in expected:
            agree(acts[site], expected[site])


@pytest.mark.parametrize("family", LEARNED_AND_ROTARY)
def test_without_segments_documents_do_see_each_other(family: str) -> None:
    """Restarting positions alone must not isolate them behind the caller's back."""
    hf = load_model(MODELS[family])
    ids = torch.cat(TEXTS[:2], dim=1)
    positions = torch.cat([torch.arange(n) for n in LENGTHS[:2]])[None]
    joined = hf.activations(ids, "resid_post.2", position_ids=positions)["resid_post.2"][0, LENGTHS[0] :]
    alone = hf.activations(TEXTS[1], "resid_post.2")["resid_post.2"][0]
    assert float((joined - alone).abs().max() / alone.abs().max()) > 0.01


def test_a_window_matters_and_is_kept() -> None:
    """The isolating mask has the window of the model: token 12 of a document does not see its token 0."""
    hf = load_model(tiny_model("mistral", num_hidden_layers=1))
    changed = TEXTS[0].clone()
    changed[0, 0] += 1
    segments = torch.zeros(1, LENGTHS[0], dtype=torch.long)
    before, after = (
        hf.activations(ids, "resid_post.0", segment_ids=segments)["resid_post.0"][0]
        for ids in (TEXTS[0], changed)
    )
    reached = (before != after).any(-1)
    assert reached.tolist() == [i < WINDOW for i in range(LENGTHS[0])]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_segments(dtype: str) -> None:
    hf = load_model(tiny_model("llama").to(getattr(torch, dtype)))
    ids, segments = packed()
    acts = hf.activations(ids, "resid_post.2", segment_ids=segments)["resid_post.2"]
    assert acts.dtype == hf.dtype == getattr(torch, dtype)
    assert acts.isfinite().all()
    agree(acts[0, :13].float(), hf.activations(TEXTS[0], "resid_post.2")["resid_post.2"][0].float(), 0.03)


def test_token_batches_and_text(tiny_gpt2: LanguageModel) -> None:
    batch = tiny_gpt2.tokenize(["the", "then again"])
    assert isinstance(batch, TokenBatch)
    from_batch = tiny_gpt2.activations(batch, "resid_post.1")["resid_post.1"]
    assert torch.equal(
        from_batch, tiny_gpt2.activations(["the", "then again"], "resid_post.1")["resid_post.1"]
    )
    alone = tiny_gpt2.activations("the", "resid_post.1")["resid_post.1"][0]
    agree(from_batch[0, : len(alone)], alone)
    with pytest.raises(ValueError, match="no token to predict"):
        tiny_gpt2.loss(torch.tensor([[5]])).mean()


def test_bad_tokens(tiny_gpt2: LanguageModel) -> None:
    ids = tiny_ids(2, 5)
    with pytest.raises(ValueError, match=r"0 to 300.*vocabulary.*259"):
        tiny_gpt2.activations(torch.tensor([[0, 300]]), "embed")
    with pytest.raises(ValueError, match=r"\[b s\].*\(5,\)"):
        tiny_gpt2.activations(ids[0], "embed")
    with pytest.raises(ValueError, match="non-empty"):
        tiny_gpt2.activations(ids[:, :0], "embed")
    with pytest.raises(TypeError, match="float32"):
        tiny_gpt2.activations(ids.float(), "embed")
    with pytest.raises(ValueError, match=r"attention_mask.*\(2, 4\).*\(2, 5\)"):
        tiny_gpt2.activations(ids, "embed", attention_mask=torch.ones(2, 4))
    with pytest.raises(ValueError, match=f"position 69 is beyond the {N_CTX}"):
        tiny_gpt2.activations(tiny_ids(1, 70), "embed")
