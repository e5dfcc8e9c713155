"""sparsify folders: ``cfg.json`` and ``sae.safetensors`` for each hook point, as `EleutherAI/sparsify` 1.3 has them.

The folder's name is the module whose output (of a transcoder: input and output) the dictionary was trained on, without
the model's prefix: ``layers.10`` is a block, ``layers.10.mlp`` its MLP.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import torch

from interp.core.files import atomic_write, read_json, write_json
from interp.core.tensor_files import read_tensors, write_tensors
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

NAME = "sparsify"
CFG, WEIGHTS = "cfg.json", "sae.safetensors"
_FLAGS = {"transcode": "transcode", "skip": "skip_connection"}  # word of a kind -> their key
_MODULE = re.compile(r"(?:\w+\.)*(?:layers|h|blocks)\.(\d+)(?:\.(\w+))?")
_SITES = {None: "resid_post", "mlp": "mlp_out", "self_attn": "attn_out", "attn": "attn_out"}
_SEED = re.compile(r"seed_?\d+")


def save_sparsify(sae: Dictionary, folder: str | os.PathLike[str]) -> Path:
    """Write a folder that sparsify reads; it finds it by hook point where the folder is named after the module.

    Raises ValueError for what isn't a TopK dictionary with an input and output of one width.
    """
    folder = Path(folder)
    sae, form = exportable(sae, NAME)
    tensors, settings = to_theirs(sae, form, NAME)
    activation, *words = form.kind.split()
    known = sae.metadata
    cfg = {
        "expansion_factor": max(1, sae.cfg.d_sae // sae.cfg.d_in),
        "normalize_decoder": True,
        **known.extra.get("sparsify_cfg", {}),
        **settings,
        "activation": activation,
        "num_latents": sae.cfg.d_sae,
        **{key: word in words for word, key in _FLAGS.items()},
        "d_in": sae.cfg.d_in,
        # sparsify drops what it doesn't know.
        "metadata": {
            "model_name": known.model_name,
            "site": known.site,
            "sites": list(known.sites),
            **ours_of(known),
        },
    }
    with atomic_write(folder / WEIGHTS) as temporary:
        write_tensors(temporary, tensors)
    write_json(folder / CFG, cfg)
    save_checksums(folder, CFG, WEIGHTS)
    return folder


def load_sparsify(
    folder: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    activation_scale: float | None = None,
) -> Dictionary:
    """Read the folder of one hook point.

    Raises:
        ValueError: another activation, weights that are damaged, that aren't finite numbers or that contradict the
            config; the file is named.
    """
    folder = Path(folder)
    no_scale(activation_scale, folder)
    source = weights_file(folder / WEIGHTS)
    check_checksums(folder, CFG, WEIGHTS)
    cfg = read_json(folder / CFG, dict, nan=True)
    about = mapping(cfg.pop("metadata", {}), "metadata", folder / CFG)
    sae = from_theirs(
        NAME,
        _kind(cfg, folder / CFG),
        read_tensors(source),
        {**cfg, "num_latents": _n_latents(cfg)},
        size_keys=("d_in", "num_latents"),
        config_file=folder / CFG,
        weights_file=source,
        device=device,
    )
    # A transcoder's input is the module's, which has no name of its own.
    module = folder.parent.name if _SEED.fullmatch(folder.name) else folder.name
    say(
        sae,
        folder / CFG,
        model_name=about.get("model_name"),
        site=about.get("site") or (site_of(module) if sae.sites == "one" else None),
        sites=about.get("sites", ()),
        extra={"sparsify_cfg": cfg, "folder": module},
        **{"skip_positions": (), **{key: about[key] for key in OURS if key in about}},
    )
    return sae


def site_of(module: str) -> str | None:
    """The site whose activations a module gives, where it is a block or one of the two parts of one."""
    match = _MODULE.fullmatch(module)
    if match is None or match[2] not in _SITES:
        return None
    return f"{_SITES[match[2]]}.{int(match[1])}"


def _kind(cfg: dict[str, Any], source: Path) -> str:
    words = [word for word, key in _FLAGS.items() if cfg.get(key)]
    kind = " ".join([str(cfg.get("activation", "topk")), *words])
    known = kinds(NAME)
    if kind not in known:
        why = " (the largest latent of each of k groups, which is no top-k)" if kind[:8] == "groupmax" else ""
        raise ValueError(
            f"{source}: a {kind!r} dictionary{why} can't be read; choices: {', '.join(sorted(known))}"
        )
    return kind


def _n_latents(cfg: dict[str, Any]) -> Any:
    """0 and nothing at all stand for a multiple of the width."""
    width, factor = cfg.get("d_in"), cfg.get("expansion_factor")
    if cfg.get("num_latents") in (0, None) and type(width) is int and type(factor) is int:
        return width * factor
    return cfg.get("num_latents")


def _holds(folder: Path) -> bool:
    if (folder / WEIGHTS).is_file():
        return True
    return (folder / CFG).is_file() and "expansion_factor" in read_json(folder / CFG, dict, nan=True)


FORMAT = Format(NAME, "cfg.json with sae.safetensors (sparsify)", _holds, load_sparsify, save_sparsify)
