"""dictionary_learning folders: ``config.json`` and ``ae.pt``, as `saprmarks/dictionary_learning` has them."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.core.files import atomic_write, read_json, write_json
from interp.core.messages import one_of
from interp.models.sites import Site
from interp.sae.dictionary import Dictionary
from interp.sae.foreign import check_names, empty, exportable, from_theirs, parses, sizes, to_theirs
from interp.sae.gated import GatedSAE
from interp.sae.metadata import SAEMetadata

AE, CONFIG = "ae.pt", "config.json"
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
    write_json(folder / CONFIG, {"trainer": trainer, "buffer": {}})
    return folder


def load_dictionary_learning(
    folder: str | os.PathLike[str], *, device: torch.device | str = "cpu"
) -> Dictionary:
    """Read a dictionary_learning folder: AutoEncoder, AutoEncoderNew, GatedAutoEncoder, JumpReluAutoEncoder.

    A backup made in the middle of a run (it holds optimiser and norm factor, too) is recognised, and its
    biases are brought to raw activations.

    Raises:
        ValueError: another class, or shapes that contradict the config.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder / CONFIG} is missing: it says which class {AE} holds")
    trainer = read_json(folder / CONFIG).get("trainer", {})
    name = trainer.get("dict_class")
    one_of(f"{folder / CONFIG}: trainer.dict_class", name, tuple(NAMES))
    source = folder / AE
    content = _read(source)
    backup = content if "ae" in content else None
    tensors = {key: value for key, value in content.get("ae", content).items() if isinstance(value, Tensor)}
    check_names(tensors, NAMES[name], source)
    architecture, centred, encoder, row_per_latent = _CLASSES[name]
    shape = trainer.get("activation_dim"), trainer.get("dict_size")
    d_in, d_sae = sizes(*shape, tensors[encoder], row_per_latent, source)
    sae = empty(architecture, d_in, d_sae, centred, tensors[encoder].dtype, device)
    from_theirs(sae, tensors, NAMES[name], source)
    sae.metadata = SAEMetadata(
        model_name=trainer.get("lm_name"),
        site=trainer.get("submodule_name"),
        skip_positions=(),
        l1_coefficient=trainer.get("l1_penalty"),
        lr=trainer.get("lr"),
        steps=trainer.get("steps"),
        extra={"dictionary_learning_trainer": trainer},
    )
    if backup is not None:
        sae.fold_activation_scale_(1.0 / float(backup.get("norm_factor") or 1.0))
    return sae


def _read(path: Path) -> dict[str, Any]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(
            f"{path} is broken, or holds more than tensors, numbers and strings (which could run code): export "
            "it again as a state dict"
        ) from error


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
