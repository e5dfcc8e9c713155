"""Which kernels run, when it changes, and what is said about it."""

from __future__ import annotations

import importlib.util
import logging

import pytest
import torch

from interp.core import messages
from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.kernels import dispatch, reference
from interp.sae.kernels.dispatch import DensitySwitch, load_backend, sparse_backend_for
from interp.sae.step import make_step
from tests.sae.kernels.cases import batch


@pytest.fixture
def without_numba(monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "installed", lambda package: package != "numba")
    monkeypatch.setattr(messages, "_said", set())


def test_switch_waits_for_fifty_steps_below_and_returns_at_half_more() -> None:
    switch = DensitySwitch(n_latents=1000, crossover=0.1)
    assert [switch.observe(99.0) for _ in range(49)] == [False] * 49
    assert not switch.sparse
    assert switch.observe(99.0)
    assert switch.sparse
    for _ in range(200):
        assert not switch.observe(149.0)
    assert switch.sparse
    changed = [switch.observe(200.0) for _ in range(30)]
    assert changed.count(True) == 1
    assert not switch.sparse


def test_switch_starts_counting_again_after_a_dense_stretch() -> None:
    switch = DensitySwitch(n_latents=1000, crossover=0.1)
    for _ in range(49):
        switch.observe(50.0)
    for _ in range(12):
        switch.observe(900.0)
    assert switch.mean is not None
    assert switch.mean > 100
    assert switch.steps_below == 0
    while switch.mean >= 100:
        assert not switch.observe(50.0)
    assert switch.steps_below == 1


def test_one_odd_batch_does_not_turn_a_sparse_run_dense() -> None:
    switch = DensitySwitch(n_latents=1000, crossover=0.1, sparse=True, mean=50.0)
    assert not switch.observe(500.0)
    assert switch.sparse


def test_switch_state_resumes() -> None:
    switch, resumed = DensitySwitch(1000, 0.1), DensitySwitch(1000, 0.1)
    for _ in range(30):
        switch.observe(70.0)
    resumed.load_state_dict(switch.state_dict())
    assert resumed == switch


def test_auto_starts_dense_says_so_and_turns_sparse(caplog) -> None:
    sae = GatedSAE(GatedSAEConfig(16, 200))
    with caplog.at_level(logging.INFO):
        step = make_step(sae, backend="auto")
        assert step.backend_name == "dense"
        with torch.no_grad():
            sae.b_gate.fill_(-2.0)
        for i in range(51):
            step(batch(64, 16, dtype=torch.float32, seed=i), 0.1, 1e-5)
    assert step.backend_name == "cpu"
    said = [r.getMessage() for r in caplog.records]
    assert sum("dense until fewer than 30 of 200 gates" in line for line in said) == 1
    assert sum("SAE step: cpu from here on" in line for line in said) == 1


def test_devices_and_dtypes() -> None:
    assert sparse_backend_for(torch.device("cpu"), torch.float32, 512) == "cpu"
    assert sparse_backend_for(torch.device("cpu"), torch.float16, 512) is None
    assert sparse_backend_for(torch.device("mps"), torch.float32, 512) is None
    cuda = "triton" if importlib.util.find_spec("triton") else None
    assert sparse_backend_for(torch.device("cuda"), torch.float32, 512) == cuda
    assert sparse_backend_for(torch.device("cuda"), torch.float32, 16384) == cuda
    assert sparse_backend_for(torch.device("cuda"), torch.float32, 16385) is None


def test_without_numba_cpu_kernels_are_plain_torch_and_say_so_once(without_numba, caplog) -> None:
    assert load_backend("cpu") is reference
    assert load_backend("cpu") is reference
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "numba is not installed" in caplog.text


def test_without_numba_auto_stays_dense_and_trains(without_numba, caplog) -> None:
    step = make_step(GatedSAE(GatedSAEConfig(8, 16)), backend="auto")
    assert torch.isfinite(step(batch(10, 8, dtype=torch.float32), 0.1, 1e-3).loss)
    assert step.backend_name == "dense"
    assert "stays dense" in caplog.text


def test_without_triton_its_backend_names_the_extra(monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "installed", lambda package: False)
    with pytest.raises(ImportError, match=r"interp-toolkit\[gpu\]"):
        load_backend("triton")


def test_unknown_backend_lists_the_choices() -> None:
    with pytest.raises(ValueError, match="did you mean 'reference'"):
        make_step(GatedSAE(GatedSAEConfig(8, 16)), backend="referense")
