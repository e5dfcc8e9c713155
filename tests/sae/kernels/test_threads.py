"""The CPU kernels' machinery: results don't depend on threads, compilation is paid once per machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.kernels.threads import PIECES, equal_work, map_threads
from interp.sae.step import make_step
from tests.sae.kernels.cases import batch


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("architecture", ["gated", "standard"])
def test_one_thread_and_two_give_the_same_bits(architecture: str, threads: None) -> None:
    ends = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        if architecture == "gated":
            sae = GatedSAE(GatedSAEConfig(40, 900, tied=False))
        else:
            sae = StandardSAE(StandardSAEConfig(40, 900))
        step = make_step(sae, backend="cpu")
        losses = [step(batch(333, 40, dtype=torch.float32, seed=i), 0.3, 1e-2).loss for i in range(5)]
        ends.append([*losses, *sae.parameters()])
    for other in ends[1:]:
        assert all(torch.equal(a, b) for a, b in zip(ends[0], other, strict=True))


def test_workers_use_one_torch_thread_and_leave_the_setting_alone(threads: None) -> None:
    torch.set_num_threads(2)
    assert map_threads(lambda _: torch.get_num_threads(), range(8)) == [1] * 8
    assert torch.get_num_threads() == 2


def test_errors_in_workers_reach_the_caller(threads: None) -> None:
    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError):
        map_threads(lambda i: 1 // i, [1, 0])


@pytest.mark.parametrize("counts", [[0], [5] * 1000, [10**6] + [1] * 500, [0] * 300, []])
def test_pieces_cover_every_row_once_and_balance(counts: list[int]) -> None:
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    cuts = equal_work(pointers)
    assert len(cuts) == PIECES + 1
    assert cuts[0] == 0
    assert cuts[-1] == len(counts)
    assert (np.diff(cuts) >= 0).all()
    if len(counts) >= 1000:
        assert np.diff(cuts).max() <= 1.1 * len(counts) / PIECES + 1


def test_a_second_process_compiles_nothing() -> None:
    make_step(GatedSAE(GatedSAEConfig(8, 30)), backend="cpu")(torch.randn(20, 8), 0.1, 1e-3)
    code = """
import torch
from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.step import make_step
step = make_step(GatedSAE(GatedSAEConfig(8, 30)), backend="cpu")
step(torch.randn(20, 8), 0.1, 1e-3)
from interp.sae.kernels import cpu_loops
for name, kernel in vars(cpu_loops).items():
    if hasattr(kernel, "stats") and kernel.stats.cache_path and kernel.signatures:
        print(name, sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kernels = {line.split()[0]: line.split()[1:] for line in out.stdout.splitlines()}
    expected = {"count_open", "fill_open", "index_by_token", "gated_tokens", "gated_sums", "update_rows"}
    assert expected <= set(kernels)
    assert all(misses == "0" for _, misses in kernels.values()), kernels
