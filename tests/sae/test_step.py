"""The training step: every route is the same step, and resumes, clips, resets and refuses alike."""

from __future__ import annotations

import copy
import io

import pytest
import torch

from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.step import TrainStep, make_step
from tests.sae.kernels.cases import batch

ROUTES = ["dense", "reference", "cpu"]


def make_sae(architecture: str = "gated", *, dtype: str = "float64") -> GatedSAE | StandardSAE:
    if architecture == "gated":
        return GatedSAE(GatedSAEConfig(8, 40, dtype=dtype), seed=3)
    if architecture == "untied":
        return GatedSAE(GatedSAEConfig(8, 40, tied=False, use_r_mag=False, dtype=dtype), seed=3)
    return StandardSAE(StandardSAEConfig(8, 40, dtype=dtype), seed=3)


def run(step: TrainStep, steps: range, *, dtype: torch.dtype = torch.float64) -> None:
    for t in steps:
        step(batch(30, 8, dtype=dtype, seed=t), 0.2, 1e-2)


def distance(a: torch.nn.Module, b: torch.nn.Module) -> float:
    return max(
        float((p - q).detach().abs().max()) for p, q in zip(a.parameters(), b.parameters(), strict=True)
    )


@pytest.mark.parametrize("architecture", ["gated", "untied", "standard"])
@pytest.mark.parametrize("sparsity", ["l1", "ri_l1"])
@pytest.mark.parametrize(
    "optimiser", [{}, {"betas": (0.9, 0.999)}, {"grad_clip": 0.5}], ids=["fused", "momentum", "clipped"]
)
def test_fifty_steps_agree_on_every_route(architecture: str, sparsity: str, optimiser: dict) -> None:
    ends = {}
    for route in ROUTES:
        sae = make_sae(architecture)
        step = make_step(sae, sparsity=sparsity, backend=route, **optimiser)
        assert step.backend_name == route
        run(step, range(50))
        ends[route] = sae
    assert distance(ends["dense"], ends["reference"]) < 1e-9
    assert distance(ends["dense"], ends["cpu"]) < 1e-9
    norms = ends["cpu"].W_dec.detach().norm(dim=1)
    assert (float((norms - 1).abs().max()) < 1e-12) is (sparsity == "l1")


@pytest.mark.parametrize("architecture", ["gated", "untied", "standard"])
def test_rows_of_any_length_are_brought_to_unit_norm_at_once(architecture: str) -> None:
    ends = {}
    for route in ROUTES:
        sae = make_sae(architecture)
        with torch.no_grad():
            sae.W_dec.mul_(3)
            for name in ("b_gate", "b_enc"):
                if hasattr(sae, name):
                    getattr(sae, name).fill_(-0.5)
                    getattr(sae, name)[20:] = -100.0  # no batch touches these rows
        step = make_step(sae, backend=route)
        assert sae.W_dec.detach().norm(dim=1) == pytest.approx(torch.ones(40).numpy(), abs=1e-12)
        run(step, range(3))
        ends[route] = sae
    assert distance(ends["dense"], ends["reference"]) < 1e-12
    assert distance(ends["dense"], ends["cpu"]) < 1e-12
    free = make_sae()
    with torch.no_grad():
        free.W_dec.mul_(3)
    make_step(free, sparsity="ri_l1")
    assert free.W_dec.detach().norm(dim=1) == pytest.approx(3 * torch.ones(40).numpy())


@pytest.mark.parametrize("coefficient", [-1e-9, float("nan")])
def test_a_coefficient_is_not_negative(coefficient: float) -> None:
    sae, before = make_sae(), make_sae()
    make_step(before)
    step = make_step(sae)
    with pytest.raises(ValueError, match=r"l1_coefficient = .* must not be negative"):
        step(batch(30, 8), coefficient, 1e-2)
    assert distance(sae, before) == 0


def test_stats_agree_on_every_route_and_with_the_dictionary() -> None:
    x = batch(30, 8)
    sae = make_sae()
    expected, codes = sae.loss(x, 0.2), sae.encode(x)
    for route in ROUTES:
        stats = make_step(make_sae(), backend=route)(x, 0.2, 1e-2)
        assert float(stats.loss) == pytest.approx(float(expected.total.detach()), rel=1e-12)
        for name in ("reconstruction", "sparsity", "auxiliary", "l0", "open_gates"):
            assert float(getattr(stats, name)) == pytest.approx(float(getattr(expected, name)), rel=1e-12)
        assert torch.equal(stats.fired, (codes > 0).sum(0))
        assert stats.fired.dtype == torch.int64


def test_route_may_change_between_steps() -> None:
    straight, zigzag = make_sae(), make_sae()
    run(make_step(straight, backend="dense"), range(60))
    state = None
    for part, route in enumerate(["dense", "cpu", "reference", "cpu", "dense", "reference"]):
        step = make_step(zigzag, backend=route)
        if state is not None:
            step.load_state_dict(state)
        run(step, range(10 * part, 10 * part + 10))
        state = step.state_dict()
    assert distance(straight, zigzag) < 1e-9


@pytest.mark.parametrize("route", [*ROUTES, "auto"])
@pytest.mark.parametrize("betas", [(0.0, 0.999), (0.9, 0.999)])
def test_resume_is_bit_exact(route: str, betas: tuple[float, float]) -> None:
    whole = make_sae(dtype="float32")
    with torch.no_grad():
        whole.b_gate.fill_(-1.5)
    part = copy.deepcopy(whole)
    run(make_step(whole, backend=route, betas=betas), range(80), dtype=torch.float32)
    first = make_step(part, backend=route, betas=betas)
    run(first, range(40), dtype=torch.float32)
    stored = io.BytesIO()
    torch.save(first.state_dict(), stored)
    stored.seek(0)
    resumed = copy.deepcopy(part)
    second = make_step(resumed, backend=route, betas=betas)
    second.load_state_dict(torch.load(stored, weights_only=True))
    run(second, range(40, 80), dtype=torch.float32)
    if route == "auto":
        assert (first.backend_name, second.backend_name) == ("dense", "cpu")
    assert distance(whole, resumed) == 0.0


@pytest.mark.parametrize("betas", [(0.0, 0.999), (0.9, 0.999)])
def test_reset_latents_zeroes_their_moments_and_no_others(betas: tuple[float, float]) -> None:
    sae = make_sae()
    step = make_step(sae, betas=betas, backend="dense")
    run(step, range(3))
    step.reset_latents_(torch.tensor([2, 5]))
    key = "v" if betas[0] == 0 else "exp_avg_sq"
    for parameter in sae.parameters():
        moment = step.optimizer.state[parameter][key]
        if parameter is sae.b_dec:
            assert bool((moment != 0).all())
        else:
            rows = moment.reshape(40, -1)
            assert not rows[[2, 5]].any()
            assert bool(rows[[0, 1, 3, 4]].any(1).all())


def test_clipping_bounds_the_gradient_that_is_applied() -> None:
    """Adam hides scale from the second step on, so look at its second moment after the first."""
    sae = make_sae()
    step = make_step(sae, grad_clip=1e-3, sparsity="ri_l1", backend="cpu")
    run(step, range(1))
    squared = sum(float(step.optimizer.state[p]["v"].sum()) / 0.001 for p in sae.parameters())
    assert squared**0.5 == pytest.approx(1e-3, rel=1e-4)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(0, 8, dtype=torch.float64), "n > 0"),
        (torch.zeros(3, 7, dtype=torch.float64), r"needs \[n, 8\]"),
        (torch.zeros(3, 8), "torch.float32 on cpu, the dictionary torch.float64"),
        (torch.full((3, 8), float("nan"), dtype=torch.float64), "NaN or infinite values in 3 of 3"),
    ],
)
def test_bad_batches_are_refused_before_anything_moves(x: torch.Tensor, message: str) -> None:
    sae = make_sae()
    before = copy.deepcopy(sae)
    with pytest.raises(ValueError, match=message):
        make_step(sae, backend="cpu")(x, 0.1, 1e-3)
    assert distance(sae, before) == 0.0


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="grad_clip"):
        make_step(make_sae(), grad_clip=0.0)
    with pytest.raises(ValueError, match="sparsity"):
        make_step(make_sae(), sparsity="l0")
    with pytest.raises(TypeError, match="Linear"):
        make_step(torch.nn.Linear(8, 40))  # type: ignore[arg-type]


def test_sparse_steps_train_to_the_same_quality_as_dense_ones() -> None:
    """True directions under noise: the loss reached is that of the dense route within a per cent."""
    g = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(48, 16, generator=g), dim=1)
    reached = {}
    for route in ("dense", "auto"):
        sae = GatedSAE(GatedSAEConfig(16, 64), seed=0)
        step = make_step(sae, backend=route)
        h = torch.Generator().manual_seed(1)
        for t in range(400):
            code = (torch.rand(128, 48, generator=h) < 0.03) * (0.5 + torch.rand(128, 48, generator=h))
            stats = step(code @ directions, 0.5 * min(1, t / 100), 3e-3)
        reached[route] = (step.backend_name, float(stats.loss))
    assert reached["auto"][0] == "cpu"
    assert reached["auto"][1] == pytest.approx(reached["dense"][1], rel=0.01)
    assert reached["dense"][1] < 1.2
