"""Small things that the tests of this package share: a byte tokenizer, a model in closed form, stores."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from interp.activations.manifest import Manifest
from interp.activations.packing import TokenContexts
from interp.activations.store import ActivationStore
from interp.activations.writer import ShardWriter
from interp.models.sites import Site

BOS, SPECIAL = 1, frozenset([0, 1, 2])


class ByteTokenizer:
    """Token = byte + 3; 0, 1 and 2 are special, 1 is BOS."""

    bos_token_id: int | None = BOS
    all_special_ids = sorted(SPECIAL)
    added_tokens_decoder: ClassVar[dict] = {}

    def __init__(self, adds_bos: bool = False) -> None:
        self.adds_bos = adds_bos

    def __call__(self, texts, add_special_tokens: bool = True, **_):
        one = isinstance(texts, str)
        prefix = [BOS] if self.adds_bos and add_special_tokens else []
        ids = [prefix + [3 + byte for byte in text.encode()] for text in ([texts] if one else texts)]
        return {"input_ids": ids[0] if one else ids}

    def get_vocab(self):
        return {str(i): i for i in range(259)}


class RunningSum:
    """A causal "model": at layer l, (l + 1) times a decaying sum of what stands in the same segment."""

    tokenizer = ByteTokenizer()
    n_ctx = 512
    device = torch.device("cpu")
    dtype = torch.float32
    special_token_ids = SPECIAL

    def __init__(self, d: int = 8, n_layers: int = 4) -> None:
        generator = torch.Generator().manual_seed(0)
        self.table = torch.randn(259, d, generator=generator)
        self.n_layers, self.d = n_layers, d
        self.shapes: list[tuple[int, ...]] = []

    def check_site(self, site: str | Site) -> Site:
        parsed = Site.parse(site)
        if parsed.layer is None or parsed.layer >= self.n_layers:
            raise ValueError(f"site {parsed} is not one of 0..{self.n_layers - 1}")
        return parsed

    def width(self, site: Site) -> int:
        return self.d

    def fingerprint(self) -> dict[str, str]:
        return {"name": "running-sum", "sha256": str(float(self.table.sum()))}

    def activations(self, tokens, sites, *, attention_mask=None, position_ids=None, segment_ids=None):
        self.shapes.append(tuple(tokens.shape))
        if segment_ids is None:
            segment_ids = torch.zeros_like(tokens)
        total = self.table[tokens] + position_ids[..., None]
        for t in range(1, tokens.shape[1]):
            same = (segment_ids[:, t] == segment_ids[:, t - 1])[:, None]
            total[:, t] += torch.where(same, 0.5 * total[:, t - 1], 0.0)
        return {site: total * (site.layer + 1) for site in sites}


def make_contexts(n: int = 200, longest: int = 32, seed: int = 0, per_document: int = 2) -> TokenContexts:
    """Contexts of random length (at least 4), `per_document` of them to a document; token 7 is special."""
    random = np.random.default_rng(seed)
    lengths = random.integers(4, longest + 1, size=n)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return TokenContexts(
        random.integers(3, 50, starts[-1]),
        starts,
        np.arange(n) // per_document,
        np.arange(n + 1),
        context_size=longest,
        special_token_ids=[7],
    )


def write_store(
    folder: Path, contexts: TokenContexts, values: dict[str, Tensor], shards: list[int] | None = None, **plan
) -> ActivationStore:
    """A store of given rows; `shards`: write only these (and open nothing)."""
    widths = {site: rows.shape[1] for site, rows in values.items()}
    manifest = Manifest.plan(widths, contexts.lengths, contexts=contexts.identity(), **plan)
    writer = ShardWriter(folder, manifest)
    for index in writer.pending() if shards is None else shards:
        shard = manifest.shards[index]
        columns = contexts.rows(shard.first_context, shard.first_context + shard.n_contexts)
        buffer = writer.begin(index, columns)
        for site, rows in values.items():
            here = rows[shard.first_row : shard.first_row + shard.n_rows]
            buffer.put(site, torch.arange(shard.n_rows), here)
        writer.commit(buffer)
    return ActivationStore.open(folder) if shards is None else ActivationStore(folder, manifest)


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Every file of a store and its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def sorted_rows(rows: Tensor) -> Tensor:
    """Rows in lexicographic order: equal for equal sets of rows."""
    array = rows.float().numpy()
    return torch.from_numpy(array[np.lexsort(array.T[::-1])].copy())
