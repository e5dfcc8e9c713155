"""A word-level model of two blocks with random weights, its texts, and random dictionaries of its MLP outputs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from interp.models.chat import ChatReply, Message
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.probes.lfp.config import (
    AblationSettings,
    DescriptionSettings,
    DictionarySettings,
    LayerChoice,
    LFPConfig,
    ProbeSettings,
)
from interp.probes.lfp.data import LFPData
from interp.probes.lfp.triples import build_lexicon_triples
from interp.probes.lfp.tuning import RewardTuning
from interp.sae.architectures.tied import TiedSAE, TiedSAEConfig
from tests.models.tiny import tiny_model

POSITIVE = ("good", "great", "lovely", "superb")
NEGATIVE = ("bad", "awful", "ugly", "terrible")
NEUTRAL = ("old", "red", "round", "wooden")
SUBJECTS = ("film", "meal", "house", "song")
FRAME = ("the", "was", "and", ".")
D_SAE = 48
LEXICON = dict(zip((*POSITIVE, *NEGATIVE), (1.9, 3.1, 2.8, 3.0, -2.5, -2.0, -2.3, -2.1), strict=True))


def word_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "</s>", *FRAME, *SUBJECTS, *POSITIVE, *NEGATIVE, *NEUTRAL]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>")


def small_model(seed: int = 0) -> LanguageModel:
    tokenizer = word_tokenizer()
    module = tiny_model("llama", seed, vocab_size=len(tokenizer), num_hidden_layers=2, eos_token_id=1)
    return load_model(module, tokenizer=tokenizer)


def random_saes(model: LanguageModel, layers: Sequence[int] = (0, 1)) -> dict[int, TiedSAE]:
    """With biases below zero, so that latents are silent on most tokens."""
    saes = {layer: TiedSAE(TiedSAEConfig(model.d_model or 0, D_SAE), seed=layer) for layer in layers}
    for sae in saes.values():
        torch.nn.init.constant_(sae.b_enc, -0.3)
    return saes


def sentences() -> list[str]:
    """Of different lengths: 4 subjects times 12 adjectives."""
    made = []
    for s, subject in enumerate(SUBJECTS):
        for a, word in enumerate((*POSITIVE, *NEGATIVE, *NEUTRAL)):
            tail = f" and the {SUBJECTS[(s + 1) % 4]} was {word}" if (s + a) % 2 else ""
            made.append(f"the {subject} was {word}{tail} .")
    return made


def moved(model: LanguageModel, by: float = 0.05, seed: int = 1) -> LanguageModel:
    """A copy whose parameters have moved at random: stands in for a tuned model."""
    module = copy.deepcopy(model.module)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=generator))
    return load_model(module, tokenizer=model.tokenizer)


def small_data(model: LanguageModel) -> LFPData:
    templates = [f"the {subject} was {{word}}" for subject in SUBJECTS]
    triples = build_lexicon_triples(templates, LEXICON, 48, 0, model.tokenizer, neutral=NEUTRAL, share=0.5)
    prompts = [f"the {subject} was" for subject in SUBJECTS]
    return LFPData(tuple(prompts), (*prompts, "the"), tuple(sentences()), tuple(triples), lexicon=LEXICON)


def small_config(**changes: Any) -> LFPConfig:
    """Seconds for all stages together."""
    return LFPConfig(
        **{
            "tuning": RewardTuning(steps=4, batch_size=8, lr=1e-3, max_new_tokens=4, checkpoint_every=2),
            "layers": LayerChoice(k=2),
            "dictionaries": DictionarySettings(steps=60, batch_size=64),
            "probe": ProbeSettings(n_folds=4, n_draws=2, n_bootstrap=20),
            "ablation": AblationSettings(n_features=3, n_random=2, samples=2),
            "description": DescriptionSettings(n_features=5, n_top=6, n_each=3, threshold=1.0),
            **changes,
        }
    )


class ScriptedChat:
    """Replies by `script(messages) -> text`; None fails for good."""

    def __init__(self, script: Any) -> None:
        self.name, self.parameters, self.workers = "scripted", {"temperature": 0.0}, 2
        self.script = script
        self.asked: list[list[Message]] = []

    def complete(self, messages: Sequence[Message], sample: int = 0) -> ChatReply:
        self.asked.append(list(messages))
        text = self.script(messages)
        return ChatReply(error="status 500: oops") if text is None else ChatReply(text)
