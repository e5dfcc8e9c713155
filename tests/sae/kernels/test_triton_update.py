"""A fused Triton step against a textbook one: autograd, projection, torch's Adam, renormalisation."""

from __future__ import annotations

import pytest
import torch

from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.kernels import reference
from interp.sae.kernels import triton as backend
from interp.sae.kernels.backend import FusedAdam
from interp.sae.kernels.lists import CodeParams, GatedParams, LossOptions
from interp.sae.registry import architecture
from interp.sae.step import make_step
from tests.sae.kernels.cases import GATED_VARIANTS, L1, batch, dense_gradients
from tests.sae.kernels.triton_cases import exact, gated, present, standard

LR, BETA2, EPS, STEP = 1e-2, 0.999, 1e-8, 7


def midway(params: GatedParams | CodeParams) -> tuple:
    """Moments and last steps as a run leaves them: rows were last touched at different steps."""
    g = torch.Generator().manual_seed(5)
    kind = type(params)
    v = kind(*(None if p is None else 1e-3 + torch.rand(p.shape, generator=g) for p in params))
    last = kind(*(None if p is None else torch.randint(0, STEP, (len(p),), generator=g) for p in params))
    return v, last


def textbook_step(params, x, options: LossOptions, v, last, *, unit_norm: bool) -> None:
    """On float64 parameters; the moments of every row are brought up to date first, as dense Adam keeps them."""
    trained = present(params)
    optimizer = torch.optim.Adam(trained, lr=LR, betas=(0.0, BETA2), eps=EPS)
    for parameter, moment, since in zip(trained, present(v), present(last), strict=True):
        decay = BETA2 ** (STEP - 1 - since.double())
        optimizer.state[parameter] = {
            "step": torch.tensor(float(STEP - 1)),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": moment.double() * decay.reshape(-1, *[1] * (moment.dim() - 1)),
        }
    _, grads = dense_gradients(params, x, options)
    for parameter, grad in zip(trained, grads, strict=True):
        parameter.grad = grad
    with torch.no_grad():
        if unit_norm:
            params.W_dec.grad -= (params.W_dec.grad * params.W_dec).sum(1, keepdim=True) * params.W_dec
        optimizer.step()
        if unit_norm:
            params.W_dec.div_(params.W_dec.norm(dim=1, keepdim=True))


def assert_same_step(params, x, options: LossOptions, *, unit_norm: bool) -> None:
    truth, (v, last) = exact(params), midway(params)
    before = [p.detach().clone() for p in present(params)]
    old_last = [t.clone() for t in present(last)]
    textbook_step(truth, x.double(), options, v, last, unit_norm=unit_norm)
    gates = reference.compact(
        reference.center(x, params.b_dec.detach(), options), params[0].detach(), -params[2].detach()
    )
    touched = gates.hits() > 0
    assert 0 < int(touched.sum()) < len(touched)
    backend.update(params, x, L1, options, FusedAdam(LR, BETA2, EPS, STEP, unit_norm, v, last))
    for name, parameter, start, wanted in zip(params._fields, params, params, truth, strict=True):
        if parameter is None:
            assert start is None
            assert wanted is None
            continue
        assert float((parameter.detach().double() - wanted.detach()).abs().max()) < 1e-6, name
    for parameter, start, since, old in zip(present(params), before, present(last), old_last, strict=True):
        moved = slice(None) if len(parameter) != len(touched) else touched
        still = slice(0, 0) if len(parameter) != len(touched) else ~touched
        assert bool((since[moved] == STEP).all())
        assert torch.equal(since[still], old[still])
        assert torch.equal(parameter[still], start[still])
        assert not torch.equal(parameter[moved], start[moved])
    if unit_norm:
        assert float((params.W_dec.detach().norm(dim=1) - 1).abs().max()) < 1e-6


@pytest.mark.parametrize("index", [0, 21, 43, 62])
def test_gated_step(index: int) -> None:
    tied, r_mag, options = GATED_VARIANTS[index]
    params = gated(12, 23, tied=tied, r_mag=r_mag, shift=-3.0)
    assert_same_step(params, batch(6, 12, dtype=torch.float32), options, unit_norm=options.sparsity == "l1")


@pytest.mark.parametrize("sparsity", ["l1", "ri_l1"])
def test_standard_step(sparsity: str) -> None:
    options = LossOptions(sparsity=sparsity)
    params = standard(12, 23, shift=-3.0)
    assert_same_step(params, batch(6, 12, dtype=torch.float32), options, unit_norm=sparsity == "l1")


def test_step_of_wide_rows() -> None:
    params = gated(2100, 6, shift=-2.5)
    assert_same_step(params, batch(2, 2100, dtype=torch.float32), LossOptions(), unit_norm=True)


def test_what_is_updated_in_place_must_be_contiguous() -> None:
    params = standard(6, 5)
    v, last = midway(params)
    params = params._replace(W_dec=params.W_dec.detach().T.contiguous().T)
    before = params.W_enc.detach().clone()
    adam = FusedAdam(LR, BETA2, EPS, STEP, True, v, last)
    with pytest.raises(ValueError, match="W_dec has strides"):
        backend.update(params, batch(3, 6, dtype=torch.float32), L1, LossOptions(), adam)
    assert torch.equal(params.W_enc, before)


def test_a_row_that_would_vanish_keeps_its_value() -> None:
    params = GatedParams(
        W_gate=torch.ones(1, 1),
        W_dec=torch.full((1, 1), 1e-13),
        b_gate=torch.zeros(1),
        b_mag=torch.zeros(1),
        b_dec=torch.zeros(1),
    )
    v, last = midway(params)
    adam = FusedAdam(0.0, BETA2, EPS, STEP, True, v, last)
    backend.update(params, torch.ones(1, 1), 0.0, LossOptions(), adam)
    assert float(params.W_dec) == pytest.approx(1e-13)


def test_moments_decay_in_double_precision_over_many_missed_steps() -> None:
    """0.999^200000 times 1e30 is 1.3e-57 too small for float32 on the way, but an exponent of two isn't."""
    params, x = standard(4, 1, shift=9.0), batch(2, 4, dtype=torch.float32)
    step = 100_001
    v = CodeParams(*(None if p is None else torch.full_like(p.detach(), 1e30) for p in params))
    last = CodeParams(*(None if p is None else torch.zeros(len(p), dtype=torch.int64) for p in params))
    _, grads = backend.gradients(params, x, 0.0, LossOptions())
    backend.update(params, x, 0.0, LossOptions(), FusedAdam(0.0, BETA2, EPS, step, False, v, last))
    expected = 1e30 * BETA2**step + (1 - BETA2) * grads.b_enc.double() ** 2
    torch.testing.assert_close(v.b_enc.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("grad_clip", [None, 0.1])
def test_training_step_takes_the_triton_route(grad_clip: float | None) -> None:
    def trained(route: str) -> tuple[list, list[float]]:
        torch.manual_seed(0)
        sae = GatedSAE(GatedSAEConfig(d_in=6, d_sae=10))
        with torch.no_grad():
            sae.b_gate.fill_(-0.5)
        step = make_step(sae, backend=route, grad_clip=grad_clip)
        assert step.backend_name == route
        losses = [float(step(batch(5, 6, dtype=torch.float32, seed=s), 0.1, 1e-3).loss) for s in range(2)]
        return [p.detach() for p in sae.parameters()], losses

    ours, our_losses = trained("triton")
    theirs, their_losses = trained("dense")
    assert our_losses == pytest.approx(their_losses, rel=1e-5)
    assert max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) < 1e-5


@pytest.mark.parametrize("name", ["matryoshka", "jumprelu"])
def test_training_steps_of_a_recipe_take_the_triton_route(name: str) -> None:
    """With momentum, clipping and, of the second step, dead latents."""

    def trained(route: str) -> tuple[list, list[float]]:
        kind = architecture(name)
        form = {"k": 2.5, "widths": (3, 12)} if name == "matryoshka" else {}
        sae = kind(kind.config_class(6, 12, **form), seed=1)
        step = make_step(sae, betas=(0.9, 0.999), grad_clip=0.5, backend=route)
        assert step.backend_name == route
        losses = []
        for s, dead in enumerate((None, torch.tensor([2, 7]))):
            stats = step(batch(3, 6, dtype=torch.float32, seed=s), 0.1, 1e-3, dead=dead)
            losses.append(float(stats.loss))
        return [p.detach() for p in sae.parameters()], losses

    ours, our_losses = trained("triton")
    theirs, their_losses = trained("dense")
    assert our_losses == pytest.approx(their_losses, rel=1e-5)
    assert max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) < 1e-5
