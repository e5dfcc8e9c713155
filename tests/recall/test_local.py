"""A language model as recaller: tiny random ones for the mechanics, the packaged one for the real thing."""

from __future__ import annotations

import math

import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.recall.answers import read_answers
from interp.recall.local import LocalRecaller, spell_chat
from interp.recall.prompts import RecallPrompt
from tests.models.tiny import tiny_model
from tests.recall.stories import prompt


def short(n: int = 3) -> RecallPrompt:
    """A prompt that fits tiny contexts."""
    ask = prompt(n)
    return RecallPrompt(({"role": "user", "content": "Hi."},), ask.pairs, ask.vignette)


@pytest.fixture
def roomy(tiny_tokenizer) -> LanguageModel:  # type: ignore[no-untyped-def]
    return load_model(tiny_model("llama", max_position_embeddings=512), tokenizer=tiny_tokenizer)


def test_forced_choice_is_the_softmax_of_two_logits_behind_all_earlier_answers(roomy: LanguageModel) -> None:
    ask = short()
    answer = LocalRecaller(roomy).answer(ask)
    text = spell_chat(roomy.tokenizer, ask.messages)
    one, zero = (roomy.tokenizer(d, add_special_tokens=False)["input_ids"][0] for d in "10")
    for index, ((u, v), w) in enumerate(zip(ask.pairs, answer.choices, strict=True)):
        text += f"{', ' if index else ''}({u},{v}): "
        ids = roomy.tokenizer(text, add_special_tokens=False)["input_ids"]
        logits = roomy.logits(torch.tensor([ids]))[0, -1]
        expected = torch.softmax(logits[[zero, one]].double(), 0)[1]
        assert w == pytest.approx(float(expected), abs=1e-5)
        text += "1" if w > 0.5 else "0"
    assert text.endswith(answer.text)
    result = read_answers([answer], ask)
    assert result.coverage == 1
    assert list(result.probabilities.values()) == list(answer.choices)


def test_written_answers_carry_their_tokens(roomy: LanguageModel) -> None:
    recaller = LocalRecaller(roomy, mode="generate", max_new_tokens=12)
    answer = recaller.answer(short())
    assert answer == recaller.answer(short())
    assert answer.completion_tokens <= 12
    assert all(token.logprob <= 1e-6 for token in answer.tokens)
    for token in answer.tokens:  # greedy: the token written is the likeliest
        assert token.logprob == pytest.approx(max(token.top.values()), abs=1e-5)
        assert sum(map(math.exp, token.top.values())) <= 1 + 1e-5
    sampled = LocalRecaller(roomy, mode="generate", max_new_tokens=12, temperature=2.0)
    assert sampled.answer(short(), 0) != sampled.answer(short(), 1)
    assert sampled.answer(short(), 1) == sampled.answer(short(), 1)


def test_without_a_chat_template_roles_are_spelled_out(roomy: LanguageModel) -> None:
    messages = ({"role": "user", "content": "A?"}, {"role": "assistant", "content": "B."})
    assert spell_chat(roomy.tokenizer, messages) == "User: A?\n\nAssistant: B.\n\nAssistant: "


def test_refusals(tiny_gpt2: LanguageModel) -> None:
    with pytest.raises(ValueError, match="no tokenizer"):
        LocalRecaller(load_model(tiny_model("gpt2")))
    with pytest.raises(ValueError, match="mode"):
        LocalRecaller(tiny_gpt2, mode="choice")
    with pytest.raises(ValueError, match="max_new_tokens = 0"):
        LocalRecaller(tiny_gpt2, mode="generate", max_new_tokens=0)
    with pytest.raises(ValueError, match="temperature = nan"):
        LocalRecaller(tiny_gpt2, mode="generate", temperature=math.nan)
    with pytest.raises(ValueError, match="at most"):
        LocalRecaller(tiny_gpt2).answer(prompt(4))
    with pytest.raises(ValueError, match="reads 64"):
        LocalRecaller(tiny_gpt2, mode="generate").answer(prompt(4))


def test_names_tell_models_and_modes_apart(roomy: LanguageModel, tiny_gpt2: LanguageModel) -> None:
    keys = [LocalRecaller(roomy), LocalRecaller(roomy, mode="generate"), LocalRecaller(tiny_gpt2)]
    assert len({str((r.name, r.parameters)) for r in keys}) == 3


@pytest.mark.real_model
def test_the_packaged_model_answers_every_pair(smollm2: LanguageModel) -> None:
    """What it says to a three-node story: legible, and not all the same confidence."""
    ask = prompt(3)
    answer = LocalRecaller(smollm2).answer(ask)
    assert "<|im_start|>user" in spell_chat(smollm2.tokenizer, ask.messages)
    assert len(answer.choices) == 3
    assert all(0 < w < 1 for w in answer.choices)
    assert len(set(answer.choices)) == 3
    read = read_answers([answer], ask)
    assert read.coverage == 1
