"""What all tests of the core share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def ctrl_c_interrupts() -> Iterator[None]:
    """Python's own handler, which a process that was started in the background doesn't have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
