"""How fast are activations harvested and read back?

    python benchmarks/harvest.py [--tokens 6k] [--rounds 3] [--peer-python VENV/bin/python] [--out results.json]

1. Harvest (hooks, rounding, checksums, fsync, everything) against the bare forward pass of the truncated model
   on the same batches, in turns, in one process: tokens a second of wall clock and of CPU time.
2. Shuffled rows of a bfloat16 store read back from the page cache, in GB a second.
3. With --peer-python, a Python that has `sae_lens`: its CacheActivationsRunner on the same tokens and weights.

Set OMP_NUM_THREADS to the number of threads that is to be compared; CPU time is what counts on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

LAYER = 15


def timed(function: Any) -> tuple[float, float]:
    """(wall, CPU) seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def bench_harvest(model: Any, contexts: Any, rounds: int, folder: Path) -> dict[str, float]:
    from interp.activations.batching import ContextRunner
    from interp.activations.harvest import harvest
    from interp.models.sites import Site

    site = Site("resid_post", LAYER)
    runner = ContextRunner(model, contexts, [site])

    # One shard holds these contexts, so these are the harvest's own batches; this pass warms up as well.
    batches = [batch for batch, _ in runner.run(np.arange(len(contexts)))]

    @torch.inference_mode()
    def bare() -> None:
        for batch in batches:
            model.backbone(input_ids=batch.input_ids, use_cache=False)

    def ours() -> None:
        harvest(model, contexts, site, folder / "store", progress=False)
        shutil.rmtree(folder / "store")

    times: dict[str, list[tuple[float, float]]] = {"bare": [], "ours": []}
    for round_number in range(rounds):
        order = [("bare", bare), ("ours", ours)]
        for name, function in order if round_number % 2 == 0 else order[::-1]:
            times[name].append(timed(function))
    result: dict[str, float] = {}
    for kind, column in (("wall", 0), ("cpu", 1)):
        for name, runs in times.items():
            result[f"{name}_tokens_per_{kind}_second"] = contexts.n_tokens / min(run[column] for run in runs)
        ratios = [b[column] / o[column] for b, o in zip(times["bare"], times["ours"], strict=True)]
        result[f"ratio_{kind}_best"] = (
            result[f"ours_tokens_per_{kind}_second"] / result[f"bare_tokens_per_{kind}_second"]
        )
        result[f"ratio_{kind}_median"] = median(ratios)
    padded = sum(batch.input_ids.numel() for batch in batches)
    result["padding_share"] = 1 - contexts.n_tokens / padded
    return result


def bench_read(folder: Path, n_rows: int, width: int) -> dict[str, float]:
    from interp.activations.manifest import Manifest
    from interp.activations.packing import TokenContexts
    from interp.activations.store import ActivationStore
    from interp.activations.stream import StoreStream
    from interp.activations.writer import ShardWriter

    n = n_rows // 128
    contexts = TokenContexts(
        np.ones(n * 128), np.arange(n + 1) * 128, np.arange(n), np.arange(n + 1), context_size=128
    )
    manifest = Manifest.plan({"embed": width}, contexts.lengths, contexts=contexts.identity())
    writer = ShardWriter(folder / "read", manifest)
    for index in writer.pending():
        shard = manifest.shards[index]
        buffer = writer.begin(
            index, contexts.rows(shard.first_context, shard.first_context + shard.n_contexts)
        )
        buffer.put("embed", torch.arange(shard.n_rows), torch.randn(shard.n_rows, width))
        writer.commit(buffer)
    store = ActivationStore.open(folder / "read")
    result = {"store_gigabytes": manifest.total_bytes / 1e9}
    for name, dtype in (("bfloat16", None), ("float32", torch.float32)):
        stream = StoreStream(store, dtype=dtype)

        def epoch(stream: StoreStream = stream) -> None:
            before = stream.epoch
            while stream.epoch == before:
                stream.next_batch(4096)

        gigabytes = len(stream) * width * 2 / 1e9
        runs = [timed(epoch) for _ in range(4)]
        result[f"shuffled_gb_per_wall_second_as_{name}"] = gigabytes / min(wall for wall, _ in runs)
        result[f"shuffled_gb_per_cpu_second_as_{name}"] = gigabytes / min(cpu for _, cpu in runs)
    return result


def bench_peer(python: str, model: Any, contexts: Any, folder: Path) -> dict[str, Any]:
    """SAELens' cache runner on the same model and full contexts, as a program of its own environment.

    Ours runs on them before and after, so that both meet the same machine.
    """
    from interp.activations.harvest import harvest
    from interp.activations.packing import TokenContexts
    from interp.models import packaged

    size = contexts.context_size
    full = np.flatnonzero(contexts.lengths == size)
    tokens = contexts.batch(full[: len(full) // 16 * 16]).input_ids.numpy()  # whole buffers of the peer
    n = len(tokens)
    same = TokenContexts(
        tokens.reshape(-1), np.arange(n + 1) * size, np.arange(n), np.arange(n + 1), context_size=size
    )
    ours = []

    def run_ours() -> None:
        ours.append(timed(lambda: harvest(model, same, f"resid_post.{LAYER}", folder / "s", progress=False)))
        shutil.rmtree(folder / "s")

    model_folder, _ = packaged.resolve("smollm2-135m")
    np.save(folder / "tokens.npy", tokens)
    run_ours()
    done = subprocess.run(
        [python, __file__, "--as-peer", str(model_folder), str(folder / "tokens.npy"), str(folder / "peer")],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"the peer failed:\n{done.stderr[-2000:]}")
    run_ours()
    peer = json.loads(done.stdout.splitlines()[-1])
    for kind, column in (("wall", 0), ("cpu", 1)):
        speed = tokens.size / (sum(run[column] for run in ours) / len(ours))
        peer[f"ours_tokens_per_{kind}_second"] = speed
        peer[f"ours_over_peer_{kind}"] = speed / peer[f"tokens_per_{kind}_second"]
    return peer


def run_as_peer(model_folder: str, tokens_file: str, out: str) -> None:
    """Runs under the peer's Python: nothing of ours may be imported here."""
    from importlib.metadata import version

    from datasets import Dataset
    from sae_lens import CacheActivationsRunner, CacheActivationsRunnerConfig

    tokens = np.load(tokens_file)
    data = Dataset.from_dict({"tokens": tokens.tolist()})
    config = CacheActivationsRunnerConfig(
        dataset_path="",
        model_name=model_folder,
        model_class_name="AutoModelForCausalLM",
        model_batch_size=16,
        hook_name=f"model.layers.{LAYER}",
        d_in=576,
        training_tokens=tokens.size,
        context_size=tokens.shape[1],
        new_cached_activations_path=str(Path(out) / "cache"),
        buffer_size_gb=16 * tokens.shape[1] * 576 * 4 / 1e9,
        prepend_bos=False,
        device="cpu",
        dtype="float32",
        streaming=False,
    )
    runner = CacheActivationsRunner(config, override_dataset=data)
    wall, cpu = timed(runner.run)
    print(
        json.dumps(
            {
                "version": version("sae-lens"),
                "n_tokens": int(tokens.size),
                "tokens_per_wall_second": tokens.size / wall,
                "tokens_per_cpu_second": tokens.size / cpu,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", default="6k", help="tokens harvested in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--read-rows", type=int, default=262_144)
    parser.add_argument("--peer-python", help="a Python with sae_lens installed")
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    parser.add_argument("--as-peer", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_peer:
        run_as_peer(*arguments.as_peer)
        return

    from interp.activations.harvest import parse_tokens
    from interp.activations.text import load_text, pack
    from interp.core.device import environment
    from interp.core.files import write_json
    from interp.models.loading import load_model

    logging.basicConfig(level=logging.WARNING)
    results: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            **environment(),
        },
    }

    def add(section: str, figures: dict[str, Any]) -> None:
        results[section] = figures
        for key, value in figures.items():
            print(
                f"{section:8s} {key:44s} {value if isinstance(value, str) else round(value, 3)}", flush=True
            )

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        add("read", bench_read(folder, arguments.read_rows, 576))
        model = load_model("smollm2-135m", n_layers=LAYER + 1, device="cpu")
        contexts = pack(load_text("python-docs"), model, max_tokens=parse_tokens(arguments.tokens), seed=0)
        add("harvest", bench_harvest(model, contexts, arguments.rounds, folder))
        if arguments.peer_python:
            add("sae_lens", bench_peer(arguments.peer_python, model, contexts, folder))
    if arguments.out:
        write_json(arguments.out, results)


if __name__ == "__main__":
    main()
