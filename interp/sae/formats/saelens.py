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
from interp.models.sites import Site, is_site
from interp.sae.dictionary import Dictionary
from interp.sae.formats.shared import (
    Format,
    check_checksums,
    exportable,
    from_theirs,
    kinds,
    mapping,
    no_scale,
    save_checksums,
    say,
    to_theirs,
)
from interp.sae.saving import weights_file

NAME = "saelens"
CFG, WEIGHTS, SCALER = "cfg.json", "sae_weights.safetensors", "activation_scaler.json"
FORMAT_VERSION = "6.0.0"  # without a version SAELens takes the folder for an older one and drops its metadata

_log = logging.getLogger(__name__)


def save_saelens(sae: Dictionary, folder: str | os.PathLike[str]) -> Path:
    """Write a folder that SAELens reads. The SAE takes raw activations there, too.

    What SAELens knows only as a checkpoint of its training (batchtopk, matryoshka) is written as jumprelu, as it does
    itself. Raises ValueError for a form that SAELens doesn't have.
    """
    folder = Path(folder)
    sae, form = exportable(sae, NAME)
    tensors, settings = to_theirs(sae, form, NAME)
    known = sae.metadata
    ours = {
        "model_name": known.model_name,
        "hook_name": hook_name(known.site),
        "hook_name_out": hook_name(known.sites[-1]) if len(known.sites) == 2 else None,  # of a transcoder
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
        "architecture": form.kind,
        "d_in": sae.cfg.d_in,
        "d_sae": sae.cfg.d_sae,
        "dtype": sae.cfg.dtype,
        "device": "cpu",
        "apply_b_dec_to_input": sae.cfg.apply_b_dec_to_input,
        "normalize_activations": "none",
        "reshape_activations": "none",
        **settings,
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
    """Read a SAELens folder, of version 6 or before, of a finished SAE or a training checkpoint.

    Args:
        activation_scale: c, for a folder with ``normalize_activations = "expected_average_only_in"``: sqrt(d)
            over the mean norm of its training activations, which only a checkpoint holds. It is folded in.

    Raises:
        ValueError: another architecture or normalisation, weights that are damaged, that aren't finite numbers or
            that contradict the config; the file is named.
    """
    folder = Path(folder)
    cfg = _current(read_json(folder / CFG, dict, nan=True), folder / CFG)
    source = weights_file(folder / WEIGHTS)
    check_checksums(folder, CFG, WEIGHTS)
    one_of(f"{folder / CFG}: architecture", cfg["architecture"], tuple(sorted(kinds(NAME))))
    if cfg.get("reshape_activations", "none") != "none":
        _log.info("%s: takes the heads of attn_z concatenated, as our attn_z site gives them", folder)
    tensors = read_tensors(source)
    scaling = tensors.pop("scaling_factor", None)
    if "log_threshold" in tensors:  # of training checkpoints before version 6
        tensors["threshold"] = tensors.pop("log_threshold").exp()
    sae = from_theirs(
        NAME,
        cfg["architecture"],
        tensors,
        cfg,
        size_keys=("d_in", "d_sae"),
        centred=bool(cfg.get("apply_b_dec_to_input", True)),
        config_file=folder / CFG,
        weights_file=source,
        device=device,
    )
    if scaling is not None and cfg.get("finetuning_scaling_factor"):
        if scaling.shape != (sae.cfg.d_sae,):
            raise ValueError(
                f"{source}: scaling_factor has shape {tuple(scaling.shape)}, expected {(sae.cfg.d_sae,)}"
            )
        with torch.no_grad():
            sae.W_dec.mul_(scaling.to(sae.W_dec)[:, None])
    about = mapping(cfg.get("metadata", {}), "metadata", folder / CFG)
    site, target = (our_site(about.get(key)) for key in ("hook_name", "hook_name_out"))
    say(
        sae,
        folder / CFG,
        model_name=about.get("model_name"),
        model_fingerprint=about.get("model_fingerprint"),
        site=site,
        sites=(site, target) if sae.sites == "pair" and site and target else (),
        context_size=about.get("context_size"),
        skip_positions=about.get("skip_positions", ()),
        special_tokens_excluded=_optional_bool(about.get("exclude_special_tokens")),
        max_norm=about.get("max_norm"),
        training_dtype=cfg.get("dtype"),
        extra={"saelens_metadata": about},
    )
    _undo_normalization(sae, cfg.get("normalize_activations", "none"), activation_scale, folder)
    return sae


def _current(cfg: Mapping[str, Any], source: Path) -> dict[str, Any]:
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
    topk = cfg.get("activation_fn") == "topk"
    if topk and cfg.get("architecture", "standard") == "standard":
        cfg["architecture"] = "topk"
    cfg.setdefault("architecture", "standard")
    if topk and "k" not in cfg:
        options = mapping(cfg.get("activation_fn_kwargs") or {}, "activation_fn_kwargs", source)
        cfg["k"] = options.get("k")
    if isinstance(cfg.get("normalize_activations"), bool):
        cfg["normalize_activations"] = "expected_average_only_in" if cfg["normalize_activations"] else "none"
    return cfg


def _undo_normalization(sae: Dictionary, kind: str, c: float | None, folder: Path) -> None:
    if kind == "none":
        no_scale(c, folder)
        return
    if kind != "expected_average_only_in":
        raise ValueError(
            f"{folder / CFG}: normalize_activations = {kind!r} changes each token by a factor of its own; only "
            "'none' and 'expected_average_only_in' can be read"
        )
    if sae.sites != "one":
        raise ValueError(
            f"{folder / CFG}: normalize_activations = {kind!r} of a transcoder doesn't say how its output was scaled; "
            "only 'none' can be read"
        )
    if c is None and (folder / SCALER).is_file():
        c = read_json(folder / SCALER, dict, ("scaling_factor",))["scaling_factor"]
        if isinstance(c, bool) or not isinstance(c, int | float) or not c > 0:
            raise ValueError(
                f"{folder / SCALER}: scaling_factor = {c!r} is not a positive number; copy it again"
            )
    if c is None:
        raise ValueError(
            f"{folder / CFG}: normalize_activations = {kind!r}, but the folder doesn't say by how much activations "
            "were scaled; pass activation_scale = sqrt(d_in) / (mean norm of its training activations)"
        )
    sae.fold_activation_scale_(c)


def hook_name(site: str | None) -> str | None:
    """TransformerLens' name of a site, as SAELens stores it; a site it has no name for as we write it."""
    if site is None or not is_site(site):
        return site
    parsed = Site.parse(site)
    if parsed.layer is None:
        return {"embed": "hook_embed", "final_norm": "ln_final.hook_normalized"}.get(parsed.name, site)
    inside = {"attn_z": "attn.hook_z", "mlp_post": "mlp.hook_post"}.get(parsed.name, f"hook_{parsed.name}")
    return f"blocks.{parsed.layer}.{inside}"


def our_site(hook: Any) -> Any:
    """Our name of a TransformerLens hook; what is none as it is."""
    return str(Site.parse(hook)) if isinstance(hook, str) and is_site(hook) else hook


def _optional_bool(value: Any) -> bool | None:
    return None if value is None else bool(value)


FORMAT = Format(
    NAME, "cfg.json (SAELens)", lambda folder: (folder / CFG).is_file(), load_saelens, save_saelens
)
