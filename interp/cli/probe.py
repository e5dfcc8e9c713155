"""`interp probe structural`, `interp probe polar`, and, from a file of its own, `interp probe lfp`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interp.cli.lfp import lfp
from interp.cli.options import Device, Dtype, Model, TrustRemoteCode

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

app = typer.Typer(
    help="Read syntax trees, or the feedback that a model was tuned on, out of its activations.",
    no_args_is_help=True,
)
app.command()(lfp)

Treebank = Annotated[
    str,
    typer.Option(
        help="'grammar' (controlled sentences with gold trees), a CoNLL-U file, or 'silver' (prose of Python's documentation, parsed by spaCy)."
    ),
]
TestTreebank = Annotated[
    Path | None,
    typer.Option(
        help="A CoNLL-U file to score on; its sentences are never trained on. Default: a fifth of the treebank."
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for results.json, the probes and the figures.")]
ProbeLayers = Annotated[
    str,
    typer.Option(
        help="Which layers: all, or numbers like 0,6,12. 0 is the embedding and n the output of the n-th block, which "
        "'interp steer' calls layer n - 1; negative ones count from the end, and are the same in both."
    ),
]
Rank = Annotated[
    int | None, typer.Option(help="Dimensions of the probe. Default: 128, or the width if smaller.")
]
Sentences = Annotated[int, typer.Option(help="How many sentences, training and test together.")]
Epochs = Annotated[int, typer.Option(help="Longest training, in passes over the sentences.")]
Lr = Annotated[float, typer.Option(help="Adam's learning rate.")]
BatchSize = Annotated[int, typer.Option(help="Sentences per step.")]
Pooling = Annotated[str, typer.Option(help="Of a word's tokens: mean, first or last.")]
ExcludePunct = Annotated[
    bool,
    typer.Option(
        help="Leave punctuation out of trees, scores, the linear order and the choice of the epoch."
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse a CoNLL-U file with a broken sentence, instead of leaving it out."),
]
Control = Annotated[
    bool, typer.Option("--control", help="Probe the same architecture with random weights as well.")
]
Seed = Annotated[int, typer.Option(help="Of sentences, weights and order.")]
Store = Annotated[
    Path | None,
    typer.Option(
        help="Folder that keeps the token activations: a second run with the same sentences and layers reads them."
    ),
]


@app.command()
def polar(
    model: Model,
    out: Out,
    treebank: Treebank = "grammar",
    test_treebank: TestTreebank = None,
    layers: ProbeLayers = "all",
    rank: Rank = None,
    angular_weight: Annotated[
        float,
        typer.Option(help="Of the angular loss; higher: better labels, worse trees. Try 0.3, 1, 3, 10."),
    ] = 1.0,
    sentences: Sentences = 800,
    max_epochs: Epochs = 60,
    lr: Lr = 3e-3,
    batch_size: BatchSize = 50,
    pooling: Pooling = "mean",
    exclude_punct: ExcludePunct = False,
    strict: Strict = False,
    control: Control = False,
    store: Store = None,
    seed: Seed = 0,
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
    dtype: Dtype = "float32",
) -> None:
    """Polar Probe: distance says which words are joined, direction says how and who is the head.

    Trains a probe at every layer at once, beside a Structural Probe to compare with, and scores both.

    Example: interp probe polar --model smollm2-135m --treebank grammar --out probes/
    """
    from interp.probes.experiment import ProbeExperiment, run_experiment

    experiment = ProbeExperiment(
        treebank=treebank,
        test_treebank=None if test_treebank is None else str(test_treebank),
        layers=_layers(layers),
        rank=rank,
        angular_weights=(0.0, angular_weight),
        n_sentences=sentences,
        max_epochs=max_epochs,
        lr=lr,
        batch_size=batch_size,
        pooling=pooling,
        exclude_punct=exclude_punct,
        strict=strict,
        control=control,
        seed=seed,
    )
    typer.echo(
        run_experiment(
            _load(model, device, dtype, trust_remote_code), experiment, out=out, store=store, device=device
        )
    )
    typer.echo(f"saved to {out}")


@app.command()
def structural(
    model: Model,
    out: Out,
    treebank: Treebank = "grammar",
    test_treebank: TestTreebank = None,
    layers: ProbeLayers = "all",
    rank: Rank = None,
    target: Annotated[
        str, typer.Option(help="distance: of every two words; depth: of every word below the root.")
    ] = "distance",
    sentences: Sentences = 800,
    max_epochs: Epochs = 60,
    lr: Lr = 3e-3,
    batch_size: BatchSize = 50,
    pooling: Pooling = "mean",
    exclude_punct: ExcludePunct = False,
    strict: Strict = False,
    control: Control = False,
    store: Store = None,
    seed: Seed = 0,
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
    dtype: Dtype = "float32",
) -> None:
    """Structural Probe: squared distances (or norms) in a linear map are distances (or depths) in the tree.

    Example: interp probe structural --model smollm2-135m --treebank en_ewt-ud-train.conllu --out probes/
    """
    from interp.probes.experiment import ProbeExperiment, run_experiment

    experiment = ProbeExperiment(
        treebank=treebank,
        test_treebank=None if test_treebank is None else str(test_treebank),
        layers=_layers(layers),
        rank=rank,
        angular_weights=(0.0,),
        target=target,
        n_sentences=sentences,
        max_epochs=max_epochs,
        lr=lr,
        batch_size=batch_size,
        pooling=pooling,
        exclude_punct=exclude_punct,
        strict=strict,
        control=control,
        seed=seed,
    )
    typer.echo(
        run_experiment(
            _load(model, device, dtype, trust_remote_code), experiment, out=out, store=store, device=device
        )
    )
    typer.echo(f"saved to {out}")


def _load(model: str, device: str, dtype: str, trust_remote_code: bool) -> LanguageModel:
    from interp.models.loading import load_model

    return load_model(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)


def _layers(text: str) -> tuple[int, ...] | None:
    if text == "all":
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"layers={text!r}: write 'all' or numbers like 0,6,12") from error
