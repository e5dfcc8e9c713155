"""Probes on disk: `probes.json` says what they are, `probes.safetensors` holds the numbers."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interp.core.config import from_dict
from interp.core.files import atomic_write, read_json, read_sealed_json, sha256_file, write_sealed_json
from interp.core.tensor_files import read_tensors, tensor_layout, write_tensors
from interp.probes.bank import ProbeBank, ProbeSpec

CONFIG, WEIGHTS, VERSION = "probes.json", "probes.safetensors", 2  # version 1 had no checksums


def save_probes(bank: ProbeBank, folder: str | os.PathLike[str], **about: Any) -> None:
    """Write a bank. `about` (model, treebank, ...) is kept beside it."""
    with atomic_write(Path(folder) / WEIGHTS) as temporary:
        checksum = write_tensors(temporary, bank.state_dict())
    facts = {
        "version": VERSION,
        "d": bank.weight.shape[1],
        "relations": list(bank.relations),
        "specs": [asdict(spec) for spec in bank.specs],
        "about": about,
        "sha256": checksum,
    }
    write_sealed_json(Path(folder) / CONFIG, facts)


def load_probes(folder: str | os.PathLike[str]) -> ProbeBank:
    """Read a bank.

    Raises:
        ValueError: a folder without one, or one of another version; a file that is damaged, or was changed after it was
            written. The file is named.
    """
    path, weights = Path(folder) / CONFIG, Path(folder) / WEIGHTS
    if not path.is_file():
        raise ValueError(f"folder={os.fspath(folder)!r} holds no probes ({CONFIG} is missing)")
    facts = read_json(path, dict, ("version", "d", "relations", "specs"))
    if facts["version"] not in (1, VERSION):
        raise ValueError(f"{path} has version {facts['version']!r}, this code reads up to {VERSION}")
    if facts["version"] != 1 and read_sealed_json(path, ("sha256",))["sha256"] != sha256_file(weights):
        raise ValueError(f"{weights} is corrupt (its SHA-256 is not the one in {CONFIG}): copy it again")
    try:
        specs = [from_dict(ProbeSpec, spec) for spec in facts["specs"]]
        sizes = (len(specs), facts["d"], max(spec.rank for spec in specs))
        held = tensor_layout(weights).entries.get("weight")
        if held is None or held.shape != sizes:
            raise ValueError(f"{WEIGHTS} doesn't hold weights of shape {sizes}")
        bank = ProbeBank(specs, facts["d"], sorted({spec.layer for spec in specs}), facts["relations"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    shapes = {name: tuple(tensor.shape) for name, tensor in bank.state_dict().items()}
    bank.load_state_dict(read_tensors(weights, shapes, floating=False))
    return bank.requires_grad_(False)
