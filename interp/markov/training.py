"""Train the small transformer on a source through a tokenizer, with the source's own lines to compare against."""

from __future__ import annotations

import math
import os
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from interp.core.config import to_dict
from interp.core.device import derive_seed
from interp.core.files import check_folder
from interp.core.history import History
from interp.core.runtime import Runtime
from interp.core.schedules import Schedule
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput, OptimizerSpec, StepContext
from interp.core.tracking import make_tracker
from interp.core.trainer import Trainer, TrainerConfig
from interp.markov.export import hugging_face_tokenizer, save_model
from interp.markov.losses import SymbolLoss, evaluate_per_symbol, token_losses, windows_of
from interp.markov.ngram import NGramModel
from interp.markov.sources import LARGEST_TABLE, MarkovSource
from interp.markov.tokenizer import Tokenizer
from interp.markov.transformer import TransformerConfig, build_transformer, linear_weights
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

VALID = "valid_loss_per_symbol"


@dataclass(frozen=True)
class TrainingConfig:
    """The recipe of Makkuva et al. and of the paper. Raises ValueError naming the field.

    Attributes:
        steps, batch_size: optimiser steps, and windows in each; every window is new text.
        lr: the peak of one cosine cycle: up from 1 % over the first 2 %, down to 20 %.
        weight_decay: on linear maps only.
        eval_every, eval_windows: test loss on so many windows every so many steps. They are a short text: under the
            source itself, 60 windows of 256 symbols stray from the entropy rate by about 0.005.
        test_symbols: the test text; the final loss is measured on all of it.
    """

    steps: int = 150
    batch_size: int = 8
    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 1e-3
    eval_every: int = 50
    eval_windows: int = 60
    test_symbols: int = 300_000

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "lr", "eval_every", "eval_windows", "test_symbols"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} = {getattr(self, name)} must be positive")


class TokenLanguageTask:
    """Next-token prediction for `core.Trainer`, with the loss per source symbol as its metric."""

    def __init__(
        self, module: nn.Module, token_lengths: np.ndarray, training: TrainingConfig, about: dict[str, Any]
    ) -> None:
        self.module, self.training, self.about = module, training, about
        self.token_lengths = torch.from_numpy(token_lengths)

    def modules(self) -> dict[str, nn.Module]:
        return {"model": self.module}

    def config(self) -> dict[str, Any]:
        return {"training": asdict(self.training), **self.about}

    def loss(self, batch: Tensor, ctx: StepContext) -> LossOutput:
        """The mean is per token, as the model is trained; `loss_per_symbol` is what tokenizers are compared by."""
        inputs, targets = batch[:, :-1], batch[:, 1:]
        losses = token_losses(ctx.modules["model"](inputs).logits, targets)
        total = losses.double().sum() if losses.device.type == "cpu" else losses.sum()
        symbols = self.token_lengths.to(targets.device)[targets].sum()
        return LossOutput(total, targets.numel(), {"loss_per_symbol": (total.detach(), symbols)})

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec:
        decayed = linear_weights(self.module)
        ours = {id(p) for p in decayed}
        rest = [p for p in self.module.parameters() if p.requires_grad and id(p) not in ours]
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": rest, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(
            groups, lr=self.training.lr, betas=self.training.betas, weight_decay=self.training.weight_decay
        )
        warm = max(1, round(0.02 * max_steps))
        schedule = Schedule(
            max_steps,
            warmup_steps=warm,
            warmup_from=0.01,
            warmup_shape="cosine",
            decay="cosine",
            decay_steps=max_steps - warm,
            final=0.2,
        )
        return OptimizerSpec(optimizer, schedule)


@dataclass
class TransformerRun:
    """A trained transformer and how it got there; losses in nats per source symbol.

    Attributes:
        loss: on the whole test text, after the last step.
        unigram, bigram: models over the same tokens with add-one smoothing, counted on the training text, on the
            test text; the bigram is None where its table would be too large.
        history: rows of the Trainer; `valid_loss_per_symbol` is the test loss during training.
        context_length: of the windows, in tokens.
    """

    source: MarkovSource
    tokenizer: Tokenizer
    module: nn.Module
    model: TransformerConfig
    training: TrainingConfig
    context_length: int
    seed: int
    loss: SymbolLoss
    unigram: float
    bigram: float | None
    history: History

    def language_model(self) -> LanguageModel:
        """The model behind the face that activations, edits and SAEs work with."""
        return load_model(self.module.eval())

    def iterations_to(self, share: float) -> int | None:
        """The first evaluation with a test loss of at most (1 + share) H_inf; None if there was none."""
        limit = (1 + share) * self.source.entropy_rate()
        return next(
            (step for step, loss in zip(*self.history.column(VALID), strict=True) if loss <= limit), None
        )

    def summary(self) -> dict[str, Any]:
        """One row of a table of runs."""
        return {
            "method": self.tokenizer.method,
            "vocab_size": self.tokenizer.vocab_size_,
            "order": self.source.order,
            "n_layers": self.model.n_layers,
            "width": self.model.width,
            "seed": self.seed,
            "steps": self.training.steps,
            "loss": self.loss.per_symbol,
            "unigram": self.unigram,
            "bigram": self.bigram,
            "relative_gap": self.loss.relative_gap(self.source),
            "symbols_per_token": self.loss.symbols_per_token,
            "entropy_rate": self.source.entropy_rate(),
            "symbol_entropy": self.source.symbol_entropy(),
        }

    def to_frame(self) -> pd.DataFrame:
        """The history, one row per logged step."""
        return self.history.to_frame()

    def plot(self) -> Figure:
        """The test loss against the step, between H(pi) and the entropy rate."""
        from interp.markov.loss_plots import plot_runs

        return plot_runs([self])

    def __str__(self) -> str:
        source, bigram = self.source, "" if self.bigram is None else f", bigram {self.bigram:.4f}"
        grams = ", ".join(f"{source.ngram_loss(context):.4f}" for context in range(source.order + 2))
        lines = (
            f"{self.tokenizer.name}, {self.training.steps} steps, seed {self.seed}",
            f"  transformer          {self.loss}",
            f"  over the same tokens unigram {self.unigram:.4f}{bigram}",
            f"  over characters      {grams} (best models with 0, 1, ... symbols of context)",
            f"  entropy rate {source.entropy_rate():.4f}, H(pi) {source.symbol_entropy():.4f}, relative gap "
            f"{self.loss.relative_gap(source):.3f}",
        )
        return "\n".join(lines)


def train_transformer(
    source: MarkovSource,
    tokenizer: Tokenizer,
    *,
    model: TransformerConfig | None = None,
    training: TrainingConfig | None = None,
    tokenizer_symbols: int = 200_000,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = 200,
    resume: str | None = "auto",
    tracker: str = "jsonl",
    device: str = "auto",
    progress: bool = True,
) -> TransformerRun:
    """Train on fresh text from a source; learn the tokenizer first where it isn't fitted.

    Texts for the tokenizer, the training and the test are different samples, fixed by `seed`, and do not depend on
    the tokenizer: runs that differ in it read the same symbols.

    Args:
        tokenizer_symbols: text to learn the tokenizer from.
        out: folder of checkpoints and metrics.jsonl; an interrupted run there goes on, a finished one is only
            evaluated. In the end it holds ``model/``, the transformer and its tokenizer as `load_model` and every
            tool for Hugging Face models open them, and ``source.npy``, which `MarkovSource.from_file` reads. None
            keeps nothing.
        resume: None starts anew.
        tracker: jsonl, wandb or none.

    Raises:
        ValueError: an option out of range, or an `out` that holds a run with other settings.
    """
    if out is not None:
        check_folder("out", out)
    model, training = model or TransformerConfig(), training or TrainingConfig()
    if not tokenizer.tokens_:
        text = source.sample(tokenizer_symbols, derive_seed(seed, "tokenizer text"))
        tokenizer.fit(text, source.alphabet_size)
    if out is not None:
        hugging_face_tokenizer(tokenizer)  # refuses now what could not be saved in the end
    test = tokenizer.encode(source.sample(training.test_symbols, derive_seed(seed, "test text")))
    per_token = float(tokenizer.token_lengths_[test].mean())
    context_length = max(2, round(model.context_symbols / per_token))
    module = build_transformer(
        model, tokenizer.vocab_size_, context_length, derive_seed(seed, "weights") % 2**32
    )
    about = {
        "source": f"{source!r}, table {zlib.crc32(source.transition.tobytes()):08x}",
        "model": to_dict(model),
        "context_length": context_length,
        "tokenizer": tokenizer.name,
        "dictionary": zlib.crc32(repr(tokenizer.tokens_).encode()),
    }
    task = TokenLanguageTask(module, tokenizer.token_lengths_, training, about)
    windows = _training_windows(source, tokenizer, training, context_length, per_token, seed)
    folder = None if out is None else Path(out)
    logs = make_tracker(tracker, folder, config=task.config(), name=folder.name if folder else None)
    trainer = Trainer(
        TrainerConfig(
            max_steps=training.steps,
            batch_size=training.batch_size,
            seed=seed,
            eval_every=training.eval_every,
            checkpoint_every=checkpoint_every if folder is not None else None,
            progress=progress,
            out_dir=None if folder is None else os.fspath(folder),
        ),
        runtime=Runtime(device),
        tracker=logs,
    )
    valid = ArrayStream(windows_of(test, context_length)[: training.eval_windows], shuffle=False)
    try:
        history = trainer.fit(task, ArrayStream(windows, shuffle=False), valid, resume=resume)
        module.eval()
        lengths = tokenizer.token_lengths_
        loss = evaluate_per_symbol(load_model(module).logits, test, lengths, context_length)
        logs.summary({"loss_per_symbol": loss.per_symbol, "relative_gap": loss.relative_gap(source)})
    finally:
        logs.finish()
    if folder is not None:
        save_model(module, tokenizer, folder / "model")
        source.save(folder / "source.npy")
    seen = windows[:, :-1].flatten().numpy()

    def over_tokens(order: int) -> float:
        model = NGramModel(order, tokenizer.vocab_size_).fit(seen)
        return model.cross_entropy(test, tokenizer.token_lengths_).per_symbol

    return TransformerRun(
        source=source,
        tokenizer=tokenizer,
        module=module,
        model=model,
        training=training,
        context_length=context_length,
        seed=seed,
        loss=loss,
        unigram=over_tokens(1),
        bigram=over_tokens(2) if tokenizer.vocab_size_**2 <= LARGEST_TABLE else None,
        history=history,
    )


def _training_windows(
    source: MarkovSource,
    tokenizer: Tokenizer,
    training: TrainingConfig,
    context_length: int,
    per_token: float,
    seed: int,
) -> Tensor:
    """As many windows of new text as the run reads."""
    needed = training.steps * training.batch_size
    symbols = math.ceil(1.05 * needed * context_length * per_token) + 1000  # 5 % for chance
    ids = tokenizer.encode(source.sample(symbols, derive_seed(seed, "training text")))
    return windows_of(ids, context_length)[:needed]
