"""What one SAE training step costs: ours against public libraries' and against the encoder product alone.

Every contestant takes the same batch from the same weights, optimiser included, in one process; runs are
interleaved, so that whatever else the machine does hits all alike, and the medians of CPU time and wall time
are compared. On a shared machine trust the CPU time.

Contestants
  product          x @ W.T, nothing else (the unit of the ratios)
  product-reused   the same into a buffer that exists already
  traffic          reading and writing weights and second moments once: the optimiser's floor
  ours-sparse      make_step(backend="cpu"), gated
  ours-dense       make_step(backend="dense"), gated
  ours-relu        make_step(backend="cpu"), standard (one code instead of two)
  saelens          SAETrainer.step on a GatedTrainingSAE
  dictionary-learning  GatedSAETrainer.update
  sparsify-topk    SparseCoder (TopK with the same k), forward, backward, projection, Adam: another
                   architecture, for scale only

The peers pin other versions of shared packages, so they get an environment of their own:

  python3 -m venv peers
  peers/bin/pip install torch numba numpy jaxtyping psutil safetensors tqdm
  peers/bin/pip install sae-lens dictionary-learning eai-sparsify
  PYTHONPATH=. OMP_NUM_THREADS=1 peers/bin/python benchmarks/sae_step.py --out benchmarks/results/sae_step

Peers that aren't installed are left out, and the table says so.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.metadata
import importlib.util
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("SPARSIFY_DISABLE_TRITON", "1")  # its Triton decoder needs a GPU

import psutil
import torch

from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.step import make_step

L1, LR = 0.1, 1e-6  # a learning rate that keeps the number of open gates where it was set
OURS = ("ours-sparse", "ours-dense", "ours-relu")
FLOORS = ("product", "product-reused", "traffic")
PEERS = {"saelens": "sae_lens", "dictionary-learning": "dictionary_learning", "sparsify-topk": "sparsify"}
PACKAGES = ("torch", "numpy", "numba", "sae-lens", "dictionary-learning", "eai-sparsify", "transformer-lens")


@dataclass(frozen=True)
class Problem:
    """One cell of the grid, with weights of unit norm and gates set to open for k latents per token."""

    n: int
    d: int
    F: int
    k: int

    def __str__(self) -> str:
        return f"N={self.n} d={self.d} F={self.F} k={self.k}"

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, float]:
        """A batch, the directions and the bias of every gate."""
        g = torch.Generator().manual_seed(0)
        x = torch.randn(self.n, self.d, generator=g)
        W = torch.nn.functional.normalize(torch.randn(self.F, self.d, generator=g), dim=1)
        sample = (x[:64] @ W.T).flatten()
        bias = -sample.kthvalue(round(len(sample) * (1 - self.k / self.F))).values
        return x, W, float(bias)

    def dense_bytes(self) -> int:
        """What the hungriest contestant holds, about: ten N x F arrays, four weights' worth of state."""
        return 4 * (10 * self.n * self.F + 10 * self.F * self.d)


def build(name: str, problem: Problem) -> Callable[[], object]:
    """A contestant's step on this problem."""
    x, W, bias = problem.tensors()
    if name == "product":
        return lambda: x @ W.T
    if name == "product-reused":
        out = torch.empty(problem.n, problem.F)
        return lambda: torch.mm(x, W.T, out=out)
    if name == "traffic":
        state = [W.clone() for _ in range(4)]
        return lambda: [tensor.mul_(1.0) for tensor in state]
    if name.startswith("ours"):
        return _ours(name, problem, x, W, bias)
    return {
        "saelens": _saelens,
        "dictionary-learning": _dictionary_learning,
        "sparsify-topk": _sparsify,
    }[name](problem, x, W, bias)


def _ours(name: str, problem: Problem, x: torch.Tensor, W: torch.Tensor, bias: float) -> Callable[[], object]:
    sae: GatedSAE | StandardSAE
    if name == "ours-relu":
        sae = StandardSAE(StandardSAEConfig(problem.d, problem.F), seed=None)
        encoder, gate_bias = sae.W_enc, sae.b_enc
    else:
        sae = GatedSAE(GatedSAEConfig(problem.d, problem.F), seed=None)
        encoder, gate_bias = sae.W_gate, sae.b_gate
    with torch.no_grad():
        encoder.copy_(W)
        sae.W_dec.copy_(W)
        gate_bias.fill_(bias)
    step = make_step(sae, backend="dense" if name == "ours-dense" else "cpu")
    return lambda: step(x, L1, LR)


def _saelens(problem: Problem, x: torch.Tensor, W: torch.Tensor, bias: float) -> Callable[[], object]:
    from sae_lens.config import LoggingConfig, SAETrainerConfig
    from sae_lens.saes.gated_sae import GatedTrainingSAE, GatedTrainingSAEConfig
    from sae_lens.training.sae_trainer import SAETrainer

    sae = GatedTrainingSAE(GatedTrainingSAEConfig(d_in=problem.d, d_sae=problem.F, l1_coefficient=L1))
    with torch.no_grad():
        sae.W_enc.copy_(W.T)
        sae.W_dec.copy_(W)
        sae.b_gate.fill_(bias)
    config = SAETrainerConfig(
        total_training_samples=10**9,
        train_batch_size_samples=problem.n,
        lr=LR,
        lr_end=LR / 10,
        adam_beta1=0.0,
        logger=LoggingConfig(log_to_wandb=False),
    )
    trainer = SAETrainer(config, sae, iter([x]))
    return lambda: trainer.step(x)


def _dictionary_learning(
    problem: Problem, x: torch.Tensor, W: torch.Tensor, bias: float
) -> Callable[[], object]:
    from dictionary_learning.trainers.gdm import GatedSAETrainer

    trainer = GatedSAETrainer(
        steps=10**6,
        activation_dim=problem.d,
        dict_size=problem.F,
        layer=0,
        lm_name="none",
        lr=LR,
        l1_penalty=L1,
        sparsity_warmup_steps=None,
        device="cpu",
    )
    with torch.no_grad():
        trainer.ae.encoder.weight.copy_(W)
        trainer.ae.decoder.weight.copy_(W.T)
        trainer.ae.gate_bias.fill_(bias)
    counter = itertools.count()
    return lambda: trainer.update(next(counter), x)


def _sparsify(problem: Problem, x: torch.Tensor, W: torch.Tensor, bias: float) -> Callable[[], object]:
    from sparsify import SparseCoder, SparseCoderConfig

    sae = SparseCoder(problem.d, SparseCoderConfig(num_latents=problem.F, k=problem.k))
    with torch.no_grad():
        sae.encoder.weight.copy_(W)
        sae.W_dec.copy_(W)
    optimizer = torch.optim.Adam(sae.parameters(), lr=LR)

    def step() -> None:
        optimizer.zero_grad()
        sae(x).fvu.backward()
        sae.remove_gradient_parallel_to_decoder_directions()
        optimizer.step()
        sae.set_decoder_norm_to_unit_norm()

    return step


def measure(problem: Problem, names: list[str], repeats: int, seconds: float) -> dict[str, dict[str, float]]:
    """Medians over interleaved runs (as many as fit the CPU time, at least three), then peaks of memory."""
    steps = {name: build(name, problem) for name in names}
    for step in steps.values():
        step()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    started = time.process_time()
    for repeat in range(repeats):
        for name in names if repeat % 2 == 0 else reversed(names):
            wall, cpu = time.perf_counter(), time.process_time()
            steps[name]()
            times[name].append((time.process_time() - cpu, time.perf_counter() - wall))
        if repeat >= 2 and time.process_time() - started > seconds:
            break
    unit = [statistics.median(column) for column in zip(*times["product"], strict=True)]
    results = {}
    for name, pairs in times.items():
        cpu, wall = (statistics.median(column) for column in zip(*pairs, strict=True))
        results[name] = {
            "cpu_ms": 1e3 * cpu,
            "wall_ms": 1e3 * wall,
            "cpu_ratio": cpu / unit[0],
            "wall_ratio": wall / unit[1],
            "runs": len(pairs),
            "extra_peak_mib": peak_memory(steps[name]) / 2**20,
        }
    return results


def peak_memory(step: Callable[[], object]) -> float:
    """How far the process's resident memory rises during a step, in bytes; NaN where Linux doesn't tell."""
    status = Path("/proc/self/status")
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        before = psutil.Process().memory_info().rss
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        step()
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    except OSError:
        return float("nan")
    return int(peak.split()[1]) * 1024 - before


def machine() -> dict[str, object]:
    """Facts without names: processor, cores, memory, versions."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "simd": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
        "versions": versions,
    }


def markdown(facts: dict, cells: list[dict]) -> str:
    """The results as a page."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    lines = [
        "# One SAE training step on a CPU",
        "",
        f"{facts['cpu']}, {facts['cores']} cores ({facts['simd']}), {facts['memory_gib']} GiB; "
        f"{facts['threads']} thread(s); Python {facts['python']}; {versions}. "
        f"Load average at the start {facts['load_average']}: compare CPU times.",
        "",
        "Optimiser included. `x product` is CPU time over that of `x @ W.T` in the same interleaved runs; "
        "`extra MiB` how far resident memory rose during one step. Command: `" + facts["command"] + "`",
    ]
    for cell in cells:
        rows = cell["results"]
        ours = rows.get("ours-sparse")
        lines += [
            "",
            f"## {cell['problem']}",
            "",
            "| step | CPU ms | x product | wall ms | wall x product | ours is faster by | extra MiB | runs |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for name, row in rows.items():
            faster = row["cpu_ms"] / ours["cpu_ms"] if ours and name not in FLOORS else float("nan")
            lines.append(
                f"| {name} | {row['cpu_ms']:.1f} | {row['cpu_ratio']:.2f} | {row['wall_ms']:.1f} "
                f"| {row['wall_ratio']:.2f} | {'' if faster != faster else f'{faster:.1f}'} "
                f"| {row['extra_peak_mib']:.0f} | {row['runs']} |"
            )
        if cell["left_out"]:
            lines += ["", "Left out: " + "; ".join(cell["left_out"]) + "."]
    return "\n".join(lines) + "\n"


def grid(arguments: argparse.Namespace) -> Iterator[Problem]:
    """The cells, smallest first."""
    cells = itertools.product(arguments.n, arguments.d, arguments.expansion, arguments.k)
    problems = [Problem(n=n, d=d, F=d * expansion, k=k) for n, d, expansion, k in cells]
    return iter(sorted(problems, key=lambda p: (p.n * p.d * p.F, p.k)))


def main() -> None:
    """Run the grid and write <out>.json and <out>.md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--n", type=int, nargs="+", default=[1024], help="tokens per step (default 1024)")
    parser.add_argument("--d", type=int, nargs="+", default=[512], help="activation width (default 512)")
    parser.add_argument("--expansion", type=int, nargs="+", default=[16], help="F / d (default 16)")
    parser.add_argument("--k", type=int, nargs="+", default=[32, 64], help="open gates per token")
    parser.add_argument("--only", nargs="+", choices=[*FLOORS, *OURS, *PEERS], help="these contestants")
    parser.add_argument("--repeats", type=int, default=15, help="runs of each contestant at most")
    parser.add_argument("--seconds", type=float, default=40, help="CPU time per cell, roughly")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch threads")
    parser.add_argument("--out", type=Path, help="path without suffix; default: print only")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    facts = machine()
    facts["command"] = " ".join(["sae_step.py", *sys.argv[1:]])
    wanted = arguments.only or [*FLOORS, *OURS, *PEERS]
    wanted = list(dict.fromkeys(["product", *wanted]))
    missing = [n for n in wanted if n in PEERS and importlib.util.find_spec(PEERS[n]) is None]
    cells = []
    for problem in grid(arguments):
        left_out = [f"{name} (not installed)" for name in missing]
        names = [name for name in wanted if name not in missing]
        if problem.dense_bytes() > 0.5 * psutil.virtual_memory().available:
            dense = [n for n in names if n in PEERS or n == "ours-dense"]
            left_out += [f"{name} (too little memory)" for name in dense]
            names = [name for name in names if name not in dense]
        results = measure(problem, names, arguments.repeats, arguments.seconds)
        cells.append({"problem": str(problem), "results": results, "left_out": left_out})
        print(markdown(facts, cells[-1:]).split("\n## ", 1)[1])
        gc.collect()
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.with_suffix(".json").write_text(
            json.dumps({"machine": facts, "cells": cells}, indent=1)
        )
        arguments.out.with_suffix(".md").write_text(markdown(facts, cells))


if __name__ == "__main__":
    main()
