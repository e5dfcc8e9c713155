"""`load_sae`: a dictionary from any folder that we know how to read."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from interp.core.checkpoint import META, latest_checkpoint, load_checkpoint
from interp.core.config import from_dict
from interp.sae import saving
from interp.sae.config import RunConfig, SAETrainConfig
from interp.sae.dictionary import Dictionary
from interp.sae.formats import all_formats
from interp.sae.formats.hub import fetch, is_repo
from interp.sae.formats.shared import no_scale
from interp.sae.registry import architecture
from interp.sae.run_folder import PREVIOUS, SAE
from interp.sae.task import build

_SHOWN = 20


def load_sae(
    folder: str | os.PathLike[str],
    *,
    subfolder: str | None = None,
    revision: str | None = None,
    device: torch.device | str = "cpu",
    activation_scale: float | None = None,
) -> Dictionary:
    """Read a dictionary that takes raw activations.

    Args:
        folder: a run folder (its ``sae/``), a folder of our format, one of another library's (SAELens,
            dictionary_learning, sparsify, Gemma Scope), a checkpoint of an SAE training, or ``"owner/name"`` on the
            Hugging Face hub, where any of these lies.
        subfolder: of it.
        revision: branch, tag or commit on the hub.
        device: where the parameters go.
        activation_scale: for a folder whose training scaled the activations and that doesn't say by how much; see
            the `load` functions of `interp.sae.formats`.

    Raises:
        FileNotFoundError: there is no SAE; the message says what was looked for.
        ValueError: there is one, but something in it contradicts itself or isn't known.
    """
    if is_repo(folder):
        path = fetch(str(folder), subfolder=subfolder, revision=revision)
        return _from_folder(path, device, activation_scale)
    if revision is not None:
        raise ValueError(f"revision = {revision!r} is for the hub, and {os.fspath(folder)} is a folder here")
    return _from_folder(Path(folder) / (subfolder or ""), device, activation_scale)


def _from_folder(folder: Path, device: torch.device | str, activation_scale: float | None) -> Dictionary:
    if (folder / SAE / saving.CONFIG).is_file():
        folder = folder / SAE
    if (folder / META).is_file():
        no_scale(activation_scale, folder)
        return _from_checkpoint(folder, device)
    for other in all_formats():
        if other.holds(folder):
            return other.load(folder, device=device, activation_scale=activation_scale)
    if not (folder / saving.CONFIG).is_file():
        raise FileNotFoundError(_nothing_in(folder))
    no_scale(activation_scale, folder)
    name = saving.read_config(folder)["architecture"]
    kind = architecture(name, where=f"{folder / saving.CONFIG}: architecture")
    return kind.from_pretrained(folder, device=device)


def _from_checkpoint(folder: Path, device: torch.device | str) -> Dictionary:
    """The dictionary of an unfinished training, with its activation scale folded in."""
    checkpoint = load_checkpoint(folder)
    task = checkpoint.meta["config"].get("task", {})
    if not {"run", "dictionaries", "widths"} <= set(task):
        raise ValueError(f"{folder} is a checkpoint of something other than an SAE training")
    run, configs = from_dict(RunConfig, task["run"]), task["dictionaries"]
    if len(configs) != 1:
        raise ValueError(
            f"{folder} is a checkpoint of several dictionaries ({', '.join(configs)}): finish the run, each "
            "then has a folder of its own"
        )
    weights = {key.removeprefix("sae0."): value for key, value in checkpoint.weights.items()}
    config, widths = from_dict(SAETrainConfig, next(iter(configs.values()))), tuple(task["widths"])
    sae = saving.fill(lambda at: build(config, widths, run, at, empty=True), weights, folder, device)
    sae.fold_activation_scales_(tuple(checkpoint.state["task"]["scales"]))
    return sae


def _nothing_in(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is not a folder: give a run folder, or a folder with an SAE"
    runs = sorted(p.parent.parent.name for p in folder.glob(f"*/{SAE}/{saving.CONFIG}"))
    if runs:
        return f"{folder} holds several runs, choose one: {', '.join(runs)}"
    newest = latest_checkpoint(folder)
    if newest is not None:
        return f"{folder} is an unfinished run: train again to continue it, or load its checkpoint {newest}"
    if (folder / PREVIOUS).is_dir():
        return (
            f"{folder} is an unfinished run: train again to start it anew, or load {folder / PREVIOUS}, the dictionary "
            "that it replaces"
        )
    below = sorted(p.name for p in folder.iterdir() if p.is_dir() and any(f.holds(p) for f in all_formats()))
    if below:
        return f"{folder} holds several SAEs, choose one: {', '.join(below[:_SHOWN])}"
    looked_for = ", ".join(other.looked_for for other in all_formats())
    return f"{folder} holds no SAE: looked for sae/config.json, config.json, {looked_for}"
