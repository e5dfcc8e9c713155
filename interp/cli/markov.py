"""`interp markov source`, `unigram`, `train`, `sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from interp.markov.sources import MarkovSource

app = typer.Typer(
    help="Tokenization on Markov data: sources with exact entropies, tokenizers, unigram models and transformers, "
    "all compared in nats per source symbol.",
    no_args_is_help=True,
)

Kernel = Annotated[
    str,
    typer.Option(
        help="switching (binary; the symbol ORDER steps back decides), random (rows from Dirichlet(1)), or a .json or "
        ".npy file with the table [A^order, A], oldest symbol of the context most significant."
    ),
]
Order = Annotated[int, typer.Option(help="Symbols of context (switching and random).")]
P = Annotated[float, typer.Option(help="Switching: the probability of 1 after 0.")]
Q = Annotated[float, typer.Option(help="Switching: the probability of 0 after 1.")]
AlphabetSize = Annotated[int, typer.Option(help="Symbols of a random source.")]
Seed = Annotated[int, typer.Option(help="Of the random source, the texts and the weights.")]
DOCUMENT = 512  # symbols
TokenizerName = "characters, blocks, bpe, sequential-bpe, lzw, lz78, hf-bpe, hf-wordpiece or hf-unigram"
Encoder = Annotated[
    str | None,
    typer.Option(help="greedy, likelihood or (bpe) merges; default: the usual one of the tokenizer."),
]
Width = Annotated[int, typer.Option(help="Width of the residual stream.")]
Layers = Annotated[int, typer.Option(help="Transformer blocks.")]
Heads = Annotated[int, typer.Option(help="Attention heads in each.")]
Steps = Annotated[int, typer.Option(help="Optimiser steps.")]
BatchSize = Annotated[int, typer.Option(help="Windows per step.")]
ContextSymbols = Annotated[int, typer.Option(help="Source symbols per window, whatever the tokenizer.")]
TestSymbols = Annotated[int, typer.Option(help="Text that losses are measured on.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]


def _source(kernel: str, order: int, p: float, q: float, alphabet_size: int, seed: int) -> MarkovSource:
    from interp.markov.sources import MarkovSource

    if kernel == "switching":
        return MarkovSource.switching(order, p, q)
    if kernel == "random":
        return MarkovSource.random(order, alphabet_size, seed=seed)
    return MarkovSource.from_file(kernel)


def _numbers(option: str, text: str) -> list[int]:
    """Whole numbers, each once: twice the same would be one run shown as two."""
    from interp.core.messages import each_once

    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} = {text!r}: give whole numbers with commas, e.g. 4,10,20") from None
    each_once(option, numbers)
    return numbers


def _settings(tokenizers: list[str], values: list[int], sized: bool = True) -> list[tuple[str, int]]:
    """Every tokenizer with every value; `characters` has no size, so that it comes once where the values are sizes."""
    from interp.core.messages import each_once

    each_once("--tokenizer", tokenizers)
    return [
        (name, value)
        for name in tokenizers
        for value in (values[:1] if sized and name == "characters" else values)
    ]


@app.command()
def source(
    kernel: Kernel = "switching",
    order: Order = 2,
    p: P = 0.8,
    q: Q = 0.8,
    alphabet_size: AlphabetSize = 2,
    seed: Seed = 0,
    n: Annotated[int, typer.Option(help="Symbols to sample for comparison.")] = 1_000_000,
    text: Annotated[
        Path | None,
        typer.Option(
            help="Also write the sample, as .jsonl with 512 symbols a document: text for 'interp harvest' with a model of "
            "'interp markov train'."
        ),
    ] = None,
) -> None:
    """Print a source's exact losses beside what m-gram models do on a sample.

    Example: interp markov source --order 3 --p 0.8 --q 0.3
    """
    import json

    import numpy as np

    from interp.core.files import atomic_write
    from interp.markov.hf_tokenizers import as_characters
    from interp.markov.ngram import optimal_ngram_loss
    from interp.markov.sources import LARGEST_TABLE

    if text is not None and text.suffix != ".jsonl":
        raise ValueError(f"--text {text}: give a name that ends in .jsonl")
    made = _source(kernel, order, p, q, alphabet_size, seed)
    contexts = range(made.order + 2)
    if n < len(contexts):
        raise ValueError(
            f"n = {n} must be at least {len(contexts)}, the longest context and a symbol after it"
        )
    x = made.sample(n, seed)
    ones = np.ones(made.alphabet_size, np.int64)
    lines = [
        f"{made}",
        f"nats per symbol; the sample has {n} symbols",
        f"{'context':>8} {'exact':>9} {'sample':>9}",
    ]
    for context in contexts:
        countable = made.alphabet_size ** (context + 1) <= LARGEST_TABLE
        measured = f"{optimal_ngram_loss(x, ones, context + 1):.5f}" if countable else "-"
        lines.append(f"{context:>8} {made.ngram_loss(context):>9.5f} {measured:>9}")
    if measured == "-":
        lines.append(f"-: more than {LARGEST_TABLE} counts")
    typer.echo("\n".join(lines))
    if text is not None:
        symbols = as_characters(x)
        with atomic_write(text) as temporary:
            documents = (symbols[i : i + DOCUMENT] for i in range(0, len(symbols), DOCUMENT))
            temporary.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
        typer.echo(f"wrote {text}")


@app.command()
def unigram(
    tokenizer: Annotated[list[str], typer.Option(help=f"{TokenizerName}; repeat to compare.")] = [  # noqa: B006
        "blocks",
        "bpe",
        "lzw",
    ],
    vocab_sizes: Annotated[str, typer.Option(help="Sizes of the dictionary.")] = "4,10,64,256",
    encoder: Encoder = None,
    kernel: Kernel = "switching",
    order: Order = 2,
    p: P = 0.8,
    q: Q = 0.8,
    alphabet_size: AlphabetSize = 2,
    seed: Seed = 0,
    train_symbols: Annotated[int, typer.Option(help="Text that dictionaries are learnt from.")] = 200_000,
    test_symbols: TestSymbols = 800_000,
    out: Annotated[Path | None, typer.Option(help="Folder for table.csv and the figures.")] = None,
) -> None:
    """Unigram models over tokens: the best loss for each dictionary, beside the theory's bounds.

    Example: interp markov unigram --tokenizer bpe --tokenizer lzw --vocab-sizes 10,64,256 --out unigram/
    """
    from interp.core.files import check_folder
    from interp.core.plotting import save_figure
    from interp.markov.catalogue import make_tokenizer
    from interp.markov.unigram_study import unigram_study

    if out is not None:
        check_folder("out", out)
    made = _source(kernel, order, p, q, alphabet_size, seed)
    asked = [
        make_tokenizer(name, size, encoder=encoder, alphabet_size=made.alphabet_size)
        for name, size in _settings(tokenizer, _numbers("--vocab-sizes", vocab_sizes))
    ]
    study = unigram_study(made, asked, train_symbols=train_symbols, test_symbols=test_symbols, seed=seed)
    typer.echo(study)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        study.to_frame().to_csv(out / "table.csv", index=False)
        save_figure(study.plot(), out / "dictionary_sizes.png")
        save_figure(study.plot_frequencies(), out / "token_frequencies.png")
        typer.echo(f"wrote {out}")


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder of the run; an unfinished one is continued.")],
    tokenizer: Annotated[str, typer.Option(help=TokenizerName)] = "bpe",
    vocab_size: Annotated[int, typer.Option(help="Tokens in the dictionary, alphabet included.")] = 10,
    encoder: Encoder = None,
    kernel: Kernel = "switching",
    order: Order = 2,
    p: P = 0.8,
    q: Q = 0.8,
    alphabet_size: AlphabetSize = 2,
    width: Width = 20,
    n_layers: Layers = 2,
    n_heads: Heads = 2,
    context_symbols: ContextSymbols = 256,
    steps: Steps = 150,
    batch_size: BatchSize = 8,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 2e-3,
    eval_every: Annotated[int, typer.Option(help="Steps between test losses.")] = 50,
    test_symbols: TestSymbols = 300_000,
    seed: Seed = 0,
    tracker: Annotated[str, typer.Option(help="jsonl, wandb or none.")] = "jsonl",
    resume: Annotated[bool, typer.Option(help="Continue an unfinished run in OUT.")] = True,
    device: Device = "auto",
) -> None:
    """Train a small transformer on a source through a tokenizer; compare it with H(pi) and the entropy rate.

    OUT/model holds the transformer and its tokenizer, for every command that takes --model; text for it comes from
    'interp markov source --text'.

    Example: interp markov train --tokenizer characters --out runs/characters
    """
    from interp.core.plotting import save_figure
    from interp.markov.catalogue import make_tokenizer
    from interp.markov.training import TrainingConfig, train_transformer
    from interp.markov.transformer import TransformerConfig

    made = _source(kernel, order, p, q, alphabet_size, seed)
    training = TrainingConfig(
        steps=steps, batch_size=batch_size, lr=lr, eval_every=eval_every, test_symbols=test_symbols
    )
    run = train_transformer(
        made,
        make_tokenizer(tokenizer, vocab_size, encoder=encoder, alphabet_size=made.alphabet_size),
        model=TransformerConfig(width, n_layers, n_heads, context_symbols),
        training=training,
        seed=seed,
        out=out,
        resume="auto" if resume else None,
        tracker=tracker,
        device=device,
    )
    typer.echo(run)
    save_figure(run.plot(), out / "loss.png")
    typer.echo(
        f"saved to {out}; {out / 'model'} is a model for 'interp harvest', {out / 'source.npy'} a --kernel"
    )


@app.command()
def sweep(
    out: Annotated[Path, typer.Option(help="Folder of the runs; an unfinished sweep is continued.")],
    over: Annotated[str, typer.Option(help="vocab_size, order or n_layers.")] = "vocab_size",
    values: Annotated[str, typer.Option(help="The values, with commas.")] = "4,10,20",
    tokenizer: Annotated[list[str], typer.Option(help=f"{TokenizerName}; repeat to compare.")] = ["bpe"],  # noqa: B006
    vocab_size: Annotated[int, typer.Option(help="Tokens in the dictionary, alphabet included.")] = 10,
    order: Order = 2,
    p: P = 0.8,
    q: Q = 0.8,
    width: Width = 20,
    n_layers: Layers = 2,
    n_heads: Heads = 2,
    context_symbols: ContextSymbols = 256,
    steps: Steps = 150,
    batch_size: BatchSize = 8,
    test_symbols: TestSymbols = 300_000,
    seeds: Annotated[str, typer.Option(help="The seeds, with commas.")] = "0,1,2",
    resume: Annotated[bool, typer.Option(help="Continue unfinished runs in OUT.")] = True,
    device: Device = "auto",
) -> None:
    """Transformers on switching sources over dictionary sizes, orders or depths.

    Example: interp markov sweep --over order --values 1,2,3 --tokenizer characters --tokenizer bpe --out sweep/
    """
    from interp.core.messages import one_of
    from interp.core.plotting import save_figure
    from interp.markov.catalogue import make_tokenizer
    from interp.markov.sources import MarkovSource
    from interp.markov.training import TrainingConfig
    from interp.markov.transformer import TransformerConfig
    from interp.markov.transformer_study import Variant, transformer_study

    one_of("over", over, ("vocab_size", "order", "n_layers"))
    training = TrainingConfig(steps=steps, batch_size=batch_size, test_symbols=test_symbols)
    variants = {}
    for name, value in _settings(tokenizer, _numbers("--values", values), sized=over == "vocab_size"):
        at = {"vocab_size": vocab_size, "order": order, "n_layers": n_layers, over: value}
        variants[f"{name} {over}={value}"] = Variant(
            MarkovSource.switching(at["order"], p, q),
            make_tokenizer(name, at["vocab_size"]),
            TransformerConfig(width, at["n_layers"], n_heads, context_symbols),
            training,
        )
    study = transformer_study(
        variants,
        seeds=_numbers("--seeds", seeds),
        out=out,
        resume="auto" if resume else None,
        device=device,
    )
    typer.echo(study)
    study.to_frame().to_csv(out / "runs.csv", index=False)
    save_figure(study.plot(over), out / f"{over}.png")
    typer.echo(f"saved to {out}")
