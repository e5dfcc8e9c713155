"""The tied SAE: the paper's formulas, gradients through the normalisation, training, saving, resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from interp.core.callbacks import Callback
from interp.core.trainer import Trainer
from interp.sae.architectures.tied import TiedSAE, TiedSAEConfig
from interp.sae.dictionary import Dictionary
from interp.sae.formats.dictionary_learning import load_dictionary_learning, save_dictionary_learning
from interp.sae.formats.saelens import load_saelens, save_saelens
from interp.sae.loading import load_sae
from interp.sae.step import make_step
from interp.sae.training import train
from tests.sae.sparse_world import sparse_rows


def random_sae(d: int = 6, n_latents: int = 9, dtype: str = "float64", seed: int = 0) -> TiedSAE:
    sae = TiedSAE(TiedSAEConfig(d, n_latents, dtype=dtype), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        sae.b_enc.copy_(0.1 * torch.randn(n_latents, generator=generator))
        sae.b_dec.copy_(torch.randn(d, generator=generator))
    return sae


def inputs(n: int = 32, d: int = 6, seed: int = 1) -> torch.Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_two_latents_by_hand() -> None:
    sae = TiedSAE(TiedSAEConfig(2, 2), seed=None)
    with torch.no_grad():
        sae.W.copy_(torch.tensor([[3.0, 4.0], [0.0, -2.0]]))
        sae.b_enc.copy_(torch.tensor([-1.0, 0.5]))
        sae.b_dec.copy_(torch.tensor([10.0, 20.0]))
    x = torch.tensor([[1.0, 2.0]])
    out = sae(x)
    # (0.6 + 1.6 - 1, relu(-2 + 0.5)); b_dec is not subtracted from the input.
    assert torch.allclose(out.codes, torch.tensor([[1.2, 0.0]]))
    assert torch.allclose(out.x_hat, torch.tensor([[10.72, 20.96]]))
    loss = sae.loss(x, l1_coefficient=0.5)
    assert float(loss.total.detach()) == pytest.approx((9.72**2 + 18.96**2) / 2 + 0.5 * 1.2, rel=1e-6)


def test_xavier_bounds_and_zero_biases() -> None:
    sae = TiedSAE(TiedSAEConfig(100, 200), seed=3)
    bound = (6 / 300) ** 0.5
    largest = float(sae.W.detach().abs().max())
    assert 0.999 * bound < largest <= bound
    assert float(sae.W.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.02)
    assert not sae.b_enc.any()
    assert not sae.b_dec.any()


def test_the_length_of_a_row_is_no_matter() -> None:
    sae, x = random_sae(), inputs()
    before = sae(x)
    with torch.no_grad():
        sae.W.mul_(torch.rand(9, 1, dtype=torch.float64) * 5 + 0.1)
    after = sae(x)
    assert torch.allclose(before.codes, after.codes)
    assert torch.allclose(before.x_hat, after.x_hat)
    assert torch.allclose(sae.W_dec.norm(dim=1), torch.ones(9, dtype=torch.float64))


@pytest.mark.parametrize("backend", ["dense", "reference", "cpu"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_step_follows_autograd_and_adam(backend: str, reduction: str) -> None:
    """Against a module written out with autograd and torch's Adam."""
    sae, x = random_sae(), inputs()
    W, b_enc, b_dec = (p.detach().clone().requires_grad_() for p in (sae.W, sae.b_enc, sae.b_dec))
    adam = torch.optim.Adam([W, b_enc, b_dec], lr=0.01)
    step = make_step(sae, betas=(0.9, 0.999), mse_reduction=reduction, backend=backend)
    for _ in range(5):
        rows = torch.nn.functional.normalize(W, dim=1)
        f = torch.relu(x @ rows.T + b_enc)
        error = (f @ rows + b_dec - x).pow(2)
        squared = error.mean() if reduction == "mean" else error.sum(1).mean()
        loss = squared + 0.3 * f.abs().sum(1).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        assert float(step(x, 0.3, 0.01).loss) == pytest.approx(loss.item(), rel=1e-9)
    for ours, theirs in ((sae.W, W), (sae.b_enc, b_enc), (sae.b_dec, b_dec)):
        assert torch.allclose(ours, theirs, atol=1e-10)


def test_gradcheck_through_the_normalisation() -> None:
    sae, x = random_sae(4, 5), inputs(8, 4)

    def total(W: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.functional.normalize(W, dim=1)
        f = torch.relu(x @ rows.T + sae.b_enc)
        return (f @ rows + sae.b_dec - x).pow(2).mean() + 0.2 * f.sum(1).mean()

    sae.loss(x, 0.2).total.backward()
    expected = torch.func.grad(total)(sae.W.detach())
    assert torch.allclose(sae.W.grad, expected, atol=1e-12)
    assert torch.allclose((sae.W.grad * sae.W).sum(1), torch.zeros(5, dtype=torch.float64), atol=1e-12)


def test_sparse_codes_are_the_dense_ones() -> None:
    sae = random_sae(64, 1100, dtype="float32")
    x = torch.randn(4096, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        by_kernel = sae.encode_sparse(x).to_dense()
        assert torch.allclose(by_kernel, sae.encode(x), atol=1e-5)


def test_folding_and_conversion_keep_the_function() -> None:
    sae, x = random_sae(), inputs()
    scaled = sae(2.5 * x).x_hat / 2.5
    sae.fold_activation_scale_(2.5)
    assert torch.allclose(sae(x).x_hat, scaled)
    assert torch.allclose(sae.to_jumprelu()(x).x_hat, scaled)
    before = sae(x).x_hat
    sae.fold_decoder_norm_()
    sae.normalize_decoder_()
    assert torch.allclose(sae(x).x_hat, before)
    with pytest.raises(ValueError, match="rows of unit length"):
        sae.fold_activation_scale_(2.0, into="weights")


@pytest.mark.parametrize(
    ("save", "load"),
    [(save_saelens, load_saelens), (save_dictionary_learning, load_dictionary_learning)],
)
def test_other_libraries_get_the_standard_sae_of_the_same_function(
    save: Callable[..., Path], load: Callable[..., Dictionary], tmp_path: Path
) -> None:
    sae, x = random_sae(dtype="float32"), inputs().float()
    save(sae, tmp_path)
    there = load(tmp_path)
    assert there.architecture == "standard"
    assert torch.allclose(there(x).x_hat, sae(x).x_hat, atol=1e-5)
    assert torch.allclose(there(x).codes, sae(x).codes, atol=1e-5)


OPTIONS = {
    "architecture": "tied",
    "d_sae": 24,
    "l1_coefficient": 0.1,
    "mse_reduction": "mean",
    "beta1": 0.9,
    "b_dec_init": "zero",
    "lr": 3e-3,
    "l1_warmup": 0.0,
    "steps": 1000,
    "batch_size": 256,
    "progress": False,
    "device": "cpu",
    "backend": "dense",
}


def test_training_finds_planted_directions_and_saves(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(16, 16, generator=generator))[0]
    active = torch.rand(6000, 16, generator=generator) < 0.08
    x = (active * (0.5 + torch.rand(6000, 16, generator=generator))) @ directions
    trained = train(x, out=tmp_path / "run", **OPTIONS)
    cosines = (directions @ trained.sae.W_dec.detach().T).amax(1)
    assert float(cosines.min()) > 0.98
    assert trained.history.last["fvu"] < 0.05
    loaded = load_sae(tmp_path / "run")
    assert isinstance(loaded, TiedSAE)
    assert torch.equal(loaded.W, trained.sae.W)
    assert torch.equal(loaded.encode(x[:50]), trained.sae.encode(x[:50]))


def test_an_interrupted_training_resumes_to_the_same_bits(tmp_path: Path) -> None:
    class Interrupt(Callback):
        armed = False

        def on_log(self, trainer: Trainer, step: int, metrics: dict[str, float]) -> None:
            if step == 70 and self.armed:
                raise KeyboardInterrupt

    interrupt = Interrupt()
    options = {**OPTIONS, "steps": 120, "batch_size": 64, "checkpoint_every": 50, "callbacks": [interrupt]}
    x = sparse_rows(2000)
    whole = train(x, **options).sae
    interrupt.armed = True
    with pytest.raises(KeyboardInterrupt):
        train(x, out=tmp_path / "run", **options)
    interrupt.armed = False
    resumed = train(x, out=tmp_path / "run", **options).sae
    assert torch.equal(whole.W, resumed.W)
    assert torch.equal(whole.b_enc, resumed.b_enc)
    assert torch.equal(whole.b_dec, resumed.b_dec)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparsity": "ri_l1"}, "unknown training option 'sparsity' of a tied SAE"),
        ({"resample_at": (0.5,)}, "resample_at"),
        ({"apply_b_dec_to_input": True}, "encodes its input as it is"),
    ],
)
def test_what_a_tied_sae_does_not_do_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(
            torch.randn(64, 4), architecture="tied", d_sae=4, steps=2, batch_size=8, progress=False, **options
        )
