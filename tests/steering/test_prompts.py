from __future__ import annotations

import copy
import logging
from typing import Any

import pytest

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.steering.prompts import BASE, BASE_SYSTEM, PromptVariation, Rendered, batch_of, render, variations
from tests.models.tiny import byte_tokenizer, tiny_model

POLITE = ("You are polite.", "You are not polite.")
NO_SYSTEM = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}<model>\n{% endif %}"
)
IGNORES_SYSTEM = (
    "{% for m in messages %}{% if m['role'] != 'system' %}<{{ m['role'] }}>{{ m['content'] }}\n{% endif %}"
    "{% endfor %}<model>{{ '\\n' }}"
)


def with_template(template: str | None) -> LanguageModel:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return load_model(tiny_model("llama"), tokenizer=tokenizer)


def text_of(model: LanguageModel, rendered: Rendered) -> str:
    return model.tokenizer.decode(rendered.ids)  # type: ignore[union-attr]


def test_the_five_variations() -> None:
    made = variations(POLITE)
    assert {name: (v.system, v.user_prefix) for name, v in made.items()} == {
        "BASE": ("You are a helpful, honest and concise assistant.", ""),
        "SYS_POS": ("You are polite.", ""),
        "SYS_NEG": ("You are not polite.", ""),
        "USER_POS": ("You are a helpful, honest and concise assistant.", "You are polite.\n\n"),
        "USER_NEG": ("You are a helpful, honest and concise assistant.", "You are not polite.\n\n"),
    }
    assert variations(None) == {"BASE": BASE}


def test_plain_text(tiny_llama: LanguageModel) -> None:
    plain = render(tiny_llama, "Hi", "(A)")
    assert (plain.text, plain.prompt_length, len(plain)) == ("Hi (A)", 2, 6)
    assert render(tiny_llama, "Hi\n", "(A)").text == "Hi\n(A)"
    assert render(tiny_llama, "Hi", " (A)").text == "Hi (A)"
    made = variations(POLITE)
    assert render(tiny_llama, "Hi", None, made["SYS_POS"]).text == "You are polite.\n\nHi"
    assert render(tiny_llama, "Hi", None, made["USER_NEG"]).text == "You are not polite.\n\nHi"
    alone = render(tiny_llama, "Hi")
    assert alone.prompt_length == len(alone) == 2


def test_a_token_across_the_border_belongs_to_the_response(tiny_llama: LanguageModel) -> None:
    """The tokenizer merges " t", so that a prompt's last blank may go to the response's first token."""
    blank = render(tiny_llama, "a", "the")  # tokens "a", " t", "he"
    assert (blank.ids, blank.prompt_length) == ([64, 259, 258], 1)
    joined = render(tiny_llama, "a ", "the")
    assert (joined.ids, joined.prompt_length) == ([64, 259, 258], 1)


def test_bos_in_plain_text_as_the_tokenizer_does() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 256)]
    )
    model = load_model(tiny_model("llama"), tokenizer=tokenizer)
    assert render(model, "Hi", "(A)").ids[:2] == [256, 39]
    tokenizer.chat_template = NO_SYSTEM
    ids = render(model, "Hi", "(A)").ids
    assert ids.count(256) == 1  # written by the template, not doubled by the tokenizer
    assert ids[0] == 256


@pytest.mark.parametrize("template", [NO_SYSTEM, IGNORES_SYSTEM])
def test_without_a_system_role_its_text_leads_the_first_turn(
    template: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = with_template(template)
    model.tokenizer.name_or_path = f"tiny-{hash(template)}"  # type: ignore[union-attr]
    with caplog.at_level(logging.WARNING):
        text = text_of(model, render(model, "Hi", "(A)", variations(POLITE)["USER_POS"]))
        render(model, "Ho", "(A)")
    assert text.removeprefix("<s>") == f"<user>{BASE_SYSTEM}\n\nYou are polite.\n\nHi\n<model>\n(A)"
    assert caplog.text.count("no system role") == 1
    assert "You are" not in render(model, "Hi", None, PromptVariation("bare")).text


def test_chat_is_a_choice() -> None:
    model = with_template(NO_SYSTEM)
    assert render(model, "Hi", chat=False).text == "Hi"
    with pytest.raises(ValueError, match="has no chat template"):
        render(with_template(None), "Hi", chat=True)


def test_refusals(tiny_llama: LanguageModel) -> None:
    with pytest.raises(ValueError, match="has no tokenizer"):
        render(load_model(tiny_model("llama")), "Hi")
    with pytest.raises(ValueError, match="has no tokens"):
        render(tiny_llama, "")
    with pytest.raises(ValueError, match="is empty"):
        render(tiny_llama, "Hi", "  ")

    class Reversing:
        """What no tokenizer should do: the beginning depends on the end."""

        bos_token_id = chat_template = None

        def __call__(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
            return {"input_ids": [[ord(c) % 250 for c in reversed(text)] for text in texts]}

    model = copy.copy(tiny_llama)
    model.tokenizer = Reversing()
    with pytest.raises(ValueError, match="is not a prefix of itself with the response"):
        render(model, "question", "answer")


def test_batch(tiny_llama: LanguageModel) -> None:
    rows = [render(tiny_llama, "a", "the"), render(tiny_llama, "long one", "(B)")]
    batch = batch_of(rows, tiny_llama.tokenizer)
    assert list(batch.rows()) == [row.ids for row in rows]
    assert batch.attention_mask.sum(1).tolist() == [3, len(rows[1])]
    with pytest.raises(ValueError, match=r"rows=\[\]"):
        batch_of([])


@pytest.mark.real_model
def test_smollm2_chat(smollm2: LanguageModel) -> None:
    rendered = render(
        smollm2, "Is tea good?\n\nChoices:\n(A): Yes\n(B): No", "(A)", variations(POLITE)["SYS_NEG"]
    )
    assert rendered.text == (
        "<|im_start|>system\nYou are not polite.<|im_end|>\n<|im_start|>user\nIs tea good?\n\nChoices:\n"
        "(A): Yes\n(B): No<|im_end|>\n<|im_start|>assistant\n(A)"
    )
    assert smollm2.decode_tokens(rendered.ids[rendered.prompt_length :]) == ["(", "A", ")"]
    assert rendered.ids[:2].count(1) == 1  # <|im_start|> is also the BOS token


@pytest.mark.real_model
def test_smollm2_reads_plain_english(smollm2: LanguageModel) -> None:
    """A doubled BOS, or a wrong tokenizer, gives thousands."""
    text = "The sun rises in the east and sets in the west, and the stars come out at night."
    batch = batch_of([render(smollm2, text, chat=False)], smollm2.tokenizer)
    assert float(smollm2.loss(batch).mean().exp()) == pytest.approx(8.02, abs=0.05)
