"""Problems for benchmarks/gpu.py, and the comparison of every kernel with the definition on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from interp.sae.kernels import reference
from interp.sae.kernels import triton as ours
from interp.sae.kernels.backend import FusedAdam
from interp.sae.kernels.lists import CodeParams, GatedParams, LossOptions, OpenGates
from interp.sae.kernels.triton import encode

L1, BETA2, EPS = 0.1, 0.999, 1e-8
CHECKED_LR = 1e-3  # a step that moves the dictionary visibly


@dataclass(frozen=True)
class Size:
    """A site: n tokens, width d, F latents, about k open gates a token."""

    name: str
    n: int
    d: int
    F: int
    k: float


@dataclass(frozen=True)
class Check:
    """One comparison with the definition: the largest error, relative to the largest true value."""

    name: str
    error: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


@contextlib.contextmanager
def product_precision(device: torch.device, name: str) -> Iterator[None]:
    """Torch's own settings for the precision of products: ``"ieee"``, ``"tf32"`` or ``"bf16"``."""
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=name == "bf16"):
            yield
    finally:
        torch.set_float32_matmul_precision("highest")


def problem(
    size: Size, device: torch.device, *, tied: bool = True, always_open: int = 0
) -> tuple[GatedParams, Tensor]:
    """Unit rows, Gaussian tokens, gate biases that give log-normal firing rates with k open gates in the mean."""
    g = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, device=device)

    rates = normal(size.F).mul_(1.5).exp_()
    rates = (rates * (size.k / rates.sum())).clamp_max_(0.5)
    b_gate = torch.special.ndtri(rates)
    b_gate[:always_open] = 1e3
    rows = [torch.nn.functional.normalize(normal(size.F, size.d), dim=1) for _ in range(2 if tied else 3)]
    params = GatedParams(
        W_gate=rows[0],
        W_dec=rows[1],
        b_gate=b_gate,
        b_mag=normal(size.F) - 2,
        b_dec=0.01 * normal(size.d),
        r_mag=0.1 * normal(size.F),
        W_mag=None if tied else rows[2],
    )
    return params, normal(size.n, size.d)


def relu_form(params: GatedParams) -> CodeParams:
    """A ReLU SAE with the same open units."""
    return CodeParams(params.W_gate, params.W_dec, params.b_gate, params.b_dec)


def adam_state(params: Any, lr: float) -> FusedAdam:
    """Moments as after a while, touched at different steps."""
    g = torch.Generator(params.W_dec.device).manual_seed(0)
    kind, where = type(params), {"device": params.W_dec.device, "generator": g}
    v = kind(*(None if p is None else 1e-6 * (1 + torch.rand(p.shape, **where)) for p in params))
    last = kind(*(None if p is None else torch.randint(0, 99, (len(p),), **where) for p in params))
    return FusedAdam(lr, BETA2, EPS, 100, True, v, last)


def moments_now(adam: FusedAdam) -> Any:
    """Second moments as of this step: whether one without a gradient decays at once or later is all the same."""
    kind = type(adam.v)
    aged = []
    for v, last in zip(adam.v, adam.last_step, strict=True):
        decay = None if v is None else (BETA2 ** (adam.step - last).double()).float()
        aged.append(None if v is None else v * decay.view(-1, *[1] * (v.dim() - 1)))
    return kind(*aged)


def copy_of(tensors: Any) -> Any:
    return type(tensors)(*(None if t is None else t.clone() for t in tensors))


def worst(ours_: Any, theirs: Any) -> float:
    """Largest relative difference over paired tensors."""
    pairs = [(a, b) for a, b in zip(ours_, theirs, strict=True) if b is not None and b.numel()]
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)


def list_difference(
    mine: OpenGates, wanted: OpenGates, params: GatedParams, xc: Tensor
) -> tuple[float, float]:
    """How far from its threshold a pair is that only one list holds; largest difference of common values."""
    n = xc.shape[0]
    a, b = (gates.latent_of_entry() * n + gates.tokens for gates in (mine, wanted))
    margin = 0.0
    for only in (a[~torch.isin(a, b)], b[~torch.isin(b, a)]):
        if len(only):
            i, t = only // n, only % n
            pi = (xc[t].double() * params.W_gate[i]).sum(1) + params.b_gate[i]
            margin = max(margin, float(pi.abs().max()))
    common_a, common_b = torch.isin(a, b), torch.isin(b, a)
    difference = (mine.values[common_a] - wanted.values[common_b]).abs()
    return margin, float(difference.max()) if len(difference) else 0.0


def check_encoder(size: Size, device: torch.device) -> list[Check]:
    """The list in every precision, and when its room is too small."""
    params, x = problem(size, device)
    xc = x - params.b_dec
    wanted = reference.compact(xc, params.W_gate, -params.b_gate)
    rounded = reference.compact(xc.bfloat16().float(), params.W_gate.bfloat16().float(), -params.b_gate)
    checks = []
    for precision, truth, bound in (("ieee", wanted, 1e-4), ("tf32", wanted, 2e-2), ("bf16", rounded, 2e-2)):
        with product_precision(device, precision):
            gates = ours.compact(xc, params.W_gate, -params.b_gate)
        margin, difference = list_difference(gates, truth, params, xc)
        checks.append(Check(f"encode {precision} {size.name}: pairs beside the threshold", margin, bound))
        value_bound = 1e-4 if precision == "bf16" else bound
        checks.append(Check(f"encode {precision} {size.name}: values", difference, value_bound))
    encode._room.clear()
    first_room, encode.FIRST_ROOM = encode.FIRST_ROOM, 1
    gates = ours.compact(xc, params.W_gate, -params.b_gate)
    encode.FIRST_ROOM = first_room
    missing = abs(len(gates) - int(gates.hits().sum())) + abs(len(gates) - len(wanted))
    checks.append(
        Check(f"encode {size.name}: entries lost when the room is short", missing, 1e-5 * len(wanted))
    )
    return checks


def check_passes(size: Size, device: torch.device) -> list[Check]:
    """Token pass, latent pass, decoding: each on the reference's list; and twice the same bits."""
    params, x = problem(size, device)
    options = LossOptions()
    gates = reference.compact(reference.center(x, params.b_dec, options), params.W_gate, -params.b_gate)
    losses, passed = ours.gated_token_pass(params, x, gates, L1, options)
    true_losses, true_passed = reference.gated_token_pass(params, x, gates, L1, options)
    grads = ours.gated_latent_pass(params, x, gates, true_passed, L1, options)
    true_grads = reference.gated_latent_pass(params, x, gates, true_passed, L1, options)
    decoded = ours.decode(gates.token_ptr, gates.latents, passed.a[gates.order], params.W_dec, params.b_dec)
    truth = passed.G_aux / (2 * options.error_scale(*x.shape)) + x
    checks = [
        Check(f"token pass {size.name}: losses", worst(losses, true_losses), 1e-5),
        Check(f"token pass {size.name}: cotangents", worst(passed, true_passed), 1e-5),
        Check(f"latent pass {size.name}: gradients", worst(grads, true_grads), 1e-5),
        Check(f"decode {size.name}", worst([decoded], [truth]), 1e-5),
    ]
    del true_grads, true_passed, losses, passed
    again = ours.gated_latent_pass(
        params, x, gates, ours.gated_token_pass(params, x, gates, L1, options)[1], L1, options
    )
    once = ours.gated_latent_pass(
        params, x, gates, ours.gated_token_pass(params, x, gates, L1, options)[1], L1, options
    )
    differing = sum(int((a != b).sum()) for a, b in zip(again, once, strict=True) if a is not None)
    return [*checks, Check(f"gradients {size.name}: entries that differ between two runs", differing, 0)]


def one_list() -> Any:
    """Give the reference our list: two products round differently, and one gate that flips changes a token."""
    return mock.patch.object(reference, "compact", ours.compact)


def check_update(size: Size, device: torch.device) -> list[Check]:
    """A fused step from one state, against the reference's: relative to how far anything moved."""
    checks = []
    for name in ("gated", "standard"):
        params, x = problem(size, device)
        start = params if name == "gated" else relu_form(params)
        mine, wanted, adam = copy_of(start), copy_of(start), adam_state(start, CHECKED_LR)
        true_adam = replace(adam, v=copy_of(adam.v), last_step=copy_of(adam.last_step))
        ours.update(mine, x, L1, LossOptions(), adam)
        with one_list():
            reference.update(wanted, x, L1, LossOptions(), true_adam)
        moved = [None if a is None else a - b for a, b in zip(mine, start, strict=True)]
        true_moved = [None if a is None else a - b for a, b in zip(wanted, start, strict=True)]
        # A bias of order one shows a step of 1e-3 to no better than its own rounding.
        checks.append(Check(f"update {name} {size.name}: step", worst(moved, true_moved), 1e-2))
        checks.append(Check(f"update {name} {size.name}: parameters", worst(mine, wanted), 1e-5))
        moments = worst(moments_now(adam), moments_now(true_adam))
        checks.append(Check(f"update {name} {size.name}: moments", moments, 1e-5))
    return checks


def check_variants(size: Size, heavy: Size, device: torch.device) -> list[Check]:
    """Every branch of the kernels at sizes that fit no block, and latents open on all of 8192 tokens."""
    checks = []
    for tied, options in (
        (True, LossOptions("ri_l1", False)),
        (False, LossOptions("l1", True, True, "mean")),
        (False, LossOptions("ri_l1", True, False, "sum", False)),
    ):
        params, x = problem(size, device, tied=tied)
        _, grads = ours.gradients(params, x, L1, options)
        with one_list():
            _, wanted = reference.gradients(params, x, L1, options)
        form = "tied" if tied else "untied"
        checks.append(Check(f"gradients {form} {options.sparsity}: variants", worst(grads, wanted), 1e-4))
    params, x = problem(heavy, device, always_open=3)
    _, grads = ours.gradients(params, x, L1, LossOptions(freeze_decoder=False))
    with one_list():
        _, wanted = reference.gradients(params, x, L1, LossOptions(freeze_decoder=False))
    checks.append(Check(f"gradients {heavy.name}: three latents open everywhere", worst(grads, wanted), 1e-4))
    return checks
