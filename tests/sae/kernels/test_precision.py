"""bfloat16 products: only when asked, only where the processor has them, and never in what follows the gate."""

from __future__ import annotations

import pytest
import torch

from interp.core import messages
from interp.sae.kernels import cpu, precision, reference, tiled
from interp.sae.kernels.lists import LossOptions
from interp.sae.kernels.precision import product_dtype
from tests.sae.kernels.cases import L1, batch, gated_params, relative_difference, standard_params

CPU = torch.device("cpu")


@pytest.fixture
def native_bf16(monkeypatch) -> None:
    monkeypatch.setattr(precision, "native_bf16", lambda: True)


def test_float32_unless_asked(native_bf16) -> None:
    assert product_dtype(CPU, torch.float32) == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert product_dtype(CPU, torch.float32) == torch.bfloat16
        assert product_dtype(CPU, torch.float64) == torch.float64


def test_float32_where_the_processor_lacks_it_and_says_so_once(monkeypatch, caplog) -> None:
    monkeypatch.setattr(precision, "native_bf16", lambda: False)
    monkeypatch.setattr(messages, "_said", set())
    params, x = gated_params(16, 64, dtype=torch.float32), batch(40, 16, dtype=torch.float32)
    _, plain = cpu.gradients(params, x, L1, LossOptions())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for backend in (cpu, tiled):
            backend.gradients(params, x, L1, LossOptions())
        _, asked = cpu.gradients(params, x, L1, LossOptions())
    assert all(torch.equal(a, b) for a, b in zip(plain[:6], asked[:6], strict=True))
    assert caplog.text.count("no native bfloat16") == 1


def test_list_form_keeps_exact_values_of_the_gates_that_a_narrow_product_proposes(native_bf16) -> None:
    x, weight = batch(200, 32, dtype=torch.float32), batch(300, 32, seed=2, dtype=torch.float32)
    threshold = torch.full((300,), 8.0)
    exact = reference.compact(x, weight, threshold)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        listed = cpu.compact(x, weight, threshold)

    def pairs(gates) -> set[tuple[int, int]]:
        return set(zip(gates.latent_of_entry().tolist(), gates.tokens.tolist(), strict=True))

    proposed = (x.bfloat16() @ weight.bfloat16().T).float() > threshold
    assert pairs(listed) == pairs(exact) & {(i, t) for t, i in proposed.nonzero().tolist()}
    assert 0.97 * len(exact) < len(listed) < len(exact)
    dense = x @ weight.T
    torch.testing.assert_close(
        listed.values, dense[listed.tokens.long(), listed.latent_of_entry()], rtol=1e-5, atol=1e-5
    )
    assert torch.equal(listed.tokens[listed.order], torch.sort(listed.tokens, stable=True).values)


@pytest.mark.parametrize("backend", [cpu, tiled], ids=["cpu", "dense"])
@pytest.mark.parametrize("make", [gated_params, standard_params], ids=["gated", "standard"])
def test_gradients_stay_close_and_wide(native_bf16, backend, make) -> None:
    params, x = make(32, 64, dtype=torch.float32), batch(128, 32, dtype=torch.float32)
    _, expected = backend.gradients(params, x, L1, LossOptions())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses, grads = backend.gradients(params, x, L1, LossOptions())
    assert all(g is None or g.dtype == torch.float32 for g in grads)
    assert losses.reconstruction.dtype == torch.float64
    assert 0 < relative_difference(grads, expected) < 0.05


def test_the_reference_ignores_autocast() -> None:
    params, x = gated_params(8, 16, dtype=torch.float32), batch(20, 8, dtype=torch.float32)
    _, expected = reference.gradients(params, x, L1, LossOptions())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, grads = reference.gradients(params, x, L1, LossOptions())
    assert all(torch.equal(a, b) for a, b in zip(grads[:6], expected[:6], strict=True))
