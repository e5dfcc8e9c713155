"""Threads for the CPU kernels: as many as torch uses, each of which runs torch and compiled loops alone.

The compiled loops release the GIL and are plain (not numba-parallel), and the dense product runs tile by
tile, each tile on one thread. So no OpenMP team is woken, no second pool fights with it, and what is summed
together is decided by fixed pieces of work: results are the same bit for bit on one thread and on many.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch

T = TypeVar("T")

PIECES = 64
_ROW_COST = 4  # of visiting a row at all, in entries


def map_threads(work: Callable[..., T], *items: Iterable[Any]) -> list[T]:
    """``[work(*item) for item in zip(*items)]``, concurrently."""
    threads = torch.get_num_threads()
    if threads == 1:
        return list(map(work, *items))
    return list(_pool(threads).map(work, *items))


def run_pieces(work: Callable[..., None], *arguments: Any) -> None:
    """Call ``work(*arguments, first, last)`` on ranges that cover ``range(PIECES)``, concurrently."""
    # More ranges than threads, so that a thread that the machine holds up delays the others little.
    ranges = min(PIECES, 4 * torch.get_num_threads()) if torch.get_num_threads() > 1 else 1
    cuts = [PIECES * i // ranges for i in range(ranges + 1)]
    map_threads(functools.partial(work, *arguments), cuts[:-1], cuts[1:])


def equal_work(pointers: np.ndarray) -> np.ndarray:
    """Cut a list's rows into ``PIECES`` runs of about the same number of entries (and of rows)."""
    work = pointers + _ROW_COST * np.arange(len(pointers))
    cuts = np.searchsorted(work, work[-1] * np.arange(PIECES + 1) // PIECES)
    cuts[-1] = len(pointers) - 1
    return cuts


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Workers inside which torch uses one thread; the caller's own setting is left as it was."""
    started = threading.Barrier(threads + 1)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="sae-kernels", initializer=_be_single_threaded)
    waiting = [pool.submit(started.wait) for _ in range(threads)]
    started.wait()
    for future in waiting:
        future.result()
    torch.set_num_threads(threads)
    return pool


def _be_single_threaded() -> None:
    # torch's setting is per thread, but also becomes the default of threads that haven't asked for it yet:
    # hence the question first here, and the restoration by the caller.
    torch.get_num_threads()
    torch.set_num_threads(1)


os.register_at_fork(after_in_child=_pool.cache_clear)
