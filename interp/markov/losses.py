"""One number that compares all models and tokenizers: cross-entropy in nats per source symbol."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.markov.sources import MarkovSource, as_symbols

LogitsFunction = Callable[[Tensor], Tensor]  # token ids [b s] -> logits (or log-probabilities) [b s V]


@dataclass(frozen=True)
class SymbolLoss:
    """What a model over tokens paid for a text: `-ln Q` of the one encoding that was produced.

    Attributes:
        nats: the sum over the tokens that were predicted.
        symbols: source symbols in those tokens.
        tokens: how many they are.
    """

    nats: float
    symbols: int
    tokens: int

    @property
    def per_symbol(self) -> float:
        """Nats per source symbol: the sum of the losses over the sum of the lengths, not a mean of ratios."""
        return self.nats / self.symbols

    @property
    def per_token(self) -> float:
        return self.nats / self.tokens

    @property
    def symbols_per_token(self) -> float:
        return self.symbols / self.tokens

    def excess(self, source: MarkovSource) -> float:
        """Above the entropy rate. At most `3 * standard_error` below 0, by chance."""
        return self.per_symbol - source.entropy_rate()

    def relative_gap(self, source: MarkovSource) -> float:
        """0 at the entropy rate, 1 at the character unigram loss; NaN where the two are the same."""
        return relative_gap(self.per_symbol, source)

    def standard_error(self, source: MarkovSource) -> float:
        """How far the text's own -ln P per symbol strays from the entropy rate: sd(-ln P) / sqrt(symbols)."""
        return source.loss_deviation() / math.sqrt(self.symbols)

    def __str__(self) -> str:
        return (
            f"{self.per_symbol:.4f} nats per symbol ({self.per_token:.4f} per token, "
            f"{self.symbols_per_token:.3f} symbols per token, {self.symbols} symbols)"
        )


def relative_gap(loss: float, source: MarkovSource) -> float:
    """`(loss - H_inf) / (H(pi) - H_inf)`; NaN where the source has no memory to gain from."""
    span = source.symbol_entropy() - source.entropy_rate()
    return (loss - source.entropy_rate()) / span if span > 1e-12 else math.nan


def windows_of(ids: Int[np.ndarray, " n"], context_length: int) -> Int[Tensor, "windows s+1"]:
    """Windows `ids[i T : i T + T + 1]`: T inputs and T targets, so every token but the first is a target once.

    Cut after encoding, so no window cuts a token. What is left at the end is dropped.

    Raises ValueError where the text is shorter than one window.
    """
    count = (len(ids) - 1) // context_length
    if context_length < 1 or count < 1:
        raise ValueError(
            f"{len(ids)} tokens make no window of context_length = {context_length} and one target more; "
            "give a longer text or a shorter context"
        )
    tokens = torch.from_numpy(np.ascontiguousarray(ids, np.int64))
    return tokens[: count * context_length + 1].unfold(0, context_length + 1, context_length)


@torch.no_grad()
def evaluate_per_symbol(
    logits: LogitsFunction,
    ids: Int[np.ndarray, " n"],
    token_lengths: Int[np.ndarray, " V"],
    context_length: int,
    *,
    batch_size: int = 32,
    max_windows: int | None = None,
) -> SymbolLoss:
    """The loss of any model over tokens on an encoded text, end to end.

    The text is read in windows (`windows_of`); every window's first token is context only, neither its loss nor its
    length counts there.

    Args:
        logits: token ids [b s] to next-token logits [b s V], such as `LanguageModel.logits`.
        token_lengths: source symbols per token id.
        max_windows: evaluate the first windows only.
    """
    windows = windows_of(as_symbols(ids, len(token_lengths)), context_length)[:max_windows]
    lengths = torch.from_numpy(np.asarray(token_lengths, np.int64))
    nats, symbols = 0.0, 0
    for batch in windows.split(batch_size):
        losses = token_losses(logits(batch[:, :-1]), batch[:, 1:])
        nats += float(losses.double().sum())
        symbols += int(lengths[batch[:, 1:]].sum())
    return SymbolLoss(nats, symbols, windows.shape[0] * context_length)


def token_losses(logits: Float[Tensor, "b s V"], targets: Int[Tensor, "b s"]) -> Float[Tensor, "b s"]:
    """-ln Q(target) of each target."""
    flat = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.to(logits.device).flatten(), reduction="none"
    )
    return flat.view(targets.shape)


@torch.no_grad()
def total_variation(
    logits: LogitsFunction, source: MarkovSource, x: Int[np.ndarray, " n"], context_length: int
) -> float:
    """Mean of `1/2 sum_s |Q(s | window so far) - P(s | context)|` for a model over characters.

    Over the positions of the windows that see a whole context of the source. A model that knows only pi is at the
    mean of `1/2 sum |pi - P(. | context)|`.

    Raises ValueError for a window shorter than the source's order.
    """
    if context_length < source.order:
        raise ValueError(f"context_length = {context_length} is below the source's order {source.order}")
    windows = windows_of(as_symbols(x, source.alphabet_size), context_length)
    law = torch.from_numpy(source.transition)
    known = source.order - 1  # the first position that sees a whole context
    total, count = 0.0, 0
    for batch in windows.split(32):
        predicted = logits(batch[:, :-1]).double().softmax(-1).cpu()[:, known:]
        context = torch.from_numpy(np.stack([source.contexts(row) for row in batch.numpy()]))
        total += float((predicted - law[context]).abs().sum()) / 2
        count += context.numel()
    return total / count
