"""The Triton kernels on a GPU: right at real sizes, then how long, against the dense step and the hardware's limits.

    PYTHONPATH=. python benchmarks/gpu.py --out benchmarks/results/gpu.json

Needs torch, triton and this repository, nothing else; takes under eight minutes on a data-centre GPU with 80 GB.
`--dry-run` runs the same lines on tiny sizes with Triton's interpreter, without a GPU. Exit status 1: a check failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

if "--dry-run" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"
if importlib.util.find_spec("jaxtyping") is None:  # annotations are never evaluated: any name will do
    stand_in = types.ModuleType("jaxtyping")
    stand_in.__dict__.update(dict.fromkeys(("Bool", "Float", "Int"), Any))
    sys.modules["jaxtyping"] = stand_in

import torch
import triton
from gpu_checks import (
    BETA2,
    EPS,
    L1,
    Check,
    Size,
    adam_state,
    check_encoder,
    check_passes,
    check_update,
    check_variants,
    copy_of,
    problem,
    product_precision,
)
from gpu_rules import check_rules, check_selections, check_walks, rule_problem, rules, walked
from torch import Tensor

from interp.sae.kernels import dense
from interp.sae.kernels import triton as ours
from interp.sae.kernels.lists import GatedParams, LossOptions
from interp.sae.kernels.triton import encode, latents, step, tokens, vectors

LR = 1e-6  # timed steps leave the dictionary where it is
GIB = 2**30
TILES = {  # tried besides the ones in use
    "bf16": [encode.Tile(128, 128, 64, 4, 8, 4), encode.Tile(128, 128, 64, 4, 8, 3, group=32)],
    "tf32": [encode.Tile(128, 128, 32, 4, 8, 4), encode.Tile(128, 64, 32, 2, 4, 4)],
}


@dataclass(frozen=True)
class Timing:
    """Median milliseconds; what has to be computed and moved; how long that takes at the measured limits."""

    size: str
    precision: str
    what: str
    ms: float
    flops: float = 0.0
    hbm_bytes: float = 0.0
    limit_ms: float = 0.0


SIZES = [Size("d=3072", 4096, 3072, 131072, 100), Size("d=4096", 4096, 4096, 131072, 64)]
VARIANT_SIZE, HEAVY_SIZE = Size("variants", 2048, 1000, 16001, 60), Size("heavy", 8192, 3072, 2048, 20)
DRY_SIZES = [Size("dry", 4, 17, 21, 3)]
DRY_VARIANT, DRY_HEAVY = Size("variants", 3, 9, 11, 3), Size("heavy", 5, 8, 5, 2)


class Machine:
    """The device, its clock, and its measured ceilings."""

    def __init__(self, dry: bool) -> None:
        self.dry = dry
        self.device = torch.device("cpu" if dry else "cuda")
        self.repetitions = 1 if dry else 10
        side, floats = (64, 1024) if dry else (8192, GIB // 4)
        a, b = torch.randn(2, side, side, device=self.device).unbind()
        source = torch.empty(floats, device=self.device)
        target = torch.empty_like(source)
        self.bytes_per_ms = 8 * floats / self.milliseconds(lambda: target.copy_(source))
        self.flops_per_ms = {}
        for precision in ("ieee", "tf32", "bf16"):
            with product_precision(self.device, precision):
                x, y = (a.bfloat16(), b.bfloat16()) if precision == "bf16" else (a, b)
                self.flops_per_ms[precision] = 2 * side**3 / self.milliseconds(lambda x=x, y=y: x @ y)

    def milliseconds(self, work: Callable[[], Any]) -> float:
        """Median of several runs after two that don't count."""
        times = []
        for run in range(self.repetitions + (0 if self.dry else 2)):
            if self.dry:
                began = time.perf_counter()
                work()
                times.append(1e3 * (time.perf_counter() - began))
                continue
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            work()
            last.record()
            torch.cuda.synchronize()
            times += [first.elapsed_time(last)] * (run >= 2)
        return statistics.median(times)

    def facts(self) -> dict[str, Any]:
        """What the numbers depend on."""
        found = {
            "torch": torch.__version__,
            "triton": triton.__version__,
            "gib_per_s": self.bytes_per_ms / GIB * 1e3,
        }
        found |= {f"tflops_{name}": rate / 1e9 for name, rate in self.flops_per_ms.items()}
        if not self.dry:
            properties = torch.cuda.get_device_properties(0)
            found |= {"gpu": properties.name, "multiprocessors": properties.multi_processor_count}
            found |= {"memory_gib": properties.total_memory / GIB, "cuda": torch.version.cuda}
        return found

    def free(self) -> None:
        """Give cached memory back between problems."""
        if not self.dry:
            torch.cuda.empty_cache()


def dense_step(params: GatedParams, machine: Machine, *, compiled: bool) -> Callable[[Tensor], None]:
    """The textbook step: one encoder product, autograd, projection, torch's fused Adam, renormalisation."""
    trained = [p.requires_grad_() for p in params if p is not None]
    adam = torch.optim.Adam(trained, lr=LR, betas=(0.0, BETA2), eps=EPS, fused=not machine.dry)

    def loss(x: Tensor) -> Tensor:
        return dense.loss(params, x, L1, LossOptions())[0]

    def project() -> None:
        params.W_dec.grad -= (params.W_dec.grad * params.W_dec).sum(1, keepdim=True) * params.W_dec

    def normalise() -> None:
        params.W_dec.div_(params.W_dec.norm(dim=1, keepdim=True))

    if compiled:
        how = {"backend": "eager"} if machine.dry else {}
        loss, project, normalise = (torch.compile(part, **how) for part in (loss, project, normalise))

    def run(x: Tensor) -> None:
        adam.zero_grad(set_to_none=True)
        loss(x).backward()
        with torch.no_grad():
            project()
            adam.step()
            normalise()

    return run


class Table:
    """Timings of one problem in one precision."""

    def __init__(self, machine: Machine, size: Size, precision: str) -> None:
        self.machine, self.size, self.precision = machine, size, precision
        self.rows: list[Timing] = []
        print(f"{size} {precision}\n  {'':58} {'ms':>9} {'limit ms':>9} {'TFLOP':>7} {'GB':>7}", flush=True)

    def record(self, what: str, work: Callable[[], Any], flops: float = 0.0, hbm_bytes: float = 0.0) -> None:
        """Time it; the limit is the longer of computing and moving, as if the two overlapped."""
        limit = max(flops / self.machine.flops_per_ms[self.precision], hbm_bytes / self.machine.bytes_per_ms)
        self.add(what, work, flops, hbm_bytes, limit)

    def add(self, what: str, work: Callable[[], Any], flops: float, hbm_bytes: float, limit: float) -> None:
        """Time it against a limit of its own."""
        ms = self.machine.milliseconds(work)
        self.rows.append(Timing(self.size.name, self.precision, what, ms, flops, hbm_bytes, limit))
        print(f"  {what:58} {ms:9.3f} {limit:9.3f} {flops / 1e12:7.2f} {hbm_bytes / 1e9:7.2f}", flush=True)


def time_size(machine: Machine, size: Size, precision: str, *, try_tiles: bool) -> list[Timing]:
    """All contestants on one problem, then our step kernel by kernel."""
    table = Table(machine, size, precision)
    record = table.record
    n, d, F = size.n, size.d, size.F
    params, x = problem(size, machine.device)
    options = LossOptions()
    xc = x - params.b_dec
    product = 2.0 * n * d * F
    with product_precision(machine.device, precision):
        record("encoder product, torch", lambda: xc @ params.W_gate.T, product)
        gates = ours.compact(xc, params.W_gate, -params.b_gate)
        adam, entries = adam_state(params, LR), len(gates)
        touched = int((gates.hits() > 0).sum())
        rows, gather = 4.0 * d * touched, 4.0 * d * entries
        encode_bytes = (
            (8.0 if precision == "bf16" else 4.0) * d * F
        )  # bfloat16: read, write narrow, read narrow
        print(f"  {entries / n:.1f} gates open per token, {touched} of {F} latents touched", flush=True)

        floor = product / machine.flops_per_ms[precision] + 8 * rows / machine.bytes_per_ms
        step_flops = product + 12.0 * entries * d
        step_bytes = encode_bytes + 4 * gather + 9 * rows + 20.0 * n * d
        update = partial(ours.update, params, x, L1, options, adam)
        table.add("ours: whole step (limit: product + optimiser)", update, step_flops, step_bytes, floor)
        record("ours: gradients only", partial(ours.gradients, params, x, L1, options), step_flops)
        compact = partial(ours.compact, xc, params.W_gate, -params.b_gate)
        record("ours: encode, compact, index", compact, product, encode_bytes)
        scan = encode.entries_over(encode.Limits(-params.b_gate), xc, params.W_gate)
        record("  of it sort and index", partial(encode.in_order, scan))
        token_pass = partial(ours.gated_token_pass, params, x, gates, L1, options)
        record("ours: token pass", token_pass, 8.0 * entries * d, 2 * gather + 20.0 * n * d)
        _, passed = token_pass()
        grads = step._gated(params, x, gates, passed, L1, options)
        for name, terms in grads.matrices.items():
            work = partial(latents.update_rows, gates, terms, getattr(params, name), name, adam)
            record(f"ours: latent pass {name}", work, 2.0 * entries * d, gather + 4 * rows)
        columns = [passed.alpha, passed.beta, passed.f, passed.a]
        record("ours: latent sums", partial(tokens.latent_sums, gates, columns), hbm_bytes=48.0 * entries)
        s = grads.vectors["b_gate"]
        record("ours: W^T s", partial(vectors.pulled, s, params.W_gate), 2.0 * touched * d, rows)
        for tile in TILES[precision] if try_tiles else ():
            where = f"{tile.tokens}x{tile.latents}x{tile.depth}, {tile.warps} warps, {tile.stages} stages"
            record(f"encode with {where}, group {tile.group}", partial(compact, tile=tile), product)
        del adam, grads, passed, scan
        machine.free()
        for compiled in (False, True):
            run = dense_step(copy_of(params), machine, compiled=compiled)
            record(f"dense step, {'torch.compile' if compiled else 'eager'}", partial(run, x), 7 * product)
            del run
            machine.free()
    return table.rows


def time_rules(machine: Machine, size: Size, precision: str) -> list[Timing]:
    """A step of every rule, with and without momentum and clipping; the limit is the encoder product alone."""
    table, product = Table(machine, size, precision), 2.0 * size.n * size.d * size.F
    for name, loss in list(rules(size).items())[: 1 if machine.dry else None]:
        params, x = rule_problem(size, machine.device, loss)
        with product_precision(machine.device, precision):
            guess = 0.9 * float(ours.gradients(params, x, L1, loss)[0].smallest)
            how = {"guess": guess if guess < float("inf") else 0.0}
            table.record(
                f"list of {name}", partial(ours.listed, params, x - params.b_dec, loss, **how), product
            )
            for what, adam in (("", adam_state), (", beta1 = 0.9, clipped", partial(walked, beta1=0.9))):
                step = partial(ours.update, params, x, L1, loss, adam(params, LR), **how)
                table.record(f"whole step of {name}{what}", step, product)
                del step
        machine.free()
    return table.rows


def verdict(rows: list[Timing]) -> dict[str, float]:
    """The two goals: at most 1.5 times product plus optimiser traffic, at least 5 times faster than compiled dense."""
    of = {row.what: row for row in rows}
    whole = of["ours: whole step (limit: product + optimiser)"]
    return {
        "times_the_floor": whole.ms / whole.limit_ms,
        "faster_than_compiled": of["dense step, torch.compile"].ms / whole.ms,
        "faster_than_eager": of["dense step, eager"].ms / whole.ms,
        "times_torchs_product": whole.ms / of["encoder product, torch"].ms,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes in Triton's interpreter, no GPU")
    parser.add_argument("--out", type=Path, help="write checks and timings here as JSON")
    parser.add_argument("--budget", type=float, default=450.0, help="seconds; what is optional stops there")
    options = parser.parse_args()
    if not options.dry_run and not torch.cuda.is_available():
        parser.error("torch sees no CUDA GPU; --dry-run exercises this script without one")

    began = time.perf_counter()
    machine = Machine(options.dry_run)
    sizes = DRY_SIZES if options.dry_run else SIZES
    variant, heavy = (DRY_VARIANT, DRY_HEAVY) if options.dry_run else (VARIANT_SIZE, HEAVY_SIZE)
    print(json.dumps(machine.facts(), indent=1), flush=True)

    checks: list[Check] = []
    with torch.no_grad():
        checks += check_variants(variant, heavy, machine.device)
        for part in (check_selections, check_rules, check_walks):
            checks += part(variant, machine.device)
            machine.free()
        for size in sizes:
            for part in (check_encoder, check_passes, check_update):
                checks += part(size, machine.device)
                machine.free()
    for check in checks:
        print(f"{'ok  ' if check.passed else 'FAIL'} {check.name:70} {check.error:9.2e} <= {check.bound:.0e}")
    print(f"checks took {time.perf_counter() - began:.0f} s", flush=True)

    timings: list[Timing] = []
    verdicts = {}
    for size in sizes:
        for precision in ("bf16", "tf32"):
            if timings and time.perf_counter() - began > options.budget * 0.8:
                print(f"{size.name} {precision}: left out, the time is up")
                continue
            rows = time_size(machine, size, precision, try_tiles=size == sizes[0])
            verdicts[f"{size.name} {precision}"] = verdict(rows)
            print("  " + ", ".join(f"{k} {v:.2f}" for k, v in verdict(rows).items()), flush=True)
            timings += rows
            torch._dynamo.reset()
            machine.free()
    if time.perf_counter() - began < options.budget * 0.8:
        timings += time_rules(machine, sizes[-1], "bf16")
    seconds = time.perf_counter() - began
    print(f"{sum(c.passed for c in checks)} of {len(checks)} checks passed; {seconds:.0f} s in all")
    if options.out:
        result = {
            "command": " ".join(sys.argv),
            "machine": machine.facts(),
            "sizes": [asdict(size) for size in sizes],
            "checks": [asdict(check) | {"passed": check.passed} for check in checks],
            "timings": [asdict(row) for row in timings],
            "verdicts": verdicts,
            "seconds": seconds,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    return int(not all(check.passed for check in checks))


if __name__ == "__main__":
    sys.exit(main())
