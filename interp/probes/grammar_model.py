"""A small causal language model of the controlled grammar: trees known exactly, training in minutes on a CPU."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from interp.core.device import derive_seed
from interp.core.files import atomic_write, cache_dir
from interp.core.runtime import Runtime
from interp.core.schedules import Schedule
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput, OptimizerSpec, StepContext
from interp.core.trainer import Trainer, TrainerConfig
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.probes.grammar import ControlledGrammar

BOS, EOS, PAD = "<s>", "</s>", "<pad>"
IGNORED = -100


@dataclass(frozen=True)
class GrammarModelConfig:
    """A GPT-2 (pre-norm, learned positions) over the grammar's words, one token a word.

    Attributes:
        n_sentences, max_depth: what it is trained on.
        steps, batch_size, lr: AdamW, one warm-up and one cosine decay.
        seed: of sentences, weights and order.
    """

    n_layers: int = 4
    d_model: int = 64
    n_heads: int = 4
    n_sentences: int = 12_000
    max_depth: int = 3
    steps: int = 3000
    batch_size: int = 64
    lr: float = 2e-3
    seed: int = 0


def grammar_model(
    config: GrammarModelConfig | None = None,
    grammar: ControlledGrammar | None = None,
    *,
    folder: str | Path | None = None,
    progress: bool = True,
) -> LanguageModel:
    """Train the model once and keep it; later calls with the same arguments open it.

    Args:
        folder: where to keep it; None: in the cache folder, by a hash of the arguments. Training that was
            interrupted goes on from its last checkpoint there.
    """
    config, grammar = config or GrammarModelConfig(), grammar or ControlledGrammar()
    key = json.dumps([asdict(config), asdict(grammar)], sort_keys=True)
    name = f"grammar-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    target = cache_dir() / "models" / name if folder is None else Path(folder)
    marker = target / "complete.json"
    if not marker.is_file():
        tokenizer = word_tokenizer(grammar.vocabulary)
        module = _train(config, grammar, tokenizer, target / "training", progress)
        module.save_pretrained(target)
        tokenizer.save_pretrained(target)
        with atomic_write(marker) as temporary:
            temporary.write_text(key)
        shutil.rmtree(target / "training", ignore_errors=True)
    elif marker.read_text() != key:
        raise ValueError(f"folder={str(target)!r} holds a model of other arguments: {marker.read_text()}")
    model = load_model(target)
    model.name = f"grammar model, seed {config.seed}"
    return model


def word_tokenizer(vocabulary: Sequence[str]) -> Any:
    """A transformers tokenizer with one token a word, words separated by spaces."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    entries = [PAD, BOS, EOS, *dict.fromkeys(vocabulary)]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(entries)}, unk_token=PAD))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=BOS, eos_token=EOS, pad_token=PAD)


def _train(
    config: GrammarModelConfig, grammar: ControlledGrammar, tokenizer: Any, out_dir: Path, progress: bool
) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    trees = grammar.sample(config.n_sentences, max_depth=config.max_depth, seed=config.seed)
    vocabulary = tokenizer.get_vocab()
    rows = [[vocabulary[BOS], *(vocabulary[word] for word in tree.words), vocabulary[EOS]] for tree in trees]
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), IGNORED)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, "grammar model"))
        module = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=len(vocabulary),
                n_positions=max(64, longest),
                n_embd=config.d_model,
                n_layer=config.n_layers,
                n_head=config.n_heads,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                bos_token_id=vocabulary[BOS],
                eos_token_id=vocabulary[EOS],
            )
        )
    trainer = Trainer(
        TrainerConfig(
            max_steps=config.steps,
            batch_size=config.batch_size,
            seed=config.seed,
            grad_clip=1.0,
            log_every=50,
            checkpoint_every=500,
            progress=progress,
            out_dir=str(out_dir),
        ),
        Runtime("auto"),
    )
    trainer.fit(_NextWord(module, config), ArrayStream(ids, seed=config.seed))
    return module.cpu().eval()


class _NextWord:
    """Next-word cross-entropy, per token."""

    def __init__(self, module: nn.Module, config: GrammarModelConfig) -> None:
        self.module, self._config = module, config

    def modules(self) -> dict[str, nn.Module]:
        return {"model": self.module}

    def config(self) -> dict[str, Any]:
        return asdict(self._config)

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec:
        warmup = max(1, round(0.3 * max_steps))
        schedule = Schedule(
            max_steps,
            warmup_steps=warmup,
            warmup_from=0.04,
            warmup_shape="cosine",
            decay="cosine",
            decay_steps=max_steps - warmup,
        )
        return OptimizerSpec(torch.optim.AdamW(self.module.parameters(), lr=self._config.lr), schedule)

    def loss(self, ids: Int[Tensor, "b s"], ctx: StepContext) -> LossOutput:
        ids = ids[:, : int((ids != IGNORED).sum(1).max())]
        targets = ids[:, 1:]
        logits = ctx.modules["model"](ids[:, :-1].clamp_min(0)).logits
        summed = nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return LossOutput(summed, int((targets != IGNORED).sum()))
