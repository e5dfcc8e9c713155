"""A fused step is the dense step: gradient, projection, Adam and renormalisation, again and again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.sae.kernels import cpu, reference
from interp.sae.kernels.backend import FusedAdam
from interp.sae.kernels.lists import CodeParams, GatedParams, LossOptions
from tests.sae.kernels.cases import (
    GATED_VARIANTS,
    L1,
    STANDARD_VARIANTS,
    batch,
    dense_gradients,
    gated_params,
    relative_difference,
    standard_params,
)

LR, BETA2, EPS = 1e-2, 0.999, 1e-8


def clone(params: GatedParams | CodeParams) -> GatedParams | CodeParams:
    return type(params)(*(None if p is None else p.detach().clone().requires_grad_() for p in params))


def unit_rows(params: GatedParams | CodeParams) -> GatedParams | CodeParams:
    with torch.no_grad():
        params.W_dec.div_(params.W_dec.norm(dim=1, keepdim=True))
    return params


def train_dense(params, options: LossOptions, batches: list[Tensor], *, unit_norm: bool) -> None:
    """Textbook: autograd, projection, torch's own Adam, renormalisation."""
    trained = [p for p in params if p is not None]
    optimizer = torch.optim.Adam(trained, lr=LR, betas=(0.0, BETA2), eps=EPS)
    for x in batches:
        _, grads = dense_gradients(params, x, options)
        for parameter, grad in zip(trained, grads, strict=True):
            parameter.grad = grad
        with torch.no_grad():
            if unit_norm:
                D, g = params.W_dec, params.W_dec.grad
                g -= (g * D).sum(1, keepdim=True) * D
            optimizer.step()
            if unit_norm:
                params.W_dec.div_(params.W_dec.norm(dim=1, keepdim=True))


def train_fused(backend, params, options: LossOptions, batches: list[Tensor], *, unit_norm: bool):
    kind = type(params)
    v = kind(*(None if p is None else torch.zeros_like(p, requires_grad=False) for p in params))
    last = kind(*(None if p is None else torch.zeros(len(p), dtype=torch.int64) for p in params))
    for step, x in enumerate(batches, start=1):
        adam = FusedAdam(LR, BETA2, EPS, step, unit_norm, v, last)
        with torch.no_grad():
            backend.update(params, x, L1, options, adam)
    return v, last


@pytest.mark.parametrize("backend", [reference, cpu], ids=["reference", "cpu"])
@pytest.mark.parametrize("unit_norm", [True, False])
def test_fifty_steps_end_where_the_dense_ones_do(backend, unit_norm: bool) -> None:
    batches = [batch(24, 8, seed=100 + i) for i in range(50)]
    problems = [
        (gated_params(8, 40, tied=tied, r_mag=r_mag), options)
        for tied, r_mag, options in GATED_VARIANTS[:: 9 if backend is cpu else 27]
    ]
    problems += [(standard_params(8, 40), options) for options in STANDARD_VARIANTS[::3]]
    for params, options in problems:
        if unit_norm:
            unit_rows(params)
        dense = clone(params)
        train_dense(dense, options, batches, unit_norm=unit_norm)
        train_fused(backend, params, options, batches, unit_norm=unit_norm)
        assert relative_difference(params, dense) < 1e-9, options
        if unit_norm:
            assert float((params.W_dec.detach().norm(dim=1) - 1).abs().max()) < 1e-14


def test_rows_without_an_open_gate_are_not_touched() -> None:
    params = unit_rows(gated_params(8, 40, shift=-4.0))
    with torch.no_grad():
        params.b_gate[7] = -1e9
    before = clone(params)
    _, last = train_fused(cpu, params, LossOptions(), [batch(24, 8)], unit_norm=True)
    assert last.W_gate[7] == last.W_dec[7] == last.b_mag[7] == 0
    assert torch.equal(params.W_gate[7], before.W_gate[7])
    assert torch.equal(params.W_dec[7], before.W_dec[7])
    touched = last.W_gate == 1
    assert 0 < int(touched.sum()) < 40
    assert not torch.equal(params.W_gate[touched], before.W_gate[touched])
    assert bool((last.b_dec == 1).all())


def test_a_transposed_parameter_is_refused_rather_than_left_as_it_was() -> None:
    params = gated_params(8, 40)
    params = params._replace(W_gate=params.W_gate.detach().T.contiguous().T)
    with pytest.raises(ValueError, match="W_gate isn't contiguous"):
        train_fused(cpu, params, LossOptions(), [batch(24, 8)], unit_norm=False)


@pytest.mark.parametrize("backend", [reference, cpu], ids=["reference", "cpu"])
def test_a_row_too_short_to_renormalise_keeps_its_value(backend) -> None:
    def filled(value: float) -> GatedParams:
        return GatedParams(
            *(torch.full(shape, value, dtype=torch.float64) for shape in [(1, 1)] * 2 + [(1,)] * 3)
        )

    params, v = filled(0.0), filled(0.0)
    params.W_gate.fill_(1.0)
    params.W_dec.fill_(1e-13)
    last = GatedParams(*(torch.zeros(1, dtype=torch.int64) for _ in range(5)))
    x = torch.ones(1, 1, dtype=torch.float64)
    backend.update(params, x, 0.0, LossOptions(), FusedAdam(0.0, BETA2, EPS, 1, True, v, last))
    assert float(params.W_dec) == 1e-13
    assert int(last.W_dec) == 1
