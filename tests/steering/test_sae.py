from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.metadata import SAEMetadata
from interp.steering.sae import decompose, from_latent
from interp.steering.vector import SteeringVector
from tests.models.tiny import tiny_ids

D, F = 32, 80


@pytest.fixture
def sae() -> StandardSAE:
    made = StandardSAE(StandardSAEConfig(d_in=D, d_sae=F), seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        made.W_dec.copy_(torch.randn(F, D, generator=generator))  # norms far from one
    made.metadata = SAEMetadata(model_name="tiny", site="resid_post.1")
    return made


def test_a_latent_up_by_one_is_what_the_decoder_adds(sae: StandardSAE, tiny_llama: LanguageModel) -> None:
    codes = torch.rand(1, F)
    up = codes.clone()
    up[0, 7] += 2.5
    vector = from_latent(sae, 7, 2.5)
    assert (vector.site, vector.layers, vector.meta["latent"]) == ("resid_post", (1,), 7)
    assert torch.allclose(vector[1], (sae.decode(up) - sae.decode(codes))[0], atol=1e-5)
    ids = tiny_ids(1, 5)
    clean = tiny_llama.activations(ids, "resid_post.1")["resid_post.1"]
    with vector.apply(tiny_llama):
        steered = tiny_llama.activations(ids, "resid_post.1")["resid_post.1"]
    assert torch.allclose(steered - clean, vector[1].expand_as(clean), atol=1e-4)


def test_activation_scale(sae: StandardSAE) -> None:
    """Unfolded, a decoder row is in units of c times the activations; folding changes nothing for the user."""
    c = 4.0
    sae.metadata = replace(sae.metadata, activation_scale=c, activation_scale_folded=False)
    raw = from_latent(sae, 3)[1]
    assert torch.allclose(raw, sae.W_dec[3].detach() / c)
    sae.fold_activation_scale_(c, into="weights")
    assert torch.allclose(from_latent(sae, 3)[1], raw)


def test_a_sparse_sum_is_taken_apart(sae: StandardSAE) -> None:
    planted = {5: 3.0, 20: 1.5, 61: 0.75}
    direction = sum(w * sae.W_dec[i].detach() for i, w in planted.items())
    found = decompose(SteeringVector({1: direction}), sae, 3, label=lambda i: f"latent {i}")  # type: ignore[dict-item]
    assert dict(zip(found.latents, found.coefficients, strict=True)) == pytest.approx(planted, abs=1e-4)
    assert found.explained[-1] == pytest.approx(1, abs=1e-6)
    assert found.explained == sorted(found.explained)
    assert found.labels == [f"latent {i}" for i in found.latents]
    assert "latent 5" in str(found)
    assert list(found.to_frame()) == ["latent", "coefficient", "cosine", "explained", "label"]
    more = decompose(SteeringVector({1: direction}), sae, 10)  # type: ignore[dict-item]
    assert len(more.latents) == 3  # nothing is left to explain


def test_a_latent_taken_away_needs_signed_coefficients(sae: StandardSAE) -> None:
    direction = sae.W_dec[2].detach() - 2 * sae.W_dec[40].detach()
    vector = SteeringVector({1: direction})
    signed = decompose(vector, sae, 2, nonnegative=False)
    assert dict(zip(signed.latents, signed.coefficients, strict=True)) == pytest.approx(
        {2: 1.0, 40: -2.0}, abs=1e-4
    )
    positive = decompose(vector, sae, 2)
    assert min(positive.coefficients) >= 0
    assert positive.explained[-1] < 0.9


def test_each_step_is_the_least_squares_fit(sae: StandardSAE) -> None:
    direction = torch.randn(D, generator=torch.Generator().manual_seed(5))
    for k in (1, 4, 9):
        found = decompose(SteeringVector({1: direction}), sae, k, nonnegative=False)
        basis = sae.W_dec[found.latents].detach().T
        rest = direction - basis @ torch.linalg.lstsq(basis, direction[:, None]).solution[:, 0]
        assert found.explained[-1] == pytest.approx(
            1 - float(rest @ rest / (direction @ direction)), abs=1e-4
        )
    positive = decompose(SteeringVector({1: direction}), sae, 9)
    rest = direction - torch.tensor(positive.coefficients) @ sae.W_dec[positive.latents].detach()
    assert positive.explained[-1] == pytest.approx(1 - float(rest @ rest / (direction @ direction)), abs=1e-4)
    assert positive.cosines[0] == pytest.approx(positive.explained[0] ** 0.5, abs=1e-4)


def test_refusals(sae: StandardSAE) -> None:
    elsewhere = SteeringVector({2: torch.ones(D)})
    cases = (
        (lambda: from_latent(sae, F), "latent=80"),
        (lambda: from_latent(sae, 0, site="embed"), "no site of a block"),
        (
            lambda: decompose(elsewhere, sae),
            r"trained at resid_post.1, the vector is at resid_post of layers \(2,\)",
        ),
        (lambda: decompose(SteeringVector({1: torch.ones(5)}), sae), "width 5, the SAE takes 32"),
        (lambda: decompose(SteeringVector({1: torch.zeros(D)}), sae), "nothing to decompose"),
        (lambda: decompose(elsewhere, sae, 0), "n_latents=0"),
    )
    for wrong, message in cases:
        with pytest.raises(ValueError, match=message):
            wrong()
    assert decompose(elsewhere, sae, 2, layer=2).layer == 2
    sae.metadata = SAEMetadata()
    with pytest.raises(ValueError, match="don't say where"):
        from_latent(sae, 0)
    assert from_latent(sae, 0, site="resid_post.2").layers == (2,)
    assert decompose(elsewhere, sae, 2).layer == 2
    with pytest.raises(ValueError, match="choose one of"):
        decompose(SteeringVector({1: torch.ones(D), 2: torch.ones(D)}), sae)
