"""What reading and writing other libraries' files has in common.

A name map says which of their tensors is which of ours; a star marks a matrix that they store transposed.
Shapes are held to the config's d_in and d_sae: a matrix that only fits transposed is refused, never turned.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.core.config import from_dict
from interp.core.device import dtype_name
from interp.core.files import read_sealed_json, sha256_file, write_sealed_json
from interp.core.tensor_files import check_finite
from interp.models.sites import Site
from interp.sae.architectures.gated import GatedSAE
from interp.sae.architectures.jumprelu import JumpReLUSAE
from interp.sae.architectures.standard import StandardSAE
from interp.sae.architectures.tied import TiedSAE
from interp.sae.dictionary import Dictionary, DictionaryConfig
from interp.sae.metadata import SAEMetadata
from interp.sae.saving import fill

CHECKSUMS = "sha256.json"
_CLASSES: dict[type[DictionaryConfig], Any] = {
    kind.config_class: kind for kind in (GatedSAE, StandardSAE, JumpReLUSAE)
}
_CONFIGS = {kind.architecture: kind.config_class for kind in (GatedSAE, StandardSAE, JumpReLUSAE)}


def exportable(sae: Dictionary) -> Dictionary:
    """A copy on the CPU that takes raw activations; of a tied SAE, the standard SAE of the same function."""
    if getattr(sae, "W_mag", None) is not None:
        raise ValueError("tied = False: other libraries have no Gated SAE with its own W_mag")
    sae = sae.to_standard().cpu() if isinstance(sae, TiedSAE) else copy.deepcopy(sae).cpu()
    if not sae.metadata.activation_scale_folded:
        sae.fold_activation_scale_(sae.metadata.activation_scale)
    return sae


def to_theirs(sae: Dictionary, names: Mapping[str, str]) -> dict[str, Tensor]:
    """A dictionary's tensors under their names and in their orientation."""
    tensors = {}
    for ours, theirs in names.items():
        tensor = getattr(sae, ours.rstrip("*"))
        if tensor is None:  # r_mag of a Gated SAE without it
            tensor = torch.zeros_like(sae.get_parameter("b_mag"))
        tensor = tensor.detach()
        tensors[theirs] = (tensor.T if ours.endswith("*") else tensor).clone(
            memory_format=torch.contiguous_format
        )
    return tensors


def save_checksums(folder: Path, *names: str) -> None:
    """Write ``sha256.json``, the checksums of the files that were just exported."""
    write_sealed_json(folder / CHECKSUMS, {"sha256": {name: sha256_file(folder / name) for name in names}})


def check_checksums(folder: Path, *names: str) -> None:
    """Raise ValueError where a file is not the one that was exported; the other library's folders have no checksums."""
    path = folder / CHECKSUMS
    if not path.exists():
        return
    known = read_sealed_json(path, ("sha256",))
    for name in names:
        if known["sha256"].get(name) != sha256_file(folder / name):
            raise ValueError(
                f"{folder / name} was damaged or changed after it was exported (its SHA-256 is not the one in "
                f"{CHECKSUMS}): copy it again, or remove {CHECKSUMS} to read it as it stands"
            )


def check_names(tensors: Mapping[str, Tensor], names: Mapping[str, str], source: Path) -> None:
    """Raise ValueError naming missing and unknown tensors, and those that aren't finite real numbers."""
    lacking = [theirs for theirs in names.values() if theirs not in tensors]
    foreign = [key for key in tensors if key not in names.values()]
    if lacking or foreign:
        raise ValueError(
            f"{source}: expected the tensors {', '.join(names.values())}; missing: "
            f"{', '.join(lacking) or 'none'}, unknown: {', '.join(foreign) or 'none'}"
        )
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ValueError(
                f"{source}: tensor {name!r} is {dtype_name(tensor.dtype)}, not of floating point; copy it again"
            )
        check_finite(tensor, name, source)


def from_theirs(
    cfg: DictionaryConfig,
    tensors: Mapping[str, Tensor],
    names: Mapping[str, str],
    source: Path,
    device: torch.device | str,
) -> Dictionary:
    """A dictionary of their tensors; `check_names` has passed."""
    ours = {}
    for own, theirs in names.items():
        tensor = tensors[theirs]
        if own.endswith("*") and tensor.dim() != 2:
            raise ValueError(f"{source}: {theirs} has shape {tuple(tensor.shape)}; it should be a matrix")
        ours[own.rstrip("*")] = tensor.T if own.endswith("*") else tensor
    return fill(lambda at: _CLASSES[type(cfg)](cfg, seed=None, device=at), ours, source, device)


def sizes(d_in: Any, d_sae: Any, encoder: Tensor, row_per_latent: bool, source: Path) -> tuple[int, int]:
    """(d_in, d_sae) of the config, or of the encoder's shape where that leaves no doubt."""
    if encoder.dim() != 2:
        raise ValueError(f"{source}: the encoder has shape {tuple(encoder.shape)}; it should be a matrix")
    if d_in is not None and d_sae is not None:
        if type(d_in) is not int or type(d_sae) is not int:
            raise ValueError(
                f"{source}: its config gives the sizes d_in = {d_in!r}, d_sae = {d_sae!r}: not integers"
            )
        return d_in, d_sae
    rows, columns = encoder.shape
    if rows == columns:
        raise ValueError(
            f"{source}: the encoder is {rows} x {columns} and the config gives no d_in and d_sae: nothing "
            "tells which side is which; add them to the config"
        )
    return (columns, rows) if row_per_latent else (rows, columns)


def config(
    architecture: str, d_in: int, d_sae: int, centred: bool, dtype: torch.dtype, source: Path
) -> DictionaryConfig:
    """The configuration of a dictionary; ValueError naming the file where there can't be such a one."""
    try:
        return _CONFIGS[architecture](d_in, d_sae, centred, dtype_name(dtype))
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def metadata(fields: Mapping[str, Any], source: Path) -> SAEMetadata:
    """What their config says of the training; ValueError naming the file where a value is of another kind."""
    try:
        return from_dict(SAEMetadata, fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{source}: {error}") from error


def mapping(value: Any, what: str, source: Path) -> dict[str, Any]:
    """The value itself. Raises ValueError unless it is a mapping."""
    if not isinstance(value, dict):
        raise ValueError(f"{source}: {what} is a {type(value).__name__}, not a mapping; copy it again")
    return value


def parses(site: str) -> bool:
    """Whether a string is the name of a site."""
    try:
        Site.parse(site)
    except ValueError:
        return False
    return True
