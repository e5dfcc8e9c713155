"""GatedSAE: forward, closed-form gradients, JumpReLU equivalence, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.jumprelu import JumpReLUConfig, JumpReLUSAE
from tests.sae.sparse_world import randomize, sparse_rows

N, D, F = 23, 8, 30


def gated(**form) -> GatedSAE:
    return randomize(GatedSAE(GatedSAEConfig(D, F, dtype="float64", **form)))


def arrays(sae: GatedSAE) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in sae.named_parameters()}


def forward(w: dict[str, np.ndarray], x: np.ndarray, centred: bool) -> dict[str, np.ndarray]:
    """Section 2 of the method, in NumPy."""
    xc = x - w["b_dec"] if centred else x
    p = xc @ w["W_gate"].T
    q = xc @ w["W_mag"].T if "W_mag" in w else p
    m = np.exp(w["r_mag"]) if "r_mag" in w else np.ones(len(w["b_mag"]))
    pi, mu = p + w["b_gate"], m * q + w["b_mag"]
    f = np.where(pi > 0, np.maximum(mu, 0), 0)
    a = np.maximum(pi, 0)
    return {
        "xc": xc,
        "q": q,
        "m": m,
        "f": f,
        "a": a,
        "x_hat": f @ w["W_dec"] + w["b_dec"],
        "x_tilde": a @ w["W_dec"] + w["b_dec"],
    }


def closed_form(w, x, l1, *, centred, sparsity, freeze_decoder, detach_centering, mse_reduction):
    """Loss and gradients as derived by hand; nothing here uses autograd."""
    n, d = x.shape
    v = forward(w, x, centred)
    scale = 1 / n if mse_reduction == "sum" else 1 / (n * d)
    norms = np.linalg.norm(w["W_dec"], axis=1)
    weight = norms if sparsity == "ri_l1" else np.ones_like(norms)
    loss = scale * ((v["x_hat"] - x) ** 2).sum() + scale * ((v["x_tilde"] - x) ** 2).sum()
    loss += l1 * (v["a"] @ weight).sum() / n

    G, G_aux = 2 * scale * (v["x_hat"] - x), 2 * scale * (v["x_tilde"] - x)
    beta = (v["f"] > 0) * (G @ w["W_dec"].T)
    alpha = (v["a"] > 0) * (G_aux @ w["W_dec"].T + l1 / n * weight)
    m_beta = v["m"] * beta
    grads = {
        "b_gate": alpha.sum(0),
        "b_mag": beta.sum(0),
        "W_dec": v["f"].T @ G,
        "b_dec": G.sum(0),
        "W_gate": (alpha if "W_mag" in w else alpha + m_beta).T @ v["xc"],
    }
    if "r_mag" in w:
        grads["r_mag"] = v["m"] * (beta * v["q"]).sum(0)
    if "W_mag" in w:
        grads["W_mag"] = m_beta.T @ v["xc"]
    if not freeze_decoder:
        grads["W_dec"] = grads["W_dec"] + v["a"].T @ G_aux
        grads["b_dec"] = grads["b_dec"] + G_aux.sum(0)
        if sparsity == "ri_l1":
            grads["W_dec"] = grads["W_dec"] + l1 / n * v["a"].sum(0)[:, None] * w["W_dec"] / norms[:, None]
    if centred:
        through_gate = 0 if detach_centering else alpha.sum(0)
        magnitude = w.get("W_mag", w["W_gate"])
        grads["b_dec"] = (
            grads["b_dec"] - w["W_gate"].T @ (through_gate + 0 * norms) - magnitude.T @ m_beta.sum(0)
        )
    return loss, grads


VARIANTS = list(
    itertools.product(
        (True, False),
        (True, False),
        (True, False),
        ("l1", "ri_l1"),
        (True, False),
        (True, False),
        ("sum", "mean"),
    )
)


@pytest.mark.parametrize(
    ("tied", "use_r_mag", "centred", "sparsity", "freeze_decoder", "detach_centering", "mse_reduction"),
    VARIANTS,
)
def test_loss_and_gradients_have_their_closed_forms(
    tied, use_r_mag, centred, sparsity, freeze_decoder, detach_centering, mse_reduction
):
    sae = gated(tied=tied, use_r_mag=use_r_mag, apply_b_dec_to_input=centred)
    x = sparse_rows(N, D, noise=0.3).double()
    options = {
        "sparsity": sparsity,
        "freeze_decoder": freeze_decoder,
        "detach_centering": detach_centering,
        "mse_reduction": mse_reduction,
    }
    loss = sae.loss(x, 0.7, **options)
    loss.total.backward()
    expected, grads = closed_form(arrays(sae), x.numpy(), 0.7, centred=centred, **options)
    assert loss.total.item() == pytest.approx(expected, rel=1e-12)
    assert set(grads) == {name for name, _ in sae.named_parameters()}
    for name, parameter in sae.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad.numpy(), grads[name], rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("use_r_mag", [True, False])
@pytest.mark.parametrize("centred", [True, False])
def test_forward_is_the_papers(tied, use_r_mag, centred):
    sae = gated(tied=tied, use_r_mag=use_r_mag, apply_b_dec_to_input=centred)
    x = sparse_rows(N, D).double()
    v = forward(arrays(sae), x.numpy(), centred)
    out = sae(x)
    np.testing.assert_allclose(out.codes.detach(), v["f"], atol=1e-14)
    np.testing.assert_allclose(out.x_hat.detach(), v["x_hat"], atol=1e-13)
    codes = sae.encode_sparse(x)
    np.testing.assert_allclose(codes.to_dense().detach(), v["f"], atol=1e-14)
    np.testing.assert_allclose(sae.decode(codes).detach(), v["x_hat"], atol=1e-13)


def test_loss_parts_add_up_and_count():
    sae, x = gated(), sparse_rows(N, D).double()
    v = forward(arrays(sae), x.numpy(), True)
    loss = sae.loss(x, 0.7)
    assert loss.total.item() == pytest.approx(
        (loss.reconstruction + 0.7 * loss.sparsity + loss.auxiliary).item()
    )
    assert loss.l0.item() == pytest.approx((v["f"] > 0).sum() / N)
    assert loss.open_gates.item() == pytest.approx((v["a"] > 0).sum() / N)
    assert loss.open_gates > loss.l0  # some gates are open on magnitudes that the ReLU cuts


def test_the_step_of_the_gate_is_strict():
    sae = GatedSAE(GatedSAEConfig(2, 1, use_r_mag=False), seed=None)
    with torch.no_grad():
        sae.b_mag.fill_(1.0)
    assert sae.encode(torch.zeros(1, 2)).item() == 0  # pi is exactly 0: closed
    with torch.no_grad():
        sae.b_gate.fill_(1e-30)
    assert sae.encode(torch.zeros(1, 2)).item() == 1


def test_detaching_the_centring_moves_no_stationary_point():
    """What is stopped is -W_gate^T dL/db_gate, so it is zero wherever dL/db_gate is."""
    x, grads = sparse_rows(N, D).double(), {}
    for detach in (False, True):
        sae = gated()
        sae.loss(x, 0.7, detach_centering=detach).total.backward()
        grads[detach] = sae
    stopped = grads[True].b_dec.grad - grads[False].b_dec.grad
    torch.testing.assert_close(stopped, sae.W_gate.detach().T @ grads[False].b_gate.grad, atol=1e-12, rtol=0)
    assert stopped.abs().max() > 1e-3


@pytest.mark.parametrize("backend", ["reference"])
def test_the_list_form_gives_the_same_loss(backend):
    x, totals = sparse_rows(N, D).double(), {}
    for route in ("dense", backend):
        sae = gated()
        loss = sae.loss(x, 0.7, backend=route)
        loss.total.backward()
        totals[route] = (loss.total.detach(), sae.W_gate.grad, sae.b_dec.grad)
    for dense, listed in zip(totals["dense"], totals[backend], strict=True):
        torch.testing.assert_close(listed, dense, atol=1e-12, rtol=1e-12)


def test_initialisation():
    sae = GatedSAE(GatedSAEConfig(D, F), seed=3)
    torch.testing.assert_close(sae.W_dec.norm(dim=1), torch.ones(F))
    assert torch.equal(sae.W_gate, sae.W_dec)
    assert sae.W_gate.data_ptr() != sae.W_dec.data_ptr()
    assert all(not getattr(sae, name).any() for name in ("b_gate", "b_mag", "r_mag", "b_dec"))
    assert torch.equal(GatedSAE(GatedSAEConfig(D, F), seed=3).W_dec, sae.W_dec)
    assert not torch.equal(GatedSAE(GatedSAEConfig(D, F), seed=4).W_dec, sae.W_dec)
    open_gates = sae.loss(
        sparse_rows(400, D, noise=1.0) - sparse_rows(400, D, noise=1.0).mean(0), 0.0
    ).open_gates
    assert abs(open_gates.item() / F - 0.5) < 0.05


def test_parameter_counts_against_the_baselines():
    """Tying costs 2F more parameters than an L1 SAE: 2Fd + 3F + d."""
    count = sum(p.numel() for p in GatedSAE(GatedSAEConfig(D, F)).parameters())
    assert count == 2 * F * D + 3 * F + D


@pytest.mark.parametrize("use_r_mag", [True, False])
@pytest.mark.parametrize("centred", [True, False])
def test_jumprelu_form_is_the_same_function(use_r_mag, centred):
    sae = gated(use_r_mag=use_r_mag, apply_b_dec_to_input=centred)
    with torch.no_grad():
        sae.b_gate[:10] += 1.0  # thetas below zero, where the ReLU decides
    jumprelu = sae.to_jumprelu()
    x = sparse_rows(500, D, noise=0.3).double()
    torch.testing.assert_close(jumprelu(x).x_hat, sae(x).x_hat, atol=1e-12, rtol=0)
    torch.testing.assert_close(jumprelu.encode(x), sae.encode(x), atol=1e-12, rtol=0)
    torch.testing.assert_close(jumprelu.encode_sparse(x).to_dense(), sae.encode(x), atol=1e-12, rtol=0)
    m = sae.r_mag.exp() if sae.r_mag is not None else 1.0
    theta = sae.b_mag - m * sae.b_gate
    assert (theta < 0).any()
    assert (theta > 0).any()
    torch.testing.assert_close(jumprelu.threshold, theta.clamp_min(0), atol=1e-15, rtol=0)


def test_untied_has_no_jumprelu_form():
    with pytest.raises(ValueError, match="tied"):
        gated(tied=False).to_jumprelu()


def test_a_jumprelu_of_zeros_reconstructs_nothing_and_is_its_own_jumprelu():
    sae = JumpReLUSAE(JumpReLUConfig(D, F))
    assert sae.to_jumprelu() is sae
    loss = sae.loss(torch.ones(3, D), 1.0)
    assert (float(loss.reconstruction), float(loss.sparsity)) == (D, 0.0)


def test_leading_dimensions():
    sae, x = GatedSAE(GatedSAEConfig(D, F)), torch.randn(2, 5, D)
    assert sae.encode(x).shape == (2, 5, F)
    assert sae(x).x_hat.shape == (2, 5, D)
    assert sae.encode_sparse(x).shape == (10, F)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda s: s.encode(torch.zeros(3, D + 1)), ValueError, rf"\(3, {D + 1}\).*d_in = {D}"),
        (lambda s: s.encode(torch.full((3, D), torch.nan)), ValueError, "NaN or infinite values in 3 of 3"),
        (lambda s: s.encode_sparse(torch.full((3, D), torch.inf)), ValueError, "NaN or infinite"),
        (lambda s: s(torch.zeros(D)), ValueError, "shape"),
        (lambda s: s.encode(torch.zeros(3, D, dtype=torch.long)), TypeError, "int64"),
        (lambda s: s.encode(np.zeros((3, D))), TypeError, "ndarray"),
        (lambda s: s.decode(torch.zeros(3, F + 1)), ValueError, f"{F + 1} latents"),
        (lambda s: s.loss(torch.zeros(3, D), -1.0), ValueError, "l1_coefficient = -1.0"),
        (lambda s: s.loss(torch.zeros(3, D), 1.0, sparsity="l2"), ValueError, "ri_l1"),
        (lambda s: s.loss(torch.zeros(3, D), 1.0, mse_reduction="max"), ValueError, "mean"),
        (lambda s: s.loss(torch.zeros(3, D), 1.0, backend="gpu"), ValueError, "triton"),
        (lambda s: GatedSAEConfig(D, 0), ValueError, "d_sae = 0"),
        (lambda s: GatedSAEConfig(0, F), ValueError, "d_in = 0"),
        (lambda s: GatedSAEConfig(D, F, dtype="float31"), ValueError, "float32"),
        (lambda s: GatedSAE(JumpReLUConfig(D, F)), TypeError, "GatedSAEConfig"),
        (lambda s: s.fold_activation_scale_(0.0), ValueError, "c = 0.0"),
        (lambda s: s.fold_activation_scale_(2.0, into="b_dec"), ValueError, "weights"),
    ],
)
def test_errors(call, error, said):
    with pytest.raises(error, match=said):
        call(GatedSAE(GatedSAEConfig(D, F)))
