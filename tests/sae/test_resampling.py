"""Reviving dead latents, in closed detail."""

from __future__ import annotations

import copy

import pytest
import torch

from interp.core.device import make_generator
from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.resampling import reconstruction_losses, resample_dead_
from interp.sae.step import make_step
from tests.sae.sparse_world import randomize, sparse_rows

D, F = 16, 32
DEAD = torch.tensor([1, 5, 30])
KINDS = {
    "gated": lambda: GatedSAE(GatedSAEConfig(D, F)),
    "untied": lambda: GatedSAE(GatedSAEConfig(D, F, tied=False)),
    "without r": lambda: GatedSAE(GatedSAEConfig(D, F, use_r_mag=False)),
    "standard": lambda: StandardSAE(StandardSAEConfig(D, F)),
}


@pytest.fixture(params=KINDS)
def sae(request):
    sae = randomize(KINDS[request.param]())
    sae.normalize_decoder_()
    return sae


def revive(sae, sample, step=None, seed=0, **options):
    return resample_dead_(sae, step, sample, DEAD, make_generator(seed), **options)


def test_revived_latents_point_at_one_drawn_input_each(sae):
    sample = sparse_rows(200, D)
    alive = torch.ones(F, dtype=torch.bool)
    alive[DEAD] = False
    before = {name: p.detach().clone() for name, p in sae.named_parameters()}
    assert torch.equal(revive(sae, sample), DEAD)

    inputs = torch.nn.functional.normalize(sample - before["b_dec"], dim=1)
    cosines = sae.W_dec[DEAD] @ inputs.T
    torch.testing.assert_close(cosines.max(1).values, torch.ones(3))
    assert len(set(cosines.argmax(1).tolist())) == 3  # no input serves two latents
    for name in sae.encoder_matrices:
        matrix = getattr(sae, name)
        if matrix is not None:
            norm = 0.2 * before[name][alive].norm(dim=1).mean()
            torch.testing.assert_close(matrix[DEAD], norm * sae.W_dec[DEAD])
    for name in (*sae.latent_vectors, "r_mag"):
        if getattr(sae, name, None) is not None:
            assert not getattr(sae, name)[DEAD].any()
    for name, parameter in sae.named_parameters():
        rest = slice(None) if name == "b_dec" else alive
        assert torch.equal(parameter[rest], before[name][rest])


def test_inputs_are_drawn_in_proportion_to_the_squared_loss():
    """One input with 3 times the loss of another is drawn 9 times as often."""
    sae = GatedSAE(GatedSAEConfig(2, 3), seed=None)  # all zero: the loss of x is |x|^2
    sample = torch.tensor([[1.0, 0.0], [0.0, 3.0**0.5], [0.0, 0.0]])
    torch.testing.assert_close(reconstruction_losses(sae, sample), torch.tensor([1.0, 3.0, 0.0]).double())
    drawn = []
    for seed in range(400):
        fresh = GatedSAE(GatedSAEConfig(2, 3), seed=None)
        resample_dead_(fresh, None, sample, torch.tensor([0]), make_generator(seed))
        drawn.append(int(fresh.W_dec[0].argmax()))
    assert sum(drawn) / len(drawn) == pytest.approx(0.9, abs=4 * (0.09 / 400) ** 0.5)


def test_more_dead_latents_than_inputs_with_a_loss():
    sae = randomize(KINDS["gated"]())
    changed = resample_dead_(sae, None, sparse_rows(2, D), torch.arange(10), make_generator(0))
    assert changed.tolist() == [0, 1]


def test_no_dead_latents_changes_nothing():
    sae = randomize(KINDS["gated"]())
    before = sae.W_dec.detach().clone()
    assert len(resample_dead_(sae, None, sparse_rows(20, D), DEAD[:0], make_generator(0))) == 0
    assert torch.equal(sae.W_dec, before)


@pytest.mark.parametrize("betas", [(0.0, 0.999), (0.9, 0.999)])
def test_the_optimiser_forgets_revived_latents_and_only_those(sae, betas):
    x = sparse_rows(300, D)
    step = make_step(sae, betas=betas, backend="dense")
    for _ in range(3):
        step(x, 0.1, 1e-3)
    revive(sae, x, step)
    rows = [p for name, p in sae.named_parameters() if name != "b_dec"]
    for parameter in rows:
        for moment in step.optimizer.state[parameter].values():
            if moment.shape == parameter.shape and moment.is_floating_point():
                assert not moment[DEAD].any()
                assert moment.any()


@pytest.mark.parametrize("kind", ["gated", "standard"])
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_init_fire_rate_is_the_share_of_tokens_that_open_the_gate(kind, rate):
    sae, sample = randomize(KINDS[kind]()), sparse_rows(2000, D, noise=0.2)
    revive(sae, sample, init_fire_rate=rate)
    fired = (sae.encode(sample)[:, DEAD] > 0).double().mean(0)
    torch.testing.assert_close(fired, torch.full((3,), rate, dtype=torch.float64), atol=6e-4, rtol=0)


def test_without_it_a_revived_latent_fires_on_many():
    sae, sample = randomize(KINDS["gated"]()), sparse_rows(2000, D, noise=0.2)
    revive(sae, sample)
    assert (sae.encode(sample)[:, DEAD] > 0).double().mean() > 0.2


def test_a_low_rate_avoids_the_break_down():
    """30 of 96 latents dead: revived at zero bias they spoil the reconstruction, at a rate of 0.05 they don't."""
    x = sparse_rows(4000, 32, 96, p=0.02)
    sae = GatedSAE(GatedSAEConfig(32, 96))
    step, dead = make_step(sae, backend="dense"), torch.arange(30)
    with torch.no_grad():
        sae.b_gate[dead] = -1e3
        sae.b_dec.copy_(x.mean(0))
    for start in range(0, 3000, 100):
        step(x[start : start + 1000], 0.1, 1e-2)
    before = reconstruction_losses(sae, x).mean()
    after = {}
    for rate in (None, 0.05):
        revived = copy.deepcopy(sae)
        resample_dead_(revived, None, x, dead, make_generator(0), init_fire_rate=rate)
        after[rate] = reconstruction_losses(revived, x).mean()
    assert after[None] > 1.2 * before
    assert after[0.05] < 1.05 * before
