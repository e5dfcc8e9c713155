"""dictionary_learning folders: ``config.json`` and ``ae.pt``, as `saprmarks/dictionary_learning` has them."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.core.config import to_dict
from interp.core.files import atomic_write, read_json, write_json
from interp.core.messages import one_of
from interp.core.torch_files import read_torch
from interp.models.sites import Site
from interp.sae.architectures.gated import GatedSAE
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

AE, CONFIG = "ae.pt", "config.json"
# What their format has no words for.
_OURS = ("model_fingerprint", "skip_positions", "special_tokens_excluded", "max_norm", "context_size")
NAMES = {
    "AutoEncoder": {
        "W_enc": "encoder.weight",
        "b_enc": "encoder.bias",
        "W_dec*": "decoder.weight",
        "b_dec": "bias",
    },
    "AutoEncoderNew": {
        "W_enc": "encoder.weight",
        "b_enc": "encoder.bias",
        "W_dec*": "decoder.weight",
        "b_dec": "decoder.bias",
    },
    "GatedAutoEncoder": {
        "W_gate": "encoder.weight",
        "b_gate": "gate_bias",
        "b_mag": "mag_bias",
        "r_mag": "r_mag",
        "W_dec*": "decoder.weight",
        "b_dec": "decoder_bias",
    },
    "JumpReluAutoEncoder": {
        "W_enc*": "W_enc",
        "b_enc": "b_enc",
        "threshold": "threshold",
        "W_dec": "W_dec",
        "b_dec": "b_dec",
    },
}
# class -> (our architecture, whether it centres its input, its encoder, whether that has a row per latent)
_CLASSES = {
    "AutoEncoder": ("standard", True, "encoder.weight", True),
    "AutoEncoderNew": ("standard", False, "encoder.weight", True),
    "GatedAutoEncoder": ("gated", True, "encoder.weight", True),
    "JumpReluAutoEncoder": ("jumprelu", False, "W_enc", False),
}


def save_dictionary_learning(sae: Dictionary, folder: str | os.PathLike[str]) -> Path:
    """Write a folder that dictionary_learning reads.

    A gated SAE that doesn't centre its input, and a JumpReLU SAE that does, are first brought to the form
    that exists there, exactly, by a shift of their biases.
    """
    folder, sae = Path(folder), exportable(sae)
    if sae.architecture == "gated":
        name = "GatedAutoEncoder"
    elif sae.architecture == "jumprelu":
        name = "JumpReluAutoEncoder"
    else:
        name = "AutoEncoder" if sae.cfg.apply_b_dec_to_input else "AutoEncoderNew"
    if sae.cfg.apply_b_dec_to_input != _CLASSES[name][1]:
        _move_centring(sae)
    known = sae.metadata
    site = Site.parse(known.site) if known.site is not None and parses(known.site) else None
    trainer = {
        **known.extra.get("dictionary_learning_trainer", {}),
        "dict_class": name,
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
        torch.save(to_theirs(sae, NAMES[name]), temporary)
    about = {name: value for name, value in to_dict(known).items() if name in _OURS}
    write_json(folder / CONFIG, {"trainer": trainer, "buffer": {}, "metadata": about})
    save_checksums(folder, CONFIG, AE)
    return folder


def load_dictionary_learning(
    folder: str | os.PathLike[str], *, device: torch.device | str = "cpu"
) -> Dictionary:
    """Read a dictionary_learning folder: AutoEncoder, AutoEncoderNew, GatedAutoEncoder, JumpReluAutoEncoder.

    A backup made in the middle of a run (it holds optimiser and norm factor, too) is recognised, and its
    biases are brought to raw activations.

    Raises:
        ValueError: another class, weights that are damaged, that aren't finite numbers or that contradict the
            config; the file is named.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder / CONFIG} is missing: it says which class {AE} holds")
    source = weights_file(folder / AE)
    check_checksums(folder, CONFIG, AE)
    content = read_json(folder / CONFIG, dict, nan=True)
    trainer = mapping(content.get("trainer", {}), "trainer", folder / CONFIG)
    about = mapping(content.get("metadata", {}), "metadata", folder / CONFIG)
    one_of(f"{folder / CONFIG}: trainer.dict_class", trainer.get("dict_class"), tuple(NAMES))
    name = trainer["dict_class"]
    stored = mapping(read_torch(source), "its content", source)
    backup = stored if "ae" in stored else None
    state = mapping(stored.get("ae", stored), "its state", source)
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    check_names(tensors, NAMES[name], source)
    architecture, centred, encoder, row_per_latent = _CLASSES[name]
    shape = trainer.get("activation_dim"), trainer.get("dict_size")
    d_in, d_sae = sizes(*shape, tensors[encoder], row_per_latent, source)
    form = config(architecture, d_in, d_sae, centred, tensors[encoder].dtype, folder / CONFIG)
    sae = from_theirs(form, tensors, NAMES[name], source, device)
    sae.metadata = metadata(
        {
            "model_name": trainer.get("lm_name"),
            "site": trainer.get("submodule_name"),
            "skip_positions": (),
            "l1_coefficient": trainer.get("l1_penalty"),
            "lr": trainer.get("lr"),
            "steps": trainer.get("steps"),
            "extra": {"dictionary_learning_trainer": trainer},
            **{key: about[key] for key in _OURS if key in about},
        },
        folder / CONFIG,
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


@torch.no_grad()
def _move_centring(sae: Dictionary) -> None:
    """Take the centring of the input out of the biases, or put it in: ``W (x - b) = W x - W b``."""
    sign = -1.0 if sae.cfg.apply_b_dec_to_input else 1.0
    if isinstance(sae, GatedSAE):
        shift = sign * (sae.W_gate @ sae.b_dec)
        sae.b_gate.add_(shift)
        sae.b_mag.add_(shift if sae.r_mag is None else sae.r_mag.exp() * shift)
    else:
        sae.get_parameter("b_enc").add_(sign * (sae.get_parameter("W_enc") @ sae.b_dec))
    sae.cfg = replace(sae.cfg, apply_b_dec_to_input=not sae.cfg.apply_b_dec_to_input)
