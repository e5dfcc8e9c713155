"""Continuations, their reward with its standard error, and KL: against closed forms and the tokens' own log-ratios."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.probes.lfp.sampling import continuations, mean_reward, measure, policy_divergence

PROMPTS = ["the film", "a", "some longer beginning of a text"]


def with_head(model: LanguageModel, scale: float) -> LanguageModel:
    """The same model with its logits multiplied; 0 makes every next token equally likely."""
    module = copy.deepcopy(model.module)
    with torch.no_grad():
        module.lm_head.weight.mul_(scale)  # type: ignore[operator, union-attr]
    return load_model(module, tokenizer=model.tokenizer)


def letters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


def test_samples_of_a_prompt_stand_together_and_are_the_seed_s(tiny_llama: LanguageModel) -> None:
    one = continuations(tiny_llama, PROMPTS, max_new_tokens=5, samples=2, seed=3)
    assert one == continuations(tiny_llama, PROMPTS, max_new_tokens=5, samples=2, seed=3)
    assert one.texts != continuations(tiny_llama, PROMPTS, max_new_tokens=5, samples=2, seed=4).texts
    assert one.prompts == tuple(np.repeat(PROMPTS, 2).tolist())
    assert [len(ids) for ids in one.new_ids] == one.lengths.tolist()
    assert one.prompt_ids[4] == tuple(next(iter(tiny_llama.tokenize(PROMPTS[2]).rows())))


def test_the_likeliest_tokens_are_those_of_single_prompts(tiny_llama: LanguageModel) -> None:
    together = continuations(tiny_llama, PROMPTS, max_new_tokens=6, temperature=0, batch_size=2)
    for prompt, ids in zip(PROMPTS, together.new_ids, strict=True):
        alone = tiny_llama.generate(prompt, 6)[0].tolist()
        assert list(ids) == alone


def test_a_text_ends_with_its_end_token(tiny_llama: LanguageModel) -> None:
    first = int(tiny_llama.generate("the film", 1)[0, 0])
    module = copy.deepcopy(tiny_llama.module)
    module.generation_config.eos_token_id = first  # type: ignore[union-attr]
    ending = load_model(module, tokenizer=tiny_llama.tokenizer)
    written = continuations(ending, ["the film"], max_new_tokens=6, temperature=0)
    assert written.new_ids == ((first,),)


def test_mean_and_standard_error_are_those_of_prompts(tiny_llama: LanguageModel) -> None:
    found = mean_reward(tiny_llama, PROMPTS, letters, max_new_tokens=4, samples=3)
    lengths = np.array([[len(text) for text in found.texts[3 * k : 3 * k + 3]] for k in range(3)])
    assert found.rewards.tolist() == lengths.tolist()
    assert found.mean == pytest.approx(lengths.mean())
    assert found.standard_error == pytest.approx(np.std(lengths.mean(1), ddof=1) / math.sqrt(3))
    alone = mean_reward(tiny_llama, PROMPTS[:1], letters, max_new_tokens=4, samples=3)
    assert alone.standard_error == pytest.approx(np.std(alone.rewards[0], ddof=1) / math.sqrt(3))
    assert math.isnan(mean_reward(tiny_llama, PROMPTS[:1], letters, max_new_tokens=4).standard_error)
    assert len(found.to_frame()) == 9
    assert "9 texts" in str(found)


def test_kl_to_the_uniform_model_is_log_of_the_vocabulary_less_entropy(tiny_llama: LanguageModel) -> None:
    sharp, flat = with_head(tiny_llama, 20.0), with_head(tiny_llama, 0.0)
    written = continuations(sharp, PROMPTS, max_new_tokens=5, samples=2)
    entropies, tokens = [], 0
    for prompt, new in zip(written.prompt_ids, written.new_ids, strict=True):
        p = sharp.logits(torch.tensor([[*prompt, *new]]))[0].double().softmax(-1)[len(prompt) - 1 : -1]
        entropies.append(float(-(p * p.log()).sum()))
        tokens += len(new)
    expected = math.log(260) * tokens - sum(entropies)
    found = policy_divergence(sharp, flat, written, batch_size=4)
    assert found.per_token == pytest.approx(expected / tokens, rel=1e-5)
    assert found.per_text == pytest.approx(expected / len(written.texts), rel=1e-5)
    assert policy_divergence(sharp, sharp, written).per_text == 0


def test_kl_agrees_with_the_mean_log_ratio_of_the_tokens_drawn(tiny_llama: LanguageModel) -> None:
    ours, base = with_head(tiny_llama, 6.0), tiny_llama
    written = continuations(ours, ["the film"], max_new_tokens=6, samples=150)
    ratios = []
    for prompt, new in zip(written.prompt_ids, written.new_ids, strict=True):
        ids = torch.tensor([[*prompt, *new]])
        p, q = (m.logits(ids)[0, len(prompt) - 1 : -1].log_softmax(-1) for m in (ours, base))
        at = torch.tensor(new)[:, None]
        ratios.append(float((p.gather(1, at) - q.gather(1, at)).sum()))
    found = policy_divergence(ours, base, written)
    error = np.std(ratios, ddof=1) / math.sqrt(len(ratios))
    assert abs(np.mean(ratios) - found.per_text) < 4 * math.hypot(error, found.standard_error)
    assert found.standard_error < error


def test_what_is_no_list_of_prompts_or_no_reward_is_refused(tiny_llama: LanguageModel) -> None:
    with pytest.raises(TypeError, match="is one string"):
        continuations(tiny_llama, "the film")
    with pytest.raises(ValueError, match="prompts is empty"):
        continuations(tiny_llama, [])
    with pytest.raises(ValueError, match=r"prompts\[1\] is blank"):
        continuations(tiny_llama, ["the film", " "])
    with pytest.raises(ValueError, match="samples = 0"):
        continuations(tiny_llama, PROMPTS, samples=0)
    written = continuations(tiny_llama, PROMPTS, max_new_tokens=2)
    with pytest.raises(ValueError, match=r"shape \(1,\) for 3 texts"):
        measure(written, lambda texts: [1.0])
    with pytest.raises(ValueError, match="returned nan"):
        measure(written, lambda texts: [0.0, math.nan, 0.0])
