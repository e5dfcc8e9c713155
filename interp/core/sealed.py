"""JSON that carries the checksum of its own content: what was changed after it was written isn't believed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from interp.core.files import write_json
from interp.core.identity import canonical

SEAL = "seal"


def write_sealed(path: str | os.PathLike[str], value: Mapping[str, Any]) -> None:
    """Write a mapping as JSON with the SHA-256 of its content, atomically."""
    content = json.loads(json.dumps({**value, SEAL: None}, allow_nan=False))
    write_json(path, {**content, SEAL: _seal(content)})


def check_seal(value: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Raise ValueError unless a mapping read from `path` is what `write_sealed` wrote there."""
    if value.get(SEAL) != _seal(value):
        raise ValueError(
            f"{os.fspath(path)} was damaged or changed after it was written (its checksum {SEAL!r} differs); "
            "restore it from a copy"
        )


def _seal(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical({**value, SEAL: None}).encode()).hexdigest()
