"""`interp harvest`, `train`, `evaluate`, `report`, `verify`, `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from interp.cli.options import (
    Device,
    Dtype,
    Engine,
    Layers,
    Model,
    Split,
    Text,
    TextColumn,
    Tokens,
    TrustRemoteCode,
)
from interp.sae.formats import NAMES as FORMATS

app = typer.Typer()


@app.command()
def harvest(
    model: Model,
    site: Annotated[
        list[str], typer.Option(help="Where to read, e.g. resid_post.15; repeat for several sites.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the store; an unfinished one is continued.")],
    text: Text = "python-docs",
    text_column: TextColumn = "text",
    split: Split = "train",
    tokens: Tokens = None,
    context_size: Annotated[int, typer.Option(help="Tokens per context.")] = 128,
    batch_size: Annotated[str, typer.Option(help="Contexts per forward pass, or 'auto'.")] = "auto",
    store_dtype: Annotated[
        str, typer.Option(help="On disk: bfloat16, float16, float32 or int8.")
    ] = "bfloat16",
    mode: Annotated[str, typer.Option(help="pad: a document a row; pack: documents share rows.")] = "pad",
    isolate_documents: Annotated[
        bool, typer.Option(help="Whether attention stays inside a document when packed.")
    ] = True,
    engine: Engine = "huggingface",
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
    dtype: Dtype = "float32",
    n_layers: Layers = None,
    dry_run: Annotated[bool, typer.Option(help="Only print the estimate of bytes and time.")] = False,
) -> None:
    """Run a model over text and keep its activations in a store on disk.

    Example: interp harvest --model smollm2-135m --site resid_post.15 --tokens 200k --out store/
    """
    from interp.activations.harvest import harvest as run
    from interp.activations.text import load_text
    from interp.models.loading import load_model

    lm = load_model(
        model,
        engine=engine,
        device=device,
        dtype=dtype,
        n_layers=n_layers,
        trust_remote_code=trust_remote_code,
    )
    store = run(
        lm,
        load_text(text, split=split, text_column=text_column),
        site,
        out,
        tokens=tokens,
        context_size=context_size,
        batch_size=batch_size if batch_size == "auto" else int(batch_size),
        dtype=store_dtype,
        mode=mode,
        isolate_documents=isolate_documents,
        dry_run=dry_run,
    )
    typer.echo(store)


@app.command()
def train(
    store: Annotated[Path | None, typer.Option(help="A store made by 'interp harvest'.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; an unfinished one is continued.")
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(help="gated (default), standard, topk, batchtopk ...; --options lists each one's."),
    ] = None,
    d_sae: Annotated[int | None, typer.Option(help="Number of latents; default 4608.")] = None,
    l1_coefficient: Annotated[
        float | None,
        typer.Option(help="Sparsity weight, of architectures with an L1; on the loss as it is reduced."),
    ] = None,
    k: Annotated[
        float | None, typer.Option(help="Latents per token, of topk, batchtopk and matryoshka.")
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="Which of the store's sites, where it has several.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps; default 3000.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Tokens per step; default 1024.")] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate; default: the recipe's.")] = None,
    backend: Annotated[str | None, typer.Option(help="auto, dense, reference, cpu or triton.")] = None,
    seed: Annotated[int | None, typer.Option(help="Weights, data order and resampling; default 0.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Start from another run's config.yaml; what else is given takes precedence."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any other option, as name=value or group.name=value; repeat for several."
        ),
    ] = None,
    options: Annotated[
        bool,
        typer.Option("--options", help="List every option of the architecture and what it means, and stop."),
    ] = False,
    tracker: Annotated[str, typer.Option(help="jsonl, wandb or none.")] = "jsonl",
    resume: Annotated[bool, typer.Option(help="Continue an unfinished run in OUT.")] = True,
    device: Device = "auto",
) -> None:
    """Train a sparse autoencoder on a store.

    Example: interp train --store store/ --architecture gated --d-sae 9216 --l1-coefficient 3 --out run/

    Example: interp train --store store/ --config run/config.yaml --set loss.l1_coefficient=2 --out run2/

    Example: interp train --architecture topk --options
    """
    from interp.sae.option_text import list_options, parse_settings, read_options
    from interp.sae.training import train as run

    asked = {} if config is None else read_options(config)
    flags = {
        "architecture": architecture,
        "d_sae": d_sae,
        "l1_coefficient": l1_coefficient,
        "k": k if k is None or k % 1 else int(k),
        "steps": steps,
        "batch_size": batch_size,
        "lr": lr,
        "backend": backend,
        "seed": seed,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    chosen = {"architecture": asked.get("architecture", "gated"), **given}
    more = parse_settings([f"architecture={chosen['architecture']}", *(settings or [])])
    if chosen["architecture"] != asked.get("architecture", chosen["architecture"]):
        raise ValueError(
            f"--architecture {chosen['architecture']}: {config} is of a {asked['architecture']} SAE; leave one out"
        )
    if options:
        typer.echo(list_options(more["architecture"]))
        return
    for name, value in (("--store", store), ("--out", out)):
        if value is None:
            raise ValueError(f"{name} is missing: say where the activations are and where the run goes")
    assert store is not None
    trained = run(
        store,
        site=site,
        tracker=tracker,
        resume="auto" if resume else None,
        device=device,
        out=out,
        **{**asked, **given, **more},
    )
    typer.echo(trained)


@app.command()
def evaluate(
    sae: Annotated[Path, typer.Option(help="A run folder, or an SAE folder (ours, or another library's).")],
    model: Model,
    text: Text = "python-docs",
    text_column: TextColumn = "text",
    split: Split = "heldout",
    tokens: Tokens = "50k",
    site: Annotated[
        str | None, typer.Option(help="Where to splice; default: the site the SAE was trained on.")
    ] = None,
    positions: Annotated[
        str, typer.Option(help="trained: only the tokens the SAE was trained for; all: every token.")
    ] = "trained",
    with_error_term: Annotated[
        bool, typer.Option(help="Add back the SAE's error: must give the clean loss.")
    ] = False,
    engine: Engine = "huggingface",
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
    dtype: Dtype = "float32",
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write. Default: metrics.json in the run, where the SAE is measured as it was trained."
        ),
    ] = None,
) -> None:
    """Measure an SAE on held-out text, alone and spliced into the model.

    Example: interp evaluate --sae run/ --model smollm2-135m --text python-docs
    """
    from interp.activations.text import load_text
    from interp.models.loading import load_model
    from interp.sae.evaluate import evaluate as run
    from interp.sae.loading import load_sae
    from interp.sae.scores import METRICS_FILE

    loaded = load_sae(sae)
    lm = load_model(model, engine=engine, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    scores = run(
        loaded,
        lm,
        load_text(text, split=split, text_column=text_column),
        site=site,
        tokens=tokens,
        positions=positions,
        with_error_term=with_error_term,
    )
    typer.echo(scores)
    if out is None and scores.differs:
        typer.echo("not saved: metrics.json is for the SAE as it was trained; name another file with --out")
        return
    target = out or sae / METRICS_FILE
    scores.save(target)
    typer.echo(f"saved to {target}")


@app.command()
def report(
    sae: Annotated[
        list[Path], typer.Option(help="Run folder; repeat to compare several (the first is browsed).")
    ],
    store: Annotated[Path, typer.Option(help="The store whose contexts illustrate the latents.")],
    out: Annotated[Path, typer.Option(help="Folder for index.html, figures and features.json.")] = Path(
        "report"
    ),
    model: Annotated[
        str | None, typer.Option(help="Adds promoted and suppressed tokens; same forms as elsewhere.")
    ] = None,
    n_latents: Annotated[int, typer.Option(help="How many latents get a page.")] = 200,
    latents: Annotated[
        list[int] | None, typer.Option(help="Show this latent instead; repeat for several, in this order.")
    ] = None,
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write a static HTML report: metrics, figures and a page per interpretable latent.

    Example: interp report --sae run/ --store store/ --model smollm2-135m --out report/
    """
    from interp.models.loading import load_model
    from interp.sae.dashboard.report_folder import report as run

    lm = load_model(model, device=device, trust_remote_code=trust_remote_code) if model else None
    typer.echo(run(list(sae), store, lm, out=out, n_latents=n_latents, latents=latents or None))


@app.command()
def verify(
    store: Annotated[Path, typer.Argument(help="A store to check, shard by shard, against its checksums.")],
) -> None:
    """Check a store's shards against their checksums."""
    from interp.activations.store import ActivationStore

    opened = ActivationStore.open(store)
    opened.verify()
    typer.echo(f"{store}: all shards intact\n{opened}")


@app.command()
def export(
    sae: Annotated[Path, typer.Option(help="A run or SAE folder.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    to: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(FORMATS)} (other libraries), jumprelu (our own inference form) or neuronpedia (pages of latents)."
        ),
    ] = "saelens",
    store: Annotated[
        Path | None, typer.Option(help="neuronpedia: the store whose contexts illustrate the latents.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="neuronpedia: adds token strings and promoted tokens; forms as elsewhere."),
    ] = None,
    model_id: Annotated[
        str | None, typer.Option(help="neuronpedia: its name of the model; default: the SAE's model.")
    ] = None,
    source_set: Annotated[
        str | None, typer.Option(help="neuronpedia: name of the set of SAEs; default: site and architecture.")
    ] = None,
    n_latents: Annotated[int, typer.Option(help="neuronpedia: how many latents get a page.")] = 200,
    device: Device = "auto",
) -> None:
    """Convert an SAE for another library, or its latents' pages for Neuronpedia.

    Example: interp export --sae run/ --to neuronpedia --store store/ --model smollm2-135m --model-id smollm2-135m --out np/
    """
    from interp.activations.store import ActivationStore
    from interp.core.messages import one_of
    from interp.sae.formats import save_as
    from interp.sae.loading import load_sae

    one_of("to", to, (*FORMATS, "jumprelu", "neuronpedia"))
    given = {"--store": store, "--model": model, "--model-id": model_id, "--source-set": source_set}
    if to != "neuronpedia" and (useless := [name for name, value in given.items() if value is not None]):
        raise ValueError(f"{', '.join(useless)} has no effect with --to {to}; leave it out")
    loaded = load_sae(sae)
    if to == "neuronpedia":
        from interp.models.loading import load_model
        from interp.models.sites import Site
        from interp.sae.dashboard.collect import collect_features
        from interp.sae.dashboard.neuronpedia import export_neuronpedia

        known = loaded.metadata
        name = model_id or known.model_name
        if store is None or name is None:
            raise ValueError(
                "--to neuronpedia needs --store, and --model-id where the SAE doesn't name its model"
            )
        lm = load_model(model, device=device) if model else None
        table = collect_features(loaded, ActivationStore.open(store), lm, n_latents=n_latents)
        label = source_set or f"{Site.parse(table.site).name}-{loaded.architecture}"
        out = export_neuronpedia(table, out, model_id=name, source_set=label, sae=loaded)
    elif to in FORMATS:
        save_as(loaded, out, to)
    else:
        loaded.to_jumprelu().save_pretrained(out)
    typer.echo(f"wrote {out}")
