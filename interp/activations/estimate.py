"""What a harvest takes, and the numbers people write for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNITS = ("kB", "MB", "GB", "TB", "PB")
_MULTIPLES = {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000}


@dataclass(frozen=True)
class HarvestEstimate:
    """What a harvest takes: tokens still to run, bytes still to write, room on the disk, memory, time.

    `seconds` is for one process, from the speed of the first batch.
    """

    n_tokens: int
    n_bytes: int
    free_bytes: int
    memory_bytes: int
    tokens_per_second: float

    @property
    def seconds(self) -> float:
        return self.n_tokens / self.tokens_per_second

    def __str__(self) -> str:
        return (
            f"{self.n_tokens:,} tokens at {self.tokens_per_second:,.0f} tokens/s: "
            f"{self.seconds / 60:.1f} minutes; {size_text(self.n_bytes)} on disk "
            f"({size_text(self.free_bytes)} free), {size_text(self.memory_bytes)} of buffers in memory"
        )


def size_text(n_bytes: int) -> str:
    """A number of bytes in the largest unit of which there is one: "3.21 MB"."""
    if n_bytes < 1000:
        return f"{n_bytes} bytes"
    power = min((len(str(n_bytes)) - 1) // 3, len(_UNITS))
    return f"{n_bytes / 1000**power:.2f} {_UNITS[power - 1]}"


def parse_tokens(tokens: int | str | None) -> int | None:
    """Read a number of tokens: 1000000, "1M", "300k", "2.5B"."""
    if tokens is None or (isinstance(tokens, int) and not isinstance(tokens, bool)):
        number = tokens
    else:
        match = re.fullmatch(r"(\d+(?:[._]\d+)*)\s*([kmb]?)", str(tokens).strip().lower())
        if match is None:
            raise ValueError(f'tokens={tokens!r}: write a number such as 1000000, "300k" or "1M"')
        number = round(float(match[1].replace("_", "")) * _MULTIPLES[match[2]])
    if number is not None and number < 1:
        raise ValueError(f"tokens={tokens!r}: ask for at least one token")
    return number
