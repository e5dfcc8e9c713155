"""Selection rules: the sheet's worked values, brute force, autograd, and whole steps, by every backend."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.sae.kernels import cpu, dense, reference, tiled
from interp.sae.kernels.dead import AuxK, DeadLatents, PreActivations
from interp.sae.kernels.lists import CodeParams, LossOptions
from interp.sae.kernels.rules import BatchTopK, Prefixes, Rule, Threshold, TopK, Window
from interp.sae.kernels.threads import _pool
from tests.sae.kernels.cases import batch, relative_difference, standard_params

BACKENDS = {"dense": tiled, "reference": reference, "cpu": cpu}
LISTS = {"reference": reference, "cpu": cpu}
NONE = "none"


def table(*rows: Any) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


P = CodeParams(
    W_enc=table((1, 0), (0, 1), (-0.6, 0.8), (0.6, -0.8), (0.28, 0.96)),
    W_dec=table((0.8, 0.6), (0, 1), (-0.6, 0.8), (1, 0), (0.96, -0.28)),
    b_enc=table(-0.2, 0.1, 0.05, -0.3, 0),
    b_dec=table(0.5, -0.25),
)
X = table((1, 2), (-1, 0.5), (3, -1), (0.4, 0.9))
Y = table((0.5, -1), (2, 0.25), (-1, 1), (0, 1.5))

TOPK_ENC = (
    (2.7375, -0.82125),
    (-1.130936, -0.225236),
    (-0.5475, 0.27375),
    (1.425, -0.4275),
    (0.3908, 2.6738),
)
# name -> (parameters, target, weight, options, total loss, gradients)
WORKED = {
    "topk": (
        P,
        None,
        0.0,
        LossOptions(sparsity=NONE, rule=TopK(2)),
        3.123578,
        {
            "W_enc": TOPK_ENC,
            "b_enc": (1.095, 0.29736, 0.365, 0.57, 1.468),
            "W_dec": (
                (1.311, 2.4495),
                (2.95725, -0.1955),
                (0.44175, 1.0385),
                (1.026, 1.917),
                (2.57373248, -0.73388864),
            ),
            "b_dec": (0.64644, -0.18028),
        },
    ),
    "multi-topk": (
        P,
        None,
        0.0,
        LossOptions(sparsity=NONE, rule=TopK(4), prefixes=Prefixes((1, 4), (1.0, 1 / 8), "rank", 0)),
        1.7858395,
        {"b_enc": (0.595625, 0.27217, 0.073075, 0.07125, 0.09525)},
    ),
    "batchtopk": (
        P,
        None,
        0.0,
        LossOptions(sparsity=NONE, rule=BatchTopK(1.5)),
        2.205925,
        {"b_enc": (1.095, 0.348, 0.07, 0.57, 0.276), "b_dec": (-0.17828, 0.87004)},
    ),
    "jumprelu": (
        P._replace(threshold=table(0.3, 0.9, 0.2, 0.5, 1)),
        None,
        0.5,
        LossOptions(sparsity="l0", rule=Window(0.4)),
        3.161041,
        {"threshold": (-0.7025, -0.86375, 0, 0, -0.7125)},
    ),
    "skip transcoder": (
        P._replace(W_skip=table((0.1, -0.2), (0.3, 0.05))),
        Y,
        0.0,
        LossOptions(sparsity=NONE, rule=TopK(2), center_input=False),
        15.7302937,
        {"W_skip": ((12.140392, -1.456868), (2.732844, 1.774024))},
    ),
}


@pytest.mark.parametrize("name", WORKED)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_worked_values(backend: str, name: str) -> None:
    params, target, weight, options, total, wanted = WORKED[name]
    losses, grads = BACKENDS[backend].gradients(params, X, weight, options, target=target)
    assert float(losses.reconstruction + weight * losses.sparsity) == pytest.approx(total, abs=1e-12)
    for field, value in wanted.items():
        assert torch.allclose(getattr(grads, field), table(*value), rtol=0, atol=1e-12), field


def test_the_jump_closes_at_its_threshold_and_still_learns() -> None:
    """z = .3 at theta = .3 is closed, but inside the window; what it adds to the encoder is nothing."""
    params, _, _, options, _, _ = WORKED["jumprelu"]
    for backend in BACKENDS.values():
        losses, grads = backend.gradients(params, X, 0.5, options)
        assert torch.allclose(grads.W_enc[[0, 3]], table(*TOPK_ENC)[[0, 3]], rtol=0, atol=1e-12)
        assert torch.allclose(grads.W_enc[2], table(-0.02446, 0.22879), rtol=0, atol=1e-12)
        assert int(losses.fired[0]) == 1  # only the third token's 2.3


def brute_force(score: Tensor, rule: Rule) -> set[tuple[int, int]]:
    """(token, latent) pairs by sorting in Python."""
    n, F = score.shape
    if isinstance(rule, TopK):
        size = score.abs() if rule.absolute else score
        kept = {
            (t, i)
            for t in range(n)
            for i in sorted(range(F), key=lambda i: (-float(size[t, i]), i))[: rule.k]
        }
        return {(t, i) for t, i in kept if (score[t, i] != 0 if rule.absolute else score[t, i] > 0)}
    assert isinstance(rule, BatchTopK)
    pairs = sorted(((t, i) for t in range(n) for i in range(F)), key=lambda p: (-float(score[p]), p[1], p[0]))
    return {p for p in pairs[: rule.count(n)] if score[p] > 0}


SELECTIONS = [
    *(TopK(k, absolute=a) for k in (1, 3, 19) for a in (False, True)),
    *(BatchTopK(k) for k in (0.2, 1.5, 6.0, 19.0)),
]


@pytest.mark.parametrize("rule", SELECTIONS, ids=repr)
@pytest.mark.parametrize("kind", ["random", "ties", "negative", "one token"])
@pytest.mark.parametrize("backend", LISTS)
def test_selections_are_those_of_a_sort(backend: str, kind: str, rule: Rule) -> None:
    """Also with equal scores (lowest latent first), nothing positive, one token, more asked for than there is."""
    n, F = (1 if kind == "one token" else 37), 19
    z = batch(n, F, seed=3)
    if kind == "ties":
        z = (2 * z).round()
    if kind == "negative":
        z = -z.abs()
    params = CodeParams(
        torch.eye(F, dtype=torch.float64), torch.eye(F, dtype=torch.float64), *torch.zeros(2, F).double()
    )
    options = LossOptions(sparsity=NONE, rule=rule, center_input=False)
    for guess in (0.0, 0.5, 100.0) if isinstance(rule, BatchTopK) else (0.0,):
        gates = LISTS[backend].listed(params, z, options, guess=guess)
        tokens, latents = gates.tokens.tolist(), gates.latent_of_entry().tolist()
        assert set(zip(tokens, latents, strict=True)) == brute_force(z, rule)
        assert list(zip(latents, tokens, strict=True)) == sorted(zip(latents, tokens, strict=True))
        assert torch.equal(gates.values, z[gates.tokens.long(), gates.latent_of_entry()])


def test_many_latents_and_tiles_select_alike() -> None:
    """The bound from the first latents is one, also where later latents hold all that is large."""
    n, F, d = 300, 2100, 8
    x, params = batch(n, d, seed=5, dtype=torch.float32), standard_params(d, F, seed=4, dtype=torch.float32)
    params = CodeParams(*(p.detach() for p in params if p is not None))
    params = params._replace(b_enc=torch.linspace(-3, 2, F))
    z = (params.W_enc @ x.T + params.b_enc[:, None]).T
    for rule in (TopK(7), TopK(2000), BatchTopK(3.3)):
        gates = cpu.listed(params, x, LossOptions(sparsity=NONE, rule=rule, center_input=False))
        kept = torch.zeros_like(z, dtype=torch.bool)
        kept[gates.tokens.long(), gates.latent_of_entry()] = True
        count = kept.sum(1) if isinstance(rule, TopK) else kept.sum()[None]
        positive = (z > 0).sum(1) if isinstance(rule, TopK) else (z > 0).sum()[None]
        assert torch.equal(count, positive.clamp_max(rule.k if isinstance(rule, TopK) else rule.count(n)))
        least = (
            torch.where(kept, z, torch.inf).amin(1)
            if isinstance(rule, TopK)
            else torch.where(kept, z, torch.inf).min()
        )
        left = (
            torch.where(kept, -torch.inf, z).amax(1)
            if isinstance(rule, TopK)
            else torch.where(kept, -torch.inf, z).max()
        )
        assert (
            left <= least + 1e-5 * least.abs().clamp(1e-6, 1e6)
        ).all()  # to rounding of the tiles' products


def jump(params: CodeParams, at: float = 0.4) -> CodeParams:
    return params._replace(threshold=torch.full_like(params.b_enc, at).detach().requires_grad_())


def with_skip(params: CodeParams, e: int, d: int) -> CodeParams:
    F = len(params.b_enc)
    new = {
        "W_dec": batch(F, e, seed=8),
        "b_dec": batch(1, e, seed=9)[0],
        "W_skip": 0.2 * batch(e, d, seed=10),
    }
    return params._replace(**{name: value.requires_grad_() for name, value in new.items()})


CASES: dict[str, LossOptions] = {
    "topk": LossOptions(sparsity=NONE, rule=TopK(3)),
    "topk mean": LossOptions(sparsity=NONE, rule=TopK(3), mse_reduction="mean", center_input=False),
    "topk by norm": LossOptions(sparsity=NONE, rule=TopK(4, by_norm=True)),
    "topk by norm with l1": LossOptions(sparsity="l1", rule=TopK(4, by_norm=True)),
    "abstopk": LossOptions(sparsity=NONE, rule=TopK(4, absolute=True)),
    "all of them": LossOptions(sparsity=NONE, rule=TopK(23)),
    "multi": LossOptions(sparsity=NONE, rule=TopK(8), prefixes=Prefixes((2, 8), (1.0, 0.125), "rank", 0)),
    "hierarchical": LossOptions(
        sparsity=NONE, rule=TopK(6), prefixes=Prefixes(tuple(range(1, 7)), (1 / 6,) * 6, "rank")
    ),
    "batchtopk": LossOptions(sparsity=NONE, rule=BatchTopK(2.5)),
    "batchtopk by block norms": LossOptions(
        sparsity=NONE, rule=BatchTopK(2.5, by_norm=True), blocks=(2, 4), center_input=False
    ),
    "matryoshka": LossOptions(
        sparsity=NONE, rule=BatchTopK(4.0), prefixes=Prefixes((3, 9, 23), (1.0, 0.5, 2.0))
    ),
    "relu prefixes": LossOptions(prefixes=Prefixes((5, 23), (0.3, 1.0))),
    "l1 of blocks": LossOptions(sparsity="ri_l1", blocks=(1, 3, 2), center_input=False),
    "l0": LossOptions(sparsity="l0", rule=Window(0.7)),
    "l0 to input": LossOptions(sparsity="l0", rule=Window(0.7, ste_to_input=True), center_input=False),
    "quadratic": LossOptions(sparsity="quadratic", rule=Window(0.7), sparsity_parameter=2.0),
    "tanh": LossOptions(sparsity="tanh", rule=Window(0.7, ste_to_input=True), sparsity_parameter=1.5),
    "jump l1": LossOptions(sparsity="l1", rule=Window(0.5), mse_reduction="mean"),
}


def by_autograd(
    params: CodeParams, x: Tensor, weight: float, options: LossOptions, **more: Any
) -> tuple[Any, list]:
    own = CodeParams(*(None if p is None else p.detach().clone().requires_grad_() for p in params))
    total, losses = dense.loss(own, x, weight, options, **more)
    there = [p for p in own if p is not None]
    return losses, list(torch.autograd.grad(total, there, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", LISTS)
def test_lists_have_the_gradients_of_the_definition(backend: str, name: str) -> None:
    """Values and gradients, with n = 1, all pre-activations negative, another target and a skip, dead latents."""
    options, d, F = CASES[name], 6, 23
    for n, shift, skip in ((13, 0.0, False), (1, 0.0, False), (5, -9.0, False), (9, -0.5, True)):
        params = standard_params(d, F, shift=shift, seed=n)
        if isinstance(options.rule, Window):
            params = jump(params)
        target = None
        if skip and not options.blocks:
            params, target = with_skip(params, 4, d), batch(n, 4, seed=11)
            options = options.__class__(**{**vars(options), "center_input": False})
        x, dead = batch(n, d, seed=2 * n), DeadLatents(torch.tensor([1, 4, 17, 22]), AuxK(3, 0.2))
        more = {"target": target, "dead": None if isinstance(options.rule, Threshold) else dead}
        losses, wanted = by_autograd(params, x, 0.7, options, **more)
        found, grads = LISTS[backend].gradients(params, x, 0.7, options, **more)
        assert relative_difference(grads, wanted) < 1e-9, (n, shift)
        for field in ("reconstruction", "sparsity", "auxiliary", "l0", "open_gates", "error", "fired"):
            assert torch.allclose(
                getattr(found, field).double(), getattr(losses, field).double(), rtol=1e-9
            ), field
        if isinstance(options.rule, TopK | BatchTopK):
            assert float(found.smallest) == pytest.approx(float(losses.smallest), rel=1e-9)


def test_tokens_in_runs_give_the_gradients_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    params, x = standard_params(6, 23, seed=5), batch(11, 6, seed=6)
    dead = DeadLatents(torch.tensor([2, 9]), AuxK(2))
    wanted = cpu.gradients(params, x, 0.0, CASES["hierarchical"], dead=dead)
    monkeypatch.setattr(cpu, "_ROWS_AT_ONCE", 6 * 6 * 4)
    found = cpu.gradients(params, x, 0.0, CASES["hierarchical"], dead=dead)
    assert relative_difference(found[1], wanted[1]) < 1e-12
    for a, b in zip(found[0], wanted[0], strict=True):
        assert torch.allclose(a.double(), b.double(), rtol=1e-12)


@pytest.mark.parametrize(
    "term", [AuxK(2), AuxK(9, normalization="input"), AuxK(3, 0.5, "none"), PreActivations(0.3)], ids=repr
)
def test_terms_of_dead_latents_have_the_gradients_of_their_definition(term: Any) -> None:
    params, x = jump(standard_params(6, 23, seed=5)), batch(11, 6, seed=6)
    options = LossOptions(sparsity=NONE, rule=Window(0.7) if isinstance(term, PreActivations) else TopK(3))
    for latents in ([2], list(range(23))):
        dead = DeadLatents(torch.tensor(latents), term)
        losses, wanted = by_autograd(params, x, 0.0, options, dead=dead)
        for backend in LISTS.values():
            found, grads = backend.gradients(params, x, 0.0, options, dead=dead)
            given = grads._replace(threshold=torch.zeros(23).double()) if grads.threshold is None else grads
            assert float(found.auxiliary) == pytest.approx(float(losses.auxiliary), rel=1e-12)
            assert relative_difference(given, wanted) < 1e-9


def test_auxk_has_no_decoder_bias_and_a_constant_residual() -> None:
    """One dead latent, by hand: |relu(z) d - E|^2 / |E - mean E|^2 over 32."""
    params, x = (
        CodeParams(*(p.detach() for p in standard_params(4, 6, seed=1) if p is not None)),
        batch(5, 4, seed=2),
    )
    options = LossOptions(sparsity=NONE, rule=TopK(2))
    losses, _ = cpu.gradients(params, x, 0.0, options, dead=DeadLatents(torch.tensor([3]), AuxK(2)))
    z = (x - params.b_dec) @ params.W_enc.T + params.b_enc
    f = torch.zeros_like(z).scatter(1, z.topk(2).indices, z.topk(2).values.clamp_min(0))
    E = x - f @ params.W_dec - params.b_dec
    error = (z[:, 3:4].clamp_min(0) * params.W_dec[3] - E).pow(2).sum()
    assert float(losses.auxiliary) == pytest.approx(
        float(error / (E - E.mean(0)).pow(2).sum() / 32), rel=1e-12
    )


def test_identities_between_rules() -> None:
    """The special cases in which two rules are one."""
    params, x = standard_params(6, 23, seed=7), batch(9, 6, seed=8)

    def total(rule: Rule, prefixes: Prefixes | None = None, rows: Tensor = x) -> float:
        options = LossOptions(sparsity=NONE, rule=rule, prefixes=prefixes)
        return float(cpu.gradients(params, rows, 0.0, options)[0].reconstruction)

    F = 23
    assert total(BatchTopK(3), rows=x[:1]) == pytest.approx(total(TopK(3), rows=x[:1]), rel=1e-12)
    assert total(BatchTopK(3), Prefixes((F,), (1.0,))) == pytest.approx(total(BatchTopK(3)), rel=1e-12)
    every = [total(TopK(k)) for k in range(1, F + 1)]
    nested = total(TopK(F), Prefixes(tuple(range(1, F + 1)), (1 / F,) * F, "rank"))
    assert nested == pytest.approx(sum(every) / F, rel=1e-12)
    assert total(TopK(F)) == pytest.approx(total(Threshold()), rel=1e-12)
    far = jump(params, at=0.1)
    z = ((x - params.b_dec) @ params.W_enc.T + params.b_enc).detach()
    narrow = Window(float((z - 0.1).abs().min()))  # no entry within half of it
    _, grads = cpu.gradients(far, x, 0.7, LossOptions(sparsity="l0", rule=narrow))
    assert not grads.threshold.any()


TRAINED = {
    "topk": ("topk", {"k": 4}, {}),
    "hierarchical": ("topk", {"k": 4}, {"hierarchical": True}),
    "batchtopk": ("batchtopk", {"k": 3.5}, {}),
    "matryoshka": ("matryoshka", {"k": 3.5, "widths": (5, 40)}, {}),
    "jumprelu": (
        "jumprelu",
        {},
        {"l0_coefficient": 0.05, "bandwidth": 0.5, "pre_activation_coefficient": 1e-3},
    ),
    "gated": ("gated", {}, {}),
    "standard": ("standard", {}, {}),
}


def train(name: str, backend: str, beta1: float, clip: float | None, steps: int = 50) -> Any:
    from interp.sae.registry import architecture
    from interp.sae.step import make_step

    kind_name, form, loss = TRAINED[name]
    kind: Any = architecture(kind_name)
    sae = kind(kind.config_class(8, 40, dtype="float64", **form), seed=3)
    step = make_step(sae, kind.loss_class(**loss), betas=(beta1, 0.999), grad_clip=clip, backend=backend)
    g = torch.Generator().manual_seed(0)
    for t in range(steps):
        dead = torch.tensor([7, 30]) if t % 3 == 1 else None
        stats = step(torch.randn(24, 8, generator=g, dtype=torch.float64), 0.3, 3e-3, dead=dead)
        sae.after_step_(stats, warmed_up=True)
    return sae


@pytest.mark.parametrize(("beta1", "clip"), [(0.0, None), (0.0, 0.5), (0.9, None), (0.9, 0.5)])
@pytest.mark.parametrize("name", TRAINED)
def test_sparse_steps_are_the_dense_ones(name: str, beta1: float, clip: float | None) -> None:
    """50 optimiser steps, dead latents revived in some, with and without momentum and clipping."""
    wanted = train(name, "dense", beta1, clip)
    for backend in LISTS:
        found = train(name, backend, beta1, clip)
        for (field, a), (_, b) in zip(found.state_dict().items(), wanted.state_dict().items(), strict=True):
            assert (a - b).abs().max() < 1e-9 * b.abs().max().clamp_min(1), (backend, field)


def test_results_do_not_depend_on_threads() -> None:
    before = torch.get_num_threads()
    saes = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            saes.append([copy.deepcopy(train(name, "cpu", 0.9, 0.5, 6).state_dict()) for name in TRAINED])
    finally:
        torch.set_num_threads(before)
        _pool.cache_clear()
    for one, other in zip(*saes, strict=True):
        assert all(torch.equal(one[key], other[key]) for key in one)
