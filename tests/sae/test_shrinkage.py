"""Training finds the known optimum: the short form of scripts/reproduce/gated_sae.py, A1, and of A2's control."""

from __future__ import annotations

import pytest
import torch

from interp.activations.stream import TensorStream
from interp.core.device import make_generator
from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.metrics import fvu, relative_reconstruction_bias
from interp.sae.training import train
from tests.sae.training_world import QUIET, D, X


@pytest.fixture(scope="module")
def shrinkage():
    """Orthogonal features, where an L1 SAE's optimum can be written down."""
    l1, p, d = 0.5, 0.1, 8
    generator = make_generator(0, "A1")
    q = torch.linalg.qr(torch.randn(d, d, generator=generator)).Q
    n = 800 * 256
    active = torch.rand(n, d, generator=generator) < p
    x = (active * (0.5 + 1.5 * torch.rand(n, d, generator=generator))) @ q
    options = {"normalization": "none", "b_dec_init": "zero", "resample_at": (), "lr_decay": 0.5}
    options |= {"lr_warmup": 0.0, "l1_warmup": 0.0}
    gated, baseline = train(
        x,
        {"gated": {}, "l1": {"architecture": "standard"}},
        d_sae=d,
        l1_coefficient=l1,
        steps=800,
        batch_size=256,
        lr=1e-2,
        **options,
        **QUIET,
    )
    return {
        "x": x[:50_000],
        "l0": float(active[:50_000].sum()) / 50_000,
        "gated": gated.sae,
        "l1": baseline.sae,
    }


def test_the_baseline_shrinks_as_much_as_theory_says(shrinkage):
    p, h, mean, square = 0.1, 0.25, 1.25, 1.75
    b = p * h / (1 - p)
    gamma = (square - 2 * h * mean + h**2 + (1 - p) * b**2 / p) / (square - h * mean)
    unexplained = (p * h**2 + (1 - p) * b**2) / (p * square - (p * mean) ** 2)
    x_hat = shrinkage["l1"](shrinkage["x"]).x_hat
    assert relative_reconstruction_bias(shrinkage["x"], x_hat) == pytest.approx(gamma, abs=0.005)
    assert fvu(shrinkage["x"], x_hat) == pytest.approx(unexplained, rel=0.03)


def test_the_gated_sae_does_not_shrink(shrinkage):
    out = shrinkage["gated"](shrinkage["x"])
    assert relative_reconstruction_bias(shrinkage["x"], out.x_hat) == pytest.approx(1, abs=0.003)
    assert fvu(shrinkage["x"], out.x_hat) < 0.002
    l0 = float((out.codes > 0).sum()) / len(shrinkage["x"])
    assert l0 == pytest.approx(shrinkage["l0"], rel=0.01)


def test_without_the_auxiliary_term_all_gates_close():
    """The negative control: the gate then feels nothing but the sparsity penalty."""
    sae = GatedSAE(GatedSAEConfig(D, 32))
    optimizer = torch.optim.Adam(sae.parameters(), lr=3e-2, betas=(0.0, 0.999))
    stream = TensorStream(X)
    for _ in range(200):
        x = stream.next_batch(256).values
        p = (x - sae.b_dec) @ sae.W_gate.T
        pi = p + sae.b_gate
        x_hat = sae.decode((pi > 0) * torch.relu(sae.r_mag.exp() * p + sae.b_mag))
        loss = (x_hat - x).pow(2).sum(1).mean() + 2.0 * torch.relu(pi).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    out = sae(X)
    assert (out.codes > 0).sum() / len(X) < 0.05  # of 32 latents, half of which fired at the start
    assert fvu(X, out.x_hat) == pytest.approx(1, abs=0.05)
