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

from interp.core.device import dtype_name
from interp.models.sites import Site
from interp.sae.dictionary import Dictionary
from interp.sae.gated import GatedSAE, GatedSAEConfig
from interp.sae.jumprelu import JumpReLUConfig, JumpReLUSAE
from interp.sae.saving import fill
from interp.sae.standard import StandardSAE, StandardSAEConfig
from interp.sae.tied import TiedSAE


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


def check_names(tensors: Mapping[str, Tensor], names: Mapping[str, str], source: Path) -> None:
    """Raise ValueError naming missing and unknown tensors."""
    lacking = [theirs for theirs in names.values() if theirs not in tensors]
    foreign = [key for key in tensors if key not in names.values()]
    if lacking or foreign:
        raise ValueError(
            f"{source}: expected the tensors {', '.join(names.values())}; missing: "
            f"{', '.join(lacking) or 'none'}, unknown: {', '.join(foreign) or 'none'}"
        )


def from_theirs(
    sae: Dictionary, tensors: Mapping[str, Tensor], names: Mapping[str, str], source: Path
) -> None:
    """Copy their tensors in; `check_names` has passed."""
    ours = {}
    for own, theirs in names.items():
        tensor = tensors[theirs]
        if own.endswith("*") and tensor.dim() != 2:
            raise ValueError(f"{source}: {theirs} has shape {tuple(tensor.shape)}; it should be a matrix")
        ours[own.rstrip("*")] = tensor.T if own.endswith("*") else tensor
    fill(sae, ours, source)


def sizes(d_in: Any, d_sae: Any, encoder: Tensor, row_per_latent: bool, source: Path) -> tuple[int, int]:
    """(d_in, d_sae) of the config, or of the encoder's shape where that leaves no doubt."""
    if d_in is not None and d_sae is not None:
        return int(d_in), int(d_sae)
    rows, columns = encoder.shape
    if rows == columns:
        raise ValueError(
            f"{source}: the encoder is {rows} x {columns} and the config gives no d_in and d_sae: nothing "
            "tells which side is which; add them to the config"
        )
    return (columns, rows) if row_per_latent else (rows, columns)


def empty(
    architecture: str,
    d_in: int,
    d_sae: int,
    centred: bool,
    dtype: torch.dtype,
    device: torch.device | str,
) -> Dictionary:
    """A dictionary of zeros."""
    name = dtype_name(dtype)
    if architecture == "gated":
        return GatedSAE(GatedSAEConfig(d_in, d_sae, centred, name), seed=None, device=device)
    if architecture == "standard":
        return StandardSAE(StandardSAEConfig(d_in, d_sae, centred, name), seed=None, device=device)
    return JumpReLUSAE(JumpReLUConfig(d_in, d_sae, centred, name), device=device)


def parses(site: str) -> bool:
    """Whether a string is the name of a site."""
    try:
        Site.parse(site)
    except ValueError:
        return False
    return True
