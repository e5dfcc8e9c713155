"""A sparse step never holds an n x F array.

Two ledgers together see every array: a dispatch mode records the storage of each tensor that torch makes, and
tracemalloc follows NumPy's buffers (NumPy reports them to it).
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.kernels import cpu_list
from interp.sae.kernels.inference import decode, encode_gated
from interp.sae.step import make_step
from tests.sae.kernels.cases import batch

N, D, F = 1024, 64, 16384
DENSE = N * F * 4  # bytes of one float32 n x F array: 64 MiB


class TensorLedger(TorchDispatchMode):
    """Sizes in bytes of all distinct storages that torch operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.sizes[storage.data_ptr()] = storage.nbytes()
        return out


def make_sae() -> GatedSAE:
    sae = GatedSAE(GatedSAEConfig(D, F))
    with torch.no_grad():
        sae.b_gate.fill_(-2.7)  # unit rows on N(0, I): about 56 of 16384 gates open
    return sae


def test_peak_of_a_sparse_step_is_parameters_state_one_tile_and_lists(monkeypatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    sae, x = make_sae(), batch(N, D, dtype=torch.float32)
    step = make_step(sae, backend="cpu")
    stats = step(x, 0.1, 1e-4)
    assert 10 < float(stats.open_gates) < 200

    already = sum(p.numel() * p.element_size() for p in sae.parameters()) + sum(
        t.numel() * t.element_size() for s in step.optimizer.state.values() for t in s.values()
    )
    assert already < 1.1 * (2 * 2 * F * D * 4)  # weights and one moment each
    tracemalloc.start()
    with TensorLedger() as ledger:
        step(x, 0.1, 1e-4)
    _, numpy_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    state = [t for s in step.optimizer.state.values() for t in s.values()]
    known = {t.untyped_storage().data_ptr() for t in [*sae.parameters(), *state]}
    made = {where: size for where, size in ledger.sizes.items() if where not in known}
    assert max(made.values()) == cpu_list._TILE_SIZE * 4
    lists = 60 * float(stats.open_gates) * N  # seven numbers an open gate, twice while parts are joined
    batches = 3 * N * D * 4  # x centred, dL/dx_hat
    bound = 1.2 * (already + cpu_list._TILE_SIZE * 4 + lists + batches)
    assert already + sum(made.values()) + numpy_peak < bound
    assert sum(made.values()) + numpy_peak < 0.25 * DENSE


def test_the_ledger_sees_what_a_dense_step_holds() -> None:
    step = make_step(make_sae(), backend="dense")
    with TensorLedger() as ledger:
        step(batch(N, D, dtype=torch.float32), 0.1, 1e-4)
    assert max(ledger.sizes.values()) >= DENSE


def test_inference_holds_no_dense_array_either(monkeypatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    sae, x = make_sae(), batch(N, D, dtype=torch.float32)
    # numba compiles at the first call: not what is weighed
    decode(encode_gated(sae.params(), x - sae.b_dec), sae.W_dec, sae.b_dec)
    tracemalloc.start()
    with TensorLedger() as ledger:
        codes = encode_gated(sae.params(), x - sae.b_dec)
        decode(codes, sae.W_dec, sae.b_dec)
    _, numpy_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(codes.values) > 0
    parameters = {p.untyped_storage().data_ptr() for p in sae.parameters()}
    made = [size for where, size in ledger.sizes.items() if where not in parameters]
    assert max(made) < 0.1 * DENSE
    assert numpy_peak < 0.1 * DENSE
