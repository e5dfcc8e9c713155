"""`interp recall run` and `interp recall analyse`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from interp.cli.options import Device, Dtype, TrustRemoteCode

app = typer.Typer(
    help="How well does a language model recall a described graph, and which patterns do its errors favour?\n\n"
    "run tells stories and keeps the replies in a folder; analyse scores them, fits random graph models to the errors "
    "and draws figures. An interrupted run continues when repeated.",
    no_args_is_help=True,
)
PRICES = ("prompt_price", "completion_price")
ANSWERING = ("mode", "temperature", "max_tokens", "workers", "logprobs", *PRICES, "device", "dtype")


@app.command()
def run(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Option(
            help="A model as elsewhere ('smollm2-135m', hub name, folder, .gguf); with --base-url its name there; or a scripted one: perfect, noisy, biased."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    datasets: Annotated[
        list[str] | None,
        typer.Option(
            help="Repeatable: social road ppi author er (generated), karate_club les_miserables florentine_families davis_southern_women (shipped), an edge-list file, brashears_irreducible brashears_reducible. Default: the five generated ones."
        ),
    ] = None,
    narratives: Annotated[
        list[str] | None,
        typer.Option(help="Repeatable: matched (the data set's own), social road ppi author er weak strong."),
    ] = None,
    n_graphs: Annotated[int, typer.Option(help="Graphs per data set.")] = 20,
    min_nodes: Annotated[int, typer.Option(help="Smallest graph.")] = 5,
    max_nodes: Annotated[int, typer.Option(help="Largest graph.")] = 20,
    clearances: Annotated[
        list[int] | None,
        typer.Option(help="Repeatable: strength of the word-span exercise, 0 or 2 to 7. Default: 7."),
    ] = None,
    primings: Annotated[list[str] | None, typer.Option(help="Repeatable: none, male, female.")] = None,
    permute_pairs: Annotated[bool, typer.Option(help="Ask the pairs in random order.")] = False,
    samples: Annotated[int, typer.Option(help="Replies per story, averaged.")] = 1,
    mode: Annotated[
        str, typer.Option(help="Local models: forced_choice (1 or 0 per pair) or generate (free text).")
    ] = "forced_choice",
    temperature: Annotated[float, typer.Option(help="Of written answers (endpoints, mode generate).")] = 0.0,
    max_tokens: Annotated[
        int | None, typer.Option(help="Longest written answer. Default: enough for every pair.")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="An OpenAI-compatible endpoint, e.g. http://localhost:8000/v1; the key is read from OPENAI_API_KEY."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Requests to the endpoint at the same time.")] = 4,
    logprobs: Annotated[bool, typer.Option(help="Ask the endpoint for token probabilities.")] = True,
    prompt_price: Annotated[float, typer.Option(help="Per million tokens, for the cost column.")] = 0.0,
    completion_price: Annotated[float, typer.Option(help="Per million tokens.")] = 0.0,
    random_state: Annotated[int, typer.Option(help="Seed of graphs, stories and sampling.")] = 0,
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
    dtype: Dtype = "float32",
) -> None:
    """Tell graphs as stories, distract, ask for every pair, keep the replies.

    Example: interp recall run --model smollm2-135m --datasets social --datasets er --n-graphs 10 --max-nodes 8 --out recall/
    """
    from interp.core.lock import RunLock
    from interp.recall.answers import Recaller
    from interp.recall.design import make_cases
    from interp.recall.graphs import DOMAINS
    from interp.recall.runner import TRANSCRIPTS, GraphRecallExperiment, save_settings

    cases = make_cases(
        datasets or DOMAINS,
        narratives or ["matched"],
        n_graphs=n_graphs,
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        clearances=clearances or [7],
        primings=primings or ["none"],
        permute_pairs=permute_pairs,
        random_state=random_state,
    )
    recaller: Recaller
    written = ("temperature", "max_tokens")
    if base_url is not None:
        _refuse_others(ctx, "an endpoint", *written, "workers", "logprobs", *PRICES)
        from interp.recall.endpoint import EndpointRecaller

        recaller = EndpointRecaller(
            base_url,
            model,
            logprobs=logprobs,
            temperature=temperature,
            seed=random_state,
            max_tokens=max_tokens,
            workers=workers,
            prompt_price=prompt_price,
            completion_price=completion_price,
        )
    elif model in ("perfect", "noisy", "biased"):
        _refuse_others(ctx, f"the scripted model {model!r}")
        from interp.recall.scripted import NoisyRecaller, PerfectRecaller

        false_alarms = {"base": 0.02, "closed": 0.12} if model == "biased" else {}
        recaller = (
            PerfectRecaller() if model == "perfect" else NoisyRecaller(seed=random_state, **false_alarms)
        )
    else:
        chosen = () if mode == "forced_choice" else written
        _refuse_others(ctx, f"a local model in mode {mode!r}", "mode", "device", "dtype", *chosen)
        from interp.models.loading import load_model
        from interp.recall.local import LocalRecaller

        lm = load_model(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
        recaller = LocalRecaller(
            lm, mode=mode, max_new_tokens=max_tokens, temperature=temperature, seed=random_state
        )
    with RunLock(out, "recall run"):
        save_settings(out, recaller, cases, samples)
        experiment = GraphRecallExperiment(recaller, samples=samples, transcripts=out / TRANSCRIPTS)
        typer.echo(experiment.run(cases))
    typer.echo(f"replies are in {out}; next: interp recall analyse --run {out}")


def _refuse_others(ctx: typer.Context, model: str, *used: str) -> None:
    """Raise ValueError for an option about answering that was given though this kind of model has no use for it."""
    for name in ANSWERING:
        source = ctx.get_parameter_source(name)
        if name not in used and source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"--{name.replace('_', '-')} has no effect on {model}; leave it out")


@app.command()
def analyse(
    run: Annotated[Path, typer.Option(help="A folder made by 'interp recall run', finished or not.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables and figures. Default: RUN/analysis.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Repeatable: dataset, narrative, clearance, priming. Default: dataset."),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Probability above which a pair counts in the scores.")
    ] = 0.5,
    consensus: Annotated[
        float, typer.Option(help="Probability from which a pair counts as an edge for the patterns.")
    ] = 0.1,
    reference: Annotated[
        str,
        typer.Option(
            help="fixed_true (where are false edges put?), contrast (recalled minus true coefficients), none."
        ),
    ] = "fixed_true",
    statistics: Annotated[
        list[str] | None,
        typer.Option(help="Repeatable: edges triangles two_stars alt_triangles alt_two_paths alt_stars."),
    ] = None,
    lam: Annotated[float, typer.Option(help="Decay of the alternating statistics, above 1.")] = 2.0,
    method: Annotated[str, typer.Option(help="mple, mcmcmle, sa, or exact for tiny graphs.")] = "mple",
    ridge: Annotated[float, typer.Option(help="Penalty that keeps mple coefficients finite.")] = 0.0,
    n_permutations: Annotated[int, typer.Option(help="Random placements of the errors.")] = 1000,
    random_state: Annotated[int, typer.Option(help="Seed of everything simulated.")] = 0,
) -> None:
    """Scores, pattern coefficients, motifs and figures of a run.

    Example: interp recall analyse --run recall/ --statistics edges --statistics triangles
    """
    from interp.core.files import check_folder
    from interp.recall.analysis import analyse as look
    from interp.recall.ergm_statistics import DEFAULT_STATISTICS
    from interp.recall.runner import load_run

    folder = out or run / "analysis"
    check_folder("out", folder)
    found = look(
        load_run(run, threshold=threshold),
        by=by or ["dataset"],
        consensus=consensus,
        reference=reference,
        statistics=statistics or DEFAULT_STATISTICS,
        lam=lam,
        method=method,
        ridge=ridge,
        n_permutations=n_permutations,
        random_state=random_state,
    )
    typer.echo(found)
    typer.echo(f"saved to {found.save(folder)}")
