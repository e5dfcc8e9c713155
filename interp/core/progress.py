"""Progress bars for long work: a bar on a terminal or in a notebook, sparse lines in a log, silence on other ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Literal, TextIO

from tqdm.auto import tqdm

from interp.core.distributed import is_main

SECONDS_BETWEEN_LINES = 30.0
_IN_NOTEBOOK = any(base.__name__ == "tqdm_notebook" for base in tqdm.__mro__)


class _Lines:
    """Stands between tqdm and a log: every redrawing of the bar becomes a line of its own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        if line := text.strip():
            self._stream.write(line + "\n")

    def flush(self) -> None:
        self._stream.flush()


def progress(
    iterable: Iterable[Any] | None = None,
    *,
    total: int | None = None,
    desc: str = "",
    unit: str = "it",
    enabled: bool | Literal["auto"] = "auto",
) -> tqdm:
    """A tqdm bar on stderr. `enabled="auto"` shows it on rank 0 only; into a log it prints a line every 30 seconds."""
    shown = is_main() if enabled == "auto" else enabled
    as_lines = not _IN_NOTEBOOK and not sys.stderr.isatty()
    return tqdm(
        iterable,
        total=total,
        desc=desc,
        unit=unit,
        unit_scale=unit not in ("it", "step"),
        disable=not shown,
        file=_Lines(sys.stderr) if as_lines else None,
        mininterval=SECONDS_BETWEEN_LINES if as_lines else 0.2,
        dynamic_ncols=not as_lines,
    )
