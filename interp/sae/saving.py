"""Our own folder: `config.json` (what it is, where from) and `weights.safetensors` (a row per latent)."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from interp.core.config import from_dict, to_dict
from interp.core.files import atomic_write, read_json, read_sealed_json, sha256_file, write_sealed_json
from interp.core.messages import nearest
from interp.core.tensor_files import read_tensors, write_tensors
from interp.sae.metadata import SAEMetadata

if TYPE_CHECKING:
    from interp.sae.dictionary import Dictionary

D = TypeVar("D", bound="Dictionary")
T = TypeVar("T")

SCHEMA_VERSION = 2  # 1 had no checksums
CONFIG, WEIGHTS = "config.json", "weights.safetensors"
_REQUIRED = ("schema_version", "architecture", "config")

_log = logging.getLogger(__name__)


def write_pretrained(sae: Dictionary, folder: str | os.PathLike[str]) -> Path:
    """Write a dictionary's folder: the weights, then ``config.json``, which names their checksum and has its own."""
    folder = Path(folder)
    with atomic_write(folder / WEIGHTS) as temporary:
        checksum = write_tensors(temporary, sae.state_dict())
    config = {
        "schema_version": SCHEMA_VERSION,
        "architecture": sae.architecture,
        "config": to_dict(sae.cfg),
        "metadata": to_dict(sae.metadata),
        "sha256": checksum,
    }
    write_sealed_json(folder / CONFIG, config)
    return folder


def read_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and check ``config.json``.

    Raises ValueError when a required key is missing, the schema is newer than this library knows, or the file was
    changed after it was written.
    """
    path = Path(folder) / CONFIG
    config = read_json(path, dict)
    missing = [key for key in _REQUIRED if key not in config]
    if missing:
        raise ValueError(f"{path} lacks the required key(s) {', '.join(missing)}: not one of our SAE folders")
    version = config["schema_version"]
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema_version {version!r}, this library reads up to {SCHEMA_VERSION}: update interp-toolkit"
        )
    if version > 1:
        config = read_sealed_json(path, ("metadata", "sha256"))
    _warn_unknown(path, config, (*_REQUIRED, "metadata", "sha256"))
    return config


def read_pretrained(cls: type[D], folder: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> D:
    """Read a dictionary; one whose activation scale is not folded yet has it folded.

    Raises ValueError naming the file: another architecture, a missing key, weights that are damaged, that aren't finite
    numbers or that don't fit the config.
    """
    folder = Path(folder)
    config = read_config(folder)
    if config["architecture"] != cls.architecture:
        raise ValueError(
            f"{folder} holds a {config['architecture']!r} SAE, {cls.__name__} reads {cls.architecture!r}: "
            "use load_sae, which reads any"
        )
    source = weights_file(folder / WEIGHTS)
    cfg = _known_fields(cls.config_class, config["config"], folder / CONFIG)
    if "sha256" in config and sha256_file(source) != config["sha256"]:
        raise ValueError(f"{source} is broken (its SHA-256 is not the one in {CONFIG}): copy it again")
    sae = fill(lambda at: cls(cfg, seed=None, device=at), read_tensors(source), source, device)  # type: ignore[call-arg]
    sae.metadata = _known_fields(SAEMetadata, config.get("metadata", {}), folder / CONFIG)
    fold_if_needed(sae)
    return sae


def fold_if_needed(sae: Dictionary) -> None:
    """Fold the activation scale of the metadata into the weights, unless it is there already."""
    if not sae.metadata.activation_scale_folded:
        scales = sae.metadata.activation_scales or (sae.metadata.activation_scale,)
        sae.fold_activation_scales_(scales)
        shown = ", ".join(f"{c:.6g}" for c in scales)
        _log.info("folded the activation scale %s into the weights: the SAE takes raw activations", shown)


def weights_file(path: Path) -> Path:
    """The path itself. Raises FileNotFoundError where there is no such file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: the folder was copied in part, or isn't an SAE")
    return path


def fill(
    make: Callable[[torch.device], D], tensors: Mapping[str, Tensor], source: Path, device: torch.device | str
) -> D:
    """The dictionary that `make` describes, with these tensors as its parameters.

    It is made without memory, so that sizes which the tensors don't have cost none. Raises ValueError where names or
    shapes don't match exactly.
    """
    sae = make(torch.device("meta"))
    parameters = sae.state_dict()  # and what a recipe measured, in buffers
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
    own = {name: tensors[name].to(device, p.dtype).contiguous() for name, p in parameters.items()}
    sae.load_state_dict(own, assign=True)
    return sae


def _known_fields(cls: type[T], mapping: Any, path: Path) -> T:
    """A dataclass from the keys it knows; others are from a later version and only warned of."""
    if not isinstance(mapping, dict):
        raise ValueError(f"{path}: a {type(mapping).__name__} stands where {cls.__name__}'s fields belong")
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    _warn_unknown(path, mapping, known)
    try:
        return from_dict(cls, {key: value for key, value in mapping.items() if key in known})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _warn_unknown(path: Path, mapping: dict[str, Any], known: Any) -> None:
    for key in mapping:
        if key not in known:
            _log.warning("%s: ignoring the unknown key %r; %s", path, key, nearest(key, known))
