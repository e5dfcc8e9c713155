"""Codes and reconstructions from the kernels equal the dictionaries' own dense ones."""

from __future__ import annotations

import pytest
import torch

from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.codes import SparseCodes
from interp.sae.kernels import dispatch, inference
from interp.sae.kernels.inference import TokenCodes, decode, encode_gated, encode_jumprelu
from tests.sae.kernels.cases import batch, gated_params


@pytest.fixture(params=["cpu", "reference"])
def backend(request, monkeypatch) -> str:
    monkeypatch.setattr(inference, "sparse_backend_for", lambda device, dtype, width: request.param)
    return request.param


def to_dense(codes: TokenCodes, n: int, F: int) -> torch.Tensor:
    return SparseCodes(*codes, shape=(n, F)).to_dense()


@pytest.mark.parametrize("n", [0, 1, 50])
@pytest.mark.parametrize("tied", [True, False])
def test_gated_codes(backend: str, n: int, tied: bool) -> None:
    sae = GatedSAE(GatedSAEConfig(9, 70, tied=tied, dtype="float64"))
    with torch.no_grad():
        for mine, random in zip(sae.params(), gated_params(9, 70, tied=tied), strict=True):
            if mine is not None:
                mine.copy_(random)
    x = batch(n, 9)
    expected = sae.encode(x) if n else torch.zeros(0, 70, dtype=torch.float64)
    codes = encode_gated(sae.params(), x - sae.b_dec)
    assert bool((codes.values > 0).all())
    torch.testing.assert_close(to_dense(codes, n, 70), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        decode(codes, sae.W_dec, sae.b_dec), expected @ sae.W_dec + sae.b_dec, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_threshold", [True, False])
def test_jumprelu_and_relu_codes(backend: str, dtype: torch.dtype, with_threshold: bool) -> None:
    x, W_enc = batch(60, 9, dtype=dtype), batch(70, 9, seed=2, dtype=dtype)
    b_enc, threshold = batch(2, 70, seed=3, dtype=dtype)
    z = x @ W_enc.T + b_enc
    limit = threshold.clamp_min(0) if with_threshold else torch.zeros_like(b_enc)
    expected = torch.where(z > limit, z, 0)
    codes = encode_jumprelu(W_enc, b_enc, x, threshold if with_threshold else None)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(to_dense(codes, 60, 70), expected, rtol=tolerance, atol=tolerance)


def test_a_pre_activation_equal_to_its_threshold_stays_silent(backend: str) -> None:
    """0.1 + 0.2 > 0.3 in floating point, 0.1 + 0.2 > 0.30000000000000004 is not: decided on z as computed."""
    x = torch.full((1, 1), 0.1, dtype=torch.float64)
    W, b = torch.ones(2, 1, dtype=torch.float64), torch.full((2,), 0.2, dtype=torch.float64)
    codes = encode_jumprelu(W, b, x, torch.tensor([0.3, 0.1 + 0.2], dtype=torch.float64))
    assert codes.latents.tolist() == [0]


def test_other_dtypes_fall_back_to_plain_torch() -> None:
    assert dispatch.sparse_backend_for(torch.device("cpu"), torch.bfloat16, 9) is None
    W = torch.eye(3, dtype=torch.bfloat16)
    codes = encode_jumprelu(W, torch.zeros(3, dtype=torch.bfloat16), W)
    assert codes.latents.tolist() == [0, 1, 2]
