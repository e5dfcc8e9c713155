"""The report: verdicts on hand-made results, and a whole evaluation of the model with closed forms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interp.core.intervals import Interval
from interp.models.language_model import LanguageModel
from interp.steering.baselines import BaselineComparison, PromptEffect
from interp.steering.criteria import ReliabilityCriteria
from interp.steering.decomposition import decompose_variance
from interp.steering.extraction import extract
from interp.steering.generators import likes
from interp.steering.propensity import DEFAULT_MULTIPLIERS, PropensityResult
from interp.steering.reliability import ReliabilityReport, evaluate
from interp.steering.side_effects import SideEffects
from interp.steering.steerability import steerability
from interp.steering.vector import SteeringVector
from tests.steering.linear import LAST, linear_model, pairs, slope

LAMBDA = np.array(DEFAULT_MULTIPLIERS)
LETTERS = np.tile([True, False], 20)
DAMAGE = SideEffects(np.array([-1.0, 1.0]), np.array([9.0, 16.0]), np.zeros(2), 8.0, 9)


def curve(slopes: np.ndarray) -> PropensityResult:
    values = slopes[:, None] * LAMBDA
    return PropensityResult(LAMBDA, values, values, (4,), "answer_token", "BASE", "add", 0, 100, 700)


def report(
    slopes: np.ndarray, random_slope: float = 0.1, letter_cosine: float = 0.1, **more: Any
) -> ReliabilityReport:
    measured = curve(slopes)
    rivals = {
        "letter": curve(np.ones(40)).steerability(),
        "random 0": curve(np.full(40, random_slope)).steerability(),
    }
    s = measured.steerability()
    factors = {"A": LETTERS.tolist()}
    return ReliabilityReport(
        "toy",
        4,
        measured,
        s,
        factors,
        decompose_variance(s.slopes, factors),
        baselines=BaselineComparison(measured, s, rivals, {"letter": letter_cosine, "random 0": 0.0}),
        **more,
    )


def noise(size: float) -> np.ndarray:
    return np.random.default_rng(0).normal(0, size, 40)


def test_a_letter_direction_is_not_trusted() -> None:
    """Slopes of +1 with (A) and -1 with (B): all the variance is the letter's."""
    result = report(np.where(LETTERS, 1.0, -1.0) + noise(0.05), letter_cosine=0.97)
    assert not result.reliable
    assert result.verdict.startswith("do not trust: 5 of the 5 criteria measured fail\n")
    assert "100% of the variance of steerability is explained by the answer letter" in result.verdict
    assert "50% of the samples are anti-steerable" in result.verdict
    assert "its cosine with the direction between the answers' letters is 0.97" in result.verdict
    failed = [f.criterion for f in result.findings if not f.passed]
    assert failed == ["effect", "above_random", "anti_fraction", "bias:A", "letter_cosine"]
    assert "FAIL" in str(result)


def test_an_even_effect_is_relied_on() -> None:
    result = report(2.0 + noise(0.3))
    assert result.reliable
    assert result.verdict.splitlines()[0] == "reliable by all 5 criteria measured"
    assert "FAIL" not in str(result)


def test_the_strongest_prompt_is_set_against_multipliers() -> None:
    for shift, said in ((-0.6, "-0.30"), (0.0, "none, as its effect or the vector's may be 0")):
        made = report(np.full(40, 2.0))
        prompts = {"SYS_NEG": PromptEffect(shift, Interval(shift - 0.1, shift + 0.1))}
        assert made.baselines is not None
        shown = str(replace(made, baselines=replace(made.baselines, prompts=prompts)))
        assert f"multiplier worth the strongest prompt, SYS_NEG: {said}" in shown


def test_a_factor_behind_a_small_spread_does_no_harm() -> None:
    """The letter explains nearly everything of a spread of 0.1 around 2."""
    result = report(2.0 + np.where(LETTERS, 0.1, -0.1) + noise(0.01))
    assert result.decomposition is not None
    assert result.decomposition.shares["A"] > 0.95
    assert result.reliable
    lines = report(2.0 + noise(0.3), random_slope=1.5).verdict.splitlines()
    assert [line[:8] for line in lines] == [
        "do not t",
        "  FAIL  ",
        *["  pass  "] * 4,
    ]  # what fails comes first
    strict = report(2.0 + np.where(LETTERS, 0.1, -0.1), criteria=ReliabilityCriteria(factor_size=0.01))
    assert "explained by the answer letter" in strict.verdict


@pytest.mark.parametrize(
    ("made", "failed"),
    [
        ({"random_slope": 1.5}, "above_random"),
        ({"letter_cosine": -0.9}, "letter_cosine"),
        (
            {"effects": SideEffects(np.array([-1.0, 1.0]), np.array([9.0, 16.0]), np.zeros(2), 8.0, 9)},
            "perplexity_ratio",
        ),
    ],
)
def test_each_bound_counts(made: dict[str, Any], failed: str) -> None:
    result = report(2.0 + noise(0.3), **made)
    assert [f.criterion for f in result.findings if not f.passed] == [failed]


def test_a_vector_that_works_backwards_is_not_trusted() -> None:
    result = report(-2.0 + noise(0.3))
    assert "works backwards" in result.verdict


def test_damage_beyond_the_usual_multipliers_is_not_counted() -> None:
    effects = SideEffects(np.array([1.0, 3.0]), np.array([9.0, 99.0]), np.zeros(2), 8.0, 9)
    assert report(2.0 + noise(0.3), effects=effects).reliable


def test_the_report_is_saved_whole(tmp_path: Path) -> None:
    result = report(np.where(LETTERS, 1.0, -1.0))
    result.save(tmp_path / "report.json")
    saved = json.loads((tmp_path / "report.json").read_text())
    assert saved["verdict"] == result.verdict
    assert saved["variance"]["shares"]["A"] == pytest.approx(1.0)
    assert saved["slopes"][:2] == pytest.approx([1.0, -1.0])
    assert saved["how"]["saving"] == 7.0
    assert list(result.to_frame().index)[:2] == ["effect", "above_random"]
    figure = result.plot()
    assert len(figure.axes) == 4
    assert "do not trust" in figure.get_suptitle()


@pytest.fixture(scope="module")
def model(tiny_tokenizer: Any) -> LanguageModel:
    return linear_model(tiny_tokenizer)


def test_a_whole_evaluation_has_the_closed_form(model: LanguageModel) -> None:
    train, test = pairs(0, 4), pairs(4, 3)
    result = evaluate(
        model, train, test, LAST, transfer=True, seeds=2, neutral_texts=["the sea is wide"], progress=False
    )
    vector = extract(model, train, LAST)
    np.testing.assert_allclose(result.steerability.slopes, slope(model, vector), atol=1e-4)
    assert result.decomposition is None  # these answers have no letters
    assert result.baselines is not None
    assert set(result.baselines.prompts) == {"SYS_POS", "SYS_NEG", "USER_POS", "USER_NEG"}
    assert result.transfer is not None
    assert result.transfer.matrix[0, 0] == pytest.approx(slope(model, vector), abs=1e-4)
    assert result.quality is not None
    assert {"effect", "above_random", "agreement", "relative_ood", "perplexity_ratio"} <= {
        f.criterion for f in result.findings
    }
    assert result.to_dict()["transfer"]["tested"][0] == "BASE"


def test_letters_are_factors_and_rivals(model: LanguageModel) -> None:
    """At the last layer of the linear model a sample's slope is ± v . (W_A - W_B): the letter explains all."""
    data = likes(things=4)
    train, test = data[:6], data[6:]
    result = evaluate(model, train, test, LAST, seeds=1, neutral_texts=["the sea is wide"], progress=False)
    assert result.decomposition is not None
    assert result.decomposition.shares["A"] == pytest.approx(1.0, abs=1e-4)
    assert result.baselines is not None
    assert "letter" in result.baselines.others
    assert "explained by the answer letter" in result.verdict


def test_a_vector_can_be_brought_along(model: LanguageModel) -> None:
    train, test = pairs(0, 4), pairs(4, 3)
    other = extract(model, train).random_like(3)
    result = evaluate(
        model, train, test, -1, vector=other, seeds=1, neutral_texts=["the sea"], name="mine", progress=False
    )
    assert result.name == "mine"
    assert result.quality is None  # random directions have no pairs that could agree
    assert result.steerability.mean == pytest.approx(slope(model, other), abs=1e-4)
    with pytest.raises(ValueError, match="in both parts"):
        evaluate(model, train, train, LAST)


def test_a_vector_is_not_tested_on_what_it_has_seen(
    model: LanguageModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train, test = pairs(0, 4), pairs(4, 3)
    how: dict[str, Any] = {"seeds": 1, "neutral_texts": ["the sea"], "progress": False}
    extract(model, [*train, test[1]], LAST).save(tmp_path)
    with pytest.raises(ValueError, match="1 of the 3 pairs to test it on"):
        evaluate(model, train, test, LAST, vector=SteeringVector.load(tmp_path), **how)
    own = extract(model, pairs(10, 5), LAST)
    assert caplog.text == ""
    brought = evaluate(model, train, test, LAST, vector=own, multipliers=[-2, 0, 1], **how)
    assert brought.quality == own.quality()[LAST]  # of its five pairs, not of the four of `train`
    assert brought.effects is not None
    assert brought.effects.multipliers.tolist() == [-2, 1]
    evaluate(model, train, test, LAST, vector=SteeringVector(own.directions), **how)
    assert caplog.text.count("doesn't say which pairs") == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"multipliers": [1.0]}, r"multipliers=\[1.0\]: a slope needs at least two distinct"),
        ({"multipliers": [1.0, 1.0]}, "two distinct"),
        ({"multipliers": [0.0, np.nan]}, "finite"),
        ({"multipliers": [-1.0, 1.0], "transfer": True}, "must hold 0"),
        ({"seeds": 0}, "seeds = 0"),
        ({"method": "median"}, "method = 'median'"),
        ({"factors": {"topic": ["a"]}}, r"factors\['topic'\]: expected 3 values"),
        ({"neutral_texts": ["x"]}, "none has two tokens"),
    ],
)
def test_what_can_not_be_measured_is_refused_before_anything_is(
    model: LanguageModel, wrong: dict[str, Any], said: str
) -> None:
    ran = []
    handle = model.module.register_forward_pre_hook(lambda *_: ran.append(1))
    inside = model.module.model.layers[0].register_forward_pre_hook(lambda *_: ran.append(1))
    options: dict[str, Any] = {"neutral_texts": ["the sea"], "progress": False, **wrong}
    try:
        with pytest.raises(ValueError, match=said):
            evaluate(model, pairs(0, 4), pairs(4, 3), LAST, **options)
    finally:
        handle.remove()
        inside.remove()
    assert not ran


def test_a_transfer_needs_a_persona(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="needs at least two"):
        evaluate(model, list(pairs(0, 4)), pairs(4, 3), LAST, transfer=True, neutral_texts=["the sea"])


def test_steerability_has_its_name_in_the_violin() -> None:
    figure = steerability([0.0, 1.0], np.array([[0.0, 1.0], [0.0, 3.0]]), name="v").plot()
    assert "v\n0% anti" in [label.get_text() for label in figure.axes[0].get_xticklabels()]
