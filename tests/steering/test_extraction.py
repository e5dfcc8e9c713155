from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.steering.extraction import METHODS, extract, fit
from interp.steering.pair_activations import PairActivations, collect
from interp.steering.pairs import ContrastivePair, PairDataset
from interp.steering.prompts import PromptVariation, render
from interp.steering.propensity import propensity_curve
from interp.steering.vector import SteeringVector
from tests.models.tiny import tiny_model

D = 24
PAIRS = PairDataset(
    tuple(
        ContrastivePair(f"Do you like {thing}?", *(("(A)", "(B)") if i % 2 else ("(B)", "(A)")))
        for i, thing in enumerate(["tea", "the rain", "music", "a walk", "the sea"])
    ),
    "five",
)
UNEQUAL = PairDataset(
    (
        ContrastivePair("the film was", "fine and nice", "bad"),
        ContrastivePair("a", "good", "not at all good"),
    ),
    "unequal",
)


def planted(n: int = 40, noise: float = 0.3, seed: int = 0) -> tuple[Tensor, PairActivations]:
    """Pairs whose difference is a known direction of varying size, plus noise."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(D, generator=generator)
    truth /= truth.norm()
    base = 5 * torch.randn(n, D, generator=generator)
    size = 2 + torch.rand(n, 1, generator=generator)
    delta = size * truth + noise * torch.randn(n, D, generator=generator)
    return truth, PairActivations({3: base + delta / 2}, {3: base - delta / 2})


# Directions.


@pytest.mark.parametrize("method", [m for m in METHODS if m != "pca_diff"])
def test_a_planted_direction_is_found(method: str) -> None:
    truth, acts = planted()
    vector = fit(acts, method)[3]
    assert float(vector @ truth / vector.norm()) > 0.97
    swapped = fit(PairActivations(acts.negative, acts.positive), method)[3]
    assert torch.allclose(swapped, -vector, atol=1e-3 * float(vector.norm()))


def test_mean_is_one_average_contrast() -> None:
    _, acts = planted()
    expected = (acts.positive[3].double() - acts.negative[3].double()).numpy().mean(0)
    assert np.allclose(fit(acts)[3].numpy(), expected, atol=1e-6)


def test_pca_against_an_eigendecomposition() -> None:
    """First axis of [Δ; -Δ] about 0; PCA by scikit-learn of the rows centred per pair is the same."""
    from sklearn.decomposition import PCA

    _, acts = planted(noise=1.0)
    delta = (acts.positive[3] - acts.negative[3]).double().numpy()
    top = np.linalg.eigh(delta.T @ delta)[1][:, -1]
    top *= np.sign((delta @ top).mean())
    middle = (acts.positive[3] + acts.negative[3]) / 2
    rows = torch.cat([acts.positive[3] - middle, acts.negative[3] - middle]).double().numpy()
    axis = PCA(n_components=1).fit(rows).components_[0]
    for method in ("pca", "pca_center"):
        vector = fit(acts, method)[3].numpy()
        assert np.allclose(vector, top, atol=1e-5)
        assert abs(vector @ axis) == pytest.approx(1, abs=1e-5)


def test_pca_diff_sees_how_differences_vary_not_what_they_share() -> None:
    from sklearn.decomposition import PCA

    _, acts = planted(noise=1.0)
    delta = (acts.positive[3] - acts.negative[3]).double().numpy()
    axis = PCA(n_components=1).fit(delta).components_[0]
    axis *= np.sign((delta @ axis).mean())
    assert np.allclose(fit(acts, "pca_diff")[3].numpy(), axis, atol=1e-5)
    # A common part of constant size is invisible to it, and all that the mean sees.
    common, across = torch.eye(D)[:2]
    delta2 = 10 * common + torch.linspace(-1, 1.1, 20)[:, None] * across
    constant = PairActivations({0: delta2}, {0: torch.zeros_like(delta2)})
    assert float(fit(constant, "pca_diff")[0] @ common) == pytest.approx(0, abs=1e-5)
    assert float(fit(constant)[0].argmax()) == 0


def test_logistic_against_a_general_minimiser() -> None:
    """Half the squared norm, plus the log loss of the 2n rows that mirror each other."""
    from scipy.optimize import minimize

    _, acts = planted(n=15, noise=1.0)
    x = acts.differences(3).double().numpy() / 2
    found = minimize(lambda w: w @ w / 2 + 2 * np.logaddexp(0, -(x @ w)).sum(), np.zeros(D), tol=1e-10).x
    assert np.allclose(fit(acts, "logistic")[3].numpy(), found / np.linalg.norm(found), atol=1e-3)


def test_norms_and_sign_conventions() -> None:
    _, acts = planted()
    delta = acts.differences(3)
    for method in METHODS[1:]:
        v = fit(acts, method)[3]
        assert float(v.norm()) == pytest.approx(1, abs=1e-5)
        assert float((delta @ v).mean()) > 0
    reference = fit(acts)
    assert fit(acts, "pca", norm=reference).norms()[3] == pytest.approx(reference.norms()[3], rel=1e-5)
    assert fit(acts, norm=7.0).norms()[3] == pytest.approx(7, rel=1e-5)


def test_refused_activations() -> None:
    same = {0: torch.ones(3, D)}
    with pytest.raises(ValueError, match="the same in all 3 pairs"):
        fit(PairActivations(same, same))
    broken = {0: torch.ones(3, D).index_fill(0, torch.tensor([1]), float("nan"))}
    with pytest.raises(ValueError, match=r"layer 0: the activations of 1 pairs \(e.g. 1\) are NaN"):
        PairActivations(same, broken)
    with pytest.raises(ValueError, match="at least two"):
        fit(PairActivations({0: torch.ones(1, D)}, {0: torch.zeros(1, D)}), "pca_diff")
    with pytest.raises(ValueError, match=r"positive \(3, 24\) and negative \(2, 24\)"):
        PairActivations(same, {0: torch.ones(2, D)})
    with pytest.raises(ValueError, match="method = 'median'"):
        fit(planted()[1], "median")


# Reading.


def by_hand(model: LanguageModel, pairs: PairDataset, layer: int, tokens: slice) -> tuple[Tensor, Tensor]:
    """One text at a time, one layer, no batch."""
    sides = []
    for side in ("positive", "negative"):
        rows = []
        for pair in pairs:
            ids = render(model, pair.prompt, getattr(pair, side)).ids
            act = model.activations(torch.tensor([ids]), f"resid_post.{layer}")[f"resid_post.{layer}"][0]
            rows.append(act[tokens].mean(0))
        sides.append(torch.stack(rows))
    return sides[0], sides[1]


@pytest.mark.parametrize("fixture", ["tiny_llama", "tiny_gpt2"])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_every_layer_equals_reading_by_hand(
    fixture: str, batch_size: int, request: pytest.FixtureRequest
) -> None:
    model: LanguageModel = request.getfixturevalue(fixture)
    acts = collect(model, PAIRS, batch_size=batch_size)
    assert acts.layers == (0, 1, 2)
    for layer in acts.layers:
        positive, negative = by_hand(model, PAIRS, layer, slice(-2, -1))
        assert torch.allclose(acts.positive[layer], positive, atol=1e-4)
        assert torch.allclose(acts.negative[layer], negative, atol=1e-4)


def test_both_engines_read_the_same(tiny_llama: LanguageModel) -> None:
    bridged = load_model(tiny_model("llama"), engine="transformer_lens", tokenizer=tiny_llama.tokenizer)
    ours, theirs = (extract(model, PAIRS, batch_size=3) for model in (tiny_llama, bridged))
    for layer in ours.layers:
        assert torch.allclose(ours[layer], theirs[layer], atol=1e-4)


def test_what_is_read(tiny_llama: LanguageModel) -> None:
    at_2 = UNEQUAL[1:]  # the texts of the other pair are still the same there
    for pairs, read, tokens in (
        (UNEQUAL, "last", slice(-1, None)),
        (UNEQUAL, np.int64(-3), slice(-3, -2)),
        (at_2, 2, slice(2, 3)),
    ):
        acts = collect(tiny_llama, pairs, np.int64(1), read)
        positive, negative = by_hand(tiny_llama, pairs, 1, tokens)
        assert torch.allclose(acts.positive[1], positive, atol=1e-4), read
        assert torch.allclose(acts.negative[1], negative, atol=1e-4), read
    whole = collect(tiny_llama, UNEQUAL, -2, "all")
    assert whole.layers == (1,)
    for i, pair in enumerate(UNEQUAL):
        rendered = render(tiny_llama, pair.prompt, pair.positive)
        act = tiny_llama.activations(torch.tensor([rendered.ids]), "resid_post.1")["resid_post.1"][0]
        assert torch.allclose(whole.positive[1][i], act[rendered.prompt_length :].mean(0), atol=1e-4)


def test_one_forward_per_text_whatever_the_number_of_layers(tiny_llama: LanguageModel) -> None:
    rows: dict[str, int] = {"first": 0, "head": 0}

    def count(name: str):  # type: ignore[no-untyped-def]
        def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            rows[name] += len(output)

        return hook

    blocks = tiny_llama.module.model.layers
    handles = [
        blocks[0].register_forward_hook(count("first")),
        tiny_llama.module.lm_head.register_forward_hook(count("head")),
    ]
    extract(tiny_llama, PAIRS, "all", batch_size=4)
    for handle in handles:
        handle.remove()
    assert rows == {"first": 2 * len(PAIRS), "head": 0}
    assert not any(module._forward_hooks for module in tiny_llama.module.modules())


def test_other_sites_variations_and_what_is_remembered(tiny_llama: LanguageModel) -> None:
    shouted = PromptVariation("LOUD", user_prefix="HEY ")
    vector = extract(tiny_llama, PAIRS, [0, -1], variation=shouted, site="mlp_out", method="pca")
    assert vector.layers == (0, 2)
    remembered = {
        k: vector.meta[k] for k in ("site", "dataset", "method", "read", "variation", "n_pairs", "family")
    }
    assert remembered == {
        "site": "mlp_out",
        "dataset": "five",
        "method": "pca",
        "read": "answer",
        "variation": "LOUD",
        "n_pairs": 5,
        "family": "llama",
    }
    plain = extract(tiny_llama, PAIRS, [0, -1], site="mlp_out", method="pca")
    assert float(plain.cosine(vector)[2]) < 0.999
    assert vector.quality()[2].n == 5


def test_refusals(tiny_llama: LanguageModel) -> None:
    with pytest.raises(ValueError, match=r"pairs=\[\]"):
        collect(tiny_llama, [])
    with pytest.raises(ValueError, match=r"pair 0 \('the film was': .*14 and 4 tokens"):
        collect(tiny_llama, [replace(UNEQUAL[0], read_index=-2)])
    with pytest.raises(ValueError, match="layer 3 is out of range"):
        collect(tiny_llama, PAIRS, 3)
    with pytest.raises(ValueError, match=r"layers=\[\]"):
        collect(tiny_llama, PAIRS, [])
    with pytest.raises(ValueError, match="layers = 'every'"):
        collect(tiny_llama, PAIRS, "every")
    with pytest.raises(ValueError, match=r"pair 0 .*index -100 lies outside"):
        collect(tiny_llama, PAIRS, read=-100)
    with pytest.raises(ValueError, match="read = 'first'"):
        collect(tiny_llama, PAIRS, read="first")
    with pytest.raises(ValueError, match="batch_size=0"):
        collect(tiny_llama, PAIRS, batch_size=0)
    with pytest.raises(ValueError, match="method = 'median'"):
        extract(tiny_llama, [], method="median")  # before anything is read
    # The token read is the same, in the same context, in both texts.
    with pytest.raises(ValueError, match="before the texts differ"):
        extract(tiny_llama, PAIRS, read=0)


def test_pairs_that_are_the_same_to_the_model_are_refused_by_number(tiny_llama: LanguageModel) -> None:
    """A tokenizer that lowers case makes "Yes" and "yes" one text, whose difference has no direction."""
    from tokenizers import normalizers

    lowering = copy.deepcopy(tiny_llama.tokenizer)
    lowering.backend_tokenizer.normalizer = normalizers.Lowercase()
    model = load_model(tiny_model("llama"), tokenizer=lowering)
    alike, other = ContrastivePair("Is it?", "Yes", "yes"), ContrastivePair("Is it?", "yes", "no")
    assert torch.isfinite(extract(model, [other, other], 1)[1]).all()
    with pytest.raises(ValueError, match=r"^pair 1: .* same tokens, e.g. 'Yes' and 'yes' to 'Is it\?'"):
        extract(model, [other, alike], 1)
    with pytest.raises(ValueError, match=r"^2 of the 2 pairs \(0, 1\): .* no contrast"):
        collect(model, [alike, alike], 1)
    with pytest.raises(ValueError, match=r"^1 of|^pair 0: the token read stands before the texts differ"):
        collect(model, [other, ContrastivePair("a", "good", "bad")], 1, read=3)


def test_activations_that_are_alike_are_said(caplog: pytest.LogCaptureFixture) -> None:
    positive = torch.tensor([[1.0, 0.0], [2.0, 2.0]])
    fit(PairActivations({4: positive}, {4: torch.tensor([[0.0, 0.0], [2.0, 2.0]])}))
    assert "layer 4: the two activations of 1 of the 2 pairs (e.g. 1) are the same" in caplog.text


def test_layers_as_numpy_gives_them_and_tuples_as_pairs(tiny_llama: LanguageModel, tmp_path: Path) -> None:
    vector = extract(tiny_llama, PAIRS, np.arange(1, 3), read=np.int64(-2))
    assert vector.layers == (1, 2)
    assert all(type(layer) is int for layer in vector.layers)
    assert SteeringVector.load(vector.save(tmp_path / "v")).meta == vector.meta
    assert SteeringVector({np.int64(3): torch.ones(2)})[np.int64(3)].tolist() == [1, 1]
    plain = tiny_llama.logits("abc")
    with vector.apply(tiny_llama, layers=np.int64(2)):
        assert not torch.equal(tiny_llama.logits("abc"), plain)
    with vector.apply(tiny_llama, layers=np.array([-1])):
        assert not torch.equal(tiny_llama.logits("abc"), plain)
    for wrong in (1.5, True, "1"):
        with pytest.raises(TypeError, match=f"layer={wrong!r} is a"):
            collect(tiny_llama, PAIRS, [wrong])
    for use in (
        lambda: collect(tiny_llama, [("q", "a", "b")]),
        lambda: propensity_curve(tiny_llama, [("q", "a", "b")], vector),
        lambda: PairDataset((("q", "a", "b"),), "tuples"),
    ):
        with pytest.raises(TypeError, match=r"pairs\[0\] is a tuple; give ContrastivePair\(prompt"):
            use()


def test_answers_of_ones_own_are_read_at_their_end(tiny_llama: LanguageModel) -> None:
    by_default, at_end = (extract(tiny_llama, UNEQUAL, 1, read=read) for read in ("answer", "last"))
    torch.testing.assert_close(by_default[1], at_end[1], rtol=0, atol=0)
    assert by_default.meta["pairs"] == [pair.digest for pair in UNEQUAL]
