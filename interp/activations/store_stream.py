"""Shuffled batches from a store on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.activations.manifest import norm_name, scale_name
from interp.activations.mixing import Blocks, MixedStream, Pool
from interp.activations.row_format import STORED_DTYPES
from interp.activations.source import Provenance, RowCounts
from interp.activations.store import ActivationStore
from interp.core.device import make_generator
from interp.core.progress import progress as progress_bar
from interp.models.sites import Site

_MEDIAN_ROWS = 16_384  # rows from which the median norm is estimated
_SHARDS_WITH_A_BAR = 64  # fewer are looked through in no time


class RowFilter:
    """Which rows are served: not those at some positions, not special tokens, none above a norm."""

    def __init__(
        self, skip_positions: Sequence[int], special_token_ids: Sequence[int], max_norm: float | None = None
    ) -> None:
        self.skip_positions = np.asarray(sorted(skip_positions), dtype=np.int64)
        self.special = np.asarray(sorted(special_token_ids), dtype=np.int64)
        self.max_norm = max_norm

    def provenance(self, model: dict[str, Any], contexts: dict[str, Any]) -> Provenance:
        """Of a source of these rows."""
        return Provenance(
            model, contexts, tuple(self.skip_positions.tolist()), len(self.special) > 0, self.max_norm
        )

    def within_norm(self, values: Float[Tensor, "n d"]) -> Bool[Tensor, " n"]:
        """Mask of the rows whose norm is not above `max_norm`."""
        if self.max_norm is None:
            return torch.ones(len(values), dtype=torch.bool, device=values.device)
        return torch.linalg.vector_norm(values.float(), dim=-1) <= self.max_norm

    def split(self, tokens: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Masks (kept, dropped for their position, dropped as special)."""
        at_position = np.isin(positions, self.skip_positions)
        special = np.isin(tokens, self.special) & ~at_position
        return ~(at_position | special), at_position, special


class StoreStream(MixedStream):
    """Rows of one or several sites of a store, every kept row once an epoch, in bounded memory.

    Of several sites a batch holds the same tokens' activations side by side, [n, sum of widths]: see `sites` and
    `widths`. The rows and their order are those of each site by itself, unless norms are bounded.

    Args:
        store: the store; or several by name, of different models on the same contexts. Their sites are then called
            ``"name/site"``.
        site: one of its sites, or several; may be left out when there is only one.
        seed: determines, with the epoch, the order.
        buffer_tokens: most rows in memory, and so the peak: buffer_tokens * (d * bytes a number + 16) bytes.
        block_tokens: rows that are read in one go. Blocks in the buffer should number 64 or more.
        skip_positions: positions that are left out. Position 0, whatever token stands there, is the
            attention sink: its norm is a hundred times that of the others.
        skip_special: leave special tokens out.
        max_norm_multiple: leave out rows whose norm is above this many times the median (attention sinks
            that stand at another position); the bound is then `max_norm`. The norms are in the store: no
            activations are read for it. Of several sites, the first one's norms decide.
        dtype: type of the batches; None: as stored (int8 as float32).

    Raises:
        ValueError: an unknown site, one that is named twice, or stores that aren't of the same contexts.
    """

    def __init__(
        self,
        store: ActivationStore | Mapping[str, ActivationStore],
        site: str | Site | Sequence[str | Site] | None = None,
        *,
        seed: int = 0,
        buffer_tokens: int = 262_144,
        block_tokens: int = 1024,
        skip_positions: Sequence[int] = (0,),
        skip_special: bool = True,
        max_norm_multiple: float | None = None,
        dtype: torch.dtype | None = torch.float32,
    ) -> None:
        if block_tokens < 1:
            raise ValueError(f"block_tokens={block_tokens}: a block has at least one row")
        self.stores = dict(store) if isinstance(store, Mapping) else {"": store}
        self.store = first = _aligned(self.stores)
        places = _places(self.stores, site)
        rows = RowFilter(skip_positions, first.special_token_ids if skip_special else ())
        blocks = _StoreBlocks(places, rows, block_tokens, max_norm_multiple, seed)
        super().__init__(
            blocks,
            seed=seed,
            buffer_rows=buffer_tokens,
            dtype=dtype,
            prefetch=True,
            provenance=rows.provenance(first.manifest.model, first.manifest.contexts),
        )
        self.max_norm = rows.max_norm


def _aligned(stores: Mapping[str, ActivationStore]) -> ActivationStore:
    """The first of some stores. Raises ValueError unless they hold the same contexts, row by row."""
    if not stores:
        raise ValueError("store is empty: name at least one store")
    (name, first), *others = stores.items()
    for other, store in others:
        here, there = first.manifest, store.manifest
        if here.dtype != there.dtype:
            raise ValueError(
                f"the stores {name!r} and {other!r} hold {here.dtype} and {there.dtype}: harvest both in one type"
            )
        if here.contexts != there.contexts or here.n_tokens != there.n_tokens or not here.contexts:
            raise ValueError(
                f"the stores {name!r} ({first.folder}) and {other!r} ({store.folder}) are not of the same contexts: "
                "harvest both models on what one call of `pack` returned"
            )
    return first


def _places(
    stores: Mapping[str, ActivationStore], site: str | Site | Sequence[str | Site] | None
) -> dict[str, tuple[ActivationStore, str]]:
    """Where the rows of each site are, by its name."""
    asked = [site] if site is None or isinstance(site, str | Site) else list(site)
    if not asked:
        raise ValueError("site is empty: name at least one site")
    places: dict[str, tuple[ActivationStore, str]] = {}
    for name, store in stores.items():
        for one in asked:
            own = store.site_name(one)
            label = f"{name}/{own}" if name else own
            if label in places:
                raise ValueError(f"site: {label} is named twice")
            places[label] = store, own
    return places


class _StoreBlocks(Blocks):
    """Runs of `block_rows` rows of each shard of the first store."""

    def __init__(
        self,
        places: Mapping[str, tuple[ActivationStore, str]],
        rows: RowFilter,
        block_rows: int,
        max_norm_multiple: float | None,
        seed: int,
    ) -> None:
        self._places, self._filter, self.block_rows = tuple(places.values()), rows, block_rows
        self.store, self.site = self._places[0]
        self.sites = {label: store.width(own) for label, (store, own) in places.items()}
        runs = []
        for shard in self.store.manifest.shards:
            starts = np.arange(0, shard.n_rows, block_rows)
            lengths = np.minimum(block_rows, shard.n_rows - starts)
            runs.append(np.stack([shard.first_row + starts, lengths], axis=1))
        self._runs = np.concatenate(runs)
        self._count()
        if max_norm_multiple is not None:
            self._bound_norms(max_norm_multiple, seed)

    def _count(self) -> None:
        """How many rows of each block are served, from what describes the rows: no activations are read."""
        shards, kept = self.store.manifest.shards, []
        dropped = np.zeros(3, dtype=np.int64)
        enabled = "auto" if len(shards) >= _SHARDS_WITH_A_BAR else False
        with progress_bar(shards, desc="read positions", unit="shard", enabled=enabled) as bar:  # type: ignore[arg-type]
            for shard in bar:
                keep, *why = self._masks(slice(shard.first_row, shard.first_row + shard.n_rows))
                kept.append(
                    np.add.reduceat(keep, np.arange(0, shard.n_rows, self.block_rows), dtype=np.int64)
                )
                dropped += [int(mask.sum()) for mask in why]
        self.kept = np.concatenate(kept)
        self.counts = RowCounts(int(self.kept.sum()), *dropped.tolist())

    def _masks(self, rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Masks of rows of the store: kept, dropped for their position, as special, for their norm."""
        tokens, positions = self.store.tokens_and_positions(rows)
        keep, at_position, special = self._filter.split(tokens.numpy(), positions.numpy())
        if self._filter.max_norm is None:
            return keep, at_position, special, np.zeros_like(keep)
        large = self.store.row_norms(self.site, rows).numpy() > self._filter.max_norm
        return keep & ~large, at_position, special, keep & large

    def _bound_norms(self, multiple: float, seed: int) -> None:
        if multiple <= 1:
            raise ValueError(f"max_norm_multiple={multiple} would drop half the rows: give more than 1")
        if self.counts.kept == 0:
            return
        rows = self._sample_rows(min(_MEDIAN_ROWS, self.counts.kept), seed)
        self._filter.max_norm = multiple * float(self.store.row_norms(self.site, rows).median())
        self._count()

    def pool(self, rows: int) -> Pool:
        return Pool.empty(rows, self.sites.values(), STORED_DTYPES[self.store.manifest.dtype])

    def load(self, blocks: np.ndarray, pool: Pool, first: int) -> Int[Tensor, " n"]:
        served = []
        for block in blocks.tolist():
            start, n_rows = self._runs[block].tolist()
            here = slice(first, first + n_rows)
            wanted: dict[ActivationStore, dict[str, Tensor]] = {
                self.store: {
                    "token_ids": pool.tokens[here],
                    "positions": pool.positions[here],
                    "doc_ids": pool.doc_ids[here],
                }
            }
            for i, (store, site) in enumerate(self._places):
                out = wanted.setdefault(store, {})
                out[site] = pool.values[i][here]
                if pool.scales is not None:
                    out[scale_name(site)] = pool.scales[i][here]
            norms = torch.empty(n_rows)
            if self._filter.max_norm is not None:
                wanted[self.store][norm_name(self.site)] = norms
            for store, out in wanted.items():
                store.read_into(start, out)
            keep = self._filter.split(pool.tokens[here].numpy(), pool.positions[here].numpy())[0]
            if self._filter.max_norm is not None:
                keep &= norms.numpy() <= self._filter.max_norm
            served.append(torch.from_numpy(np.flatnonzero(keep)) + first)
            first += n_rows
        return torch.cat(served)

    def sample(self, n: int, seed: int) -> Float[Tensor, "n d"]:
        rows = self._sample_rows(n, seed)
        parts = [store.read(site, rows) for store, site in self._places]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _sample_rows(self, n: int, seed: int) -> Int[Tensor, " n"]:
        """Some of the rows that are served, in order."""
        generator = make_generator(seed, "sample")
        random = np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))
        chosen = np.sort(random.choice(int(self.kept.sum()), size=n, replace=False, shuffle=False))
        ends = np.cumsum(self.kept)
        blocks = np.searchsorted(ends, chosen, side="right")
        rows = []
        for block in np.unique(blocks).tolist():
            first, n_rows = self._runs[block].tolist()
            nth = chosen[blocks == block] - (ends[block] - self.kept[block])
            rows.append(np.flatnonzero(self._masks(slice(first, first + n_rows))[0])[nth] + first)
        return torch.from_numpy(np.concatenate(rows))
