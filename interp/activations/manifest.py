"""The manifest of a store: what its rows are, and how they are cut into shards.

It is written once, before the first shard, and is a pure function of what was asked for: no times, no process
ids. So a harvest that is killed and resumed, or spread over other ranks, ends in the same bytes. Its identity
stands in the manifest itself, in every shard and in every side file: no shard is taken for another store's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interp.activations.row_format import STORED_DTYPES, stored_dtype_name
from interp.activations.shard_file import Layout, file_bytes
from interp.core.config import from_dict, to_dict
from interp.core.files import read_json
from interp.core.identity import Identity
from interp.core.messages import one_of

SCHEMA_VERSION = 2
MANIFEST_FILE = "manifest.json"
COLUMNS = {
    "token_ids": torch.int32,
    "positions": torch.int32,
    "doc_ids": torch.int64,
    "context_ids": torch.int64,
}
_LARGEST = 2**62


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
    a harvest is resumed, and is no part of the identity.
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

    def __post_init__(self) -> None:
        """Raises ValueError where the numbers contradict each other."""
        context = row = 0
        for index, shard in enumerate(self.shards):
            if shard.first_context != context or shard.first_row != row:
                raise ValueError(f"shards[{index}] doesn't begin where the one before it ends")
            if shard.n_contexts < 1 or shard.n_rows < shard.n_contexts:
                raise ValueError(f"shards[{index}] has {shard.n_contexts} contexts in {shard.n_rows} rows")
            context, row = context + shard.n_contexts, row + shard.n_rows
        if (context, row) != (self.n_contexts, self.n_tokens) or not 0 < row < _LARGEST:
            raise ValueError(
                f"n_contexts = {self.n_contexts}, n_tokens = {self.n_tokens}, but the shards hold {context} and {row}"
            )
        if not self.sites or any(not 0 < width < _LARGEST for width in self.sites.values()):
            raise ValueError(f"sites = {self.sites}: there must be some, each at least one wide")
        one_of("dtype", self.dtype, tuple(STORED_DTYPES))

    @cached_property
    def identity(self) -> Identity:
        """Everything that the rows and their place depend on."""
        plain = to_dict(self)  # as it comes back from the file
        return Identity.of(
            "activation store",
            model=plain["model"],
            contexts=plain["contexts"],
            sites=self.sites,
            dtype=self.dtype,
            shards=[[shard.n_contexts, shard.n_rows] for shard in self.shards],
            schema_version=self.schema_version,
        )

    def shard_metadata(self, index: int) -> dict[str, str]:
        """What binds a shard to its place in this store."""
        return {"manifest": self.identity.digest, "shard": str(index)}

    def layout(self, n_rows: int) -> Layout:
        """Type and shape of every tensor in a shard of `n_rows` rows, in the order of the file: first what
        describes the rows, then their values."""
        described: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
        for name in sorted(COLUMNS, key=lambda name: -COLUMNS[name].itemsize):
            described[name] = (COLUMNS[name], (n_rows,))
        for site in self.sites:
            described[norm_name(site)] = (torch.float32, (n_rows,))
            if self.dtype == "int8":
                described[scale_name(site)] = (torch.float32, (n_rows, 1))
        dtype = STORED_DTYPES[self.dtype]
        return described | {site: (dtype, (n_rows, width)) for site, width in self.sites.items()}

    @property
    def row_bytes(self) -> int:
        """Bytes a row takes in its shard, headers aside."""
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.layout(1).values())

    def shard_bytes(self, index: int) -> int:
        return file_bytes(self.layout(self.shards[index].n_rows), self.shard_metadata(index))

    @property
    def total_bytes(self) -> int:
        return sum(self.shard_bytes(i) for i in range(len(self.shards)))

    def to_dict(self) -> dict[str, Any]:
        """As it is written: the fields, and the identity's digest."""
        return {**to_dict(self), "identity": self.identity.digest}

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Raises ValueError if the folder holds no (readable) manifest, or one of another schema."""
        path = folder / MANIFEST_FILE
        if not path.is_file():
            raise ValueError(f"{folder} is not an activation store: it has no {MANIFEST_FILE}")
        content = read_json(path, dict)
        version, digest = content.get("schema_version"), content.pop("identity", None)
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"{path} has schema_version={version!r}, this library reads {SCHEMA_VERSION}: harvest the "
                "store again, or use the library it was written with"
            )
        try:
            manifest = from_dict(cls, content)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{path}: {error}; restore it from a copy, or harvest the store again"
            ) from error
        if manifest.identity.digest != digest:
            raise ValueError(
                f"{path} was changed after it was written (its identity differs): restore it from a copy, or "
                "harvest the store again"
            )
        return manifest


def norm_name(site: str) -> str:
    """The tensor that holds the norms of a site's rows, before they were rounded."""
    return f"{site}.norm"


def scale_name(site: str) -> str:
    """The tensor that holds a site's int8 scales."""
    return f"{site}.scale"


def shard_path(folder: Path, index: int) -> Path:
    return folder / "shards" / f"shard-{index:06d}.safetensors"


def side_path(folder: Path, index: int) -> Path:
    """The shard's JSON file, written after the shard itself: a shard exists if and only if this file does."""
    return folder / "shards" / f"shard-{index:06d}.json"
