"""Side effects against passes made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.steering.apply import steer
from interp.steering.side_effects import continuations, side_effects
from interp.steering.vector import SteeringVector
from tests.models.tiny import D_MODEL

TEXTS = ["the sea is deep and wide", "tea", "a long road"]
VECTOR = SteeringVector({1: torch.randn(D_MODEL, generator=torch.Generator().manual_seed(0))})


def test_perplexity_and_divergence_are_those_of_whole_passes(tiny_llama: LanguageModel) -> None:
    result = side_effects(tiny_llama, VECTOR, multipliers=[0.0, 1.0, -2.0], texts=TEXTS, progress=False)
    for n, multiplier in enumerate(result.multipliers):
        losses, divergences = [], []
        for text in TEXTS:
            ids = tiny_llama.tokenize([text]).input_ids
            clean = tiny_llama.logits(ids)[0, :-1].log_softmax(-1)
            with steer(tiny_llama, VECTOR, float(multiplier)):
                steered = tiny_llama.logits(ids)[0, :-1].log_softmax(-1)
            losses += (-steered[range(len(steered)), ids[0, 1:]]).tolist()
            divergences += (clean.exp() * (clean - steered)).sum(-1).tolist()
        assert result.perplexity[n] == pytest.approx(np.exp(np.mean(losses)), rel=1e-4)
        assert result.kl[n] == pytest.approx(np.mean(divergences), abs=1e-4)
        assert result.n_tokens == len(losses)
    assert result.kl[0] == pytest.approx(0, abs=1e-6)
    assert result.ratio[0] == pytest.approx(1)
    assert result.kl[2] > result.kl[1] > 0.01
    assert "tokens of neutral text" in str(result)
    np.testing.assert_allclose(result.plot().axes[1].lines[0].get_ydata(), result.kl)
    np.testing.assert_allclose(result.to_frame()["ratio"], result.ratio)


def test_the_default_text_is_there(tiny_llama: LanguageModel) -> None:
    result = side_effects(tiny_llama, VECTOR, multipliers=[1.0], max_tokens=8, progress=False)
    assert result.n_tokens == 24 * 7


def test_continuations_are_generated_and_judged_without_steering(tiny_llama: LanguageModel) -> None:
    prompts = ["the sea", "a much longer prompt", "tea"]
    result = continuations(
        tiny_llama, prompts, VECTOR, multipliers=[0.0, 3.0], max_new_tokens=6, batch_size=2, progress=False
    )
    for i, prompt in enumerate(prompts):
        ids = tiny_llama.tokenize([prompt]).input_ids
        for n, multiplier in enumerate((0.0, 3.0)):
            with steer(tiny_llama, VECTOR, multiplier, positions="generation"):
                new = tiny_llama.generate(ids, 6)[0].tolist()
            while len(new) > 1 and new[-2] == 257:  # the end token fills the row
                new.pop()
            assert result.texts[i][n] == tiny_llama.tokenizer.decode(new, skip_special_tokens=True)
            losses = tiny_llama.loss(torch.tensor([[*ids[0].tolist(), *new]])).values[0, -len(new) :]
            assert result.perplexity[i, n] == pytest.approx(float(losses.mean().exp()), rel=1e-4)
    np.testing.assert_allclose(result.fluency, np.exp(np.log(result.perplexity).mean(0)))


def test_scores_become_slopes(tiny_llama: LanguageModel) -> None:
    result = continuations(
        tiny_llama, ["the sea", "tea"], VECTOR, multipliers=[-1, 0, 1], max_new_tokens=4, progress=False
    )
    lengths = np.array([[len(text) for text in row] for row in result.texts])
    np.testing.assert_array_equal(result.score(len), lengths)
    slopes = (lengths[:, 2] - lengths[:, 0]) / 2
    np.testing.assert_allclose(result.steerability(len).slopes, slopes)
    assert len(result.to_frame()) == 6


def test_nothing_to_measure_is_refused(tiny_llama: LanguageModel) -> None:
    with pytest.raises(ValueError, match="none has two tokens"):
        side_effects(tiny_llama, VECTOR, texts=["t"], progress=False)
    with pytest.raises(ValueError, match="multipliers"):
        side_effects(tiny_llama, VECTOR, multipliers=[], texts=TEXTS)
    with pytest.raises(ValueError, match="got 0 and 3"):
        continuations(tiny_llama, [], VECTOR)
