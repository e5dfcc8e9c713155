from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.models.inputs import TokenBatch
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.models.tokenization import pad_right
from interp.steering.apply import OPERATORS, steer
from interp.steering.vector import SteeringVector
from tests.models.tiny import D_MODEL, tiny_ids, tiny_model

SITE = "resid_post.1"
IDS = tiny_ids(2, 8, seed=1)
LENGTHS = (5, 8)
UNEQUAL = pad_right([IDS[0, :5].tolist(), IDS[1].tolist()], 0)
PADDED_LEFT = TokenBatch(
    torch.stack([torch.cat([IDS[0, :1].expand(3), IDS[0, :5]]), IDS[1]]),
    torch.tensor([[0] * 3 + [1] * 5, [1] * 8]),
    torch.tensor([[0, 0, 0, 0, 1, 2, 3, 4], list(range(8))]),
)
V = SteeringVector({1: torch.randn(D_MODEL, generator=torch.Generator().manual_seed(0))})
STRONG = 5.0  # a multiplier at which steered text differs from unsteered


@pytest.fixture(scope="module", params=["llama", "gpt2", "llama-bridge", "gemma2"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    family, _, bridge = request.param.partition("-")
    return load_model(tiny_model(family), engine="transformer_lens" if bridge else "huggingface")


@pytest.fixture(scope="module")
def llama() -> LanguageModel:
    return load_model(tiny_model("llama"))


def n_hooks(model: LanguageModel) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.module.modules())


def read(model: LanguageModel, tokens: Tensor | TokenBatch = IDS) -> Tensor:
    return model.activations(tokens, SITE)[SITE]


# Which tokens.


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("all", [[1] * 8, [1] * 8]),
        ("prompt", [[1] * 8, [1] * 8]),
        ("last", [[0] * 7 + [1]] * 2),
        ("generation", [[0] * 7 + [1]] * 2),
        (6, [[0] * 6 + [1] * 2] * 2),
        ([2, 7], [[0] * 2 + [1] * 6, [0] * 7 + [1]]),
        (torch.tensor([[True, False, True], [False, True, False]]), [[1, 0, 1] + [0] * 5, [0, 1] + [0] * 6]),
        (torch.tensor([[False, True]]), [[0, 1] + [0] * 6] * 2),
    ],
)
def test_the_steered_tokens_of_a_pass(llama: LanguageModel, where: Any, expected: list[list[int]]) -> None:
    clean = read(llama)
    with steer(llama, V, 2.0, positions=where):
        change = read(llama) - clean
    wanted = torch.tensor(expected)[..., None] * 2.0 * V[1]
    assert torch.allclose(change, wanted, atol=1e-5)


@pytest.mark.parametrize("batch", [UNEQUAL, PADDED_LEFT], ids=["right", "left"])
@pytest.mark.parametrize("where", ["all", "prompt", "last", "generation", 3, [1, 6]])
def test_padding_on_either_side_changes_nothing(llama: LanguageModel, batch: TokenBatch, where: Any) -> None:
    real = batch.attention_mask.bool()
    with steer(llama, V, 2.0, positions=where):
        together = read(llama, batch)
    for i, length in enumerate(LENGTHS):
        start = where[i] if isinstance(where, list) else where
        with steer(llama, V, 2.0, positions=start):
            alone = read(llama, IDS[i : i + 1, :length])
        assert torch.allclose(together[i][real[i]], alone[0], atol=1e-4), i


def greedy_without_cache(
    model: LanguageModel, prompt: Tensor, n: int, context: Callable[[], Any]
) -> list[int]:
    """The definition of decoding: read the whole text anew for every token."""
    ids = prompt
    for _ in range(n):
        with context():
            chosen = model.logits(ids)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, chosen], dim=1)
    return ids[0, prompt.shape[1] :].tolist()


@pytest.mark.parametrize("where", ["start", "from the middle", "all", "masked"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_cached_decoding_equals_full_recomputation(model: LanguageModel, where: str, operator: str) -> None:
    prompt = IDS[:1]
    mask = torch.zeros(1, 64, dtype=torch.bool)
    mask[:, [2, 7, 9]] = True
    positions: Any = {"start": 7, "from the middle": 4, "all": "all", "masked": mask}[where]
    multiplier = STRONG if operator != "ablate" else 1.0

    def context() -> Any:
        return steer(model, V, multiplier, positions=positions, operator=operator)

    expected = greedy_without_cache(model, prompt, 6, context)
    with context():
        assert model.generate(prompt, 6, stop_at_eos=False)[0].tolist() == expected
    if operator == "add" and where != "masked":
        assert model.generate(prompt, 6, stop_at_eos=False)[0].tolist() != expected


@pytest.mark.parametrize("where", ["prompt", "generation", "last", "all"])
def test_a_batch_of_unequal_prompts_equals_one_by_one(model: LanguageModel, where: str) -> None:
    with steer(model, V, STRONG, positions=where):
        together = model.generate(UNEQUAL, 6, stop_at_eos=False)
        alone = [model.generate(IDS[i : i + 1, :n], 6, stop_at_eos=False) for i, n in enumerate(LENGTHS)]
    assert torch.equal(together, torch.cat(alone))


def test_names_of_positions_under_generate(model: LanguageModel) -> None:
    """ "generation" is from the last prompt token on, "prompt" never touches what is decoded."""
    starts = [n - 1 for n in LENGTHS]
    ranges = torch.arange(64)
    prompt = torch.stack([ranges < n for n in LENGTHS])
    last = torch.stack([ranges == n - 1 for n in LENGTHS])
    for name, same in (("generation", starts), ("prompt", prompt), ("last", last), ("all", 0)):
        texts = []
        for positions in (name, same):
            with steer(model, V, STRONG, positions=positions):
                texts.append(model.generate(UNEQUAL, 6, stop_at_eos=False))
        assert torch.equal(*texts), name


# What is done to them.


def test_operators_in_closed_form(llama: LanguageModel) -> None:
    h, v = read(llama), V[1]
    unit = v / v.norm()
    p = (h @ unit)[..., None]
    for scale in (-1.5, 0.25, 1.0):
        target = scale * v.norm()
        bounded = torch.minimum(p, target) if scale < 0 else torch.maximum(p, target)
        expected = {
            "add": h + scale * v,
            "ablate": h - scale * p * unit,
            "ablate_then_add": h - p * unit + scale * v,
            "clamp": h + (bounded - p) * unit,
        }
        for operator, wanted in expected.items():
            with steer(llama, V, scale, operator=operator):
                assert torch.allclose(read(llama), wanted, atol=1e-4), (operator, scale)


def test_the_ablated_direction_is_gone_and_multiplier_zero_knows_it(llama: LanguageModel) -> None:
    for operator, multiplier in (("ablate", 1.0), ("ablate_then_add", 0.0)):
        with steer(llama, V, multiplier, operator=operator):
            assert float((read(llama) @ V[1]).abs().max()) < 1e-4
    with steer(llama, V, 0.0, operator="ablate"):
        assert torch.allclose(read(llama), read(llama))


def test_clamp_leaves_alone_what_is_beyond(llama: LanguageModel) -> None:
    clean = read(llama)
    projection = clean @ V[1] / V[1].norm()
    bound = float(projection.median())
    with steer(llama, V, bound / float(V[1].norm()), operator="clamp"):
        clamped = read(llama)
    far = projection > bound + 1e-4
    assert far.any()
    assert torch.allclose(clamped[far], clean[far], atol=1e-5)
    assert torch.allclose(clamped @ V[1] / V[1].norm(), projection.clamp(min=bound), atol=1e-4)


def test_normalize_keeps_each_tokens_norm(llama: LanguageModel) -> None:
    clean = read(llama)
    with steer(llama, V, 3.0, normalize=True, positions=2):
        steered = read(llama)
    assert torch.allclose(steered.norm(dim=-1), clean.norm(dim=-1), rtol=1e-5)
    moved = clean + 3 * V[1]
    expected = moved * (clean.norm(dim=-1) / moved.norm(dim=-1))[..., None]
    assert torch.allclose(steered[:, 2:], expected[:, 2:], atol=1e-5)
    assert torch.equal(steered[:, :2], clean[:, :2])


def test_zero_is_exactly_nothing(model: LanguageModel) -> None:
    clean = model.logits(IDS)
    for vector, multiplier, normalize in (
        (V, 0.0, False),
        (V, 0.0, True),
        (V * 0, 2.0, False),
        (V, torch.zeros(2), False),
    ):
        with steer(model, vector, multiplier, normalize=normalize):
            assert torch.equal(model.logits(IDS), clean)
    with steer(model, V, torch.tensor([0.0, STRONG])):
        steered = model.logits(IDS)
    assert torch.equal(steered[0], clean[0])
    assert not torch.equal(steered[1], clean[1])


def test_one_multiplier_per_row(llama: LanguageModel) -> None:
    multipliers = torch.tensor([-1.0, 2.5])
    alone = []
    for i, multiplier in enumerate(multipliers.tolist()):
        with steer(llama, V, multiplier, positions=3):
            alone.append(llama.logits(IDS[i : i + 1]))
    with steer(llama, V, multipliers, positions=3):
        assert torch.allclose(llama.logits(IDS), torch.cat(alone), atol=1e-5)


def test_vectors_compose(llama: LanguageModel) -> None:
    w = SteeringVector({1: torch.randn(D_MODEL), 2: torch.randn(D_MODEL)})
    with steer(llama, V, 2.0), steer(llama, w, -0.5):
        nested = llama.logits(IDS)
    with steer(llama, 2.0 * V - 0.5 * w):
        assert torch.allclose(llama.logits(IDS), nested, atol=1e-4)
    with steer(llama, w, layers=-1):
        one = llama.logits(IDS)
    with steer(llama, w.only(2)):
        assert torch.equal(llama.logits(IDS), one)


def test_other_sites(llama: LanguageModel) -> None:
    at_mlp = SteeringVector({0: V[1]}, {"site": "mlp_out"})
    clean = llama.activations(IDS, ["mlp_out.0", "resid_post.0"])
    with steer(llama, at_mlp, 2.0):
        steered = llama.activations(IDS, ["mlp_out.0", "resid_post.0"])
    for site in ("mlp_out.0", "resid_post.0"):
        assert torch.allclose(steered[site] - clean[site], 2.0 * V[1], atol=1e-5)


def test_half_precision_and_gradients() -> None:
    half = load_model(tiny_model("llama").to(torch.bfloat16))
    with steer(half, V, 2.0, normalize=True):
        assert half.logits(IDS).dtype == torch.bfloat16
    model = load_model(tiny_model("llama"))
    with steer(model, V, 2.0):
        model.loss(IDS, grad=True).mean().backward()
    assert any(p.grad is not None for p in model.module.parameters())


# Nothing is left behind.


class Boom(Exception):
    pass


def test_a_hook_never_survives_an_exception(model: LanguageModel) -> None:
    before, clean = n_hooks(model), model.logits(IDS)

    def fail(*_: object) -> None:
        assert n_hooks(model) > before
        raise Boom

    with pytest.raises(Boom), steer(model, V, STRONG):
        fail()
    assert n_hooks(model) == before

    handle = model.backbone.register_forward_pre_hook(fail)
    with pytest.raises(Boom), steer(model, V, STRONG), steer(model, V):
        model.generate(IDS, 2)
    handle.remove()
    with pytest.raises(ValueError, match="3 values for a batch of 2"), steer(model, V, torch.ones(3)):
        model.logits(IDS)
    assert n_hooks(model) == before
    assert torch.equal(model.logits(IDS), clean)


def test_a_refused_layer_leaves_no_hook(llama: LanguageModel) -> None:
    before = n_hooks(llama)
    beyond = SteeringVector({1: V[1], 40: V[1]})
    with pytest.raises(ValueError, match="layer 40 is out of range"), steer(llama, beyond):
        pass
    assert n_hooks(llama) == before


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"operator": "subtract"}, "operator = 'subtract'"),
        ({"positions": "answer"}, "positions = 'answer'"),
        ({"positions": -1}, "count from 0"),
        ({"positions": 1.5}, "a Boolean mask"),
        ({"positions": torch.ones(3, dtype=torch.bool)}, r"a mask must be \[b s\]"),
        ({"layers": 0}, "no layer 0; it has 1"),
        ({"layers": []}, "at least one"),
        ({"multiplier": float("nan")}, "finite"),
        ({"multiplier": torch.ones(2, 2)}, "one per row"),
    ],
)
def test_refusals(llama: LanguageModel, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message), steer(llama, V, **how):
        pass


def test_refusals_of_vectors_and_batches(llama: LanguageModel) -> None:
    with (
        pytest.raises(ValueError, match=r"has width 3, .* has 32"),
        steer(llama, SteeringVector({1: torch.ones(3)})),
    ):
        pass
    with pytest.raises(ValueError, match="needs a direction"), steer(llama, V * 0, operator="ablate"):
        pass
    for positions in ([1, 2, 3], torch.ones(3, 4, dtype=torch.bool)):
        with pytest.raises(ValueError, match=r"3 .*batch"), steer(llama, V, positions=positions):
            llama.logits(IDS)
