from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.models.sites import Site
from tests.models.tiny import tiny_ids, tiny_model

IDS = tiny_ids(2, 8)


@pytest.fixture(scope="module", params=["huggingface", "transformer_lens"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return load_model(tiny_model("llama"), engine=request.param)


@pytest.fixture(scope="module")
def plain() -> LanguageModel:
    return load_model(tiny_model("llama"))


@pytest.mark.parametrize(
    "unchanged", [lambda act, positions: act, lambda act, positions: None, lambda a, p: a.clone()]
)
def test_an_identity_edit_changes_nothing(model: LanguageModel, unchanged: object) -> None:
    clean = model.logits(IDS)
    with model.edit(dict.fromkeys(model.sites(), unchanged)):  # type: ignore[dict-item]
        assert torch.equal(model.logits(IDS), clean)


def test_zero_ablation_is_the_hand_made_hook(plain: LanguageModel) -> None:
    def hook(module: object, args: object, output: Tensor) -> Tensor:
        return torch.zeros_like(output)

    handle = plain.module.model.layers[1].mlp.register_forward_hook(hook)
    with torch.no_grad():
        expected = plain.module(IDS).logits
    handle.remove()
    with plain.edit({"mlp_out.1": lambda act, positions: torch.zeros_like(act)}):
        assert torch.equal(plain.logits(IDS), expected)
        with torch.no_grad():  # whoever runs the module itself sees the edit as well
            assert torch.equal(plain.module(IDS).logits, expected)
    with torch.no_grad():
        assert not torch.equal(plain.module(IDS).logits, expected)


def test_activations_are_read_after_the_edit(model: LanguageModel) -> None:
    """At the very site where the pass stops, and for heads in their flat shape."""
    for name in ("embed", "resid_pre.1", "attn_z.1", "attn_out.1", "mlp_post.1", "mlp_out.1", "resid_post.1"):
        width = model.width(name)
        value = torch.randn(2, 8, width, generator=torch.Generator().manual_seed(0))
        with model.edit({name: lambda act, positions, value=value: value}):
            assert torch.equal(model.activations(IDS, name)[name], value), name


def test_edits_nest_in_order(model: LanguageModel) -> None:
    clean = model.activations(IDS, "resid_post.0")["resid_post.0"]
    with (
        model.edit({"resid_post.0": lambda act, positions: act + 1}),
        model.edit({Site("resid_post", 0): lambda act, positions: act * 2}),
    ):
        assert torch.equal(model.activations(IDS, "resid_post.0")["resid_post.0"], (clean + 1) * 2)
    assert torch.equal(model.activations(IDS, "resid_post.0")["resid_post.0"], clean)


@pytest.mark.parametrize("method", ["activations", "logits", "loss", "module"])
def test_positions(model: LanguageModel, method: str) -> None:
    seen: list[Tensor] = []
    with model.edit({"resid_post.1": lambda act, positions: seen.append(positions.clone())}):
        if method == "activations":
            mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1] * 8])
            model.activations(IDS, "resid_post.2", attention_mask=mask)
            expected = torch.stack([torch.tensor([0, 0, 0, 1, 2, 3, 4, 5]), torch.arange(8)])
        elif method == "logits":
            segments = torch.tensor([[0, 0, 0, 1, 1, 2, 2, -1]] * 2)
            model.logits(IDS, segment_ids=segments)
            expected = torch.tensor([[0, 1, 2, 0, 1, 0, 1, 0]] * 2)
        else:
            model.loss(IDS) if method == "loss" else model.module(IDS)
            expected = torch.arange(8).expand(2, 8)
    assert len(seen) == 1
    assert torch.equal(seen[0], expected)


def test_generation_counts_on_and_sees_each_position_once(model: LanguageModel) -> None:
    seen: list[Tensor] = []
    mask = torch.tensor([[1] * 5 + [0] * 3, [1] * 8])  # right-padded prompts of 5 and 8 tokens
    with model.edit({"resid_post.1": lambda act, positions: seen.append(positions.clone())}):
        new = model.generate(IDS, 3, attention_mask=mask, stop_at_eos=False)
    assert new.shape == (2, 3)
    assert [tuple(p.shape) for p in seen] == [(2, 8), (2, 1), (2, 1)]
    assert seen[1].tolist() == [[5], [8]]
    assert seen[2].tolist() == [[6], [9]]
    alone = model.generate(IDS[:1, :5], 3, stop_at_eos=False)
    assert torch.equal(new[:1], alone)


def test_generation_stops_and_samples(plain: LanguageModel) -> None:
    greedy = plain.generate(IDS, 6, stop_at_eos=False)
    end = int(greedy[0, 2])
    plain.module.generation_config.eos_token_id = end
    stopped = plain.generate(IDS, 6)
    plain.module.generation_config.eos_token_id = 257
    first = greedy[0].tolist().index(end)
    assert stopped[0, : first + 1].tolist() == greedy[0, : first + 1].tolist()
    assert (stopped[0, first:] == end).all()
    hot = [plain.generate(IDS, 6, temperature=2.0, seed=s, stop_at_eos=False) for s in (1, 1, 2)]
    assert torch.equal(hot[0], hot[1])
    assert not torch.equal(hot[0], hot[2])
    with pytest.raises(ValueError, match="temperature=-1"):
        plain.generate(IDS, 6, temperature=-1)
    with pytest.raises(ValueError, match="temperature=nan"):
        plain.generate(IDS, 6, temperature=float("nan"))
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        plain.generate(IDS, 0)


def test_a_wrong_shape_is_named(model: LanguageModel) -> None:
    with (
        model.edit({"resid_post.1": lambda act, positions: act[:, :1]}),
        pytest.raises(ValueError, match=r"edit at resid_post.1.*\(2, 8, 32\).*\(2, 1, 32\)"),
    ):
        model.logits(IDS)
    with (
        pytest.raises(ValueError, match="layer 9 is out of range"),
        model.edit({"resid_post.9": lambda a, p: a}),
    ):
        pass


def test_an_edit_may_answer_in_another_dtype() -> None:
    model = load_model(tiny_model("llama").to(torch.bfloat16))
    with model.edit({"resid_post.1": lambda act, positions: act.float() * 2}):
        assert model.logits(IDS).dtype == torch.bfloat16


def test_an_edit_can_tell_text_from_padding(model: LanguageModel) -> None:
    """Either side's padding, with a cache and without; and outside a pass there is nothing to tell."""
    seen: list[Tensor] = []
    right = torch.tensor([[1] * 5 + [0] * 3, [1] * 8])
    with model.edit({"resid_post.1": lambda act, positions: seen.append(model.real_tokens().clone())}):
        for mask in (right, right.flip(1)):
            model.activations(IDS, "resid_post.1", attention_mask=mask)
        model.logits(IDS, segment_ids=torch.tensor([[0, 0, 1, 1, 1, 1, -1, -1]] * 2))
        with torch.no_grad():
            model.module(IDS)
        model.generate(IDS, 2, attention_mask=right, stop_at_eos=False)
    expected = [right, right.flip(1), torch.tensor([[1] * 6 + [0] * 2] * 2), torch.ones(2, 8), right.flip(1)]
    assert [real.tolist() for real in seen[:5]] == [mask.bool().tolist() for mask in expected]
    assert seen[5].tolist() == [[True], [True]]
