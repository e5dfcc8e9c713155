"""Baselines: the letter's direction on planted activations, norms, prompts without steering."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from interp.core.intervals import Interval
from interp.models.language_model import LanguageModel
from interp.steering.baselines import (
    BaselineComparison,
    PromptEffect,
    compare_baselines,
    prompt_equivalent,
    prompting,
    random_directions,
    split_by_letter,
)
from interp.steering.extraction import extract, fit
from interp.steering.pair_activations import PairActivations
from interp.steering.pairs import ContrastivePair
from interp.steering.prompts import variations
from interp.steering.propensity import PropensityResult, propensity_curve
from interp.steering.vector import SteeringVector
from tests.steering.linear import LAST, PERSONA, linear_model, pairs, slope

TRAIN, TEST = pairs(0, 4), pairs(4, 3)


@pytest.fixture(scope="module")
def model(tiny_tokenizer: Any) -> LanguageModel:
    return linear_model(tiny_tokenizer)


def lettered(letters: str) -> list[ContrastivePair]:
    return [ContrastivePair(f"Q{i}", f"({x})", "(B)" if x == "A" else "(A)") for i, x in enumerate(letters)]


def test_behaviour_and_letter_are_taken_apart_whatever_the_balance() -> None:
    """Planted Δ_i = b + u for (A), b - u for (B): with 6:2 letters the mean is b + u / 2, the parts are b and u."""
    generator = torch.Generator().manual_seed(0)
    b, u = torch.randn(2, 8, generator=generator)
    letters = "AAABAAAB"
    delta = torch.stack([b + u if x == "A" else b - u for x in letters])
    base = torch.randn(8, 8, generator=generator)
    activations = PairActivations({3: base + delta}, {3: base}, {"site": "resid_post"})
    behaviour, letter = split_by_letter(activations, lettered(letters))
    torch.testing.assert_close(behaviour[3], b)
    torch.testing.assert_close(letter[3], u)
    torch.testing.assert_close(fit(activations)[3], b + u / 2)


@pytest.mark.parametrize(
    ("letters", "message"), [("AAAAAAAA", r"8 \(A\), 0 \(B\)"), ("AB", "2 for the activations of 8")]
)
def test_one_letter_has_no_direction(letters: str, message: str) -> None:
    activations = PairActivations({0: torch.ones(8, 4)}, {0: torch.zeros(8, 4)})
    with pytest.raises(ValueError, match=message):
        split_by_letter(activations, lettered(letters))


def test_random_directions_have_the_norm_and_differ() -> None:
    vector = SteeringVector({1: torch.tensor([3.0, 4.0, 0.0]), 2: torch.tensor([0.0, 0.0, 2.0])})
    drawn = random_directions(vector, 5)
    assert len(drawn) == 5
    for direction in drawn.values():
        assert direction.norms() == pytest.approx({1: 5.0, 2: 2.0})
    assert len({tuple(d[1].tolist()) for d in drawn.values()}) == 5
    with pytest.raises(ValueError, match="seeds=0"):
        random_directions(vector, 0)


def test_a_prompt_moves_the_logits_by_what_two_passes_say(model: LanguageModel) -> None:
    prompts = variations(PERSONA)
    up, down = (model.tokenizer.encode(letter)[0] for letter in "ud")

    def propensity(pair: ContrastivePair, name: str) -> float:
        text = prompts[name].user_prefix + pair.prompt + " "
        ids = model.tokenizer.encode(text)
        logits = model.logits(torch.tensor([ids]))[0, -1]
        return float(logits[up] - logits[down])

    effects = prompting(model, TEST, {"USER_POS": prompts["USER_POS"]}, progress=False)
    expected = [propensity(pair, "USER_POS") - propensity(pair, "BASE") for pair in TEST]
    assert effects["USER_POS"].shift == pytest.approx(np.mean(expected), abs=1e-4)
    low, high = effects["USER_POS"].interval
    assert low <= effects["USER_POS"].shift <= high
    assert "BASE" not in effects


def test_all_directions_are_measured_as_if_alone(model: LanguageModel) -> None:
    vector = extract(model, TRAIN, LAST)
    other = extract(model, TRAIN, LAST, "pca")
    result = compare_baselines(model, TEST, vector, LAST, others={"pca": other}, seeds=2, progress=False)
    assert result.vector.mean == pytest.approx(slope(model, vector), abs=1e-4)
    rescaled = other.normalize(vector)
    assert result.others["pca"].mean == pytest.approx(slope(model, rescaled), abs=1e-4)
    assert result.cosines["pca"] == pytest.approx(other.cosine(vector)[LAST])
    first = vector.random_like(0)
    alone = propensity_curve(model, TEST, first, progress=False).steerability()
    assert result.others["random 0"].mean == pytest.approx(alone.mean, abs=1e-4)
    assert result.largest_random == max(abs(result.others[f"random {n}"].mean) for n in (0, 1))
    assert "random 1" in str(result)
    assert list(result.to_frame().index) == ["vector", "pca", "random 0", "random 1"]


def test_prompts_are_set_against_multipliers(model: LanguageModel) -> None:
    vector = extract(model, TRAIN, LAST)
    chosen = {"USER_POS": variations(PERSONA)["USER_POS"]}
    result = compare_baselines(model, TEST, vector, LAST, seeds=1, variations=chosen, progress=False)
    expected = result.prompts["USER_POS"].shift / slope(model, vector)
    assert expected < 0  # this prompt works against its words, which its multiplier must say
    assert prompt_equivalent(result) == ("USER_POS", pytest.approx(expected, rel=1e-3))


@pytest.mark.parametrize(
    ("slopes", "interval", "at"),
    [
        ([1.9, 2.1], (0.1, 0.5), 0.15),
        ([-1.9, -2.1], (0.1, 0.5), -0.15),
        ([-1.9, 2.1], (0.1, 0.5), math.nan),  # the vector may do nothing
        ([1.9, 2.1], (-0.1, 0.7), math.nan),  # the prompt may do nothing
    ],
)
def test_a_ratio_of_what_may_be_nothing_is_none(
    slopes: list[float], interval: tuple[float, float], at: float
) -> None:
    k = np.array([-1.0, 1.0])
    values = np.outer(slopes, k)
    curve = PropensityResult(k, values, values, (4,), "answer_token", "BASE", "add", 0, 1, 1)
    prompts = {
        "weak": PromptEffect(-0.2, Interval(-0.3, -0.1)),
        "strong": PromptEffect(0.3, Interval(*interval)),
    }
    found = prompt_equivalent(BaselineComparison(curve, curve.steerability(), {}, {}, prompts))
    assert found == ("strong", pytest.approx(at, nan_ok=True))
