"""Propensities: the answer's token, the cache against full passes, the count of tokens, and closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.steering.apply import steer
from interp.steering.pairs import ContrastivePair
from interp.steering.prompts import PromptVariation
from interp.steering.propensity import DEFAULT_MULTIPLIERS, propensity_curve, propensity_curves
from interp.steering.scoring import TokenGroups, prepare
from interp.steering.steerability_plots import plot_curves
from interp.steering.vector import SteeringVector
from tests.models.tiny import D_MODEL, tiny_model

PAIRS = [
    ContrastivePair(f"{question}\n(A): yes\n(B): no\n", *answers)
    for question, answers in [
        ("Is it so?", ("(A)", "(B)")),
        ("Do you like the sea?", ("(B)", "(A)")),
        ("Tea?", ("(A)", "(B)")),
    ]
]
UNEQUAL = [
    ContrastivePair("Say it:", " yes please", " no"),
    ContrastivePair("And you, friend?", " no", " yes"),
]


def random_vector(seed: int, *layers: int) -> SteeringVector:
    generator = torch.Generator().manual_seed(seed)
    return SteeringVector({layer: torch.randn(D_MODEL, generator=generator) for layer in layers})


VECTORS = {"one": random_vector(0, 1), "two": random_vector(1, 0), "both": random_vector(2, 0, 2)}


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text"])
@pytest.mark.parametrize("score", ["answer_token", "sum"])
def test_the_cache_gives_what_full_passes_give(family: str, score: Any, tiny_tokenizer: Any) -> None:
    model = load_model(tiny_model(family), tokenizer=tiny_tokenizer)
    pairs = PAIRS if score == "answer_token" else [*PAIRS, *UNEQUAL]
    options: dict[str, Any] = {"score": score, "progress": False, "batch_size": 2}
    cached = propensity_curves(model, pairs, VECTORS, **options)
    whole = propensity_curves(model, pairs, VECTORS, use_prefix_cache=False, **options)
    for name in VECTORS:
        np.testing.assert_allclose(cached[name].values, whole[name].values, atol=1e-4)
        np.testing.assert_allclose(cached[name].log_odds, whole[name].log_odds, atol=1e-4)
        assert np.ptp(cached[name].values, axis=1).min() > 1e-2  # the vectors do something


def test_the_resolution_is_float32s_of_the_logits(tiny_llama: LanguageModel) -> None:
    """2^-23 of the largest |logit A| + |logit B| over the multipliers, from whole passes."""
    curve = propensity_curve(tiny_llama, PAIRS, VECTORS["one"], multipliers=[-1, 0, 1], progress=False)
    for i, (pair, item) in enumerate(zip(PAIRS, prepare(tiny_llama, PAIRS), strict=True)):
        sizes = []
        ids = [term.ids[0] for term in item.terms]
        assert {tiny_llama.tokenizer.decode(i) for i in ids} == {"A", "B"}, pair
        for multiplier in (-1, 0, 1):
            with steer(tiny_llama, VECTORS["one"], multiplier, positions=item.start):
                last = tiny_llama.logits(torch.tensor([item.texts[0]]))[0, -1]
            sizes.append(float(last[ids].abs().sum()))
        assert curve.resolution is not None
        assert curve.resolution[i] == pytest.approx(2**-23 * max(sizes), rel=1e-4)


@pytest.mark.parametrize("operator", ["ablate", "ablate_then_add", "clamp"])
def test_operators_act_in_their_own_rows_only(operator: str, tiny_llama: LanguageModel) -> None:
    options: dict[str, Any] = {"operator": operator, "progress": False}
    together = propensity_curves(tiny_llama, PAIRS, VECTORS, **options)
    for name, vector in VECTORS.items():
        alone = propensity_curves(tiny_llama, PAIRS, {name: vector}, use_prefix_cache=False, **options)
        np.testing.assert_allclose(together[name].values, alone[name].values, atol=1e-4)


def test_transformer_lens_gives_the_same(tiny_tokenizer: Any) -> None:
    curves = [
        propensity_curve(
            load_model(tiny_model("llama"), tokenizer=tiny_tokenizer, engine=engine),
            PAIRS,
            VECTORS["one"],
            progress=False,
        ).values
        for engine in ("huggingface", "transformer_lens")
    ]
    np.testing.assert_allclose(curves[0], curves[1], atol=1e-4)


def test_tokens_are_counted_and_five_times_fewer(tiny_llama: LanguageModel) -> None:
    """Prompt of p tokens, start at p - 1, two tail tokens ("\\n" and "("): (p - 1) + 2 k V against 2 (p + 3) k V."""
    (item,) = prepare(tiny_llama, PAIRS[:1])
    p = len(item.texts[0]) - 1
    assert item.start == p - 1
    result = propensity_curves(tiny_llama, PAIRS[:1], VECTORS, progress=False)["one"]
    assert result.token_forwards == (p - 1) + 2 * 7 * 3
    assert result.reference_token_forwards == 2 * (p + 3) * 7 * 3
    assert result.saving > 5
    whole = propensity_curves(tiny_llama, PAIRS[:1], VECTORS, use_prefix_cache=False, progress=False)["one"]
    assert (
        whole.token_forwards == (p + 1) * 7 * 3
    )  # one text is enough where the answers share all but the letter


def test_answers_are_found_where_the_tokens_part(tiny_llama: LanguageModel) -> None:
    """This tokenizer merges " t": the answers " tea" and " toast" part behind it, " tea" and " milk" at it."""
    merged, apart = prepare(
        tiny_llama,
        [ContrastivePair("I like", " tea", " toast"), ContrastivePair("I like", " tea", " milk")],
    )
    encode = tiny_llama.tokenizer.encode
    assert merged.texts[0] == encode("I like t")
    assert [t.ids for t in merged.terms] == [(encode("e")[0],), (encode("o")[0],)]
    assert apart.texts[0] == encode("I like")
    assert [t.ids for t in apart.terms] == [(encode(" t")[0],), (encode(" ")[0],)]


def test_the_score_is_the_logit_difference_of_one_pass(tiny_llama: LanguageModel) -> None:
    encode, pair = tiny_llama.tokenizer.encode, PAIRS[1]
    prompt = encode(pair.prompt)
    with steer(tiny_llama, VECTORS["one"], 1.5, positions=len(prompt) - 1):
        logits = tiny_llama.logits(torch.tensor([[*prompt, *encode("(")]]))[0, -1]
    expected = logits[encode("B")[0]] - logits[encode("A")[0]]
    result = propensity_curve(tiny_llama, [pair], VECTORS["one"], multipliers=[1.5], progress=False)
    assert result.values.item() == pytest.approx(float(expected), abs=1e-4)
    assert result.probability.item() == pytest.approx(float(expected.sigmoid()), abs=1e-4)
    assert result.accuracy.item() == float(expected > 0)


def test_the_sum_differs_by_what_follows_the_letter(tiny_llama: LanguageModel) -> None:
    """logit("A") + logit(")" after A) - logit("B") - logit(")" after B); log-probabilities don't cancel there."""
    encode, pair = tiny_llama.tokenizer.encode, PAIRS[0]
    texts = [torch.tensor([encode(pair.prompt + answer)]) for answer in ("(A)", "(B)")]
    raw, normalised = 0.0, 0.0
    for text, sign in zip(texts, (1, -1), strict=True):
        logits = tiny_llama.logits(text)[0]
        for at in (-2, -1):
            raw += sign * float(logits[at - 1, text[0, at]])
            normalised += sign * float(logits[at - 1].log_softmax(-1)[text[0, at]])
    result = propensity_curve(
        tiny_llama, [pair], VECTORS["one"], multipliers=[0.0], score="sum", progress=False
    )
    assert result.values.item() == pytest.approx(raw, abs=1e-4)
    assert result.log_odds.item() == pytest.approx(normalised, abs=1e-4)
    assert abs(raw - normalised) > 1e-3


def test_token_groups_compare_the_next_token(tiny_llama: LanguageModel) -> None:
    groups = TokenGroups((10, 11, 12), (20, 21))
    logits = tiny_llama.logits(torch.tensor([tiny_llama.tokenizer.encode("the sea is")]))[0, -1]
    expected = logits[[10, 11, 12]].logsumexp(0) - logits[[20, 21]].logsumexp(0)
    pair = ContrastivePair("the sea is", " x", " y")
    result = propensity_curve(
        tiny_llama, [pair], VECTORS["one"], multipliers=[0, 1], score=groups, progress=False
    )
    assert result.unsteered.item() == pytest.approx(float(expected), abs=1e-4)
    assert result.score == "token_groups"


def test_a_linear_model_has_its_closed_form(tiny_tokenizer: Any) -> None:
    """Steered behind the last block, with the final norm taken out, the logits are linear in the multiplier: every
    sample's slope is v . (W_U[answer] - W_U[other]), and the letters' balance decides who is anti-steerable."""
    module = tiny_model("llama")
    module.model.norm = torch.nn.Identity()
    model = load_model(module, tokenizer=tiny_tokenizer)
    vector = random_vector(3, 2)
    a, b = (model.tokenizer.encode(letter)[0] for letter in "AB")
    weight = module.lm_head.weight.detach()
    letter = float(vector[2] @ (weight[a] - weight[b]))
    result = propensity_curve(model, PAIRS, vector, progress=False).steerability()
    np.testing.assert_allclose(result.slopes, [letter, -letter, letter], atol=1e-4)
    np.testing.assert_allclose(result.rss, 0, atol=1e-6)
    assert result.anti_fraction == pytest.approx(1 / 3 if letter > 0 else 2 / 3)


def test_multiplier_zero_is_the_unsteered_model(tiny_llama: LanguageModel) -> None:
    curves = propensity_curves(tiny_llama, PAIRS, VECTORS, progress=False)
    assert np.ptp([curve.unsteered for curve in curves.values()], axis=0).max() < 1e-5


def test_skipping_the_first_token_leaves_the_last_prompt_token_alone(tiny_llama: LanguageModel) -> None:
    encode, pair = tiny_llama.tokenizer.encode, PAIRS[0]
    prompt = encode(pair.prompt)
    with steer(tiny_llama, VECTORS["one"], 1.0, positions=len(prompt)):
        logits = tiny_llama.logits(torch.tensor([[*prompt, *encode("(")]]))[0, -1]
    expected = float(logits[encode("A")[0]] - logits[encode("B")[0]])
    result = propensity_curve(
        tiny_llama, [pair], VECTORS["one"], multipliers=[1], skip_first_n=1, progress=False
    )
    assert result.values.item() == pytest.approx(expected, abs=1e-4)
    with pytest.raises(ValueError, match=r"skip_first_n=2.*pair 0"):
        propensity_curve(tiny_llama, [pair], VECTORS["one"], skip_first_n=2, progress=False)


def test_negative_layers_count_from_the_end(tiny_llama: LanguageModel) -> None:
    vector = random_vector(4, 0, 1, 2)
    first, same = (propensity_curve(tiny_llama, PAIRS, vector, layer, progress=False) for layer in (2, -1))
    assert first.layers == same.layers == (2,)
    np.testing.assert_array_equal(first.values, same.values)
    with pytest.raises(ValueError, match=r"layer=0: the vector has no direction there; it has layers 1"):
        propensity_curve(tiny_llama, PAIRS, VECTORS["one"], 0, progress=False)
    with pytest.raises(ValueError, match="out of range"):
        propensity_curve(tiny_llama, PAIRS, VECTORS["one"], -9, progress=False)


def test_the_table_and_the_frame(tiny_llama: LanguageModel) -> None:
    shouting = PromptVariation("LOUD", user_prefix="LOUD! ")
    result = propensity_curve(tiny_llama, PAIRS, VECTORS["one"], name="v", variation=shouting, progress=False)
    assert "propensity of v at layer 1, 3 samples, prompt LOUD" in str(result)
    assert "fewer than by full passes" in str(result)
    lines = result.plot().axes[0].lines
    np.testing.assert_allclose(lines[3].get_ydata(), result.values.mean(0))  # three samples, then the mean
    frame = result.to_frame()
    assert len(frame) == 3 * len(DEFAULT_MULTIPLIERS)
    assert frame.query("sample == 2 and multiplier == 1.5")["propensity"].item() == result.values[2, -1]


def test_panels_share_their_scale(tiny_llama: LanguageModel) -> None:
    small = propensity_curve(tiny_llama, PAIRS, VECTORS["one"] * 0.1, progress=False)
    large = propensity_curve(tiny_llama, PAIRS, VECTORS["one"], progress=False)
    limits = {ax.get_ylim() for ax in plot_curves({"small": small, "large": large}).axes}
    assert len(limits) == 1
    assert limits.pop()[1] >= large.values.max()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": []}, "at least one pair"),
        ({"vectors": {}}, "at least one vector"),
        ({"multipliers": []}, "at least one finite"),
        ({"multipliers": [float("nan")]}, "at least one finite"),
        ({"score": "letters"}, "answer_token"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"skip_first_n": -1}, "must not be negative"),
        ({"pairs": [ContrastivePair("I like", " tea", " teas")]}, r"pair 0 .*neither begin with the other"),
        ({"pairs": [ContrastivePair("x", " a", " b")]}, "single token.*use_prefix_cache=False"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    tiny_llama: LanguageModel, changes: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"pairs": PAIRS, "vectors": VECTORS, **changes}
    with pytest.raises(ValueError, match=message):
        propensity_curves(tiny_llama, given.pop("pairs"), given.pop("vectors"), progress=False, **given)


@pytest.mark.parametrize(
    ("groups", "message"), [(((), (1,)), "at least one token id"), (((1, 2), (2,)), "both groups")]
)
def test_groups_must_be_two_and_apart(groups: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenGroups(*groups)


@pytest.mark.real_model
def test_the_real_model_agrees_with_full_passes(smollm2: LanguageModel) -> None:
    pair = ContrastivePair("Which is a fruit?\n\nChoices:\n(A): apple\n(B): stone", "(A)", "(B)")
    generator = torch.Generator().manual_seed(0)
    vectors = {str(n): SteeringVector({n: torch.randn(576, generator=generator)}) for n in (8, 20)}
    options: dict[str, Any] = {"multipliers": [-1.0, 1.0], "progress": False}
    cached = propensity_curves(smollm2, [pair], vectors, **options)
    whole = propensity_curves(smollm2, [pair], vectors, use_prefix_cache=False, **options)
    for name in vectors:
        np.testing.assert_allclose(cached[name].values, whole[name].values, atol=1e-4)
    assert prepare(smollm2, [pair])[0].texts[0][-1] == smollm2.tokenizer.encode("(")[0]
