"""Multiple choice in turn is what whole passes over the growing text give."""

from __future__ import annotations

import pytest
import torch

from interp.models.choices import choose_in_turn
from interp.models.language_model import LanguageModel


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_gpt2"])
def test_equals_whole_passes(name: str, request: pytest.FixtureRequest) -> None:
    model: LanguageModel = request.getfixturevalue(name)
    prompt, questions, choices = [5, 6, 7, 8], [[9, 10], [11], [12, 13, 14]], [48, 49]
    logits = choose_in_turn(model, prompt, questions, choices)
    text = list(prompt)
    for question, row in zip(questions, logits, strict=True):
        text += question
        whole = model.logits(torch.tensor([text]))[0, -1, choices]
        torch.testing.assert_close(row, whole.float(), atol=1e-5, rtol=1e-4)
        text.append(choices[int(whole.argmax())])


def test_an_open_edit_applies(tiny_llama: LanguageModel) -> None:
    plain = choose_in_turn(tiny_llama, [1, 2], [[3]], [4, 5])
    with tiny_llama.edit({"resid_post.1": lambda act, positions: act * 0}):
        edited = choose_in_turn(tiny_llama, [1, 2], [[3]], [4, 5])
    assert not torch.equal(plain, edited)


def test_refusals(tiny_gpt2: LanguageModel) -> None:
    for arguments in (([], [[1]], [1, 2]), ([1], [], [1, 2]), ([1], [[]], [1, 2]), ([1], [[1]], [1])):
        with pytest.raises(ValueError, match="needs a prompt"):
            choose_in_turn(tiny_gpt2, *arguments)
    with pytest.raises(ValueError, match="64 at most"):
        choose_in_turn(tiny_gpt2, [1] * 60, [[1, 2, 3, 4]], [5, 6])
