"""Crosscoders: with one site an SAE, the loss written out, a scale for each site, two planted models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from interp.activations.stream import TensorStream
from interp.core.device import make_generator
from interp.sae.architectures.batchtopk import BatchTopKConfig, BatchTopKSAE
from interp.sae.architectures.crosscoder import (
    BatchTopKCrosscoder,
    BatchTopKCrosscoderConfig,
    Crosscoder,
    CrosscoderConfig,
)
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.loading import load_sae
from interp.sae.relative_norms import relative_norms
from interp.sae.step import make_step
from interp.sae.training import train
from tests.activations.synthetic import make_contexts, write_store
from tests.sae.sparse_world import randomize, sparse_rows
from tests.sae.training_world import QUIET

BLOCKS = (5, 3)


def crosscoder(kind: str = "crosscoder", blocks: tuple[int, ...] = BLOCKS, **form: Any) -> Any:
    shape = {"d_in": sum(blocks), "d_sae": 20, "dtype": "float64", "blocks": blocks, **form}
    if kind == "crosscoder":
        return Crosscoder(CrosscoderConfig(**shape), seed=1)
    return BatchTopKCrosscoder(BatchTopKCrosscoderConfig(k=2.5, **shape), seed=1)


@pytest.mark.parametrize("backend", ["dense", "cpu"])
@pytest.mark.parametrize("kind", ["crosscoder", "batchtopk_crosscoder"])
def test_of_one_site_it_is_an_sae_whose_input_is_not_centred(kind: str, backend: str) -> None:
    if kind == "crosscoder":
        sae: Any = StandardSAE(StandardSAEConfig.norm_weighted(8, 20, dtype="float64"), seed=1)
        loss, weight = {"sparsity": "ri_l1"}, 0.3
    else:
        cfg = BatchTopKConfig(8, 20, False, "float64", k=2.5, rescale_by_decoder_norm=True)
        sae, loss, weight = BatchTopKSAE(cfg, seed=1), {}, 0.0
    coder = crosscoder(kind, (8,))
    steps = [make_step(one, betas=(0.9, 0.999), backend=backend, **loss) for one in (sae, coder)]
    for i in range(8):
        x = sparse_rows(64, 8, seed=i).double()
        for step in steps:
            step(x, weight, 1e-2)
    for name, parameter in sae.named_parameters():
        torch.testing.assert_close(coder.get_parameter(name), parameter, rtol=1e-12, atol=1e-12)
    assert not torch.equal(sae.W_dec, StandardSAE(StandardSAEConfig.norm_weighted(8, 20), seed=1).W_dec)


@pytest.mark.parametrize("backend", ["dense", "reference", "cpu"])
def test_the_penalty_is_on_the_sum_of_the_sites_norms(backend: str) -> None:
    sae, x = randomize(crosscoder()), sparse_rows(30, 8).double()
    loss = sae.loss(x, 0.3, sparsity="ri_l1", backend=backend)
    loss.total.backward()
    found = {name: p.grad.clone() for name, p in sae.named_parameters()}
    sae.zero_grad()
    f = torch.relu(
        sum(part @ W.T for part, W in zip(sae.split(x), sae.split(sae.W_enc), strict=True)) + sae.b_enc
    )
    sites = zip(sae.split(x), sae.split(sae.W_dec), sae.split(sae.b_dec), strict=True)
    error = sum((f @ W + b - part).pow(2).sum(1).mean() for part, W, b in sites)
    penalty = (f @ sum(W.norm(dim=1) for W in sae.split(sae.W_dec))).mean()
    (error + 0.3 * penalty).backward()
    assert float(loss.total.detach()) == pytest.approx(float((error + 0.3 * penalty).detach()), rel=1e-12)
    for name, p in sae.named_parameters():
        torch.testing.assert_close(found[name], p.grad, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["crosscoder", "batchtopk_crosscoder"])
def test_scales_are_folded_site_by_site_and_norms_stay(kind: str, tmp_path: Path) -> None:
    sae, x, c = randomize(crosscoder(kind)), sparse_rows(40, 8).double(), (0.2, 7.0)
    if kind == "batchtopk_crosscoder":
        sae.set_theta_(0.5)
    columns = torch.tensor([c[0]] * 5 + [c[1]] * 3, dtype=torch.float64)
    codes, wanted, norms = sae.encode(columns * x), sae(columns * x).x_hat / columns, sae.site_norms()
    assert 0 < float((codes != 0).double().mean()) < 1
    sae.fold_activation_scales_(c)
    torch.testing.assert_close(sae.encode(x), codes, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(sae(x).x_hat, wanted, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(sae.site_norms(), norms, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(sae.column_scales(), columns)
    sae.save_pretrained(tmp_path)
    again = load_sae(tmp_path)
    assert torch.equal(again(x).x_hat, sae(x).x_hat)
    assert again.metadata.activation_scales == c
    torch.testing.assert_close(sae.to_jumprelu()(x).x_hat, wanted, rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="folded in"):
        make_step(again)


def test_a_wide_site_weighs_no_more_than_a_small_one() -> None:
    rows = sparse_rows(2000, 12, 16)
    larger = rows * torch.tensor([1.0] * 6 + [128.0] * 6)
    options = {"architecture": "batchtopk_crosscoder", "d_sae": 24, "k": 2, "steps": 60, "batch_size": 256}
    options |= {"tracker": "none", **QUIET}
    runs = [train(TensorStream(x, widths=(6, 6)), **options) for x in (rows, larger)]
    assert torch.equal(runs[0].sae.encode(rows) != 0, runs[1].sae.encode(larger) != 0)
    torch.testing.assert_close(runs[0].sae.site_norms(), runs[1].sae.site_norms())
    assert runs[1].history.last["fvu"] == pytest.approx(runs[0].history.last["fvu"], rel=1e-5)


def planted(
    n: int, d: int = 16, shared: int = 16, own: int = 4
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two models' rows; the directions of each feature in both, 0 where it isn't: 4 of 24 are each one's alone."""
    generator = make_generator(0, "two models")
    F = shared + 2 * own
    directions = torch.nn.functional.normalize(torch.randn(2, F, d, generator=generator), dim=-1)
    directions[1, shared : shared + own] = 0
    directions[0, shared + own :] = 0
    active = torch.rand(n, F, generator=generator) < 0.06
    sizes = active * (0.5 + torch.rand(n, F, generator=generator))
    noise = 0.01 * torch.randn(2, n, d, generator=generator)
    first, second = sizes @ directions + noise
    return first, 5 * second + 1, directions


def test_shared_and_exclusive_latents_of_two_models_are_told_apart(tmp_path: Path) -> None:
    contexts = make_contexts(900)
    first, second, directions = planted(contexts.n_tokens)
    stores = {
        name: write_store(tmp_path / name, contexts, {"resid_post.2": rows}, dtype="float32")
        for name, rows in (("base", first), ("tuned", second))
    }
    run = train(
        stores,
        architecture="batchtopk_crosscoder",
        site="resid_post.2",
        d_sae=40,
        k=1.5,
        lr=5e-3,
        steps=800,
        batch_size=512,
        out=tmp_path / "run",
        **{**QUIET, "backend": "auto"},
    )
    sae: Any = load_sae(tmp_path / "run")
    assert sae.metadata.sites == ("base/resid_post.2", "tuned/resid_post.2")
    assert list(sae.metadata.extra["models"]) == ["base", "tuned"]
    result = relative_norms(sae, ("base/resid_post.2", "tuned/resid_post.2"))
    decoder = torch.nn.functional.normalize(sae.W_dec * sae.column_scales().float(), dim=1)
    truth = torch.nn.functional.normalize(torch.cat(list(directions), 1), dim=1)
    cosine, latent = (truth @ decoder.T).max(1)
    assert (cosine > 0.9).sum() >= 22
    rho = result.rho[latent]
    assert ((rho[:16] - 0.5).abs() < 0.15).sum() >= 15
    assert (rho[16:20] < 0.1).sum() >= 3
    assert (rho[20:] > 0.9).sum() >= 3
    assert set(latent[16:20].tolist()) & set(result.first_only().tolist())
    assert set(latent[20:].tolist()) & set(result.second_only().tolist())
    assert len(result.in_both()) >= 10
    assert run.history.last["fvu"] < 0.1


def test_relative_norms_are_named_drawn_and_checked() -> None:
    sae = crosscoder()
    with torch.no_grad():
        sae.W_dec.zero_()
        sae.W_dec[:, 0] = 3.0
        sae.W_dec[:, 5] = 1.0
        sae.W_dec[1, 5] = 0.0
        sae.W_dec[2, 0] = 0.0
        sae.W_dec[3, 0] = 1.0
        sae.W_dec[4] = 0.0
    alive = torch.ones(20, dtype=torch.bool)
    alive[19] = False
    result = relative_norms(sae, alive=alive)
    assert result.rho[:4].tolist() == [0.25, 0.0, 1.0, 0.5]
    assert result.rho[[4, 19]].isnan().all()
    assert (result.first_only().tolist(), result.second_only().tolist(), result.in_both().tolist()) == (
        [1],
        [2],
        [3],
    )
    assert str(result) == "18 latents: 1 in both, 1 of site 0 alone, 1 of site 1 alone"
    counts = [bar.get_height() for bar in result.plot().axes[0].patches]
    assert (len(counts), sum(counts), counts[10]) == (40, 18, 15)
    with pytest.raises(ValueError, match="'base' is none of the crosscoder's: it names none"):
        relative_norms(sae, ("base", "tuned"))
    with pytest.raises(ValueError, match="site 2 is none"):
        relative_norms(sae, (0, 2))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"blocks = \(5, 3\) must be positive and add up to d_in = 9"):
        CrosscoderConfig(9, 20, blocks=BLOCKS)
    with pytest.raises(ValueError, match="isn't centred"):
        CrosscoderConfig(8, 20, apply_b_dec_to_input=True)
    with pytest.raises(ValueError, match="rows are free"):
        BatchTopKCrosscoderConfig(8, 20, k=2, rescale_by_decoder_norm=False)
    with pytest.raises(ValueError, match="free rows would hide it"):
        crosscoder().loss(torch.zeros(3, 8), sparsity="l1")
    with pytest.raises(ValueError, match="2 positive numbers"):
        crosscoder().fold_activation_scales_((1.0, -1.0))
    sae = crosscoder()
    sae.fold_activation_scale_(2.0)
    assert sae.scales.tolist() == [2.0, 2.0]
