"""The list form gives the dense loss and all its gradients, in every variant and at every odd shape."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.sae.kernels import cpu, cpu_list, dense, reference, tiled
from interp.sae.kernels.autograd import sparse_loss
from interp.sae.kernels.lists import GatedParams, LossOptions
from tests.sae.kernels.cases import (
    GATED_VARIANTS,
    L1,
    STANDARD_VARIANTS,
    batch,
    dense_gradients,
    dense_total,
    gated_params,
    relative_difference,
    standard_params,
    total_of,
)

BACKENDS = {"reference": reference, "cpu": cpu}
GRADIENTS = {**BACKENDS, "dense": tiled}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("backend", GRADIENTS)
def test_gated_sparse_equals_dense_in_every_variant(backend: str, dtype: torch.dtype) -> None:
    x = batch(70, 24, dtype=dtype)
    for tied, r_mag, options in GATED_VARIANTS:
        params = gated_params(24, 130, tied=tied, r_mag=r_mag, dtype=dtype)
        total, expected = dense_gradients(params, x, options)
        losses, grads = GRADIENTS[backend].gradients(params, x, L1, options)
        assert total_of(losses) == pytest.approx(float(total), rel=TOLERANCE[dtype]), (tied, r_mag, options)
        assert relative_difference(grads, expected) < TOLERANCE[dtype], (tied, r_mag, options)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("backend", GRADIENTS)
def test_standard_sparse_equals_dense_in_every_variant(backend: str, dtype: torch.dtype) -> None:
    x, params = batch(70, 24, dtype=dtype), standard_params(24, 130, dtype=dtype)
    for options in STANDARD_VARIANTS:
        total, expected = dense_gradients(params, x, options)
        losses, grads = GRADIENTS[backend].gradients(params, x, L1, options)
        assert total_of(losses) == pytest.approx(float(total), rel=TOLERANCE[dtype]), options
        assert relative_difference(grads, expected) < TOLERANCE[dtype], options


@pytest.mark.parametrize("variants", [GATED_VARIANTS, [(None, None, o) for o in STANDARD_VARIANTS]])
def test_dense_module_equals_the_definition(variants: list) -> None:
    x = batch(40, 9)
    for tied, r_mag, options in variants:
        params = standard_params(9, 31) if tied is None else gated_params(9, 31, tied=tied, r_mag=r_mag)
        total, losses = dense.loss(params, x, L1, options)
        grads = torch.autograd.grad(total, [p for p in params if p is not None])
        expected_total, expected = dense_gradients(params, x, options)
        assert float(total.detach()) == pytest.approx(float(expected_total), rel=1e-12)
        assert total_of(losses) == pytest.approx(float(expected_total), rel=1e-12)
        assert relative_difference(grads, expected) < 1e-12


@pytest.mark.parametrize("backend", GRADIENTS)
def test_counts_are_of_open_gates_and_of_positive_magnitudes(backend: str) -> None:
    # One latent, gate open on tokens 0, 1, 2; magnitude positive on 1 and 2 only.
    params = GatedParams(
        W_gate=torch.ones(1, 1, dtype=torch.float64),
        W_dec=torch.full((1, 1), 3.0, dtype=torch.float64),
        b_gate=torch.zeros(1, dtype=torch.float64),
        b_mag=torch.full((1,), -1.0, dtype=torch.float64),
        b_dec=torch.zeros(1, dtype=torch.float64),
    )
    x = torch.tensor([[0.5], [2.0], [3.0], [-1.0], [0.0]], dtype=torch.float64)
    losses, _ = GRADIENTS[backend].gradients(params, x, L1, LossOptions())
    assert float(losses.open_gates) == pytest.approx(3 / 5)
    assert float(losses.l0) == pytest.approx(2 / 5)
    assert losses.fired.tolist() == [2]
    # f = (0, 1, 2, 0, 0), x_hat = 3 f; a = (0.5, 2, 3, 0, 0), x_tilde = 3 a.
    assert float(losses.reconstruction) == pytest.approx((0.25 + 1 + 9 + 1) / 5)
    assert float(losses.sparsity) == pytest.approx(5.5 / 5)
    assert float(losses.auxiliary) == pytest.approx((1 + 16 + 36 + 1) / 5)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 70),
    d=st.integers(1, 40),
    F=st.integers(1, 150),
    shift=st.sampled_from([-1000.0, -3.0, -1.0, 0.5, 40.0]),
    tile=st.sampled_from([1, 7, 64, 10_000]),
    tied=st.booleans(),
    freeze=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_density(
    n: int, d: int, F: int, shift: float, tile: int, tied: bool, freeze: bool, seed: int
) -> None:
    """From no open gate at all to every gate open; tiles that don't divide anything; empty batches."""
    params = gated_params(d, F, tied=tied, shift=shift, seed=seed)
    x, options = batch(n, d, seed=seed + 1), LossOptions(freeze_decoder=freeze)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_list, "_SMALLEST_TILE", tile)
        patch.setattr(cpu_list, "_TILE_SIZE", 0)
        losses, grads = cpu.gradients(params, x, L1, options)
        plain, plain_grads = cpu.gradients(
            standard_params(d, F, shift=shift, seed=seed), x, L1, LossOptions()
        )
    if n == 0:
        assert total_of(losses) == total_of(plain) == 0
        assert all(not g.any() for g in (*grads, *plain_grads) if g is not None)
        return
    total, expected = dense_gradients(params, x, options)
    assert total_of(losses) == pytest.approx(float(total), rel=1e-10)
    assert relative_difference(grads, expected) < 1e-10
    if shift == -1000.0:
        assert float(losses.open_gates) == 0
    total, expected = dense_gradients(standard_params(d, F, shift=shift, seed=seed), x, LossOptions())
    assert total_of(plain) == pytest.approx(float(total), rel=1e-10)
    assert relative_difference(plain_grads, expected) < 1e-10


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_latent_hit_by_every_one_of_many_tokens(backend: str) -> None:
    params = gated_params(3, 5, shift=-2.0)
    with torch.no_grad():
        params.b_gate[2] = 100.0
    x = batch(5000, 3)
    gates = BACKENDS[backend].compact(x - params.b_dec, params.W_gate, -params.b_gate)
    assert gates.hits()[2] == 5000
    _, grads = GRADIENTS[backend].gradients(params, x, L1, LossOptions())
    assert relative_difference(grads, dense_gradients(params, x, LossOptions())[1]) < 1e-10


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["tied", "untied", "standard"])
def test_gradcheck(backend: str, kind: str) -> None:
    """Without stop-gradients in the loss, finite differences must agree with the kernels' gradients."""
    if kind == "standard":
        params, options = standard_params(4, 6), LossOptions(sparsity="ri_l1")
    else:
        params = gated_params(4, 6, tied=kind == "tied")
        options = LossOptions(sparsity="ri_l1", freeze_decoder=False)
    make, x = type(params), batch(5, 4)

    def loss(*values: torch.Tensor) -> torch.Tensor:
        fields = iter(values)
        rebuilt = make(*(None if p is None else next(fields) for p in params))
        return sparse_loss(rebuilt, x, L1, options, backend=backend)[0]

    assert torch.autograd.gradcheck(loss, [p for p in params if p is not None])


def test_autograd_form_scales_with_the_incoming_gradient() -> None:
    params, x = gated_params(6, 20), batch(30, 6)
    total, losses = sparse_loss(params, x, L1, LossOptions(), backend="cpu")
    assert float(total.detach()) == pytest.approx(total_of(losses), rel=1e-12)
    grads = torch.autograd.grad(3 * total, [p for p in params if p is not None])
    expected = torch.autograd.grad(
        3 * dense_total(params, x, L1, LossOptions()), [p for p in params if p is not None]
    )
    assert relative_difference(grads, expected) < 1e-10


def test_autograd_form_refuses_inputs_that_need_gradients() -> None:
    with pytest.raises(ValueError, match=r"x\.detach\(\)"):
        sparse_loss(gated_params(2, 3), batch(2, 2).requires_grad_(), L1, LossOptions(), backend="cpu")


def test_half_precision_is_refused() -> None:
    params = gated_params(2, 3, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match="float32 or float64"):
        cpu.gradients(params, batch(2, 2, dtype=torch.bfloat16), L1, LossOptions())


@pytest.mark.parametrize(("argument", "value"), [("sparsity", "l2"), ("mse_reduction", "none")])
def test_unknown_options_are_named(argument: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{argument} = '{value}'"):
        LossOptions(**{argument: value})
