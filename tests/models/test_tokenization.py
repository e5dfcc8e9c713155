from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from interp.activations.packing import pack
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


def with_natural_bos(tokenizer: Any) -> Any:
    import copy

    from tokenizers import processors

    natural = copy.deepcopy(tokenizer)
    natural.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 256)]
    )
    return natural


def test_text_that_begins_with_bos_gets_no_second_one(tiny_tokenizer: Any) -> None:
    """The fault it had: <s><s> from chat templates, which write their own."""
    natural = with_natural_bos(tiny_tokenizer)
    assert natural("<s>he")["input_ids"] == [256, 256, 258]  # what transformers does
    for add_bos in (None, True):
        batch = tokenization.tokenize(natural, ["<s>he", "he", "<s><s>", "<s>"], add_bos=add_bos)
        assert list(batch.rows()) == [[256, 258], [256, 258], [256, 256], [256]]
    assert list(tokenization.tokenize(natural, ["<s>he"], add_bos=False).rows()) == [[256, 258]]
    contexts = pack(["<s>hehehe", "hehe"], natural, context_size=3)
    assert [row.tolist() for row in np.split(contexts.tokens, contexts.piece_starts[1:-1])] == [
        [256, 258, 258],
        [256, 258],
        [256, 258, 258],
    ]


def test_the_backends_own_truncation_and_padding_are_put_back(tiny_tokenizer: Any) -> None:
    natural = with_natural_bos(tiny_tokenizer)
    backend = natural.backend_tokenizer
    backend.enable_truncation(max_length=2, stride=0, strategy="longest_first", direction="left")
    backend.enable_padding(direction="left", pad_id=257, pad_token="</s>", length=5, pad_to_multiple_of=None)
    before = dict(backend.truncation), dict(backend.padding)
    assert list(tokenization.tokenize(natural, ["hehehe"]).rows()) == [[256, 258, 258, 258]]
    pack(["hehehe"], natural, context_size=4)
    assert (backend.truncation, backend.padding) == before


class MistralLike:
    """What mistral-common's tokenizers have and lack: `added_tokens_decoder` is a method that raises."""

    bos_token_id, eos_token_id, pad_token_id = 1, 2, None
    all_special_ids = (0, 1, 2)

    def added_tokens_decoder(self) -> None:
        raise NotImplementedError

    def __call__(self, text: Any, add_special_tokens: bool = True, **_: Any) -> dict[str, Any]:
        start = [1] if add_special_tokens else []
        rows = [start + [ord(c) for c in t] for t in ([text] if isinstance(text, str) else text)]
        return {"input_ids": rows[0] if isinstance(text, str) else rows}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return ["▁" if i == 32 else chr(i) for i in ids]

    def get_vocab(self) -> dict[str, int]:
        return {chr(i): i for i in range(128)}


def test_a_tokenizer_of_mistral_common() -> None:
    tokenizer = MistralLike()
    model = load_model(tiny_model("llama"), tokenizer=tokenizer)
    assert list(model.tokenize("a b").rows()) == [[1, 97, 32, 98]]
    assert model.decode_tokens([97, 32, 98]) == ["a", " ", "b"]
    assert model.special_token_ids == {0, 1, 2}
    assert model.fingerprint()["tokenizer"] == tokenization.tokenizer_hash(tokenizer)


def test_mistral_common_itself() -> None:
    mistral_common = pytest.importorskip("mistral_common")
    from pathlib import Path

    from transformers.tokenization_mistral_common import MistralCommonBackend

    file = "mistral_instruct_tokenizer_241114.model.v7"
    path = Path(mistral_common.__file__).parent / "data" / file
    if not path.is_file():
        pytest.skip("this version comes without tokenizers")
    tokenizer = MistralCommonBackend(tokenizer_path=str(path))
    (ids,) = tokenization.tokenize(tokenizer, "Hello wörld").rows()
    assert ids == tokenizer("Hello wörld")["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert "".join(tokenization.decode_tokens(tokenizer, ids[1:])).strip() == "Hello wörld"
    assert {1, 2} <= tokenization.special_token_ids(tokenizer)
