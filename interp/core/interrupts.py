"""Stopping a run politely: the first SIGINT or SIGTERM only asks, the second acts as usual."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

logger = logging.getLogger(__name__)


class Interrupts:
    """Within this context `received` says which signal came first, if one did. Idle outside the main thread."""

    KINDS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            before = {kind: signal.getsignal(kind) for kind in self.KINDS}
            # An ignored signal stays ignored (background jobs), and one handled outside Python is left alone.
            self._before = {kind: how for kind, how in before.items() if how not in (signal.SIG_IGN, None)}
            for kind in self._before:
                signal.signal(kind, self._ask)
        return self

    def __exit__(self, *exception: object) -> None:
        self._put_back()

    def _ask(self, kind: int, frame: object) -> None:
        self.received = signal.Signals(kind)
        self._put_back()
        logger.warning("%s: stopping after this step (once more to stop at once)", self.received.name)

    def _put_back(self) -> None:
        for kind, handler in self._before.items():
            signal.signal(kind, handler)

    def act(self) -> None:
        """What the signal is for, once the run is saved: KeyboardInterrupt, or a clean exit for SIGTERM."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received == signal.SIGTERM:
            raise SystemExit(0)
