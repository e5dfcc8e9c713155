from __future__ import annotations

from typing import Any

import pytest
import torch

from interp.models import tokenization
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from tests.models.tiny import tiny_model

TRICKY = "Ça va? 日本語 🙂 naïve\n\ttabs\u00a0end"


def test_right_padding_whatever_the_tokenizer_says(tiny_llama: LanguageModel) -> None:
    assert tiny_llama.tokenizer.padding_side == "left"
    batch = tiny_llama.tokenize(["he", "he the"])
    assert batch.input_ids[0].tolist()[:1] == [258]
    assert batch.attention_mask.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch.position_ids.tolist() == [[0, 1, 2]] * 2
    assert list(batch.rows()) == [[258], [258, 259, 258]]
    assert tiny_llama.tokenizer.padding_side == "left"


def test_bos_only_where_asked_or_natural(tiny_llama: LanguageModel, tiny_tokenizer: Any) -> None:
    assert tiny_llama.tokenize("he").input_ids.tolist() == [[258]]
    assert tiny_llama.tokenize("he", add_bos=True).input_ids.tolist() == [[256, 258]]
    import copy

    from tokenizers import processors

    natural = copy.deepcopy(tiny_tokenizer)
    natural.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 256), ("</s>", 257)]
    )
    assert tokenization.tokenize(natural, "he").input_ids.tolist() == [[256, 258]]  # and never an end token
    assert tokenization.tokenize(natural, "he", add_bos=False).input_ids.tolist() == [[258]]
    natural.bos_token = None
    with pytest.raises(ValueError, match="no BOS token"):
        tokenization.tokenize(natural, "he", add_bos=True)


def test_cut_and_refused(tiny_llama: LanguageModel) -> None:
    assert tiny_llama.tokenize("hehehe", max_length=2, add_bos=True).input_ids.tolist() == [[256, 258]]
    with pytest.raises(ValueError, match=r"texts\[1\]='' has no tokens"):
        tiny_llama.tokenize(["he", ""])
    with pytest.raises(ValueError, match=r"texts=\[\]"):
        tiny_llama.tokenize([])
    with pytest.raises(TypeError, match=r"texts\[0\] is a int"):
        tiny_llama.tokenize([3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="max_length=0"):
        tiny_llama.tokenize("he", max_length=0)


def test_byte_level_tokens_are_legible(tiny_llama: LanguageModel) -> None:
    assert tiny_llama.decode_tokens([258, 259, 256]) == ["he", " t", "<s>"]
    ids = tiny_llama.tokenizer("é\n", add_special_tokens=False)["input_ids"]
    assert tiny_llama.decode_tokens(ids) == ["⟨C3⟩", "⟨A9⟩", "\n"]
    assert tiny_llama.decode_tokens(torch.tensor([258, 258])) == ["he", "he"]


def test_sentencepiece_style_tokens_are_legible() -> None:
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocab = {"<unk>": 0, "▁the": 1, "▁": 2, "<0xE2>": 3, "<0x0A>": 4, "cat": 5}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    shown = tokenization.decode_tokens(tokenizer, [0, 1, 2, 3, 4, 5])
    assert shown == ["<unk>", " the", " ", "⟨E2⟩", "\n", "cat"]


def test_special_tokens(tiny_llama: LanguageModel) -> None:
    assert tiny_llama.special_token_ids == {256, 257}


def test_without_a_tokenizer() -> None:
    model = load_model(tiny_model("llama"))
    assert model.special_token_ids == frozenset()
    for ask in (
        lambda: model.tokenize("a"),
        lambda: model.decode_tokens([1]),
        lambda: model.activations("a", "embed"),
    ):
        with pytest.raises(ValueError, match=r"no tokenizer.*load_model\(\.\.\., tokenizer="):
            ask()
