"""`interp probe lfp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from interp.cli.options import Device, Model, TextColumn, TrustRemoteCode


def lfp(
    model: Model,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of the run: one subfolder a stage, config.yaml, report/. Run again to go on there."
        ),
    ],
    text: Annotated[
        str | None,
        typer.Option(
            help="Texts like those that the model is to be tuned on: a .txt/.jsonl/.parquet file, a folder, a datasets name, "
            "'python-docs'. Default: short openings ('the film was') and what the model itself writes after them."
        ),
    ] = None,
    text_column: TextColumn = "text",
    tuned: Annotated[
        str | None,
        typer.Option(help="A model tuned already (folder or hub name): skips the tuning by reward."),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="A .jsonl file of rows with prompt, chosen, rejected: tune by these (DPO) instead of by reward."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Settings of all stages (.yaml or .json): edit the config.yaml of a run. Options given here go first; text, n-texts and n-triples are not in it."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Of tuning.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Texts (or pairs) a step of tuning.")] = None,
    lr: Annotated[float | None, typer.Option(help="Of tuning. Default 5e-5; tiny models take 5e-4.")] = None,
    beta: Annotated[float | None, typer.Option(help="Pull to the base model.")] = None,
    max_kl: Annotated[
        float | None, typer.Option(help="Tuning stops when the KL to the base passes it (nats a token).")
    ] = None,
    k: Annotated[int | None, typer.Option(help="How many layers to look at.")] = None,
    how: Annotated[
        str | None, typer.Option(help="Layers that tuning moved most: highest; least: lowest.")
    ] = None,
    expansion: Annotated[float | None, typer.Option(help="Latents per dimension of the SAEs.")] = None,
    l1_coefficient: Annotated[float | None, typer.Option(help="Sparsity of the SAEs.")] = None,
    n_texts: Annotated[int, typer.Option(help="Texts for the SAEs and the descriptions.")] = 1000,
    n_triples: Annotated[int, typer.Option(help="Contrastive triples for the probe.")] = 1000,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="An OpenAI-compatible endpoint that describes features and judges the descriptions, such as http://localhost:8000/v1; "
            "the key is read from OPENAI_API_KEY. Default: the lexicon does both, offline."
        ),
    ] = None,
    chat_model: Annotated[str | None, typer.Option(help="The model's name at that endpoint.")] = None,
    workers: Annotated[int, typer.Option(help="Requests to the endpoint at the same time.")] = 4,
    until: Annotated[
        str, typer.Option(help="Last stage to run: tune, rank, saes, probe, ablate or describe.")
    ] = "describe",
    seed: Annotated[int | None, typer.Option(help="Of data, tuning, SAEs, folds and controls.")] = None,
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Learned feedback patterns: what tuning by feedback wrote into a model.

    Tunes the model to write words of positive feeling (VADER), ranks the layers by how far they moved, trains SAEs on their
    MLP outputs before and after, reads the feedback of held-out words from the features beside the base model and other
    controls, silences the features that the probe relies on, and describes them. Needs the extra 'feedback'.

    Example: interp probe lfp --model smollm2-135m --out lfp/

    With a judge: interp probe lfp --model smollm2-135m --out lfp/ --base-url http://localhost:8000/v1 --chat-model my-model
    """
    from interp.activations.text import load_text
    from interp.core.config import load_config, save_config
    from interp.core.messages import one_of
    from interp.models.loading import load_model
    from interp.probes.lfp.config import LFPConfig, with_options
    from interp.probes.lfp.data import kept_data, load_pairs
    from interp.probes.lfp.pipeline import STAGES, LFPPipeline
    from interp.probes.lfp.stages import RESULT
    from interp.probes.lfp.trl_run import require_trl
    from interp.probes.lfp.tuning_config import PreferenceTuning

    preferred = () if pairs is None else load_pairs(pairs)
    settings = load_config(config, LFPConfig) if config is not None else LFPConfig.for_pairs(bool(preferred))
    if preferred and tuned is None and not isinstance(settings.tuning, PreferenceTuning):
        raise ValueError(
            f"pairs={str(pairs)!r} are to be tuned by, but the tuning of config={str(config)!r} is by reward: take its "
            "tuning group out, or put that of a run by pairs in its place"
        )
    of_tuning = {"steps": steps, "batch_size": batch_size, "lr": lr, "beta": beta, "max_kl": max_kl}
    if tuned is not None and (idle := [name for name, value in of_tuning.items() if value is not None]):
        raise ValueError(
            f"tuned={tuned!r} is tuned already: {', '.join(idle)} would do nothing, leave them out"
        )
    settings = with_options(
        settings,
        seed=seed,
        tuning={**of_tuning, "seed": seed},
        layers={"k": k, "how": how},
        dictionaries={"expansion": expansion, "l1_coefficient": l1_coefficient},
    )
    one_of("until", until, STAGES)
    options: dict[str, Any] = {}
    if chat_model is not None and base_url is None:
        raise ValueError(
            f"chat_model={chat_model!r} needs base_url: say where it is to be asked, --base-url URL"
        )
    if tuned is None and not (out / "tune" / RESULT).is_file():
        require_trl()
    if base_url is not None:
        options = _chat(base_url, chat_model, workers, settings.seed, out / "transcripts.jsonl")
    lm = load_model(model, device=device, trust_remote_code=trust_remote_code)
    if tuned is not None:
        options["tuned"] = load_model(tuned, device=device, trust_remote_code=trust_remote_code)
    texts = None if text is None else list(load_text(text, text_column=text_column))
    data = kept_data(
        out, lm, texts, pairs=preferred, n_texts=n_texts, n_triples=n_triples, seed=settings.seed
    )
    save_config(out / "config.yaml", settings)
    typer.echo(LFPPipeline(lm, data, settings, out, **options).report(until))
    typer.echo(f"saved to {out}")


def _chat(
    base_url: str, chat_model: str | None, workers: int, seed: int, transcripts: Path
) -> dict[str, Any]:
    from interp.models.chat_endpoint import ChatEndpoint
    from interp.probes.lfp.explain import ChatExplainer
    from interp.probes.lfp.judge import ChatJudge

    if chat_model is None:
        raise ValueError("base_url needs chat_model: say which model to ask there, --chat-model NAME")
    chat = ChatEndpoint(base_url, chat_model, workers=workers, seed=seed)
    chat.check()
    return {"explainer": ChatExplainer(chat, transcripts, seed=seed), "judge": ChatJudge(chat, transcripts)}
