"""Reproduce, without a download, what the reliability paper claims of steering vectors, and check the toolkit by it.

Tan et al. 2024, "Analysing the Generalisation and Reliability of Steering Vectors", arXiv 2407.12404.

  A  Steering that works (trains for a minute). A language model of 190,000 parameters learns sentences whose
     adjectives agree in polarity. The mean difference, read where an adjective comes next, must steer all samples; read
     and added at the adjective itself it must not.
  B  Steering that does not. SmolLM2-135M-Instruct on lettered items "I like tea" / "I dislike tea". The letter
     must explain the variance of steerability, and the report must say "do not trust".
  C  The variance decomposition on a planted design (seconds).
  D  Invariants of the toolkit on a random model (seconds).
  E  An open-ended concept, sentiment, in SmolLM2: next words and whole continuations, with intervals.
  F  The paper's kinds of figures on generated data sets: five prompts by five, in against out of distribution,
     layer sweeps.
  G  Cost. Curves on the prompt's cache equal whole passes, at a fifth of the tokens or less.

Each check prints what was expected beside what was measured, with PASS or FAIL; everything goes to OUT as results.json
and PNGs. Exit code 1 when a check fails. A, B, E and F take minutes each on a CPU.

    python scripts/reproduce/steering.py                      # all of it
    python scripts/reproduce/steering.py --quick              # C and D, in seconds
    python scripts/reproduce/steering.py --which A B --seed 1
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import steering_toy
import torch
from checks import Findings
from polarity_model import untrained

from interp.core.device import make_generator
from interp.core.files import write_json
from interp.core.plotting import new_figure
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.steering.apply import steer
from interp.steering.decomposition import decompose_variance
from interp.steering.extraction import extract
from interp.steering.generators import sentiment_words
from interp.steering.propensity import propensity_curve
from interp.steering.steerability_plots import draw_cells, draw_variance
from interp.steering.vector import SteeringVector

PARTS = ("A", "B", "C", "D", "E", "F", "G")


def planted(seed: int = 0) -> Findings:
    """Part C: s = 1 + 2 A + 0.5 Y + e on a balanced design, with e drawn orthogonal to A and Y."""
    found = Findings()
    a, y = np.tile([0, 0, 1, 1], 50), np.tile([0, 1, 0, 1], 50)
    noise = np.random.default_rng(seed).normal(0, 0.4, 200)
    design = np.column_stack([np.ones(200), a, y])
    noise -= design @ np.linalg.lstsq(design, noise, rcond=None)[0]
    slopes = 1 + 2 * a + 0.5 * y + noise
    result = decompose_variance(slopes, {"A": a, "Y": y}, name="planted")
    expected = {"A": 4 * a.var(ddof=1), "Y": 0.25 * y.var(ddof=1)}
    for name, value in expected.items():
        share = value / result.total
        seen = result.shares[name]
        found.check(
            "C",
            f"share of {name} is its closed form",
            f"{share:.6f}",
            f"{seen:.6f}",
            abs(seen - share) < 1e-9,
        )
    rest = noise.var(ddof=1) / result.total
    seen = result.unexplained / result.total
    found.check("C", "what is left is the noise", f"{rest:.6f}", f"{seen:.6f}", abs(seen - rest) < 1e-9)
    found.numbers = {"total": result.total, "shares": result.shares}
    figure, (left, right) = new_figure(1, 2, size=(10.0, 3.8))
    draw_cells(left, slopes, {"A": a, "Y": y})
    draw_variance(right, {"planted": result})
    found.figures["planted"] = figure
    return found


def invariants(seed: int = 0) -> Findings:
    """Part D: what must hold for any model, on a random one."""
    found = Findings()
    model = untrained(seed, std=0.15)
    pairs = sentiment_words(6, seed=seed)
    vector = extract(model, pairs, "all")
    ids = model.tokenize([f"{pair.prompt} {pair.positive}" for pair in pairs])

    def holds(statement: str, passed: bool) -> None:
        found.check("D", statement, "yes", "yes" if passed else "no", passed)

    before, clean = hooks_of(model), model.logits(ids)
    try:
        with steer(model, vector, 2.0):
            raise KeyError("an error inside")
    except KeyError:
        holds("no hook survives an exception", hooks_of(model) == before)
    with steer(model, vector, 0.0):
        holds("multiplier 0 changes no bit", torch.equal(model.logits(ids), clean))
    with steer(model, vector, 1.0), steer(model, vector, 1.0):
        twice = model.logits(ids)
    with steer(model, vector, 2.0):
        holds("nested contexts add", torch.allclose(twice, model.logits(ids), atol=1e-4))
    with steer(model, vector, 4.0, positions=5):
        new = model.generate(ids.input_ids[:1], 6, stop_at_eos=False)
        whole = ids.input_ids[:1]
        for _ in range(6):
            whole = torch.cat([whole, model.logits(whole)[:, -1:].argmax(-1)], dim=1)
    holds("generation on a cache is full recomputation, token for token", torch.equal(new, whole[:, -6:]))
    rows = ["the film was", "i think the film is good and"]
    with steer(model, vector, 4.0, positions="generation"):
        together = model.generate(model.tokenize(rows), 6, stop_at_eos=False)
        alone = [model.generate(model.tokenize([row]), 6, stop_at_eos=False) for row in rows]
    holds("prompts of unequal length: a batch is its rows", torch.equal(together, torch.cat(alone)))
    items = steering_toy.sentences(pairs)
    score = steering_toy.groups(model)
    cached, full = (
        propensity_curve(model, items, vector, 2, score=score, use_prefix_cache=use, progress=False)
        for use in (True, False)
    )
    off = float(np.abs(cached.values - full.values).max())
    found.check(
        "D", "propensity on the prompt's cache is that of full passes", "< 1e-4", f"{off:.1e}", off < 1e-4
    )
    with tempfile.TemporaryDirectory() as folder:
        loaded = SteeringVector.load(vector.save(folder))
    same = all(torch.equal(loaded[layer], vector[layer]) for layer in vector.layers)
    holds("a vector that is saved and loaded is the same", same and loaded.meta == vector.meta)
    order = torch.randperm(len(pairs), generator=make_generator(seed, "order")).tolist()
    shuffled = extract(model, [pairs[i] for i in order], "all", batch_size=2)
    near = all(torch.allclose(shuffled[n], vector[n], atol=1e-5) for n in vector.layers)
    holds("batches and their order don't matter to extraction", near)
    return found


def hooks_of(model: LanguageModel) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.module.modules())


def parts_of(seed: int) -> dict[str, Callable[[], Findings]]:
    """What to run, by letter; the real model is loaded when a part first needs it."""
    import steering_smollm2 as real

    loaded: list[LanguageModel] = []

    def smollm2() -> LanguageModel:
        if not loaded:
            loaded.append(load_model("smollm2-135m"))
        return loaded[0]

    return {
        "A": lambda: steering_toy.run(seed=seed),
        "B": lambda: real.letters(smollm2(), seed=seed),
        "C": lambda: planted(seed),
        "D": lambda: invariants(seed),
        "E": lambda: real.open_ended(smollm2(), seed=seed),
        "F": lambda: real.paper_figures(smollm2(), seed=seed),
        "G": lambda: real.cost(smollm2(), seed=seed),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--which", nargs="+", choices=PARTS, default=None, help="parts to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="only C and D, in seconds")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the models, data sets and intervals (default 0)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("reproduce/steering"), help="results.json and figures"
    )
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    chosen = args.which or (["C", "D"] if args.quick else list(PARTS))
    parts = parts_of(args.seed)
    results: dict[str, dict] = {}
    everything = Findings()
    for letter in chosen:
        print(f"part {letter} ...", flush=True)
        start = time.perf_counter()
        found = parts[letter]()
        found.save_figures(args.out)
        everything.checks += found.checks
        results[letter] = {
            "seconds": round(time.perf_counter() - start, 1),
            "checks": [asdict(check) for check in found.checks],
            "numbers": found.numbers,
        }
        write_json(args.out / "results.json", results)
    print(f"\n{everything.table()}")
    passed = sum(check.passed for check in everything.checks)
    print(f"\n{passed} of {len(everything.checks)} checks passed; see {args.out}")
    return 0 if passed == len(everything.checks) else 1


if __name__ == "__main__":
    sys.exit(main())
