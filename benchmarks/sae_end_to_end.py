"""Does the sparse route end where the dense one ends, and how much sooner?

    python benchmarks/sae_end_to_end.py [--seeds 0 1 2] [--steps 1800] [--work end_to_end] [--out results/NAME]

The demo's Gated SAE (SmolLM2-135M, residual stream after layer 15, 4,608 latents, lambda 3) is trained on the demo's
store once per seed and route: `backend="dense"` (autograd over the loss, dense optimiser) and `backend="auto"` (dense
until the gates have closed, then sparse). Runs of one seed see the same batches from the same weights. Each is
evaluated on held-out documents as the demo does it. Wall and CPU time are of training alone; on a shared machine
trust the CPU time. A finished run is kept in --work and not repeated; an interrupted one starts anew, since its time
would mean nothing.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from interp.activations.harvest import harvest
from interp.activations.store import ActivationStore
from interp.activations.text import load_text
from interp.core.files import read_json, write_json
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.sae.evaluate import evaluate
from interp.sae.training import train

MODEL, SITE = "smollm2-135m", "resid_post.15"
SHOWN = ["l0", "loss_recovered", "fvu", "gamma", "alive"]
ROUTES = ("dense", "auto")

log = logging.getLogger("end_to_end")


def timed_run(
    store: ActivationStore,
    model: LanguageModel,
    heldout: Any,
    route: str,
    seed: int,
    steps: int,
    folder: Path,
) -> dict[str, Any]:
    """Train and evaluate once; what was measured is kept in the folder."""
    kept = folder / "measured.json"
    if kept.exists():
        return read_json(kept)
    shutil.rmtree(folder, ignore_errors=True)
    wall, cpu = time.perf_counter(), time.process_time()
    train(
        store,
        architecture="gated",
        d_sae=4608,
        l1_coefficient=3.0,
        l1_warmup=0.06,
        lr_warmup=0.06,
        steps=steps,
        seed=seed,
        backend=route,
        checkpoint_every=None,
        out=folder,
    )
    row: dict[str, Any] = {
        "seed": seed,
        "route": route,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
    }
    scores = evaluate(folder, model, heldout, tokens="10k").to_frame().iloc[0]
    row |= {name: float(scores[name]) for name in SHOWN}
    write_json(kept, row)
    return row


def compare(rows: pd.DataFrame) -> pd.DataFrame:
    """Per figure: mean and sample deviation over the seeds of each route, and the paired difference."""
    lines = {}
    for name in SHOWN:
        wide = rows.pivot(index="seed", columns="route", values=name)
        difference = wide["auto"] - wide["dense"]
        lines[name] = {
            "dense": wide["dense"].mean(),
            "sd over seeds": wide["dense"].std(),
            "auto": wide["auto"].mean(),
            "sd": wide["auto"].std(),
            "auto - dense": difference.mean(),
            "largest |difference|": difference.abs().max(),
        }
    return pd.DataFrame(lines).T


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--steps", type=int, default=1800)
    p.add_argument("--work", type=Path, default=Path("end_to_end"), help="store and runs")
    p.add_argument(
        "--out", type=Path, default=Path("benchmarks/results/sae_end_to_end"), help="without suffix"
    )
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    model = load_model(MODEL)
    plan = {"tokens": "200k", "context_size": 128}
    store = harvest(model, load_text("python-docs", split="train"), SITE, args.work / "store", **plan)
    assert isinstance(store, ActivationStore)
    heldout = load_text("python-docs", split="heldout")
    rows = []
    for seed in args.seeds:
        for route in ROUTES:
            folder = args.work / f"{route}-{seed}"
            rows.append(timed_run(store, model, heldout, route, seed, args.steps, folder))
            log.info("%s", rows[-1])
    frame = pd.DataFrame(rows)
    compared = compare(frame)
    time_of = frame.pivot(index="seed", columns="route", values=["cpu_s", "wall_s"])
    ratios = {
        unit: (time_of[unit]["dense"] / time_of[unit]["auto"]).round(2).tolist()
        for unit in ("cpu_s", "wall_s")
    }

    facts = (
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} thread(s), Python "
        f"{platform.python_version()}, torch {torch.__version__}; {args.steps} steps of 1,024 tokens"
    )
    text = (
        '# The demo\'s Gated SAE, dense against `backend="auto"`\n\n'
        f"{facts}. Command: `python benchmarks/sae_end_to_end.py --seeds {' '.join(map(str, args.seeds))}`\n\n"
        f"Dense over auto, per seed: CPU time {ratios['cpu_s']}, wall time {ratios['wall_s']}.\n\n"
        f"```\n{compared.to_string(float_format='{:.5f}'.format)}\n\n"
        f"{frame.to_string(index=False, float_format='{:.4f}'.format)}\n```\n"
    )
    args.out.with_suffix(".md").write_text(text)
    write_json(args.out.with_suffix(".json"), {"facts": facts, "ratios": ratios, "runs": rows})
    print(text)


if __name__ == "__main__":
    main()
