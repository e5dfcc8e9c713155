"""Run a compiled loop over fixed pieces of work on as many threads as torch uses.

The loops release the GIL and are plain (not numba-parallel), so there is no second OpenMP or work-queue pool
to fight with torch's. What is summed together is decided by the pieces, whose number never depends on the
number of threads: results are the same bit for bit on one thread and on many.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

PIECES = 64


def run_pieces(n_pieces: int, work: Callable[[int, int], None]) -> None:
    """Call ``work(first, last)`` on ranges that cover ``range(n_pieces)``, concurrently."""
    threads = min(torch.get_num_threads(), n_pieces)
    if threads <= 1:
        work(0, n_pieces)
        return
    # More ranges than threads, so that a thread that the machine holds up delays the others little.
    ranges = min(n_pieces, 4 * threads)
    cuts = [n_pieces * i // ranges for i in range(ranges + 1)]
    list(_pool(threads).map(work, cuts[:-1], cuts[1:]))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="sae-kernels")


os.register_at_fork(after_in_child=_pool.cache_clear)
