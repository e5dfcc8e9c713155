"""`load_sae`: a dictionary from any folder that we know how to read."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from interp.core.checkpoint import META, latest_checkpoint, load_checkpoint
from interp.core.config import from_dict
from interp.core.files import read_json
from interp.sae import saving
from interp.sae.config import RunConfig, SAETrainConfig
from interp.sae.dictionary import Dictionary
from interp.sae.dictionary_learning import AE, load_dictionary_learning
from interp.sae.registry import architecture
from interp.sae.run_folder import PREVIOUS, SAE
from interp.sae.saelens import CFG, load_saelens
from interp.sae.task import build


def load_sae(
    folder: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    activation_scale: float | None = None,
) -> Dictionary:
    """Read a dictionary that takes raw activations.

    Args:
        folder: what `save_pretrained` wrote, a run folder (its ``sae/`` is read), a SAELens folder
            (``cfg.json``), a dictionary_learning folder (``ae.pt``), or a checkpoint of an SAE training.
        device: where the parameters go.
        activation_scale: for a SAELens folder whose training scaled the activations and whose file doesn't
            say by how much; see :func:`interp.sae.saelens.load_saelens`.

    Raises:
        FileNotFoundError: there is no SAE; the message says what was looked for.
        ValueError: there is one, but something in it contradicts itself or isn't known.
    """
    folder = Path(folder)
    if (folder / SAE / saving.CONFIG).is_file():
        folder = folder / SAE
    if (folder / CFG).is_file():
        return load_saelens(folder, device=device, activation_scale=activation_scale)
    if (folder / META).is_file():
        return _from_checkpoint(folder, device)
    if (folder / AE).is_file():
        return load_dictionary_learning(folder, device=device)
    if not (folder / saving.CONFIG).is_file():
        raise FileNotFoundError(_nothing_in(folder))
    if "trainer" in read_json(folder / saving.CONFIG, dict):
        return load_dictionary_learning(folder, device=device)  # which says that its weights are missing
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
    return (
        f"{folder} holds no SAE: looked for sae/config.json, config.json, cfg.json (SAELens) and ae.pt "
        "(dictionary_learning)"
    )
