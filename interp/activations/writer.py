"""Writing a store: one shard after another, each of them whole or not there at all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.activations.manifest import (
    COLUMNS,
    MANIFEST_FILE,
    Manifest,
    scale_name,
    shard_path,
    side_path,
)
from interp.activations.row_format import EncodedRows, encode_rows
from interp.activations.shard_file import write_shard
from interp.core.config import to_dict
from interp.core.files import write_json

logger = logging.getLogger(__name__)


class ManifestMismatchError(ValueError):
    """The folder holds a store of something else than what is asked for."""


class ShardBuffer:
    """The rows of one shard in memory, filled in any order.

    Args:
        columns: `token_ids`, `positions`, `doc_ids` and `context_ids` of the shard's rows, in order.
    """

    def __init__(self, manifest: Manifest, index: int, columns: Mapping[str, np.ndarray | Tensor]) -> None:
        self.manifest, self.index = manifest, index
        self.n_rows = manifest.shards[index].n_rows
        self.tensors = {
            name: torch.empty(shape, dtype=dtype)
            for name, (dtype, shape) in manifest.layout(self.n_rows).items()
        }
        for name in COLUMNS:
            column = torch.as_tensor(columns[name])
            if column.shape != (self.n_rows,):
                raise ValueError(f"column {name!r} has shape {tuple(column.shape)}, not ({self.n_rows},)")
            self.tensors[name].copy_(column)
        self._norms = {site: torch.full((self.n_rows,), torch.nan) for site in manifest.sites}

    def put(self, site: str, rows: Int[Tensor, " n"], values: Tensor | EncodedRows) -> None:
        """Rows of one site, as activations [n d] or already encoded.

        Raises:
            ValueError: an unknown site, a wrong width, or rows that are NaN or Inf: they are never stored.
        """
        width = self.manifest.sites.get(site)
        if width is None:
            raise ValueError(f"site {site!r} is not in this store, which holds {list(self.manifest.sites)}")
        if isinstance(values, Tensor):
            if values.ndim != 2 or values.shape[1] != width:
                raise ValueError(f"values of {site} have shape {tuple(values.shape)}, not (n, {width})")
            values = encode_rows(values, self.manifest.dtype)
        finite = values.finite.cpu()
        if not finite.all():
            raise ValueError(self._not_finite(site, rows[~finite]))
        self.tensors[site].index_copy_(0, rows, values.values.cpu())
        if values.scale is not None:
            self.tensors[scale_name(site)].index_copy_(0, rows, values.scale.cpu())
        self._norms[site].index_copy_(0, rows, values.norms.cpu())

    def _not_finite(self, site: str, rows: Tensor) -> str:
        row = rows[0]
        context, position, document, token = (
            int(self.tensors[name][row]) for name in ("context_ids", "positions", "doc_ids", "token_ids")
        )
        advice = (
            "; numbers above 65504 don't fit float16: store bfloat16 or float32"
            if self.manifest.dtype == "float16"
            else ""
        )
        return (
            f"activations of {site} are NaN or Inf in {len(rows)} rows of shard {self.index}; the first is "
            f"context {context}, position {position} (document {document}, token {token}); nothing of this "
            f"shard was stored{advice}"
        )

    def stats(self) -> dict[str, Any]:
        """Count, sum, sum of squares and maximum of the rows' norms, at position 0 and elsewhere."""
        first = self.tensors["positions"] == 0
        return {
            site: {"position0": _norm_stats(norms[first]), "rest": _norm_stats(norms[~first])}
            for site, norms in self._norms.items()
        }

    def missing_rows(self) -> int:
        return max(int(torch.isnan(norms).sum()) for norms in self._norms.values())


def _norm_stats(norms: Tensor) -> dict[str, float]:
    exact = norms.double()
    return {
        "n": len(norms),
        "norm_sum": float(exact.sum()),
        "norm_sum_of_squares": float(exact.square().sum()),
        "norm_max": float(exact.max()) if len(norms) else 0.0,
    }


class ShardWriter:
    """Creates a store, or goes on with an unfinished one.

    Several processes may write to the same folder as long as each commits its own shards: there is no shared
    file but the manifest, and all of them write the same one.

    Raises:
        ManifestMismatchError: the folder holds another store; the message names the fields that differ.
        ValueError: the folder can't be written to.
    """

    def __init__(self, folder: str | Path, manifest: Manifest) -> None:
        self.folder, self.manifest = Path(folder), manifest
        path = self.folder / MANIFEST_FILE
        if path.exists():
            _check_same(self.folder, Manifest.read(self.folder), manifest)
            for leftover in self.folder.glob(f"{MANIFEST_FILE}.tmp-*"):
                leftover.unlink(missing_ok=True)
            return
        try:
            (self.folder / "shards").mkdir(parents=True, exist_ok=True)
            write_json(path, to_dict(manifest))
        except OSError as error:
            if path.exists():  # another rank was first, and cleared our copy away
                return
            raise ValueError(
                f"out={str(folder)!r} can't be written to ({error}): choose another folder"
            ) from error

    def pending(self, rank: int = 0, world: int = 1) -> list[int]:
        """Shards still to be written by this rank (shard k belongs to rank k % world).

        Clears away what a killed process left of them.
        """
        mine = range(rank, len(self.manifest.shards), world)
        pending = []
        for index in mine:
            data, side = shard_path(self.folder, index), side_path(self.folder, index)
            for leftover in data.parent.glob(f"{data.stem}.*.tmp-*"):
                leftover.unlink()
            if not side.exists():
                pending.append(index)
            elif not data.exists() or data.stat().st_size != self.manifest.shard_bytes(index):
                logger.warning("shard %s is missing or truncated: it will be written again", data)
                side.unlink()
                pending.append(index)
        return pending

    def begin(self, index: int, columns: Mapping[str, np.ndarray | Tensor]) -> ShardBuffer:
        """An empty buffer for a shard."""
        return ShardBuffer(self.manifest, index, columns)

    def commit(self, buffer: ShardBuffer) -> None:
        """Write the shard, then its side file.

        Raises:
            ValueError: rows were never filled.
            OSError: the disk is full, say. Finished shards stay; the next run goes on from them.
        """
        missing = buffer.missing_rows()
        if missing:
            raise ValueError(
                f"shard {buffer.index} can't be written: {missing} of its rows were never filled"
            )
        plan = self.manifest.shards[buffer.index]
        path = shard_path(self.folder, buffer.index)
        try:
            digest = write_shard(path, buffer.tensors)
            write_json(
                side_path(self.folder, buffer.index),
                {
                    "file": path.name,
                    "bytes": self.manifest.shard_bytes(buffer.index),
                    "sha256": digest,
                    "first_context": plan.first_context,
                    "n_contexts": plan.n_contexts,
                    "n_tokens": plan.n_rows,
                    "first_doc": int(buffer.tensors["doc_ids"][0]),
                    "last_doc": int(buffer.tensors["doc_ids"][-1]),
                    "norms": buffer.stats(),
                },
            )
        except OSError as error:
            raise OSError(
                error.errno,
                f"shard {buffer.index} of {len(self.manifest.shards)} could not be written "
                f"({error.strerror}); finished shards are safe: make room and run the same command again",
                str(path),
            ) from error


def _check_same(folder: Path, there: Manifest, asked: Manifest) -> None:
    differences = asked.differences(there)
    if differences:
        shown = "; ".join(
            f"{name} is {_short(theirs)} there and {_short(mine)} here"
            for name, (mine, theirs) in list(differences.items())[:5]
        )
        raise ManifestMismatchError(
            f"out={str(folder)!r} holds activations of another harvest: {shown}. Choose another folder, "
            "or delete this one"
        )
    if asked.environment != there.environment:
        logger.warning("%s was begun under other library versions: %s", folder, there.environment)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
