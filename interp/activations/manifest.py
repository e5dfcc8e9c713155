"""The manifest of a store: what its rows are, and how they are cut into shards.

It is written once, before the first shard, and is a pure function of what was asked for: no times, no process
ids. So a harvest that is killed and resumed, or spread over other ranks, ends in the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interp.activations.row_format import STORED_DTYPES, stored_dtype_name
from interp.activations.shard_file import Layout, file_bytes
from interp.core.config import from_dict, to_dict
from interp.core.files import read_json

SCHEMA_VERSION = 1
MANIFEST_FILE = "manifest.json"
COLUMNS = {
    "token_ids": torch.int32,
    "positions": torch.int32,
    "doc_ids": torch.int64,
    "context_ids": torch.int64,
}


@dataclass(frozen=True)
class ShardPlan:
    """Whole contexts first_context..first_context+n_contexts-1, `n_rows` tokens in all."""

    first_context: int
    n_contexts: int
    first_row: int
    n_rows: int


@dataclass(frozen=True)
class Manifest:
    """What a store holds.

    `sites` maps each site to its width; `model` and `contexts` are the fingerprint of the model and the
    identity of the contexts (text, tokenizer, packing). `environment` is for the record: it may differ when
    a harvest is resumed.
    """

    sites: dict[str, int]
    dtype: str
    n_contexts: int
    n_tokens: int
    shards: tuple[ShardPlan, ...]
    model: dict[str, Any] = field(default_factory=dict)
    contexts: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def plan(
        cls,
        sites: Mapping[str, int],
        lengths: Sequence[int] | np.ndarray,
        *,
        dtype: str = "bfloat16",
        shard_tokens: int = 65_536,
        model: Mapping[str, Any] | None = None,
        contexts: Mapping[str, Any] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Cut contexts of these lengths into shards of about `shard_tokens` rows (a context is never cut)."""
        if not sites:
            raise ValueError("sites is empty: name at least one site")
        if shard_tokens < 1:
            raise ValueError(f"shard_tokens={shard_tokens}: a shard holds at least one token")
        ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
        if len(ends) == 0 or np.min(lengths) < 1:
            raise ValueError("lengths: there must be contexts, of at least one token each")
        shards: list[ShardPlan] = []
        context = row = 0
        while context < len(ends):
            last = max(int(np.searchsorted(ends, row + shard_tokens, side="right")), context + 1)
            shards.append(ShardPlan(context, last - context, row, int(ends[last - 1]) - row))
            context, row = last, int(ends[last - 1])
        return cls(
            sites=dict(sites),
            dtype=stored_dtype_name(dtype),
            n_contexts=len(ends),
            n_tokens=row,
            shards=tuple(shards),
            model=dict(model or {}),
            contexts=dict(contexts or {}),
            environment=dict(environment or {}),
        )

    def layout(self, n_rows: int) -> Layout:
        """Type and shape of every tensor in a shard of `n_rows` rows."""
        layout: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
        for site, width in self.sites.items():
            layout[site] = (STORED_DTYPES[self.dtype], (n_rows, width))
            if self.dtype == "int8":
                layout[scale_name(site)] = (torch.float32, (n_rows, 1))
        layout.update({name: (dtype, (n_rows,)) for name, dtype in COLUMNS.items()})
        return layout

    @property
    def row_bytes(self) -> int:
        """Bytes a row takes in its shard, headers aside."""
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.layout(1).values())

    def shard_bytes(self, index: int) -> int:
        return file_bytes(self.layout(self.shards[index].n_rows))

    @property
    def total_bytes(self) -> int:
        return sum(self.shard_bytes(i) for i in range(len(self.shards)))

    def differences(self, other: Manifest) -> dict[str, tuple[Any, Any]]:
        """Dotted names of the fields in which two manifests differ, with both values.

        `environment` may differ. What follows from other fields is named only where those agree.
        """
        mine, theirs = to_dict(self), to_dict(other)
        causes = ("schema_version", "model", "contexts", "sites", "dtype")
        return dict(
            _differences("", {name: mine[name] for name in causes}, {name: theirs[name] for name in causes})
            or _differences("", {"shards": mine["shards"]}, {"shards": theirs["shards"]})
        )

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Raises ValueError if the folder holds no (readable) manifest, or one of another schema."""
        path = folder / MANIFEST_FILE
        if not path.is_file():
            raise ValueError(f"{folder} is not an activation store: it has no {MANIFEST_FILE}")
        content = read_json(path)
        version = content.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"{path} has schema_version={version!r}, this library reads {SCHEMA_VERSION}: harvest the "
                "store again, or use the library it was written with"
            )
        return from_dict(cls, content)


def scale_name(site: str) -> str:
    """The tensor that holds a site's int8 scales."""
    return f"{site}.scale"


def shard_path(folder: Path, index: int) -> Path:
    return folder / "shards" / f"shard-{index:06d}.safetensors"


def side_path(folder: Path, index: int) -> Path:
    """The shard's JSON file, written after the shard itself: a shard exists if and only if this file does."""
    return folder / "shards" / f"shard-{index:06d}.json"


def _differences(prefix: str, mine: Any, theirs: Any) -> list[tuple[str, tuple[Any, Any]]]:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        found = []
        for key in dict.fromkeys([*mine, *theirs]):
            name = f"{prefix}.{key}" if prefix else str(key)
            found += _differences(name, mine.get(key), theirs.get(key))
        return found
    return [] if mine == theirs else [(prefix, (mine, theirs))]
