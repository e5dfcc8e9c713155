"""A language model small enough to train in a minute, in which steering is known to work.

Its texts are reviews of a few sentences from three templates, whose adjectives agree in polarity: "the film was superb
and the meal was lovely ."  To go on, the model has to carry the polarity of the first adjective to the later ones. The
mean difference between positive and negative sentences, read where an adjective is about to come, must find the
direction that carries it, and steer by it.

    python scripts/reproduce/polarity_model.py     # trains it and prints the gate
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from interp.core.device import make_generator
from interp.core.schedules import Schedule
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput, OptimizerSpec, StepContext
from interp.core.trainer import Trainer, TrainerConfig
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.steering.generators import polarity_sentences, polarity_vocabulary
from interp.steering.words import NEGATIVE, POSITIVE

PADDING, END = "<pad>", "</s>"
SENTENCES = (
    4  # of a review; with one, the first adjective tells the second so little that learning takes far longer
)


def word_tokenizer() -> Any:
    """One token a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [PADDING, END, *polarity_vocabulary()]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=PADDING))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=PADDING, eos_token=END)


def reviews(n: int, seed: int) -> list[str]:
    """Texts of `SENTENCES` sentences of the same polarity: positive, negative or neutral."""
    waiting: dict[str, list[str]] = {"positive": [], "negative": [], "neutral": []}
    made: list[str] = []
    for sentence in polarity_sentences(2 * SENTENCES * n, seed=seed):
        same = waiting[polarity(sentence)]
        same.append(sentence)
        if len(same) == SENTENCES:
            made.append(" ".join(same))
            same.clear()
    return made[:n]


def polarity(sentence: str) -> str:
    words = set(sentence.split())
    return "positive" if words & set(POSITIVE) else "negative" if words & set(NEGATIVE) else "neutral"


class NextWord:
    """Next-token cross-entropy over the words of each sentence; AdamW on a one-cycle schedule."""

    def __init__(self, module: nn.Module, padding_id: int, lr: float) -> None:
        self.module, self.padding_id, self.lr = module, padding_id, lr

    def modules(self) -> dict[str, nn.Module]:
        return {"model": self.module}

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec:
        rise = max_steps // 4
        shape = {"warmup_shape": "cosine", "decay": "cosine", "decay_steps": max_steps - rise}
        cycle = Schedule(max_steps, rise, warmup_from=0.04, **shape)
        return OptimizerSpec(
            torch.optim.AdamW(self.module.parameters(), lr=self.lr, weight_decay=0.01), cycle
        )

    def loss(self, batch: Tensor, ctx: StepContext) -> LossOutput:
        logits = ctx.modules["model"](input_ids=batch[:, :-1], use_cache=False).logits
        targets = batch[:, 1:]
        total = nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=self.padding_id, reduction="sum"
        )
        return LossOutput(total, (targets != self.padding_id).sum())


def untrained(seed: int = 0, std: float = 0.06) -> LanguageModel:
    """Four blocks of width 64, about 190,000 parameters, with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = word_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    module = LlamaForCausalLM(config).eval()
    generator = make_generator(seed, "polarity model")
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" not in name:
                parameter.normal_(0, 2 * std if "embed" in name else std, generator=generator)
    return load_model(module, tokenizer=tokenizer)


def train_polarity_model(
    seed: int = 0, *, steps: int = 500, batch_size: int = 24, lr: float = 3e-3, progress: bool = False
) -> LanguageModel:
    """The model trained from scratch; about 45 seconds on one CPU core."""
    model = untrained(seed)
    padding = model.tokenizer.pad_token_id
    rows = model.tokenizer(reviews(steps * batch_size, seed))["input_ids"]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [padding] * (longest - len(row)) for row in rows])
    config = TrainerConfig(max_steps=steps, batch_size=batch_size, seed=seed, progress=progress)
    Trainer(config).fit(NextWord(model.module, padding, lr), ArrayStream(ids, shuffle=False))
    model.module.eval()
    return model


def word_ids(model: LanguageModel, words: list[str]) -> tuple[int, ...]:
    return tuple(model.tokenizer.convert_tokens_to_ids(words))


def gate(model: LanguageModel) -> tuple[float, float]:
    """P(a positive word comes next) behind "the S was W and the S was", for positive W and for negative W."""
    means = []
    for words in (POSITIVE, NEGATIVE):
        ids = model.tokenize([f"the film was {word} and the story was" for word in words])
        probabilities = model.logits(ids)[:, -1].softmax(-1)
        means.append(float(probabilities[:, list(word_ids(model, POSITIVE))].sum(-1).mean()))
    return means[0], means[1]


if __name__ == "__main__":
    after_positive, after_negative = gate(train_polarity_model(progress=True))
    print(f"P(positive word | positive word before) {after_positive:.3f}, must exceed 0.8")
    print(f"P(positive word | negative word before) {after_negative:.3f}, must be below 0.1")
    sys.exit(0 if after_positive > 0.8 and after_negative < 0.1 else 1)
