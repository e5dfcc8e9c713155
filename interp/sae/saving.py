"""Our own folder: `config.json` (what it is, where from) and `weights.safetensors` (a row per latent)."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp.core.config import from_dict, to_dict
from interp.core.files import atomic_write, read_json, write_json
from interp.core.messages import nearest
from interp.sae.metadata import SAEMetadata

if TYPE_CHECKING:
    from interp.sae.dictionary import Dictionary

D = TypeVar("D", bound="Dictionary")
T = TypeVar("T")

SCHEMA_VERSION = 1
CONFIG, WEIGHTS = "config.json", "weights.safetensors"
_REQUIRED = ("schema_version", "architecture", "config")

_log = logging.getLogger(__name__)


def write_pretrained(sae: Dictionary, folder: str | os.PathLike[str]) -> Path:
    """Write a dictionary's folder, each file whole or not at all."""
    folder = Path(folder)
    tensors = {name: p.detach().cpu().contiguous() for name, p in sae.named_parameters()}
    with atomic_write(folder / WEIGHTS) as temporary:
        save_file(tensors, temporary)
    config = {
        "schema_version": SCHEMA_VERSION,
        "architecture": sae.architecture,
        "config": to_dict(sae.cfg),
        "metadata": to_dict(sae.metadata),
    }
    write_json(folder / CONFIG, config)
    return folder


def read_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and check ``config.json``.

    Raises ValueError when a required key is missing or the schema is newer than this library knows.
    """
    path = Path(folder) / CONFIG
    config = read_json(path)
    missing = [key for key in _REQUIRED if not isinstance(config, dict) or key not in config]
    if missing:
        raise ValueError(f"{path} lacks the required key(s) {', '.join(missing)}: not one of our SAE folders")
    if not isinstance(config["schema_version"], int) or config["schema_version"] > SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema_version {config['schema_version']!r}, this library reads up to "
            f"{SCHEMA_VERSION}: update interp-toolkit"
        )
    _warn_unknown(path, config, (*_REQUIRED, "metadata"))
    return config


def read_pretrained(cls: type[D], folder: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> D:
    """Read a dictionary; one whose activation scale is not folded yet has it folded.

    Raises ValueError naming the file: another architecture, a missing key, tensors that don't fit the config.
    """
    folder = Path(folder)
    config = read_config(folder)
    if config["architecture"] != cls.architecture:
        raise ValueError(
            f"{folder} holds a {config['architecture']!r} SAE, {cls.__name__} reads {cls.architecture!r}: "
            "use load_sae, which reads any"
        )
    cfg = _known_fields(cls.config_class, config["config"], folder / CONFIG)
    sae = cls(cfg, seed=None, device=device)  # type: ignore[call-arg]
    sae.metadata = _known_fields(SAEMetadata, config.get("metadata", {}), folder / CONFIG)
    fill(sae, read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    fold_if_needed(sae)
    return sae


def fold_if_needed(sae: Dictionary) -> None:
    """Fold the activation scale of the metadata into the weights, unless it is there already."""
    if not sae.metadata.activation_scale_folded:
        c = sae.metadata.activation_scale
        sae.fold_activation_scale_(c)
        _log.info("folded the activation scale %.6g into the weights: the SAE takes raw activations", c)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; a missing or broken one is named."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: the folder was copied in part, or isn't an SAE")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is broken ({error}): copy it again") from error


def fill(sae: Dictionary, tensors: dict[str, Tensor], source: Path) -> None:
    """Copy tensors into the parameters of those names; names and shapes must match exactly."""
    parameters = dict(sae.named_parameters())
    for name in tensors:
        if name not in parameters:
            raise ValueError(f"{source}: tensor {name!r} doesn't belong here; {nearest(name, parameters)}")
    for name, parameter in parameters.items():
        if name not in tensors:
            raise ValueError(f"{source}: tensor {name!r} is missing; there are {', '.join(sorted(tensors))}")
        if tensors[name].shape != parameter.shape:
            raise ValueError(
                f"{source}: {name} has shape {tuple(tensors[name].shape)}, but d_in = {sae.cfg.d_in} and "
                f"d_sae = {sae.cfg.d_sae} of its config ask for {tuple(parameter.shape)}"
            )
        with torch.no_grad():
            parameter.copy_(tensors[name])


def _known_fields(cls: type[T], mapping: dict[str, Any], path: Path) -> T:
    """A dataclass from the keys it knows; others are from a later version and only warned of."""
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    _warn_unknown(path, mapping, known)
    try:
        return from_dict(cls, {key: value for key, value in mapping.items() if key in known})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _warn_unknown(path: Path, mapping: dict[str, Any], known: Any) -> None:
    for key in mapping:
        if key not in known:
            _log.warning("%s: ignoring the unknown key %r; %s", path, key, nearest(key, known))
