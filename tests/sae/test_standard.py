"""StandardSAE: both forms, closed-form gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from tests.sae.sparse_world import randomize, sparse_rows

N, D, F = 23, 8, 30


def closed_form(w, x, l1, *, centred, sparsity, mse_reduction):
    n, d = x.shape
    scale = 1 / n if mse_reduction == "sum" else 1 / (n * d)
    xc = x - w["b_dec"] if centred else x
    f = np.maximum(xc @ w["W_enc"].T + w["b_enc"], 0)
    residual = f @ w["W_dec"] + w["b_dec"] - x
    norms = np.linalg.norm(w["W_dec"], axis=1)
    weight = norms if sparsity == "ri_l1" else np.ones(F)
    loss = scale * (residual**2).sum() + l1 * (f @ weight).sum() / n
    G = 2 * scale * residual
    beta = (f > 0) * (G @ w["W_dec"].T + l1 / n * weight)
    W_dec = f.T @ G
    if sparsity == "ri_l1":
        W_dec = W_dec + l1 / n * f.sum(0)[:, None] * w["W_dec"] / norms[:, None]
    b_dec = G.sum(0) - (w["W_enc"].T @ beta.sum(0) if centred else 0)
    return loss, {"W_enc": beta.T @ xc, "b_enc": beta.sum(0), "W_dec": W_dec, "b_dec": b_dec}


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("sparsity", ["l1", "ri_l1"])
@pytest.mark.parametrize("mse_reduction", ["sum", "mean"])
def test_loss_and_gradients_have_their_closed_forms(centred, sparsity, mse_reduction):
    sae = randomize(StandardSAE(StandardSAEConfig(D, F, centred, "float64")))
    x = sparse_rows(N, D, noise=0.3).double()
    loss = sae.loss(x, 0.7, sparsity=sparsity, mse_reduction=mse_reduction)
    loss.total.backward()
    weights = {name: p.detach().numpy() for name, p in sae.named_parameters()}
    expected, grads = closed_form(
        weights, x.numpy(), 0.7, centred=centred, sparsity=sparsity, mse_reduction=mse_reduction
    )
    assert loss.total.item() == pytest.approx(expected, rel=1e-12)
    for name, parameter in sae.named_parameters():
        np.testing.assert_allclose(parameter.grad.numpy(), grads[name], rtol=0, atol=1e-12, err_msg=name)


def test_the_norm_weighted_form():
    """Anthropic April 2024: input not centred, decoder rows at norm 0.1, W_enc = W_dec, biases 0."""
    cfg = StandardSAEConfig.norm_weighted(D, F)
    sae = StandardSAE(cfg, seed=1)
    assert not cfg.apply_b_dec_to_input
    torch.testing.assert_close(sae.W_dec.norm(dim=1), torch.full((F,), 0.1))
    assert torch.equal(sae.W_enc, sae.W_dec)
    with torch.no_grad():
        sae.b_dec.fill_(5.0)
    x = sparse_rows(N, D)
    assert torch.equal(sae.encode(x), torch.relu(x @ sae.W_enc.T))


def test_norm_weighted_loss_does_not_see_how_norms_are_shared():
    """Decoder rows twice as long with encoder rows half as long: same function, same loss."""
    sae = randomize(StandardSAE(StandardSAEConfig(D, F, False, "float64")))
    x = sparse_rows(N, D).double()
    before = sae.loss(x, 0.7, sparsity="ri_l1").total
    plain = sae.loss(x, 0.7).total
    sae.fold_decoder_norm_()
    torch.testing.assert_close(sae.loss(x, 0.7, sparsity="ri_l1").total, before, rtol=1e-12, atol=0)
    assert abs(sae.loss(x, 0.7).total - plain) > 1e-2


def test_jumprelu_form():
    sae = randomize(StandardSAE(StandardSAEConfig(D, F)))
    x = sparse_rows(200, D)
    assert torch.equal(sae.to_jumprelu().encode(x), sae.encode(x))


def test_a_norm_of_zero_is_refused():
    with pytest.raises(ValueError, match="decoder_norm"):
        StandardSAEConfig(D, F, decoder_norm=0.0)
