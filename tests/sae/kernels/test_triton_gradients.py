"""Losses and gradients of the Triton kernels against autograd in float64, over variants and awkward shapes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.sae.kernels import reference
from interp.sae.kernels import triton as backend
from interp.sae.kernels.autograd import sparse_loss
from interp.sae.kernels.lists import CodeParams, GatedParams, LossOptions
from interp.sae.kernels.triton import latents
from tests.sae.kernels.cases import (
    GATED_VARIANTS,
    L1,
    STANDARD_VARIANTS,
    batch,
    dense_gradients,
    relative_difference,
    total_of,
)
from tests.sae.kernels.triton_cases import exact, gated, present, standard

TOLERANCE = 1e-5


def assert_equals_autograd(params: GatedParams | CodeParams, x: Tensor, options: LossOptions) -> None:
    losses, grads = backend.gradients(params, x, L1, options)
    total, expected = dense_gradients(exact(params), x.double(), options)
    assert total_of(losses) == pytest.approx(float(total), rel=TOLERANCE)
    assert relative_difference(present(grads), expected) < TOLERANCE


# Sixteen of the 128 variants, such that every two of the seven switches meet in all four ways.
@pytest.mark.parametrize("index", [13 * i % 128 for i in range(16)])
def test_gated_variants(index: int) -> None:
    tied, r_mag, options = GATED_VARIANTS[index]
    params = gated(12, 17, tied=tied, r_mag=r_mag)
    assert_equals_autograd(params, batch(6, 12, dtype=torch.float32), options)


@pytest.mark.parametrize("options", STANDARD_VARIANTS, ids=str)
def test_standard_variants(options: LossOptions) -> None:
    assert_equals_autograd(standard(12, 17), batch(6, 12, dtype=torch.float32), options)


# Tiles are 64 x 64 x 16, rows are walked 4 to 32 at a time and 1024 columns wide.
@pytest.mark.parametrize(
    ("n", "d", "F", "shift"),
    [
        (1, 1, 1, 1.0),
        (3, 5, 67, -1.0),
        (66, 16, 5, -2.0),
        (4, 20, 75, 0.5),
        (3, 1030, 9, 0.0),
        (2, 2049, 3, 0.0),
    ],
)
def test_shapes_that_fit_no_block(n: int, d: int, F: int, shift: float) -> None:
    everything = LossOptions(sparsity="ri_l1", freeze_decoder=False)
    assert_equals_autograd(gated(d, F, shift=shift), batch(n, d, dtype=torch.float32), everything)


def test_the_widest_rows() -> None:
    assert_equals_autograd(gated(8192, 4, tied=False), batch(2, 8192, dtype=torch.float32), LossOptions())


def test_parts_of_the_loss_equal_the_references() -> None:
    params, x = gated(12, 17), batch(6, 12, dtype=torch.float32)
    losses, _ = backend.gradients(params, x, L1, LossOptions())
    expected, _ = reference.gradients(exact(params), x.double(), L1, LossOptions())
    assert torch.equal(losses.fired, expected.fired)
    assert losses.fired.dtype == torch.int64
    for name in ("reconstruction", "sparsity", "auxiliary", "l0", "open_gates"):
        ours, theirs = getattr(losses, name), getattr(expected, name)
        assert ours.dtype == torch.float64
        assert ours.dim() == 0
        assert float(ours) == pytest.approx(float(theirs), rel=1e-6), name
    assert 0 < float(losses.l0) < float(losses.open_gates)


def test_tensors_need_not_be_contiguous() -> None:
    params = gated(7, 9)
    strided = GatedParams(*(p.detach().T.contiguous().T if p.dim() == 2 else p for p in present(params)))
    x = batch(4, 7, dtype=torch.float32).T.contiguous().T
    assert not x.is_contiguous()
    assert not strided.W_dec.is_contiguous()
    assert_equals_autograd(strided, x, LossOptions(sparsity="ri_l1", freeze_decoder=False))


@pytest.mark.parametrize("kind", ["gated", "standard"])
def test_no_open_gate_leaves_only_the_decoder_bias_a_gradient(kind: str) -> None:
    params = gated(7, 5, shift=-99.0) if kind == "gated" else standard(7, 5, shift=-99.0)
    x = batch(4, 7, dtype=torch.float32)
    losses, grads = backend.gradients(params, x, L1, LossOptions())
    residual = params.b_dec.detach() - x
    parts = 2 if kind == "gated" else 1
    assert total_of(losses) == pytest.approx(parts * float(residual.pow(2).sum()) / 4, rel=1e-6)
    torch.testing.assert_close(grads.b_dec, residual.sum(0) / 2)
    assert all(not bool(g.any()) for g in present(grads) if g is not grads.b_dec)


def test_one_silent_token_and_one_latent_that_fires_on_every_other() -> None:
    params, x = gated(7, 9, shift=-30.0), batch(5, 7, dtype=torch.float32)
    with torch.no_grad():
        params.b_dec.zero_()
        params.W_gate[4] = torch.linspace(1, 2, 7)
        x[:4] = x[:4].abs() + 20
        x[4] = 0.0
    gates = backend.compact(x, params.W_gate, -params.b_gate)
    assert int(gates.hits()[4]) == 4
    assert int(gates.token_ptr.diff()[4]) == 0
    assert_equals_autograd(params, x, LossOptions())


@pytest.mark.parametrize("kind", ["gated", "standard"])
def test_an_empty_batch_has_zero_loss_and_gradients(kind: str) -> None:
    params = gated(7, 5) if kind == "gated" else standard(7, 5)
    losses, grads = backend.gradients(params, torch.empty(0, 7), L1, LossOptions())
    assert total_of(losses) == 0
    assert all(not bool(g.any()) for g in present(grads))


@pytest.mark.parametrize("freeze", [True, False])
def test_a_latent_with_more_hits_than_one_program_sums(freeze: bool) -> None:
    """Three latents with 4100, 4097 and 3 hits; the token pass, not at stake here, is the reference's."""
    n, options = 4100, LossOptions(freeze_decoder=freeze)
    params, x = gated(3, 3), batch(n, 3, dtype=torch.float32)
    xc = x - params.b_dec
    pre = xc @ params.W_gate.T
    with torch.no_grad():
        params.b_gate.copy_(1.0 - pre.min(0).values)
        for latent, closed in ((1, 3), (2, n - 3)):
            lowest = pre[:, latent].sort().values
            params.b_gate[latent] = -(lowest[closed - 1] + lowest[closed]) / 2
        gates = reference.compact(xc, params.W_gate, -params.b_gate)
        assert gates.hits().tolist() == [4100, 4097, 3]
        _, passed = reference.gated_token_pass(params, x, gates, L1, options)
    ours = backend.gated_latent_pass(params, x, gates, passed, L1, options)
    _, expected = dense_gradients(exact(params), x.double(), options)
    assert relative_difference(present(ours), expected) < TOLERANCE


def test_chunks_are_summed_in_a_fixed_order_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    params, x = gated(5, 4, shift=5.0), batch(21, 5, dtype=torch.float32)
    whole = backend.gradients(params, x, L1, LossOptions())[1]
    monkeypatch.setattr(latents, "CHUNK", 8)
    chunked = backend.gradients(params, x, L1, LossOptions())[1]
    assert relative_difference(present(chunked), present(whole)) < 1e-6
    again = backend.gradients(params, x, L1, LossOptions())[1]
    assert all(torch.equal(a, b) for a, b in zip(present(chunked), present(again), strict=True))


def test_autograd_gives_the_same_gradients_as_the_dense_loss() -> None:
    params, x = gated(7, 9), batch(4, 7, dtype=torch.float32)
    total, _ = sparse_loss(params, x, L1, LossOptions(), backend="triton")
    (3 * total).backward()
    _, expected = dense_gradients(exact(params), x.double(), LossOptions())
    assert relative_difference([p.grad / 3 for p in present(params)], expected) < TOLERANCE


@pytest.mark.parametrize(("n", "d", "F"), [(5, 7, 11), (2, 1030, 6), (0, 4, 3)])
def test_decode_is_the_dense_product(n: int, d: int, F: int) -> None:
    params = gated(d, F)
    codes = torch.relu(batch(n, F, dtype=torch.float32) - 0.3)
    token_ptr = torch.cat([torch.zeros(1, dtype=torch.int64), (codes > 0).sum(1).cumsum(0)])
    at = codes.nonzero()
    out = backend.decode(
        token_ptr, at[:, 1].int(), codes[at[:, 0], at[:, 1]], params.W_dec.detach(), params.b_dec.detach()
    )
    torch.testing.assert_close(out, codes @ params.W_dec + params.b_dec, rtol=1e-5, atol=1e-5)
