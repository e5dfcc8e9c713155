"""dictionary_learning folders: ``config.json`` and ``ae.pt``, as `saprmarks/dictionary_learning` has them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.core.files import atomic_write, read_json, write_json
from interp.core.messages import one_of
from interp.core.torch_files import read_torch
from interp.models.sites import Site, is_site
from interp.sae.dictionary import Dictionary
from interp.sae.formats.shared import (
    OURS,
    Format,
    check_checksums,
    exportable,
    from_theirs,
    kinds,
    mapping,
    no_scale,
    ours_of,
    save_checksums,
    say,
    to_theirs,
)
from interp.sae.saving import weights_file

NAME = "dictionary_learning"
AE, CONFIG = "ae.pt", "config.json"


def save_dictionary_learning(sae: Dictionary, folder: str | os.PathLike[str]) -> Path:
    """Write a folder that dictionary_learning reads.

    A dictionary that centres its input where the class there doesn't, or the other way round, is first brought to
    the form that exists there, exactly, by a shift of its biases. Raises ValueError for a form that isn't there.
    """
    folder = Path(folder)
    sae, form = exportable(sae, NAME)
    tensors, settings = to_theirs(sae, form, NAME)
    known = sae.metadata
    site = Site.parse(known.site) if known.site is not None and is_site(known.site) else None
    trainer = {
        **known.extra.get("dictionary_learning_trainer", {}),
        **settings,
        "dict_class": form.kind,
        "activation_dim": sae.cfg.d_in,
        "dict_size": sae.cfg.d_sae,
        "lm_name": known.model_name,
        "layer": site.layer if site is not None else None,
        "submodule_name": known.site,
        "l1_penalty": known.l1_coefficient,
        "lr": known.lr,
        "steps": known.steps,
    }
    with atomic_write(folder / AE) as temporary:
        torch.save(tensors, temporary)
    write_json(folder / CONFIG, {"trainer": trainer, "buffer": {}, "metadata": ours_of(known)})
    save_checksums(folder, CONFIG, AE)
    return folder


def load_dictionary_learning(
    folder: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    activation_scale: float | None = None,
) -> Dictionary:
    """Read a dictionary_learning folder.

    A backup made in the middle of a run (it holds optimiser and norm factor, too) is recognised, and its
    biases are brought to raw activations.

    Raises:
        ValueError: another class, weights that are damaged, that aren't finite numbers or that contradict the
            config; the file is named.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder / CONFIG} is missing: it says which class {AE} holds")
    no_scale(activation_scale, folder)
    source = weights_file(folder / AE)
    check_checksums(folder, CONFIG, AE)
    content = read_json(folder / CONFIG, dict, nan=True)
    trainer = mapping(content.get("trainer", {}), "trainer", folder / CONFIG)
    about = mapping(content.get("metadata", {}), "metadata", folder / CONFIG)
    one_of(f"{folder / CONFIG}: trainer.dict_class", trainer.get("dict_class"), tuple(sorted(kinds(NAME))))
    stored = mapping(read_torch(source), "its content", source)
    backup = stored if "ae" in stored else None
    state = mapping(stored.get("ae", stored), "its state", source)
    sae = from_theirs(
        NAME,
        trainer["dict_class"],
        {key: value for key, value in state.items() if isinstance(value, Tensor)},
        trainer,
        size_keys=("activation_dim", "dict_size"),
        config_file=folder / CONFIG,
        weights_file=source,
        device=device,
    )
    say(
        sae,
        folder / CONFIG,
        model_name=trainer.get("lm_name"),
        site=trainer.get("submodule_name"),
        l1_coefficient=trainer.get("l1_penalty"),
        lr=trainer.get("lr"),
        steps=trainer.get("steps"),
        extra={
            "dictionary_learning_trainer": trainer,
            "folder": "/".join(folder.absolute().parts[-2:]),
        },
        **{"skip_positions": (), **{key: about[key] for key in OURS if key in about}},
    )
    if backup is not None:
        sae.fold_activation_scale_(1.0 / _norm_factor(backup.get("norm_factor"), source))
    return sae


def _norm_factor(value: Any, source: Path) -> float:
    """By how much a run divides its activations; it may not have done so."""
    if value is None:
        return 1.0
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{source}: norm_factor = {value!r} is not a positive number; copy it again")
    return float(value)


def _holds(folder: Path) -> bool:
    if (folder / AE).is_file():
        return True
    return (folder / CONFIG).is_file() and "trainer" in read_json(folder / CONFIG, dict, nan=True)


FORMAT = Format(
    NAME, "ae.pt (dictionary_learning)", _holds, load_dictionary_learning, save_dictionary_learning
)
