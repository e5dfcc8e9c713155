"""Selection rules, prefixes and any Adam in the Triton kernels: small, in float32, against float64 truths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.sae.kernels import reference
from interp.sae.kernels import triton as backend
from interp.sae.kernels.backend import FusedAdam, WalkedAdam
from interp.sae.kernels.dead import AuxK, DeadLatents, PreActivations
from interp.sae.kernels.lists import CodeParams, LossOptions
from interp.sae.kernels.rules import BatchTopK, Rule, Threshold, TopK, Window
from interp.sae.kernels.triton import latents, select
from interp.sae.kernels.triton.walk import walk
from tests.sae.kernels.cases import batch, relative_difference, standard_params
from tests.sae.kernels.test_rules import (
    CASES,
    NONE,
    TOPK_ENC,
    WORKED,
    X,
    brute_force,
    by_autograd,
    jump,
    table,
    with_skip,
)
from tests.sae.kernels.triton_cases import exact, gated, present

TOLERANCE = 1e-5


def single(tensors: Any) -> Any:
    """Float32 copies."""
    return type(tensors)(*(None if t is None else t.detach().float() for t in tensors))


@pytest.mark.parametrize("name", WORKED)
def test_the_worked_values(name: str) -> None:
    params, target, weight, options, total, wanted = WORKED[name]
    y = None if target is None else target.float()
    losses, grads = backend.gradients(single(params), X.float(), weight, options, target=y)
    assert float(losses.reconstruction + weight * losses.sparsity) == pytest.approx(total, rel=1e-6)
    for field, value in wanted.items():
        assert torch.allclose(getattr(grads, field).double(), table(*value), rtol=0, atol=3e-6), field
    if name == "jumprelu":  # z = .3 at theta = .3 is closed, but inside the window
        assert int(losses.fired[0]) == 1
        assert torch.allclose(grads.W_enc[[0, 3]].double(), table(*TOPK_ENC)[[0, 3]], rtol=0, atol=3e-6)


def planted(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows)


SCORES = planted(
    [
        [0.5, -3.0, 2.0, 2.0, 0.0, 2.0, 1.0, -2.0, 2.0, 0.25, 1.5],  # four equal ones
        [-1.0, -2.0, -3.0, -4.0, -1.5, -2.5, -1.0, -9.0, -1.0, -1.0, -5.0],  # none positive
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1],  # all positive, the largest last
        [7.0, 0.0, 7.0, 0.0, -7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1e-30],
    ]
)


@pytest.mark.parametrize(
    "rule",
    [
        TopK(1),
        TopK(3),
        TopK(11),
        TopK(2, absolute=True),
        TopK(40, absolute=True),
        BatchTopK(0.2),
        BatchTopK(2.25),
        BatchTopK(50.0),
    ],
    ids=repr,
)
def test_selections_are_those_of_a_sort(rule: Rule) -> None:
    """Ties go to the lowest latent (of a batch, then the first token), whatever the guess and the first part."""
    F = SCORES.shape[1]
    params = CodeParams(torch.eye(F), torch.eye(F), torch.zeros(F), torch.zeros(F))
    options = LossOptions(sparsity=NONE, rule=rule, center_input=False)
    for guess in (0.0, 0.5, 100.0) if isinstance(rule, BatchTopK) else (0.0,):
        gates = backend.listed(params, SCORES, options, guess=guess)
        assert gates.values.dtype == torch.float32
        tokens, latents_ = gates.tokens.tolist(), gates.latent_of_entry().tolist()
        assert set(zip(tokens, latents_, strict=True)) == brute_force(SCORES, rule)
        assert list(zip(latents_, tokens, strict=True)) == sorted(zip(latents_, tokens, strict=True))
        assert torch.equal(gates.values, SCORES[gates.tokens.long(), gates.latent_of_entry()])
        assert torch.equal(gates.latents.long(), gates.latent_of_entry()[gates.order])
        assert torch.equal(gates.token_ptr.diff(), torch.bincount(gates.tokens, minlength=len(SCORES)))


@pytest.mark.parametrize("rule", [TopK(5, by_norm=True), BatchTopK(4.3, by_norm=True)], ids=repr)
def test_the_first_part_of_the_latents_bounds_the_rest(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles, a token's candidates in several blocks, scores that rounding cannot reorder."""
    monkeypatch.setattr(select, "BLOCK", 8)
    n, F = 3, 150
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    order = torch.randperm(2 * F, generator=torch.Generator().manual_seed(0)).float()
    params = CodeParams(order.view(F, 2) - F / 2, torch.eye(F, 4) + 1, torch.ones(F), torch.zeros(4))
    options = LossOptions(sparsity=NONE, rule=rule, center_input=False)
    z = x @ params.W_enc.T + 1
    gates = backend.listed(params, x, options)
    found = set(zip(gates.tokens.tolist(), gates.latent_of_entry().tolist(), strict=True))
    assert found == brute_force(z * params.W_dec.norm(dim=1), rule)
    assert len(found) == (5 * n if isinstance(rule, TopK) else 13)


def test_the_candidates_of_a_selection_are_few() -> None:
    """Of 800 latents an eighth bounds the rest: about 8 k candidates a token, where half the latents are positive."""
    x, params = batch(2, 6, dtype=torch.float32), single(standard_params(6, 800, shift=0.0))
    options = LossOptions(sparsity=NONE, rule=TopK(4))
    chosen = select._Selection(params, x, options, TopK(4))
    assert chosen.first == 100
    assert len(chosen._candidates(4)) < 2 * 200
    assert len(chosen.run(0.0)) == 8


def problem(
    options: LossOptions, n: int, shift: float, *, skip: bool
) -> tuple[CodeParams, Tensor, Tensor | None, LossOptions]:
    """In float64, with numbers that float32 holds exactly."""
    params, target = standard_params(6, 23, shift=shift, seed=n), None
    if isinstance(options.rule, Window):
        params = jump(params)
    if skip:
        params, target = with_skip(params, 4, 6), batch(n, 4, seed=11).float()
        options = replace(options, center_input=False)
    return single(params), batch(n, 6, seed=2 * n).float(), target, options


def assert_equals_the_definition(
    params: CodeParams,
    x: Tensor,
    options: LossOptions,
    target: Tensor | None = None,
    dead: DeadLatents | None = None,
) -> None:
    found, grads = backend.gradients(params, x, 0.7, options, target=target, dead=dead)
    y = None if target is None else target.double()
    losses, wanted = by_autograd(exact(params), x.double(), 0.7, options, target=y, dead=dead)
    for name, value in found._asdict().items():
        assert value.dtype == getattr(losses, name).dtype, name
        torch.testing.assert_close(value, getattr(losses, name), rtol=1e-5, atol=1e-6, msg=name)
    if params.threshold is not None and grads.threshold is None:
        grads = grads._replace(threshold=torch.zeros_like(params.threshold))
    assert relative_difference(present(grads), wanted) < TOLERANCE


# The other cases differ from these, for the kernels, in nothing that the worked values don't cover.
OF_THE_CASES = (
    "topk by norm",
    "abstopk",
    "multi",
    "hierarchical",
    "batchtopk by block norms",
    "matryoshka",
    "l1 of blocks",
    "l0 to input",
    "quadratic",
    "tanh",
    "jump l1",
)


@pytest.mark.parametrize(("name", "skip"), [(name, i % 3 == 1) for i, name in enumerate(OF_THE_CASES)])
def test_values_and_gradients_are_those_of_the_definition(name: str, skip: bool) -> None:
    options = CASES[name]
    params, x, target, options = problem(options, 3, 0.0, skip=skip and not options.blocks)
    dead = DeadLatents(torch.tensor([1, 4, 17, 22]), AuxK(3, 0.2))
    revives = not isinstance(options.rule, Threshold)
    assert_equals_the_definition(params, x, options, target, dead if revives else None)


@pytest.mark.parametrize(
    ("name", "n", "shift"),
    [("topk mean", 1, 0.0), ("matryoshka", 2, -30.0), ("all of them", 1, 0.0), ("l0 to input", 2, -30.0)],
)
def test_one_token_and_nothing_positive(name: str, n: int, shift: float) -> None:
    params, x, _, options = problem(CASES[name], n, shift, skip=False)
    assert_equals_the_definition(params, x, options)


@pytest.mark.parametrize("rule", [TopK(1), BatchTopK(1.5), Window(0.5)], ids=repr)
def test_an_empty_batch(rule: Rule) -> None:
    params = single(jump(standard_params(6, 23)))
    losses, grads = backend.gradients(params, torch.empty(0, 6), 0.7, LossOptions(sparsity=NONE, rule=rule))
    assert float(losses.reconstruction) == float(losses.l0) == 0
    assert all(not bool(g.any()) for g in present(grads))


def test_prefixes_of_rows_wider_than_a_block() -> None:
    """The walk is cut into 1024 columns; the residuals of a prefix are added up in each."""
    params = single(standard_params(1030, 9, shift=0.0))
    params = params._replace(W_enc=params.W_enc / 32, W_dec=params.W_dec / 32)
    assert_equals_the_definition(params, batch(2, 1030).float(), _prefixed("matryoshka", (2, 5, 9)))


def _prefixed(name: str, ends: tuple[int, ...]) -> LossOptions:
    options = CASES[name]
    assert options.prefixes is not None
    return replace(options, prefixes=replace(options.prefixes, ends=ends))


def test_chunks_of_a_latent_take_the_rows_of_its_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latents, "CHUNK", 2)
    params, x, _, options = problem(CASES["relu prefixes"], 5, 0.0, skip=False)
    assert_equals_the_definition(params, x, options)


def test_pre_activations_of_dead_latents() -> None:
    params, x, _, options = problem(CASES["tanh"], 3, 0.0, skip=False)
    assert_equals_the_definition(
        params, x, options, dead=DeadLatents(torch.tensor([2, 9]), PreActivations(0.3))
    )


def test_autocast_narrows_the_encoder_product_only() -> None:
    params, x, target, options = problem(CASES["topk"], 4, 0.0, skip=True)
    with torch.autocast("cpu", torch.bfloat16):
        losses, grads = backend.gradients(params, x, 0.0, options, target=target)
    assert all(grad.dtype == torch.float32 for grad in present(grads))
    rounded = params._replace(W_enc=params.W_enc.bfloat16().float())
    wanted, true_grads = reference.gradients(rounded, x, 0.0, options, target=target)
    assert float(losses.l0) == float(wanted.l0) == 3
    assert float(losses.reconstruction) == pytest.approx(float(wanted.reconstruction), rel=0.05)
    assert relative_difference([grads.W_skip], [true_grads.W_skip]) < 0.05


# Any Adam.


def optimizer(params: Any, beta1: float, clip: float | None, *, fused: bool = False) -> Any:
    """Fresh state, in the parameters' dtype."""
    kind = type(params)

    def zeros() -> Any:
        return kind(*(None if p is None else torch.zeros_like(p) for p in params))

    last = kind(*(None if p is None else torch.zeros(len(p), dtype=torch.int64) for p in params))
    if fused:
        return FusedAdam(1e-2, 0.99, 1e-8, 1, True, zeros(), last)
    m = zeros() if beta1 > 0 else None
    return WalkedAdam(1e-2, beta1, 0.99, 1e-8, 1, True, clip, m, zeros(), None if beta1 > 0 else last)


def unit_rows(params: Any) -> Any:
    return params._replace(W_dec=params.W_dec / params.W_dec.norm(dim=1, keepdim=True))


def assert_same_state(params: Any, adam: Any, wanted: Any, true_adam: Any, start: Any) -> None:
    for name, mine, truth, before in zip(params._fields, params, wanted, start, strict=True):
        if mine is not None:
            moved = float((truth - before).abs().max())
            assert moved > 1e-3, name
            assert float((mine.double() - truth).abs().max()) < 1e-3 * moved, name
    for field in ("m", "v", "last_step"):
        state = getattr(adam, field, None)
        if state is not None:
            assert relative_difference(present(state), present(getattr(true_adam, field))) < 1e-4, field


@pytest.mark.parametrize("kind", ["code", "gated"])
@pytest.mark.parametrize(("beta1", "clip"), [(0.9, None), (0.9, 0.5), (0.0, 0.5), (0.0, 1e9)])
def test_walked_steps_are_the_references(kind: str, beta1: float, clip: float | None) -> None:
    """Six steps on given gradients, some of whose rows are zero, in float32 and in float64."""
    if kind == "gated":
        params = unit_rows(single(gated(6, 5, tied=False)))
    else:
        params = unit_rows(single(with_skip(jump(standard_params(6, 5)), 1030, 6)))
    start = type(params)(*(None if p is None else p.double() for p in params))
    wanted = type(params)(*(None if p is None else p.clone() for p in start))
    adam, true_adam = optimizer(params, beta1, clip), optimizer(wanted, beta1, clip)
    for step in range(1, 7):
        g = torch.Generator().manual_seed(step)
        grads = type(params)(*(None if p is None else torch.randn(p.shape, generator=g) for p in params))
        for grad in present(grads):
            grad[step % 4] = 0
        double = type(params)(*(None if t is None else t.double() for t in grads))
        walk(params, grads, replace(adam, step=step))
        reference.walk(wanted, double, replace(true_adam, step=step))
    assert_same_state(params, adam, wanted, true_adam, start)


@pytest.mark.parametrize("how", ["fused", "walked"])
def test_whole_steps_are_the_references(how: str) -> None:
    """With another target, a skip and latents that are revived."""
    params, _, _, options = problem(CASES["multi"], 2, 0.0, skip=True)
    params = unit_rows(params)
    start = type(params)(*(None if p is None else p.double() for p in params))
    wanted = type(params)(*(None if p is None else p.clone() for p in start))
    adams = [optimizer(p, 0.9, 0.5, fused=how == "fused") for p in (params, wanted)]
    dead = DeadLatents(torch.tensor([3, 20]), AuxK(2, 0.5))
    for step in (1, 2):
        x, y = batch(2, 6, seed=step).float(), batch(2, 4, seed=50 + step).float()
        mine, true = (replace(adam, step=step) for adam in adams)
        more = {"dead": dead if step == 2 else None}
        losses = backend.update(params, x, 0.3, options, mine, target=y, **more)
        true_losses = reference.update(wanted, x.double(), 0.3, options, true, target=y.double(), **more)
        assert float(losses.reconstruction) == pytest.approx(float(true_losses.reconstruction), rel=1e-5)
        assert float(losses.auxiliary) == pytest.approx(float(true_losses.auxiliary), rel=1e-5)
    assert_same_state(params, adams[0], wanted, adams[1], start)


def test_without_momentum_rows_without_a_gradient_stay() -> None:
    params, x, _, options = problem(CASES["topk"], 1, 0.0, skip=False)
    adam = replace(optimizer(params, 0.0, 0.5), step=1, unit_norm=False)
    before = params.W_enc.clone()
    losses = backend.update(params, x, 0.0, options, adam)
    still = losses.fired == 0
    assert int(still.sum()) == 20
    assert torch.equal(params.W_enc[still], before[still])
    assert not bool(adam.last_step.W_enc[still].any())
    assert bool((adam.last_step.W_enc[~still] == 1).all())
    assert bool((params.W_enc[~still] != before[~still]).any(1).all())


def test_clipping_scales_all_gradients_to_the_norm() -> None:
    """One step with beta1 = 0.9 from nothing leaves m = 0.1 g: its norm is a tenth of the largest allowed."""
    params, x, _, options = problem(CASES["batchtopk"], 3, 0.0, skip=False)
    adam = replace(optimizer(params, 0.9, 0.25), step=1, unit_norm=False)
    backend.update(params, x, 0.0, options, adam)
    norm = sum(float(m.double().pow(2).sum()) for m in present(adam.m)) ** 0.5
    assert norm == pytest.approx(0.025, rel=1e-5)
