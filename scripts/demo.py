"""The main job end to end on a real model, offline: harvest, train, evaluate, report.

SmolLM2-135M-Instruct reads the Python documentation that ships with every Python; its residual stream after layer 15
goes into a store; a Gated SAE and, on the very same stream, an L1 baseline half as wide again are trained, evaluated
on held-out documents and written up as a static HTML report. Whatever is finished is reused by a second run, and an
interrupted one continues.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from interp.activations.documents import Documents
from interp.activations.harvest import HarvestEstimate, harvest
from interp.activations.text import load_text
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.sae.dashboard.report_folder import report
from interp.sae.evaluate import evaluate_several
from interp.sae.scores import METRICS_FILE, SAEEvaluation
from interp.sae.training import train

log = logging.getLogger("demo")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=Path("demo"), help="folder of everything that the demo makes")
    p.add_argument(
        "--model", default="smollm2-135m", help="packaged model, hub name, local folder or .gguf file"
    )
    p.add_argument("--site", default="resid_post.15", help="where to read and to splice")
    p.add_argument("--text", default="python-docs", help="corpus; 5 %% of its documents are held out")
    p.add_argument("--tokens", default="200k", help="tokens to harvest for training")
    p.add_argument("--eval-tokens", default="10k", help="held-out tokens to evaluate on")
    p.add_argument(
        "--d-sae", type=int, default=4608, help="latents of the Gated SAE; the baseline has 1.5 times as many"
    )
    p.add_argument("--l1-coefficient", type=float, default=3.0, help="sparsity weight of the Gated SAE")
    p.add_argument("--baseline-l1", type=float, default=1.8, help="sparsity weight of the L1 baseline")
    p.add_argument("--steps", type=int, default=1800, help="optimiser steps of 1,024 tokens")
    p.add_argument("--latents", type=int, default=200, help="latents with a page in the report")
    p.add_argument("--seed", type=int, default=0)
    return p


class Clock:
    """How long each stage of this run took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.seconds.items())


def evaluated(runs: list[Path], model: LanguageModel, text: Documents, tokens: str) -> list[SAEEvaluation]:
    """The evaluations of some runs on shared forward passes; those kept, where they are of the same text."""
    kept = [SAEEvaluation.kept(run, model.name, text.name, tokens) for run in runs]
    if None not in kept:
        log.info("evaluation: kept from an earlier run")
        return [score for score in kept if score is not None]
    scores = evaluate_several(runs, model, text, tokens=tokens, names=[run.name for run in runs])
    for run, score in zip(runs, scores, strict=True):
        score.save(run / METRICS_FILE)
    return scores


def table(scores: list[SAEEvaluation]) -> str:
    """The figures side by side."""
    shown = [
        "architecture",
        "d_sae",
        "l1_coefficient",
        "l0",
        "loss_recovered",
        "loss_recovered_mean",
        "kl_score",
    ]
    shown += [
        "fvu",
        "gamma",
        "gamma_centered",
        "alive",
        "ce_clean",
        "ce_spliced",
        "ce_mean",
        "ce_zero",
        "n_tokens",
    ]
    frame = pd.concat([score.to_frame() for score in scores]).set_index("name")
    return frame[shown].T.to_string(float_format="{:.4f}".format)


def main() -> None:
    args = parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    clock = Clock()

    log.info("loading %s", args.model)
    with clock.stage("load"):
        model = load_model(args.model)
    text = {split: load_text(args.text, split=split) for split in ("train", "heldout")}

    plan = {"tokens": args.tokens, "context_size": 128}
    estimate = harvest(model, text["train"], args.site, out / "store", dry_run=True, **plan)
    assert isinstance(estimate, HarvestEstimate)
    log.info("harvest: %s", estimate)
    log.info(
        "then training, evaluation and report; by default the whole takes 15 to 20 minutes on two idle cores"
    )
    with clock.stage("harvest"):
        store = harvest(model, text["train"], args.site, out / "store", **plan)

    gated = {"architecture": "gated", "d_sae": args.d_sae, "l1_coefficient": args.l1_coefficient}
    baseline = {"architecture": "standard", "d_sae": args.d_sae * 3 // 2, "l1_coefficient": args.baseline_l1}
    with clock.stage("train"):
        # Steps are dense, and so slow, until the sparsity penalty has closed most gates: a short warm-up.
        warmup = {"l1_warmup": 0.06, "lr_warmup": 0.06}
        variants = {"gated": gated, "l1-baseline": baseline}
        train(store, variants, steps=args.steps, seed=args.seed, out=out / "runs", **warmup)
    runs = [out / "runs" / name for name in ("gated", "l1-baseline")]

    with clock.stage("evaluate"):
        scores = evaluated(runs, model, text["heldout"], args.eval_tokens)

    with clock.stage("report"):
        page = report(runs, store, model, out=out / "report", evaluation=scores, n_latents=args.latents)

    print()
    print(table(scores))
    print(f"\nTime, this run: {clock}")
    print(f"Weights, configuration, metrics: {runs[0]} and {runs[1]}")
    print(f"Activations:                     {out / 'store'}")
    print(f"Report, open it in a browser:    {page}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; run the same command again to continue")
