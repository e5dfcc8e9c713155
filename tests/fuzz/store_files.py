"""An activation store to be damaged: its manifest, side files and shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from interp.activations.store import ActivationStore
from interp.activations.stream import StoreStream
from tests.activations.synthetic import make_contexts, write_store

SITES = {"resid_post.1": 6, "mlp_out.0": 3}


def make(folder: Path) -> None:
    """A small store of three shards and two sites."""
    contexts = make_contexts(30, longest=12)
    generator = torch.Generator().manual_seed(1)
    values = {site: torch.randn(contexts.n_tokens, d, generator=generator) for site, d in SITES.items()}
    write_store(
        folder, contexts, values, dtype="int8", shard_tokens=100, model={"name": "fuzzed", "weights": "0"}
    )


def read(folder: Path) -> dict[str, Any]:
    """Everything that a user gets out of a store, by name. Raises ValueError or OSError naming a damaged file."""
    store = ActivationStore.open(folder)
    got: dict[str, Any] = {f"columns.{name}": column for name, column in store.columns()._asdict().items()}
    for site in store.sites:
        got[f"{site}.values"] = store.read(site, slice(None))
        got[f"{site}.some"] = store.read(site, range(0, store.n_tokens, 7))
        got[f"{site}.row_norms"] = store.row_norms(site, slice(None))
        got[f"{site}.norms"] = [store.norms(site, position0=first) for first in (False, True)]
    got["contexts"] = [store.context(index).tolist() for index in range(store.n_contexts)]
    got["special"] = store.special_token_ids
    stream = StoreStream(store, "resid_post.1", buffer_tokens=600, block_tokens=50, max_norm_multiple=3.0)
    got["stream"] = stream.next_batch(60).values
    got["counts"], got["provenance"] = stream.counts, stream.provenance
    store.verify(progress=False)
    return got
