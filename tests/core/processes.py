"""Processes to be killed: forked from a server that has everything imported, so that a start costs milliseconds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

# The first optimiser step of a process imports torch._dynamo.
PRELOADED = ["tests.core.test_resume", "tests.core.test_checkpoint", "torch._dynamo"]


def start(target: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    """Run a function of a test module in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=target, args=arguments)
    process.start()
    return process
