"""Dictionaries on the Hugging Face hub: fetched into its cache, and uploaded with a model card."""

from __future__ import annotations

import glob
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interp.core.hub import hub_answers
from interp.sae.dictionary import Dictionary
from interp.sae.formats import all_formats, format_of
from interp.sae.run_folder import METRICS_FILE, SAE
from interp.sae.saving import CONFIG
from interp.sae.scores import SAEEvaluation

CARD = "README.md"
_SHOWN = 20  # of the folders in a repository
_REPO = re.compile(r"[\w.-]+/[\w.-]+")


def is_repo(source: object) -> bool:
    """Whether this can only be a name on the hub: ``"owner/name"``, and no folder here."""
    return isinstance(source, str) and _REPO.fullmatch(source) is not None and not Path(source).exists()


def fetch(repo: str, *, subfolder: str | None = None, revision: str | None = None) -> Path:
    """The folder of a repository in the hub's cache, its own files downloaded where the hub answers.

    Args:
        subfolder: of the repository; folders below it are left alone but for a run's ``sae/``.
        revision: branch, tag or commit.

    Raises:
        FileNotFoundError: there is no such repository, folder or revision, or the hub doesn't answer and the cache
            doesn't have it.
    """
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    inside = "" if subfolder is None else subfolder.strip("/") + "/"
    if not hub_answers():
        try:
            root = huggingface_hub.snapshot_download(repo, revision=revision, local_files_only=True)
        except LocalEntryNotFoundError:
            raise FileNotFoundError(
                f"{repo!r} is no folder here, the Hugging Face hub doesn't answer, and its cache doesn't have it: go "
                "online or give a folder"
            ) from None
        return Path(root) / inside
    with _explained(repo):
        there = huggingface_hub.HfApi().list_repo_files(repo, revision=revision)
        own = re.compile(rf"{re.escape(inside)}({SAE}/)?[^/]+")
        wanted = [glob.escape(name) for name in there if own.fullmatch(name)]
        root = (
            huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=wanted)
            if wanted
            else ""
        )
    folder = Path(root) / inside
    if not wanted or not holds_sae(folder):
        below = sorted({name.rpartition("/")[0] for name in there if "/" in name})
        choose = f"; choose a subfolder: {', '.join(below[:_SHOWN])}" if below else ""
        raise FileNotFoundError(
            f"{repo!r} on the Hugging Face hub holds no SAE in {inside or 'its root'!r}{choose}"
        )
    return folder


def holds_sae(folder: Path) -> bool:
    """Whether a folder has the files of a dictionary, in whatever format."""
    ours = any((folder / name).is_file() for name in (f"{SAE}/{CONFIG}", CONFIG))
    return ours or any(other.holds(folder) for other in all_formats())


def push_to_hub(
    sae: Dictionary | str | Path,
    repo: str,
    *,
    subfolder: str | None = None,
    revision: str | None = None,
    format: str | None = None,
    metrics: SAEEvaluation | None = None,
    private: bool = False,
    message: str | None = None,
) -> str:
    """Upload a dictionary and a model card to the Hugging Face hub; returns the address.

    Args:
        sae: a dictionary, or a folder that `load_sae` reads; of a run its ``metrics.json`` gives the card's figures.
        repo: ``"owner/name"``, made where it isn't there.
        subfolder: where in it, for repositories of several dictionaries.
        revision: branch to write to.
        format: of another library (see ``interp export``); None is ours.
        metrics: figures for the card.
        private: of a repository that is made.
        message: of the commit.

    Raises:
        ValueError: no name of a repository, or the format has no words for this dictionary.
        ConnectionError: the hub doesn't answer.
    """
    if not isinstance(repo, str) or not _REPO.fullmatch(repo):
        raise ValueError(f"repo = {repo!r}: write it as 'owner/name'")
    if not hub_answers():
        raise ConnectionError(
            f"the Hugging Face hub doesn't answer: {repo!r} can't be uploaded now; save_pretrained() keeps the SAE here"
        )
    import huggingface_hub

    if not isinstance(sae, Dictionary):
        from interp.sae.loading import load_sae

        path, sae = Path(sae) / METRICS_FILE, load_sae(sae)
        if metrics is None and path.is_file():
            metrics = SAEEvaluation.of(sae, path)
    with tempfile.TemporaryDirectory() as made, _explained(repo):
        folder = Path(made)
        if format is None:
            sae.save_pretrained(folder)
        else:
            format_of(format).save(sae, folder)
        if metrics is not None:
            metrics.save(folder / METRICS_FILE)
        card = model_card(sae, repo, subfolder=subfolder, revision=revision, format=format, metrics=metrics)
        (folder / CARD).write_text(card, encoding="utf-8")
        api = huggingface_hub.HfApi()
        url = str(api.create_repo(repo, private=private, exist_ok=True))
        api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            path_in_repo=subfolder,
            revision=revision,
            commit_message=message or f"Add a {sae.architecture} SAE",
        )
    return url


def model_card(
    sae: Dictionary,
    repo: str,
    *,
    subfolder: str | None = None,
    revision: str | None = None,
    format: str | None = None,
    metrics: SAEEvaluation | None = None,
) -> str:
    """The README of a repository: what the dictionary is, where it comes from, its figures, how to load it."""
    known, cfg = sae.metadata, sae.cfg
    head = {
        "library_name": "interp-toolkit",
        "tags": ["sparse-autoencoder", "interpretability", sae.architecture],
    }
    if known.model_name and _REPO.fullmatch(known.model_name):
        head["base_model"] = known.model_name
    trained = {
        "model": known.model_name,
        "site": known.site,
        "width of the activations": cfg.d_in,
        "latents": cfg.d_sae,
        "context size": known.context_size,
        "text": known.text if isinstance(known.text, str) else (known.text or {}).get("name"),
        "tokens": known.tokens,
        "steps": known.steps,
        "learning rate": known.lr,
        "sparsity weight": known.l1_coefficient,
        "positions left out": ", ".join(map(str, known.skip_positions)) or None,
        "special tokens left out": known.special_tokens_excluded,
        "seed": known.seed,
    }
    where = "".join(
        f", {name}={value!r}" for name, value in (("subfolder", subfolder), ("revision", revision)) if value
    )
    name = repo if subfolder is None else f"{repo}, {subfolder}"
    lines = [
        "---",
        *(f"{key}: {json.dumps(value)}" for key, value in head.items()),
        "---",
        f"# {name}",
        "",
        f"A {sae.architecture} sparse dictionary of {cfg.d_sae:,} latents for "
        f"{known.site or 'activations'} of {known.model_name or 'a language model that it does not name'}. It takes "
        "raw activations.",
        "",
        "## How to load it",
        "",
        "```python",
        "import interp",
        "",
        f"sae = interp.load_sae({repo!r}{where})",
        "codes, x_hat = sae.encode(x), sae(x).x_hat  # x: activations [..., " + f"{cfg.d_in}]",
        "```",
        *([f"\nThe files are {format}'s, too."] if format else []),
        "",
        "## Where it comes from",
        "",
        "| | |",
        "|---|---|",
        *(f"| {key} | {_cell(value)} |" for key, value in trained.items() if value is not None),
    ]
    if metrics is not None:
        lines += ["", "## Figures", "", metrics.caption, "", "| | | |", "|---|---:|---|"]
        lines += [f"| {label} | {value} | {note} |" for label, value, note in metrics.cells()]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    text = f"{value:,}" if type(value) is int else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


@contextmanager
def _explained(repo: str) -> Iterator[None]:
    """What the hub answers, as one line."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except HfHubHTTPError as error:
        said = " ".join(str(error).split())
        raise FileNotFoundError(f"{repo!r} on the Hugging Face hub: {said}") from error
