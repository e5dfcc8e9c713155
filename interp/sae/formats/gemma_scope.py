"""Gemma Scope's folders: ``params.npz``, or ``params.safetensors`` and ``config.json`` in its second edition.

JumpReLU dictionaries of inputs that aren't centred. The weights' file says nothing of model or site, and a folder's
place in a repository is no proof of them: where there is no config, `evaluate` has to be told the site.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.core.files import atomic_write, read_json, write_json
from interp.core.messages import one_of
from interp.core.npz_files import read_npz
from interp.core.tensor_files import read_tensors
from interp.models.sites import is_site
from interp.sae.dictionary import Dictionary
from interp.sae.formats.saelens import hook_name, our_site
from interp.sae.formats.shared import (
    OURS,
    Format,
    check_checksums,
    exportable,
    from_theirs,
    kinds,
    mapping,
    ours_of,
    save_checksums,
    say,
    to_theirs,
)

NAME = "gemma_scope"
NPZ, TENSORS, CONFIG = "params.npz", "params.safetensors", "config.json"
_CASES = {"w_enc": "W_enc", "w_dec": "W_dec"}  # of the second edition
_BLOCK = re.compile(r"(?:\w+\.)*layers\.(\d+)\.output")


def save_gemma_scope(sae: Dictionary, folder: str | os.PathLike[str]) -> Path:
    """Write ``params.npz`` in float32, and ``config.json`` with what is known of model and site.

    What isn't a JumpReLU dictionary is brought to that form, where it has one, else ValueError is raised.
    """
    folder = Path(folder)
    sae, form = exportable(sae, NAME)
    tensors, settings = to_theirs(sae, form, NAME)
    known = sae.metadata
    with atomic_write(folder / NPZ) as temporary, open(temporary, "wb") as file:
        np.savez(
            file, allow_pickle=False, **{name: tensor.float().numpy() for name, tensor in tensors.items()}
        )
    kind, *words = form.kind.split()
    out = {"hf_hook_point_out": known.sites[-1] if len(known.sites) == 2 else None} if words else {}
    config = {
        "architecture": kind,
        "model_name": known.model_name,
        "hook_name": hook_name(known.site),
        **out,
        **settings,
        "metadata": ours_of(known),
    }
    write_json(folder / CONFIG, config)
    save_checksums(folder, CONFIG, NPZ)
    return folder


def load_gemma_scope(
    folder: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    activation_scale: float | None = None,
) -> Dictionary:
    """Read one of Gemma Scope's folders.

    Args:
        activation_scale: c, for the dictionaries of embeddings, which take c times them; folded in.

    Raises:
        ValueError: arrays that are damaged, that aren't finite numbers or that contradict each other; the file is
            named.
    """
    folder = Path(folder)
    source = folder / (NPZ if (folder / NPZ).is_file() else TENSORS)
    there = (folder / CONFIG).is_file()
    check_checksums(folder, *([CONFIG] if there else []), source.name)
    config = read_json(folder / CONFIG, dict, nan=True) if there else {}
    about = mapping(config.get("metadata", {}), "metadata", folder / CONFIG)
    tensors = _tensors(source)
    kind = _kind(config, tensors)
    one_of(f"{folder / CONFIG if there else source}: architecture", kind, tuple(sorted(kinds(NAME))))
    sae = from_theirs(
        NAME,
        kind,
        tensors,
        {**config, **_sizes(tensors, source)},
        size_keys=("d_in", "d_sae"),
        config_file=folder / CONFIG if there else source,
        weights_file=source,
        device=device,
    )
    site, target = _site(config, "in"), _site(config, "out")
    say(
        sae,
        folder / CONFIG,
        model_name=config.get("model_name"),
        site=site,
        sites=(site, target) if site and target else (),
        extra={"folder": "/".join(folder.absolute().parts[-3:])},
        **{key: about[key] for key in OURS if key in about},
    )
    if activation_scale is not None:
        sae.fold_activation_scale_(activation_scale)
    return sae


def _kind(config: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """Their architecture, with the word "transcode" where the output is another place's, and "skip" (a linear path)."""
    kind = config.get("architecture", "jump_relu")
    skip = "affine_skip_connection" in tensors
    words = [
        word
        for word, is_so in (("transcode", skip or "hf_hook_point_out" in config), ("skip", skip))
        if is_so
    ]
    return " ".join([kind, *words]) if isinstance(kind, str) else kind


def _tensors(source: Path) -> dict[str, Tensor]:
    if source.name == TENSORS:
        found = read_tensors(source)
    else:
        arrays = read_npz(source)
        found = {name: torch.from_numpy(np.array(array, order="C")) for name, array in arrays.items()}
    return {_CASES.get(name, name): tensor for name, tensor in found.items()}


def _sizes(tensors: dict[str, Tensor], source: Path) -> dict[str, int]:
    """The format stores the encoder as [d F] and the decoder as [F e], whichever is longer."""
    shapes = {name: tuple(tensors[name].shape) for name in ("W_enc", "W_dec") if name in tensors}
    for name, shape in shapes.items():
        if len(shape) != 2:
            raise ValueError(f"{source}: {name} has shape {shape}; it should be a matrix")
    if len(shapes) < 2:
        return {}
    return {"d_in": shapes["W_enc"][0], "d_sae": shapes["W_enc"][1], "d_out": shapes["W_dec"][1]}


def _site(config: dict[str, Any], side: str) -> Any:
    if side == "in" and config.get("hook_name") is not None:
        return our_site(config["hook_name"])
    module = config.get(f"hf_hook_point_{side}")
    if not isinstance(module, str):
        return None
    if is_site(module):
        return our_site(module)
    if block := _BLOCK.fullmatch(module):
        return f"resid_post.{int(block[1])}"
    path, _, end = module.rpartition(".")
    site = f"{path}:{end.removesuffix('put')}"
    return site if is_site(site) else module


def _holds(folder: Path) -> bool:
    return (folder / NPZ).is_file() or (folder / TENSORS).is_file()


FORMAT = Format(NAME, "params.npz (Gemma Scope)", _holds, load_gemma_scope, save_gemma_scope)
