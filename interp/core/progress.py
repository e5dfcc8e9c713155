"""Progress bars for long work: a bar on a terminal or notebook, sparse lines in a log, silence on other ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, Literal

from tqdm.auto import tqdm


def progress(
    iterable: Iterable[Any] | None = None,
    *,
    total: int | None = None,
    desc: str = "",
    unit: str = "it",
    enabled: bool | Literal["auto"] = "auto",
) -> tqdm:
    """A tqdm bar. `enabled="auto"` shows it on rank 0 only; without a terminal it prints every 30 seconds."""
    shown = os.environ.get("RANK", "0") == "0" if enabled == "auto" else enabled
    return tqdm(
        iterable,
        total=total,
        desc=desc,
        unit=unit,
        unit_scale=unit not in ("it", "step"),
        disable=not shown,
        mininterval=0.2 if sys.stderr.isatty() else 30.0,
        dynamic_ncols=True,
    )
