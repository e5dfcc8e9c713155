"""SAELens folders: ``cfg.json`` and ``sae_weights.safetensors``, as `decoderesearch/SAELens` 6 has them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from interp.core.files import atomic_write, read_json, write_json
from interp.core.messages import one_of
from interp.core.tensor_files import read_tensors, write_tensors
from interp.models.sites import Site
from interp.sae.dictionary import Dictionary
from interp.sae.foreign import (
    check_checksums,
    check_names,
    config,
    exportable,
    from_theirs,
    mapping,
    metadata,
    parses,
    save_checksums,
    sizes,
    to_theirs,
)
from interp.sae.saving import weights_file

CFG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
FORMAT_VERSION = "6.0.0"  # without a version SAELens takes the folder for an older one and drops its metadata
NAMES = {
    "standard": {"W_enc*": "W_enc", "b_enc": "b_enc", "W_dec": "W_dec", "b_dec": "b_dec"},
    "gated": {
        "W_gate*": "W_enc",
        "b_gate": "b_gate",
        "b_mag": "b_mag",
        "r_mag": "r_mag",
        "W_dec": "W_dec",
        "b_dec": "b_dec",
    },
    "jumprelu": {
        "W_enc*": "W_enc",
        "b_enc": "b_enc",
        "threshold": "threshold",
        "W_dec": "W_dec",
        "b_dec": "b_dec",
    },
}

_log = logging.getLogger(__name__)


def save_saelens(sae: Dictionary, folder: str | os.PathLike[str]) -> Path:
    """Write a folder that SAELens reads. The SAE takes raw activations there, too.

    Raises ValueError for a Gated SAE with its own ``W_mag``: SAELens has no such form.
    """
    folder, sae = Path(folder), exportable(sae)
    tensors = to_theirs(sae, NAMES[sae.architecture])
    known = sae.metadata
    ours = {
        "model_name": known.model_name,
        "hook_name": hook_name(known.site),
        "context_size": known.context_size,
        "exclude_special_tokens": known.special_tokens_excluded,
        # SAELens has no words for these; it keeps them.
        "skip_positions": list(known.skip_positions) or None,
        "max_norm": known.max_norm,
        "model_fingerprint": known.model_fingerprint,
    }
    theirs = known.extra.get("saelens_metadata", {})
    about = {
        "sae_lens_version": FORMAT_VERSION,
        **{key: value for key, value in theirs.items() if key not in ours},
        **{key: value for key, value in ours.items() if value is not None},
    }
    cfg = {
        "architecture": sae.architecture,
        "d_in": sae.cfg.d_in,
        "d_sae": sae.cfg.d_sae,
        "dtype": sae.cfg.dtype,
        "device": "cpu",
        "apply_b_dec_to_input": sae.cfg.apply_b_dec_to_input,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": about,
    }
    with atomic_write(folder / WEIGHTS) as temporary:
        write_tensors(temporary, tensors)
    write_json(folder / CFG, cfg)
    save_checksums(folder, CFG, WEIGHTS)
    return folder


def load_saelens(
    folder: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    activation_scale: float | None = None,
) -> Dictionary:
    """Read a SAELens folder: architectures standard, gated and jumprelu, of version 6 and before.

    Args:
        activation_scale: c, for a folder with ``normalize_activations = "expected_average_only_in"``: sqrt(d)
            over the mean norm of its training activations, which the folder doesn't hold. It is folded in.

    Raises:
        ValueError: another architecture or normalisation, weights that are damaged, that aren't finite numbers or
            that contradict the config; the file is named.
    """
    folder = Path(folder)
    cfg = _current(read_json(folder / CFG, dict, nan=True))
    source = weights_file(folder / WEIGHTS)
    check_checksums(folder, CFG, WEIGHTS)
    architecture = cfg["architecture"]
    one_of(f"{folder / CFG}: architecture", architecture, tuple(NAMES))
    if cfg.get("reshape_activations", "none") != "none":
        _log.info("%s: takes the heads of attn_z concatenated, as our attn_z site gives them", folder)
    tensors = read_tensors(source)
    scaling = tensors.pop("scaling_factor", None)
    check_names(tensors, NAMES[architecture], source)
    d_in, d_sae = sizes(cfg.get("d_in"), cfg.get("d_sae"), tensors["W_enc"], False, source)
    centred = bool(cfg.get("apply_b_dec_to_input", True))
    form = config(architecture, d_in, d_sae, centred, tensors["W_dec"].dtype, folder / CFG)
    sae = from_theirs(form, tensors, NAMES[architecture], source, device)
    if scaling is not None and cfg.get("finetuning_scaling_factor"):
        if scaling.shape != (d_sae,):
            raise ValueError(
                f"{source}: scaling_factor has shape {tuple(scaling.shape)}, expected {(d_sae,)}"
            )
        with torch.no_grad():
            sae.W_dec.mul_(scaling.to(sae.W_dec)[:, None])
    about = mapping(cfg.get("metadata", {}), "metadata", folder / CFG)
    sae.metadata = metadata(
        {
            "model_name": about.get("model_name"),
            "model_fingerprint": about.get("model_fingerprint"),
            "site": our_site(about.get("hook_name")),
            "context_size": about.get("context_size"),
            "skip_positions": about.get("skip_positions", ()),
            "special_tokens_excluded": _optional_bool(about.get("exclude_special_tokens")),
            "max_norm": about.get("max_norm"),
            "training_dtype": cfg.get("dtype"),
            "extra": {"saelens_metadata": about},
        },
        folder / CFG,
    )
    _undo_normalization(sae, cfg.get("normalize_activations", "none"), activation_scale, folder)
    return sae


def _current(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of version 6 from one of any version."""
    cfg = dict(cfg)
    for old, new in {
        "hook_point": "hook_name",
        "hook_point_head_index": "hook_head_index",
        "activation_fn_str": "activation_fn",
    }.items():
        if old in cfg:
            cfg.setdefault(new, cfg.pop(old))
    if "metadata" not in cfg:
        keys = ("model_name", "hook_name", "hook_head_index", "context_size", "prepend_bos", "dataset_path")
        cfg["metadata"] = {key: cfg[key] for key in keys if key in cfg}
    cfg.setdefault("architecture", "topk" if cfg.get("activation_fn") == "topk" else "standard")
    if isinstance(cfg.get("normalize_activations"), bool):
        cfg["normalize_activations"] = "expected_average_only_in" if cfg["normalize_activations"] else "none"
    return cfg


def _undo_normalization(sae: Dictionary, kind: str, c: float | None, folder: Path) -> None:
    if kind == "none":
        if c is not None:
            raise ValueError(f"activation_scale = {c}: {folder} was trained on activations as they are")
        return
    if kind != "expected_average_only_in":
        raise ValueError(
            f"{folder}: normalize_activations = {kind!r} changes each token by a factor of its own; only "
            "'none' and 'expected_average_only_in' can be read"
        )
    if c is None:
        raise ValueError(
            f"{folder}: normalize_activations = {kind!r}, but the folder doesn't say by how much activations "
            "were scaled; pass activation_scale = sqrt(d_in) / (mean norm of its training activations)"
        )
    sae.fold_activation_scale_(c)


def hook_name(site: str | None) -> str | None:
    """TransformerLens' name of a site, as SAELens stores it; a site it has no name for as we write it."""
    if site is None or not parses(site):
        return site
    parsed = Site.parse(site)
    if parsed.layer is None:
        return {"embed": "hook_embed", "final_norm": "ln_final.hook_normalized"}.get(parsed.name, site)
    inside = {"attn_z": "attn.hook_z", "mlp_post": "mlp.hook_post"}.get(parsed.name, f"hook_{parsed.name}")
    return f"blocks.{parsed.layer}.{inside}"


def our_site(hook: Any) -> Any:
    """Our name of a TransformerLens hook; what is none as it is."""
    return str(Site.parse(hook)) if isinstance(hook, str) and parses(hook) else hook


def _optional_bool(value: Any) -> bool | None:
    return None if value is None else bool(value)
