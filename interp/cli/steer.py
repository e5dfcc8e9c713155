"""`interp steer extract`, `evaluate`, `generate`, `decompose`, `latent`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from interp.cli.options import Device, Dtype, Engine, Model, TrustRemoteCode

app = typer.Typer(
    help="Steering vectors: extract one from contrastive pairs, measure whether it can be trusted, generate with it, take "
    "it apart over the latents of an SAE, or steer with a latent.",
    no_args_is_help=True,
)

Pairs = Annotated[
    str,
    typer.Option(
        help="Contrastive pairs: likes, likes-yes-no, sentiment-reviews or sentiment-words (made here); a .jsonl or .json file; "
        "or a datasets name. Records have prompt, positive, negative (and read_index, the token of prompt + answer to read), "
        "or are model-written evaluations: question, answer_matching_behavior, answer_not_matching_behavior (and statement, "
        "where they are answered Yes or No)."
    ),
]
Form = Annotated[
    str,
    typer.Option(help="ab: give Yes/No records lettered options, balanced; yes_no: leave them as they are."),
]
Vector = Annotated[Path, typer.Option(help="A vector's folder from 'interp steer extract', or a .gguf file.")]
SAE = Annotated[Path, typer.Option(help="A run folder, or an SAE folder (ours, or another library's).")]
Chat = Annotated[
    bool | None,
    typer.Option("--chat/--plain", help="Through the chat template; default: if the tokenizer has one."),
]


@app.command()
def extract(
    model: Model,
    pairs: Pairs,
    out: Annotated[Path, typer.Option(help="Folder of the vector.")],
    form: Form = "ab",
    layers: Annotated[
        list[int] | None,
        typer.Option(
            "--layer",
            help="Layer to read, repeatable; negative counts from the end. Default: all in one pass.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="mean (one average contrast), pca, pca_center (another name for pca), pca_diff or logistic (norm 1)."
        ),
    ] = "mean",
    read: Annotated[
        str,
        typer.Option(
            help="Token to read: answer (each pair's read_index; without one the letter of A/B items, else the last token), last, "
            "all (the response's mean), or an index."
        ),
    ] = "answer",
    train: Annotated[
        float,
        typer.Option(help="Share of the pairs to use, shuffled by --seed; keep the rest for 'evaluate'."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the shuffle.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Texts per forward pass.")] = 8,
    chat: Chat = None,
    gguf: Annotated[
        Path | None, typer.Option(help="Also write a control vector for llama.cpp's --control-vector.")
    ] = None,
    engine: Engine = "huggingface",
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
    dtype: Dtype = "float32",
) -> None:
    """Extract a steering vector, and say how far the pairs agree on it.

    Example: interp steer extract --model smollm2-135m --pairs sentiment-reviews --read all --layer 15 --out vector/
    """
    from interp.core.files import check_folder
    from interp.models.loading import load_model
    from interp.steering.datasets import load_pairs
    from interp.steering.extraction import extract as run
    from interp.steering.gguf import save_gguf

    check_folder("out", out)
    if gguf is not None:
        check_folder("gguf", gguf.parent)
    chosen = load_pairs(pairs, form=form)
    if train != 1.0:
        chosen = chosen.split(train, seed=seed)[0]
    lm = load_model(model, engine=engine, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    vector = run(
        lm,
        chosen,
        layers or "all",
        method,
        int(read) if read.lstrip("-").isdigit() else read,
        chat=chat,
        batch_size=batch_size,
        progress=True,
    )
    typer.echo(f"{vector}\n{vector.quality()}\nsaved to {vector.save(out)}")
    if gguf is not None:
        logging.getLogger("gguf").setLevel(logging.WARNING)
        typer.echo(f"saved to {save_gguf(vector, gguf)}")


@app.command()
def evaluate(
    model: Model,
    pairs: Pairs,
    layer: Annotated[int, typer.Option(help="Layer to steer at; negative counts from the end.")],
    out: Annotated[Path, typer.Option(help="Folder for report.json and report.png.")],
    vector: Annotated[
        Path | None,
        typer.Option(
            help="A vector's folder or .gguf file. Default: extracted here from the training share."
        ),
    ] = None,
    form: Form = "ab",
    train: Annotated[
        float,
        typer.Option(
            help="Share of the pairs that is for training; measured is on the rest. As for 'extract'."
        ),
    ] = 0.5,
    seed: Annotated[
        int, typer.Option(help="Of the shuffle and the intervals; the shuffle as for 'extract'.")
    ] = 0,
    method: Annotated[str, typer.Option(help="mean, pca, pca_diff or logistic.")] = "mean",
    read: Annotated[str, typer.Option(help="Token to read: answer, last, all or an index.")] = "answer",
    multiplier: Annotated[
        list[float] | None, typer.Option(help="Strength, repeatable. Default: -1.5 to 1.5 in steps of 0.5.")
    ] = None,
    score: Annotated[
        str,
        typer.Option(
            help="answer_token: the token in which the answers part; sum: all logits from there on."
        ),
    ] = "answer_token",
    transfer: Annotated[bool, typer.Option(help="Also five prompts by five: six times the time.")] = False,
    seeds: Annotated[int, typer.Option(help="Random directions of the same norm to compare with.")] = 5,
    batch_size: Annotated[int, typer.Option(help="Prompts per forward pass.")] = 8,
    chat: Chat = None,
    engine: Engine = "huggingface",
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
    dtype: Dtype = "float32",
) -> None:
    """Measure on held-out pairs whether a vector can be trusted, and say so in words.

    Reports the slope of every sample, the share that goes the wrong way, what the letter or Yes/No explains, random
    directions, prompts without steering, and what steering does to neutral text.

    Example: interp steer evaluate --model smollm2-135m --pairs likes --layer 16 --out report/
    """
    from interp.core.files import check_folder
    from interp.core.plotting import save_figure
    from interp.models.loading import load_model
    from interp.steering.datasets import load_pairs
    from interp.steering.propensity import DEFAULT_MULTIPLIERS
    from interp.steering.reliability import evaluate as run
    from interp.steering.steerability import check_multipliers

    check_folder("out", out)
    multipliers = check_multipliers(multiplier or DEFAULT_MULTIPLIERS)
    for_training, held_out = load_pairs(pairs, form=form).split(train, seed=seed)
    loaded = None if vector is None else _load_vector(vector)
    lm = load_model(model, engine=engine, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    report = run(
        lm,
        for_training,
        held_out,
        layer,
        vector=loaded,
        method=method,
        read=int(read) if read.lstrip("-").isdigit() else read,
        multipliers=multipliers.tolist(),
        score=score,
        transfer=transfer,
        seeds=seeds,
        seed=seed,
        chat=chat,
        batch_size=batch_size,
    )
    typer.echo(report)
    report.save(out / "report.json")
    save_figure(report.plot(), out / "report.png")
    typer.echo(f"saved to {out}")


@app.command()
def generate(
    model: Model,
    vector: Vector,
    prompt: Annotated[list[str], typer.Option(help="What to continue; repeat for several.")],
    multiplier: Annotated[
        list[float] | None,
        typer.Option(help="Strength, repeatable; 0 is the plain model. Default: -1, 0, 1."),
    ] = None,
    layers: Annotated[
        list[int] | None,
        typer.Option("--layer", help="Layers to steer, repeatable. Default: all of the vector's."),
    ] = None,
    positions: Annotated[
        str, typer.Option(help="Tokens to steer: generation, all, prompt, last, or from an index on.")
    ] = "generation",
    operator: Annotated[
        str, typer.Option(help="add, ablate (remove the direction), ablate_then_add or clamp.")
    ] = "add",
    normalize: Annotated[bool, typer.Option(help="Give each steered token back the norm it had.")] = False,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to add to each prompt.")] = 40,
    temperature: Annotated[float, typer.Option(help="0: the likeliest token; else sampled.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the sampling; the same for every multiplier.")] = 0,
    chat: Chat = None,
    engine: Engine = "huggingface",
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
    dtype: Dtype = "float32",
) -> None:
    """Generate under a steering vector, at several strengths side by side.

    Example: interp steer generate --model smollm2-135m --vector vector/ --prompt "Tell me about the film." --multiplier 0 --multiplier 2
    """
    from interp.models.loading import load_model
    from interp.steering.apply import steer
    from interp.steering.prompts import batch_of, render

    loaded = _load_vector(vector)
    lm = load_model(model, engine=engine, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    batch = batch_of([render(lm, text, chat=chat) for text in prompt], lm.tokenizer)
    for strength in multiplier or (-1.0, 0.0, 1.0):
        with steer(
            lm,
            loaded,
            strength,
            layers=layers,
            positions=int(positions) if positions.isdigit() else positions,
            operator=operator,
            normalize=normalize,
        ):
            new = lm.generate(batch, max_new_tokens, temperature=temperature, seed=seed)
        for text, ids in zip(prompt, new, strict=True):
            answer = lm.tokenizer.decode(ids, skip_special_tokens=True)
            typer.echo(f"[{strength:+g}] {text}\n{answer.strip()}\n")


@app.command()
def decompose(
    vector: Vector,
    sae: SAE,
    n_latents: Annotated[int, typer.Option(help="Most latents to use.")] = 16,
    layer: Annotated[int | None, typer.Option(help="Layer of the vector. Default: that of the SAE.")] = None,
    signed: Annotated[
        bool, typer.Option(help="Let latents be taken away too; else they only add, as an SAE's codes do.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Random directions of the same norm to compare with.")] = 5,
) -> None:
    """Take a vector apart into the latents of an SAE that was trained at its layer.

    Each row adds the latent that explains most of what is left; 'explained' is the share of the vector's squared norm so
    far. Random directions of the same norm say how much of it any vector would get.

    Example: interp steer decompose --vector vector/ --sae run/
    """
    from interp.core.messages import at_least
    from interp.sae.loading import load_sae
    from interp.steering.sae import decompose as run

    at_least("seeds", seeds, 0)
    loaded, dictionary = _load_vector(vector), load_sae(sae)
    found = run(loaded, dictionary, n_latents, layer=layer, nonnegative=not signed)
    typer.echo(f"{loaded} at layer {found.layer}, over {dictionary.cfg.d_sae:,} latents\n{found}")
    shares = [
        run(loaded.random_like(seed), dictionary, n_latents, layer=found.layer, nonnegative=not signed).share
        for seed in range(seeds)
    ]
    if shares:
        typer.echo(
            f"explained: {found.share:.3f}; of {seeds} random directions {min(shares):.3f} to {max(shares):.3f}"
        )


@app.command()
def latent(
    sae: SAE,
    latent: Annotated[int, typer.Option(help="Number of the latent, as in the report of the SAE.")],
    out: Annotated[Path, typer.Option(help="Folder of the vector.")],
    activation: Annotated[
        float,
        typer.Option(help="How far the latent goes up at multiplier 1, in the units of its activations."),
    ] = 1.0,
    site: Annotated[
        str | None,
        typer.Option(help="Where to steer, e.g. resid_post.15. Default: where the SAE was trained."),
    ] = None,
) -> None:
    """Make the steering vector of one SAE latent, for 'generate' and 'evaluate'.

    Example: interp steer latent --sae run/ --latent 1234 --activation 40 --out vector/
    """
    from interp.core.files import check_folder
    from interp.sae.loading import load_sae
    from interp.steering.sae import from_latent

    check_folder("out", out)
    made = from_latent(load_sae(sae), latent, activation, site=site)
    typer.echo(f"{made}, norm {made.norms()[made.layers[0]]:.3f}\nsaved to {made.save(out)}")


def _load_vector(path: Path):  # type: ignore[no-untyped-def]
    from interp.steering.gguf import load_gguf
    from interp.steering.vector import SteeringVector

    return load_gguf(path) if path.suffix == ".gguf" else SteeringVector.load(path)
