"""Unigram models over the tokens of many tokenizers on one source, beside the theory's bounds."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.device import derive_seed
from interp.core.progress import progress as progress_bar
from interp.markov.bounds import UnigramBounds, unigram_bounds
from interp.markov.losses import relative_gap
from interp.markov.ngram import COUNTED, NGramModel, token_frequencies
from interp.markov.sources import LARGEST_TABLE, MarkovSource
from interp.markov.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLUMNS = (
    "name",
    "vocab_size",
    "loss",
    "held_out",
    "bigram",
    "upper",
    "greedy_upper",
    "symbols_per_token",
    "gap",
)


@dataclass(frozen=True)
class UnigramRow:
    """One tokenizer on the test text; nats per source symbol.

    Attributes:
        held_out, bigram: unigram and bigram models with add-one smoothing, counted on the training text; the bigram
            is NaN where its table would be too large.
        gap: (loss - H_inf) / (H(pi) - H_inf) of the best unigram model.
        frequencies: Q, [V].
    """

    name: str
    method: str
    vocab_size: int
    held_out: float
    bigram: float
    gap: float
    bounds: UnigramBounds
    frequencies: np.ndarray = field(repr=False)

    @property
    def loss(self) -> float:
        return self.bounds.loss


@dataclass(frozen=True)
class UnigramStudy:
    """Prints as a table."""

    source: MarkovSource
    rows: list[UnigramRow]

    def to_frame(self) -> pd.DataFrame:
        """One row a tokenizer, with every field of its bounds."""
        import pandas as pd

        flat: list[dict[str, Any]] = []
        for row in self.rows:
            own = {k: v for k, v in vars(row).items() if k not in ("bounds", "frequencies")}
            flat.append(own | asdict(row.bounds))
        return pd.DataFrame(flat)

    def plot(self) -> Figure:
        """Loss against the size of the dictionary, and beside its bounds."""
        from interp.markov.loss_plots import plot_dictionary_sizes

        return plot_dictionary_sizes(self.to_frame(), self.source)

    def plot_frequencies(self) -> Figure:
        """Token frequencies by rank."""
        from interp.markov.loss_plots import plot_token_frequencies

        return plot_token_frequencies(self.rows)

    def __str__(self) -> str:
        table = self.to_frame()[list(COLUMNS)].to_string(index=False, float_format="{:.4f}".format)
        return f"{self.source}\n{table}\n{COUNTED.format(unigram='held_out')}"


def unigram_study(
    source: MarkovSource,
    tokenizers: Iterable[Tokenizer],
    *,
    train_symbols: int = 200_000,
    test_symbols: int = 800_000,
    seed: int = 0,
    progress: bool = True,
) -> UnigramStudy:
    """Fit every tokenizer to one text of the source, and measure unigram models over its tokens on another.

    The tokenizers are copied, not changed. `loss` is the best any unigram model could do on the test text; `held_out`
    what one fitted on the training text does.
    """
    train = source.sample(train_symbols, derive_seed(seed, "tokenizer text"))
    test = source.sample(test_symbols, derive_seed(seed, "test text"))
    asked = list(tokenizers)
    rows = []
    for tokenizer in progress_bar(asked, desc="tokenizers", enabled="auto" if progress else False):
        fitted = copy.deepcopy(tokenizer).fit(train, source.alphabet_size)
        rows.append(_measure(source, fitted, train, test))
    return UnigramStudy(source, rows)


def _measure(source: MarkovSource, tokenizer: Tokenizer, train: np.ndarray, test: np.ndarray) -> UnigramRow:
    known, ids, size = tokenizer.encode(train), tokenizer.encode(test), tokenizer.vocab_size_

    def held_out(order: int) -> float:
        if size**order > LARGEST_TABLE:
            return float("nan")
        return NGramModel(order, size).fit(known).cross_entropy(ids, tokenizer.token_lengths_).per_symbol

    bounds = unigram_bounds(source, tokenizer.tokens_, ids)
    return UnigramRow(
        name=tokenizer.name,
        method=tokenizer.method,
        vocab_size=size,
        held_out=held_out(1),
        bigram=held_out(2),
        gap=relative_gap(bounds.loss, source),
        bounds=bounds,
        frequencies=token_frequencies(ids, size),
    )
