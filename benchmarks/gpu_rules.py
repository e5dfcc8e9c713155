"""Selection rules, prefixes and any Adam, for benchmarks/gpu.py: problems, and the comparison with the definition."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from gpu_checks import CHECKED_LR, L1, Check, Size, adam_state, copy_of, problem, worst
from torch import Tensor

from interp.sae.kernels import reference
from interp.sae.kernels import triton as ours
from interp.sae.kernels.backend import WalkedAdam
from interp.sae.kernels.dead import AuxK, DeadLatents
from interp.sae.kernels.lists import CodeParams, LossOptions, OpenGates
from interp.sae.kernels.rules import BatchTopK, Prefixes, TopK, Window

THRESHOLD, BANDWIDTH = 0.5, 0.4
BIGGEST_NORM = 0.1  # of the clipped steps: below that of the gradients


def rules(size: Size) -> dict[str, LossOptions]:
    """One of each kind: what selects, what is reconstructed from parts, what has a norm in it."""
    k, F, d = max(1, round(size.k)), size.F, size.d
    nested = Prefixes(tuple(sorted({max(1, F // 8), max(2, F // 2), F})), (1.0, 0.5, 0.25))
    by_rank = Prefixes(tuple(range(1, k + 1)), (1 / k,) * k, "rank")
    return {
        "topk": LossOptions(sparsity="none", rule=TopK(k)),
        "absolute, by blocks' norms": LossOptions(
            sparsity="none", rule=TopK(k, by_norm=True, absolute=True), blocks=(d // 3, d - d // 3)
        ),
        "hierarchical": LossOptions(sparsity="none", rule=TopK(k), prefixes=by_rank),
        "batchtopk": LossOptions(sparsity="none", rule=BatchTopK(size.k)),
        "matryoshka": LossOptions(sparsity="none", rule=BatchTopK(size.k), prefixes=nested),
        "jumprelu, l0": LossOptions(sparsity="l0", rule=Window(BANDWIDTH)),
        "jumprelu, tanh": LossOptions(
            sparsity="tanh", rule=Window(BANDWIDTH, ste_to_input=True), sparsity_parameter=4.0
        ),
    }


def rule_problem(size: Size, device: torch.device, options: LossOptions) -> tuple[CodeParams, Tensor]:
    """Half of the latents positive where a rule selects, few where it is by a threshold."""
    gated, x = problem(size, device)
    bias = gated.b_gate if isinstance(options.rule, Window) else 0.1 * gated.b_mag
    threshold = torch.full_like(bias, THRESHOLD) if isinstance(options.rule, Window) else None
    return CodeParams(gated.W_gate, gated.W_dec, bias, gated.b_dec, threshold), x


def transcoder(params: CodeParams, n: int) -> tuple[CodeParams, Tensor]:
    """With a skip from x, and a target of another width."""
    g = torch.Generator(params.W_dec.device).manual_seed(1)
    d, e = params.W_dec.shape[1], params.W_dec.shape[1] // 2 + 1

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, device=params.W_dec.device)

    rows = torch.nn.functional.normalize(normal(len(params.W_dec), e), dim=1)
    return params._replace(W_dec=rows, b_dec=normal(e), W_skip=normal(e, d) / d), normal(n, e)


@contextlib.contextmanager
def our_list() -> Iterator[None]:
    """Give the reference our list: two products round differently, and one entry more or less changes a token."""

    def listed(params: CodeParams, xc: Tensor, options: LossOptions, *, guess: float = 0.0) -> OpenGates:
        return ours.listed(params, xc, options)

    with mock.patch.object(reference, "listed", listed):
        yield


def check_selections(size: Size, device: torch.device) -> list[Check]:
    """As many entries as the definition keeps, with the same sum of scores; the same bits whatever the guess."""
    checks = []
    for name, options in rules(size).items():
        if isinstance(options.rule, Window) or options.prefixes is not None:
            continue
        params, x = rule_problem(size, device, options)
        xc = x - params.b_dec
        gates, wanted = (backend.listed(params, xc, options) for backend in (ours, reference))
        sums = [_sums(found, params, options) for found in (gates, wanted)]
        checks.append(Check(f"{name} {size.name}: entries missing", abs(len(gates) - len(wanted)), 0))
        checks.append(Check(f"{name} {size.name}: sums of scores", worst([sums[0]], [sums[1]]), 1e-4))
        if isinstance(options.rule, BatchTopK):
            least = float((gates.values + params.b_enc[gates.latent_of_entry()]).min())
            for guess in (0.9 * least, 2 * least):
                again = ours.listed(params, xc, options, guess=guess)
                same = torch.equal(again.tokens, gates.tokens) and torch.equal(again.values, gates.values)
                checks.append(
                    Check(f"{name} {size.name}: guess of {guess / least:.1f} the least", float(not same), 0)
                )
    return checks


def _sums(gates: OpenGates, params: CodeParams, options: LossOptions) -> Tensor:
    """Of the scores that were kept: by token, or of the batch."""
    latents = gates.latent_of_entry()
    score = (gates.values + params.b_enc[latents]).abs()
    if options.rule.by_norm:  # type: ignore[union-attr]
        score = score * options.norms(params.W_dec)[latents]
    if isinstance(options.rule, BatchTopK):
        return score.double().sum()[None]
    return score.new_zeros(gates.n_tokens).index_add_(0, gates.tokens.long(), score)


def check_rules(size: Size, device: torch.device) -> list[Check]:
    """Losses and gradients of every rule; of a transcoder with a skip; with dead latents revived."""
    checks = []
    dead = DeadLatents(torch.arange(0, size.F, 3, device=device), AuxK(max(1, size.d // 2)))
    for name, options in rules(size).items():
        params, x = rule_problem(size, device, options)
        checks += _compare(name, size, params, x, options, None, None)
    options = replace(rules(size)["topk"], center_input=False)
    params, x = rule_problem(size, device, options)
    checks += _compare("topk, dead", size, params, x, options, None, dead)
    params, y = transcoder(params, size.n)
    return checks + _compare("skip transcoder", size, params, x, options, y, None)


def _compare(
    name: str,
    size: Size,
    params: CodeParams,
    x: Tensor,
    options: LossOptions,
    target: Tensor | None,
    dead: DeadLatents | None,
) -> list[Check]:
    losses, grads = ours.gradients(params, x, L1, options, target=target, dead=dead)
    with our_list():
        true_losses, wanted = reference.gradients(params, x, L1, options, target=target, dead=dead)
    finite = [(a, b) for a, b in zip(losses, true_losses, strict=True) if bool(torch.isfinite(b).all())]
    return [
        Check(f"{name} {size.name}: losses", worst(*zip(*finite, strict=True)), 1e-4),
        Check(f"{name} {size.name}: gradients", worst(grads, wanted), 1e-4),
    ]


def walked(params: Any, lr: float, beta1: float) -> WalkedAdam:
    """State as after a while, with clipping."""
    fused = adam_state(params, lr)
    m = None
    if beta1 > 0:
        m = type(params)(*(None if v is None else 1e-3 * torch.sin(1e9 * v) for v in fused.v))
    last = fused.last_step if m is None else None
    return WalkedAdam(
        lr, beta1, fused.beta2, fused.eps, fused.step, fused.unit_norm, BIGGEST_NORM, m, fused.v, last
    )


def check_walks(size: Size, device: torch.device) -> list[Check]:
    """A clipped step with and without momentum from one state: how far it goes, and what is remembered."""
    checks = []
    options = rules(size)["topk"]
    start, x = rule_problem(size, device, options)
    for beta1 in (0.9, 0.0):
        mine, wanted, adam = copy_of(start), copy_of(start), walked(start, CHECKED_LR, beta1)
        states = {f: getattr(adam, f) and copy_of(getattr(adam, f)) for f in ("m", "v", "last_step")}
        true_adam = replace(adam, **states)
        ours.update(mine, x, L1, options, adam)
        with our_list():
            reference.update(wanted, x, L1, options, true_adam)
        moved, true_moved = ([a - b for a, b in zip(p[:4], start[:4], strict=True)] for p in (mine, wanted))
        name = f"walk with beta1 = {beta1} {size.name}"
        checks.append(Check(f"{name}: step", worst(moved, true_moved), 1e-2))
        checks.append(Check(f"{name}: second moments", worst(adam.v, true_adam.v), 1e-4))
        if adam.m is not None:
            checks.append(Check(f"{name}: first moments", worst(adam.m, true_adam.m), 1e-4))
    return checks
