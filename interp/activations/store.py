"""Reading a store of activations.

    store/manifest.json                     what the rows are (manifest.py)
    store/shards/shard-000000.safetensors   token_ids, positions, doc_ids, context_ids, for each site the rows'
                                            norms "<site>.norm" and, of int8 rows, scales "<site>.scale"; then
                                            one tensor [n d] a site
    store/shards/shard-000000.json          checksums, sizes, norms; written last, so it marks a finished shard

Rows are in the order of contexts, and within a context in the order of tokens; padding is not stored. Shards and
side files say to which manifest they belong; whatever is read is held against a checksum first.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.activations.manifest import COLUMNS, Manifest, norm_name, scale_name, shard_path, side_path
from interp.activations.row_format import decode_rows
from interp.activations.shard_file import ShardFile
from interp.activations.side_file import SideFile
from interp.activations.writer import ShardWriter
from interp.core.messages import one_of
from interp.core.progress import progress as progress_bar
from interp.models.sites import Site

__all__ = ["ActivationStore", "NormStats", "ShardWriter", "StoreColumns"]

Rows = slice | Sequence[int] | Tensor


class StoreColumns(NamedTuple):
    """What is known of each row: token, position in its segment, document, context."""

    token_ids: Int[Tensor, " n"]
    positions: Int[Tensor, " n"]
    doc_ids: Int[Tensor, " n"]
    context_ids: Int[Tensor, " n"]


@dataclass(frozen=True)
class NormStats:
    """Norms of the rows at a site: how many rows, their mean norm, root mean square norm and largest norm."""

    n: int
    mean: float
    rms: float
    max: float


class ActivationStore:
    """A finished store; any number of processes and threads may read it at once."""

    def __init__(self, folder: Path, manifest: Manifest, *, check: bool = True) -> None:
        self.folder, self.manifest, self._check = folder, manifest, check
        self._first_rows = np.array([shard.first_row for shard in manifest.shards] + [manifest.n_tokens])
        self._files: dict[int, ShardFile] = {}
        self._sides: dict[int, SideFile] = {}
        self._intact: dict[
            int, str
        ] = {}  # what of a shard has been held against its checksum: "head" or "all"
        self._starts: tuple[int, np.ndarray] | None = None  # of the contexts of the shard last asked for
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, *, check: bool = True) -> ActivationStore:
        """Open a store and see that every shard is there in full length.

        Args:
            check: compare a shard's SHA-256 when it is first read, which costs one more pass over its bytes (over
                its head only, a few bytes a row, where only tokens, positions and norms are asked for).

        Raises:
            ValueError: not a store, not finished, or with missing, truncated or foreign shards, which are named;
                later, while reading, a corrupt shard.
        """
        folder = Path(path)
        manifest = Manifest.read(folder)
        store = cls(folder, manifest, check=check)
        unfinished, broken = [], []
        for index in range(len(manifest.shards)):
            data, side = shard_path(folder, index), side_path(folder, index)
            if not side.exists():
                unfinished.append(side.name)
            elif not data.is_file() or data.stat().st_size != manifest.shard_bytes(index):
                broken.append(data.name)
        if broken:
            raise ValueError(
                f"{folder}: {len(broken)} shards are missing or truncated: {_some(broken)}. Copy the store "
                "again, or run the same harvest again: it writes just these"
            )
        if unfinished:
            raise ValueError(
                f"{folder} is not finished: {len(unfinished)} of {len(manifest.shards)} shards are still to "
                f"be written: {_some(unfinished)} not there. Run the same harvest again to finish it"
            )
        for index in range(len(manifest.shards)):
            store._side(index)
        return store

    def __repr__(self) -> str:
        sites = ", ".join(f"{site} [{width}]" for site, width in self.manifest.sites.items())
        return (
            f"ActivationStore({str(self.folder)!r}: {self.n_tokens:,} tokens in {self.n_contexts:,} "
            f"contexts, {self.manifest.dtype}, {sites})"
        )

    def __len__(self) -> int:
        return self.n_tokens

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.manifest.sites)

    @property
    def n_tokens(self) -> int:
        return self.manifest.n_tokens

    @property
    def n_contexts(self) -> int:
        return self.manifest.n_contexts

    @property
    def special_token_ids(self) -> tuple[int, ...]:
        return tuple(self.manifest.contexts.get("special_token_ids", ()))

    def site_name(self, site: str | Site | None = None) -> str:
        """The store's spelling of a site; None: its only one."""
        if site is None:
            if len(self.sites) > 1:
                raise ValueError(f"site: this store holds several, name one of {', '.join(self.sites)}")
            return self.sites[0]
        if str(site) not in self.sites:
            site = Site.parse(site)
            one_of("site", str(site), self.sites)
        return str(site)

    def width(self, site: str | Site | None = None) -> int:
        return self.manifest.sites[self.site_name(site)]

    def read(
        self, site: str | Site | None, rows: Rows, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "n d"]:
        """Activations of some rows: a slice (step 1) or row numbers in any order.

        Returned as stored (int8 as float32), or as `dtype`.
        """
        name = self.site_name(site)
        values = self._gather(name, rows)
        scale = self._gather(scale_name(name), rows) if self.manifest.dtype == "int8" else None
        return decode_rows(values, scale, dtype)

    def read_into(self, first: int, out: Mapping[str, Tensor]) -> None:
        """Read rows from `first` on, as stored, into tensors of one length.

        Args:
            out: by name in the shards: of a site, a column, a site's norms or scales; contiguous, of the stored type.
        """
        length = len(next(iter(out.values())))
        done = 0
        while done < length:
            index = int(np.searchsorted(self._first_rows, first + done, side="right")) - 1
            start = first + done - int(self._first_rows[index])
            count = min(length - done, self.manifest.shards[index].n_rows - start)
            part = "all" if any(name in self.sites for name in out) else "head"
            here = {name: tensor[done : done + count] for name, tensor in out.items()}
            self.shard(index, part).read_rows(start, here)
            done += count

    def columns(self, rows: Rows | None = None) -> StoreColumns:
        """Token, position, document and context of some rows; None: of all rows (24 bytes a row)."""
        chosen = slice(None) if rows is None else rows
        return StoreColumns(*(self._gather(name, chosen) for name in COLUMNS))

    def row_norms(self, site: str | Site | None, rows: Rows) -> Float[Tensor, " n"]:
        """Euclidean norms of some rows at a site, as they were before rounding."""
        return self._gather(norm_name(self.site_name(site)), rows)

    def tokens_and_positions(self, rows: Rows) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
        """The first two of `columns`."""
        return self._gather("token_ids", rows), self._gather("positions", rows)

    def context_rows(self, index: int) -> slice:
        """The rows of one context."""
        if not 0 <= index < self.n_contexts:
            raise IndexError(f"context {index} is not one of 0..{self.n_contexts - 1}")
        first_contexts = [shard.first_context for shard in self.manifest.shards]
        number = int(np.searchsorted(first_contexts, index, side="right")) - 1
        shard, kept = self.manifest.shards[number], self._starts
        if kept is None or kept[0] != number:
            ids = self._gather("context_ids", slice(shard.first_row, shard.first_row + shard.n_rows)).numpy()
            wanted = np.arange(shard.first_context, shard.first_context + shard.n_contexts + 1)
            kept = self._starts = number, shard.first_row + np.searchsorted(ids, wanted)
        first, last = kept[1][index - shard.first_context : index - shard.first_context + 2].tolist()
        return slice(first, last)

    def context(self, index: int) -> Int[Tensor, " s"]:
        """Token ids of one context."""
        return self._gather("token_ids", self.context_rows(index))

    def norms(self, site: str | Site | None = None, *, position0: bool = False) -> NormStats:
        """Norms of the rows at position 0, or of all others (from the side files: no shard is read)."""
        name, group = self.site_name(site), "position0" if position0 else "rest"
        parts = [self._side(i).norms[name][group] for i in range(len(self.manifest.shards))]
        n = sum(part.n for part in parts)
        return NormStats(
            n,
            sum(part.norm_sum for part in parts) / max(n, 1),
            (sum(part.norm_sum_of_squares for part in parts) / max(n, 1)) ** 0.5,
            max(part.norm_max for part in parts),
        )

    def verify(self, *, progress: bool = True) -> None:
        """Read every shard and compare its SHA-256. Raises ValueError naming all that differ."""
        shards = range(len(self.manifest.shards))
        enabled = "auto" if progress else False
        with progress_bar(shards, desc="verify", unit="shard", enabled=enabled) as bar:  # type: ignore[arg-type]
            self._refuse_corrupt([i for i in bar if not self._agrees(self._shard(i), i, "all")])

    def _side(self, index: int) -> SideFile:
        if index not in self._sides:
            self._sides[index] = SideFile.read(self.folder, index, self.manifest)
        return self._sides[index]

    def _agrees(self, shard: ShardFile, index: int, part: str) -> bool:
        side = self._side(index)
        if part == "all":
            return shard.sha256() == side.sha256
        return shard.sha256(before=self.sites[0]) == side.head_sha256

    def _refuse_corrupt(self, indices: list[int]) -> None:
        if indices:
            names = _some([shard_path(self.folder, i).name for i in indices])
            raise ValueError(
                f"{self.folder}: {len(indices)} shards are corrupt (SHA-256 differs): {names}. Delete them and "
                "run the same harvest again: it writes just these"
            )

    def shard(self, index: int, part: str = "all") -> ShardFile:
        """An open shard of which this part, "all" or the "head" (all but the sites' values), is intact."""
        with self._lock:
            shard = self._shard(index)
            if self._check and self._intact.get(index) not in (part, "all"):
                if not self._agrees(shard, index, part):
                    self._refuse_corrupt([index])
                self._intact[index] = part
            return shard

    def _shard(self, index: int) -> ShardFile:
        if index not in self._files:
            layout = self.manifest.layout(self.manifest.shards[index].n_rows)
            path = shard_path(self.folder, index)
            self._files[index] = ShardFile(path, layout, self.manifest.shard_metadata(index))
        return self._files[index]

    def _named(self, index: int, name: str) -> ShardFile:
        return self.shard(index, "all" if name in self.sites else "head")

    def _gather(self, name: str, rows: Rows) -> Tensor:
        if isinstance(rows, slice):
            first, last, step = rows.indices(self.n_tokens)
            if step != 1:
                raise ValueError(f"rows={rows}: give a slice of step 1, or the row numbers")
            return self._run(name, first, max(first, last))
        wanted = torch.as_tensor(rows, dtype=torch.long)
        if wanted.numel() and (wanted.min() < 0 or wanted.max() >= self.n_tokens):
            raise IndexError(
                f"rows run from {wanted.min()} to {wanted.max()}, the store from 0 to {len(self) - 1}"
            )
        shards = torch.searchsorted(torch.from_numpy(self._first_rows), wanted, right=True) - 1
        dtype, shape = self.manifest.layout(len(wanted))[name]
        out = torch.empty(shape, dtype=dtype)
        for index in shards.unique().tolist():
            here = (shards == index).nonzero()[:, 0]
            rows_here = (wanted[here] - int(self._first_rows[index])).numpy()
            out[here] = self._named(index, name).take(name, rows_here)
        return out

    def _run(self, name: str, first: int, last: int) -> Tensor:
        dtype, shape = self.manifest.layout(last - first)[name]
        out = torch.empty(shape, dtype=dtype)
        self.read_into(first, {name: out})
        return out


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
