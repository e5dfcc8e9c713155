"""Probes on disk: `probes.json` says what they are, `probes.safetensors` holds the numbers."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from interp.core.config import from_dict
from interp.core.files import atomic_write, read_json, write_json
from interp.probes.bank import ProbeBank, ProbeSpec

CONFIG, WEIGHTS, VERSION = "probes.json", "probes.safetensors", 1


def save_probes(bank: ProbeBank, folder: str | os.PathLike[str], **about: Any) -> None:
    """Write a bank. `about` (model, treebank, ...) is kept beside it."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in bank.state_dict().items()}
    with atomic_write(Path(folder) / WEIGHTS) as temporary:
        save_file(tensors, temporary)
    facts = {
        "version": VERSION,
        "d": bank.weight.shape[1],
        "relations": list(bank.relations),
        "specs": [asdict(spec) for spec in bank.specs],
        "about": about,
    }
    write_json(Path(folder) / CONFIG, facts)


def load_probes(folder: str | os.PathLike[str]) -> ProbeBank:
    """Read a bank. Raises ValueError for a folder without one, or one of another version."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise ValueError(f"folder={os.fspath(folder)!r} holds no probes ({CONFIG} is missing)")
    facts = read_json(path)
    if facts.get("version") != VERSION:
        raise ValueError(f"{path} has version {facts.get('version')}, this code reads version {VERSION}")
    specs = [from_dict(ProbeSpec, spec) for spec in facts["specs"]]
    layers = sorted({spec.layer for spec in specs})
    bank = ProbeBank(specs, facts["d"], layers, facts["relations"])
    bank.load_state_dict(load_file(Path(folder) / WEIGHTS))
    return bank.requires_grad_(False)
