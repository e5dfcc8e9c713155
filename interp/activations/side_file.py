"""A shard's side file: what is known of it without opening it. It is written last and so marks a finished shard."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

from interp.activations.manifest import Manifest, side_path
from interp.core.config import read_record
from interp.core.files import write_json
from interp.core.identity import canonical


@dataclass(frozen=True)
class NormSums:
    """Of some rows' norms: how many, their sum, sum of squares and maximum."""

    n: int
    norm_sum: float
    norm_sum_of_squares: float
    norm_max: float


@dataclass(frozen=True)
class SideFile:
    """A finished shard.

    `manifest` and `shard` say of which store it is and which of its shards; `sha256` is of the whole file,
    `head_sha256` of the file up to the first site's values. `norms` has for each site the rows at position 0 and
    the "rest". `checksum` is over all other fields.
    """

    manifest: str
    shard: int
    n_tokens: int
    first_context: int
    n_contexts: int
    first_doc: int
    last_doc: int
    bytes: int
    sha256: str
    head_sha256: str
    norms: dict[str, dict[str, NormSums]]
    checksum: str = ""

    def _checksum(self) -> str:
        fields = {name: value for name, value in asdict(self).items() if name != "checksum"}
        return hashlib.sha256(canonical(fields).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        write_json(side_path(folder, self.shard), {**asdict(self), "checksum": self._checksum()})

    @classmethod
    def read(cls, folder: Path, index: int, manifest: Manifest) -> SideFile:
        """Raises ValueError naming the file: unreadable, changed after it was written, or of another store."""
        path = side_path(folder, index)
        side = read_record(path, cls)
        if side.checksum != side._checksum():
            raise ValueError(f"{path} was changed after it was written (its checksum differs); {REWRITE}")
        if (side.manifest, side.shard) != (manifest.identity.digest, index):
            raise ValueError(f"{path} belongs to another store than the manifest beside it; {REWRITE}")
        return side


REWRITE = "copy the store again, or run the same harvest again: it writes such shards anew"
