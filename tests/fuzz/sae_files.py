"""Small good folders of dictionaries, in our format and in those of others, and of a steering vector, to be mutated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.core.config import to_dict
from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.matryoshka import MatryoshkaConfig, MatryoshkaSAE
from interp.sae.architectures.topk import TopKConfig, TopKSAE
from interp.sae.formats import NAMES, save_as
from interp.sae.loading import load_sae
from interp.sae.metadata import SAEMetadata
from interp.steering.vector import SteeringVector

D, F = 4, 6


def make(folder: Path) -> None:
    """Write ``ours/``, a folder of each other format and ``vector/`` into a folder; each time the same."""
    sae = GatedSAE(GatedSAEConfig(D, F), seed=1)
    with torch.no_grad():
        for k, vector in enumerate((sae.b_gate, sae.b_mag, sae.r_mag, sae.b_dec)):
            vector.copy_(torch.linspace(-0.5, 0.5, len(vector)) * (k + 1))
    sae.metadata = SAEMetadata(
        model_name="tiny", site="resid_post.1", max_norm=40.5, context_size=32, l1_coefficient=3.0, steps=100
    )
    sae.save_pretrained(folder / "ours")
    save_as(sae, folder / "saelens", "saelens")
    save_as(sae, folder / "gemma_scope", "gemma_scope")
    topk = TopKSAE(TopKConfig(D, F, k=2), seed=1)
    topk.metadata = sae.metadata
    save_as(topk, folder / "sparsify", "sparsify")
    nested = MatryoshkaSAE(MatryoshkaConfig(D, F, k=2, widths=(2, 6)), seed=1)
    nested.set_theta_(0.25)
    nested.metadata = sae.metadata
    save_as(nested, folder / "dictionary_learning", "dictionary_learning")
    directions = {layer: torch.linspace(-1, 1, D) * (layer + 1) for layer in (0, 2)}
    SteeringVector(directions, {"method": "mean difference", "n_pairs": 8}).save(folder / "vector")


def read(folder: Path) -> dict[str, Any]:
    """All that the folders say: tensors, configurations, metadata. Raises as the loaders do."""
    found: dict[str, Any] = {}
    for name in ("ours", *NAMES):
        sae = load_sae(folder / name)
        tensors: dict[str, Tensor] = dict(sae.state_dict())
        found[name] = {
            "architecture": sae.architecture,
            "config": to_dict(sae.cfg),
            "metadata": to_dict(sae.metadata),
            "tensors": tensors,
        }
    vector = SteeringVector.load(folder / "vector")
    found["vector"] = {"tensors": dict(vector.directions), "meta": vector.meta}
    return found


def agrees(found: dict[str, Any], right: dict[str, Any]) -> bool:
    """Ours are bound by checksums; in the formats of others another number is another number, but never NaN."""
    tensors = [tensor for part in found.values() for tensor in part["tensors"].values()]
    if not all(bool(tensor.isfinite().all()) for tensor in tensors):
        return False
    return all(
        str(found[name]) == str(right[name])
        and all(torch.equal(t, right[name]["tensors"][key]) for key, t in found[name]["tensors"].items())
        for name in ("ours", "vector")
    )
