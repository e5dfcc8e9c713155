"""Writing a store: one shard after another, each of them whole or not there at all."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.activations.manifest import (
    COLUMNS,
    MANIFEST_FILE,
    Manifest,
    norm_name,
    scale_name,
    shard_path,
    side_path,
)
from interp.activations.row_format import EncodedRows, encode_rows
from interp.activations.shard_file import ShardFile, write_shard
from interp.activations.side_file import NormSums, SideFile
from interp.core.files import read_regular, write_json
from interp.core.identity import IdentityMismatch

logger = logging.getLogger(__name__)


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
        for site in manifest.sites:
            self.tensors[norm_name(site)].fill_(torch.nan)  # not filled yet

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
        self.tensors[norm_name(site)].index_copy_(0, rows, values.norms.cpu())

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

    def norms(self) -> dict[str, dict[str, NormSums]]:
        """Of the rows at position 0 and elsewhere."""
        first = self.tensors["positions"] == 0
        norms = {site: self.tensors[norm_name(site)] for site in self.manifest.sites}
        return {
            site: {"position0": _norm_sums(of[first]), "rest": _norm_sums(of[~first])}
            for site, of in norms.items()
        }

    def missing_rows(self) -> int:
        return max(int(self.tensors[norm_name(site)].isnan().sum()) for site in self.manifest.sites)


def _norm_sums(norms: Tensor) -> NormSums:
    exact = norms.double()
    largest = float(exact.max()) if len(norms) else 0.0
    return NormSums(len(norms), float(exact.sum()), float(exact.square().sum()), largest)


class ShardWriter:
    """Creates a store, or goes on with an unfinished one.

    Several processes may write to the same folder as long as each commits its own shards: there is no shared
    file but the manifest, and all of them write the same one.

    Raises:
        IdentityMismatch: the folder holds another store, or shards of another; the message names what differs.
        ValueError: the folder can't be written to.
    """

    def __init__(self, folder: str | Path, manifest: Manifest) -> None:
        self.folder, self.manifest = Path(folder), manifest
        path = self.folder / MANIFEST_FILE
        if path.exists():
            self._check_same(Manifest.read(self.folder))
        else:
            self._check_no_others()
            try:
                (self.folder / "shards").mkdir(parents=True, exist_ok=True)
                write_json(path, manifest.to_dict())
            except OSError as error:
                if not path.exists():  # else another rank was first, and cleared our copy away
                    raise ValueError(
                        f"out={str(folder)!r} can't be written to ({error}): {_advice(error)}"
                    ) from error
        self._written = read_regular(path)

    def _check_same(self, there: Manifest) -> None:
        fix = "choose another folder, or delete this one"
        self.manifest.identity.check(there.identity, f"out={str(self.folder)!r}", fix)
        if self.manifest.environment != there.environment:
            logger.warning("%s was begun under other library versions: %s", self.folder, there.environment)

    def _check_no_others(self) -> None:
        """Where the manifest is lost, shards of another store must not be written over."""
        for index in range(len(self.manifest.shards)):
            if shard_path(self.folder, index).exists() and not self._ours(index):
                raise IdentityMismatch(
                    f"out={str(self.folder)!r} has no {MANIFEST_FILE}, but shards of another harvest (or damaged "
                    f"ones): {shard_path(self.folder, index).name}; choose another folder, or delete this one"
                )

    def _ours(self, index: int) -> bool:
        """Whether a finished shard of this store is there, by its side file, its header and its size."""
        try:
            SideFile.read(self.folder, index, self.manifest)
            layout = self.manifest.layout(self.manifest.shards[index].n_rows)
            ShardFile(shard_path(self.folder, index), layout, self.manifest.shard_metadata(index))
        except (ValueError, FileNotFoundError) as error:
            if side_path(self.folder, index).exists():
                logger.warning("shard %d can't be used: %s", index, error)
            return False
        return True

    def is_finished(self) -> bool:
        return all(self._ours(index) for index in range(len(self.manifest.shards)))

    def pending(self, rank: int = 0, world: int = 1) -> list[int]:
        """Shards still to be written by this rank (shard k belongs to rank k % world).

        Clears away what a killed process left of them, and what is of another store or truncated.
        """
        for leftover in self.folder.glob(f"{MANIFEST_FILE}.tmp-*"):
            leftover.unlink(missing_ok=True)
        mine = range(rank, len(self.manifest.shards), world)
        pending = []
        for index in mine:
            data, side = shard_path(self.folder, index), side_path(self.folder, index)
            for leftover in data.parent.glob(f"{data.stem}.*.tmp-*"):
                leftover.unlink()
            if not self._ours(index):
                if side.exists():
                    logger.warning("%s will be written again", data)
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
            IdentityMismatch: the folder is no longer this store's.
            OSError: the disk is full, say. Finished shards stay; the next run goes on from them.
        """
        missing = buffer.missing_rows()
        if missing:
            raise ValueError(
                f"shard {buffer.index} can't be written: {missing} of its rows were never filled"
            )
        index, plan = buffer.index, self.manifest.shards[buffer.index]
        path, metadata = shard_path(self.folder, index), self.manifest.shard_metadata(index)
        try:
            self._check_still_ours()
            whole, head = write_shard(path, buffer.tensors, metadata, self.manifest.sites)
            SideFile(
                manifest=metadata["manifest"],
                shard=index,
                n_tokens=plan.n_rows,
                first_context=plan.first_context,
                n_contexts=plan.n_contexts,
                first_doc=int(buffer.tensors["doc_ids"][0]),
                last_doc=int(buffer.tensors["doc_ids"][-1]),
                bytes=self.manifest.shard_bytes(index),
                sha256=whole,
                head_sha256=head,
                norms=buffer.norms(),
            ).write(self.folder)
        except OSError as error:
            raise OSError(
                error.errno,
                f"shard {index} of {len(self.manifest.shards)} could not be written "
                f"({error.strerror}); finished shards are safe: {_advice(error)}",
                str(path),
            ) from error

    def _check_still_ours(self) -> None:
        if read_regular(self.folder / MANIFEST_FILE) != self._written:
            raise IdentityMismatch(
                f"{self.folder} has become another store while this one was written (its {MANIFEST_FILE} differs): "
                "give each job a folder of its own"
            )


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room and run the same command again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "get leave to write there and run the same command again, or choose another folder"
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return "the folder was removed or its disk taken away; put it back and run the same command again"
    return "mend that and run the same command again, or choose another folder"
