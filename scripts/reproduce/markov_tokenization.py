"""Reproduce on two CPU cores why transformers need tokens on Markov data.

N. Rajaraman, J. Jiao, K. Ramchandran, "An Analysis of Tokenization: Transformers under Markov Data", NeurIPS 2024
(arXiv 2404.08335). The source is their switching source: binary, the symbol `order` steps back decides.

  A  Sources (seconds). The closed forms for m-gram models against counts on two million symbols.
  B  The toy tokenizer (seconds). The closed form for blocks against the enumerated law of the blocks.
  C  Unigram models over tokens (1 min). The best loss falls with the size of the dictionary, for BPE, LZW and blocks,
     and respects the theory's bounds; a bigram model over ten BPE tokens is nearly optimal.
  D  Transformers (2 min). After 150 steps the model over characters sits at the unigram loss H(pi), over ten BPE
     tokens it is near the entropy rate; also dictionary size, order and depth.
  E  Slow, not never (3 min). In the end the model over characters learns, too: how many steps does each need to come
     within 5 % of the entropy rate?

Losses are nats per source symbol on text that was not trained on. Each check prints what was expected beside what was
measured. Everything goes to OUT: results.json, tables and figures; the transformers' runs too, so an interrupted
reproduction goes on where it stopped. Exit code 1 when a check fails.

    python scripts/reproduce/markov_tokenization.py                    # all, some ten minutes on a free core
    python scripts/reproduce/markov_tokenization.py --which D --seeds 0 1 2
    python scripts/reproduce/markov_tokenization.py --quick            # A to D, smaller, about half a minute
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checks import Check, table

from interp.core.files import write_json
from interp.core.plotting import save_figure
from interp.markov.bounds import fixed_length_loss
from interp.markov.bpe import BPETokenizer
from interp.markov.loss_plots import plot_attention, plot_runs
from interp.markov.lzw import LZWTokenizer
from interp.markov.ngram import optimal_ngram_loss
from interp.markov.sources import MarkovSource, entropy
from interp.markov.tokenizer import CharTokenizer, FixedLengthTokenizer
from interp.markov.training import TrainingConfig, train_transformer
from interp.markov.transformer import TransformerConfig, attention_patterns
from interp.markov.transformer_study import Variant, transformer_study
from interp.markov.unigram_study import UnigramStudy, unigram_study

P = Q = 0.8
# Pairs of adjacent symbols are equally frequent in the order-2 source, so chance decides which BPE merges first, and
# small dictionaries depend on it. With this text it is 00 and 11, as in the reference figures.
TEXT_SEED = 0


@dataclass
class Reproduction:
    """Where results go and what has been found."""

    out: Path
    seeds: list[int]
    slow_seeds: list[int]
    quick: bool
    checks: list[Check] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def near(self, part: str, statement: str, measured: float, expected: float, tolerance: float) -> None:
        good = abs(measured - expected) <= tolerance
        self.checks.append(Check(part, statement, f"{expected:.4f} ± {tolerance:g}", f"{measured:.4f}", good))

    def holds(self, part: str, statement: str, expected: str, measured: str, passed: bool) -> None:
        self.checks.append(Check(part, statement, expected, measured, bool(passed)))

    def table(self, name: str, frame: Any) -> None:
        frame.to_csv(self.out / f"{name}.csv", index=False)
        columns = [c for c in frame.columns if c != "frequencies"]
        rows = frame[columns].to_dict("records")
        self.tables[name] = [
            {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
            for row in rows
        ]


# -- A and B ---------------------------------------------------------------------------------------------------


def run_a(found: Reproduction) -> None:
    known = {(0.8, 0.8): (0.6931471806, 0.5004024235), (0.9, 0.9): (0.6931471806, 0.3250829734),
             (0.8, 0.3): (0.5859526183, 0.5807383352), (0.1, 0.4): (0.5004024235, 0.3946687121)}  # fmt: skip
    for (p, q), (unigram, rate) in known.items():
        source = MarkovSource.switching(2, p, q)
        off = max(abs(source.symbol_entropy() - unigram), abs(source.entropy_rate() - rate))
        seen = f"{source.symbol_entropy():.10f}, {source.entropy_rate():.10f}"
        found.holds("A", f"p {p}, q {q}: H(pi), entropy rate", f"{unigram}, {rate}", seen, off < 1e-9)
    n = 200_000 if found.quick else 2_000_000
    tolerance = 5e-4 * math.sqrt(2_000_000 / n)
    for order, p, q in ((1, 0.8, 0.3), (2, 0.8, 0.8), (3, 0.8, 0.8), (3, 0.1, 0.4)):
        source = MarkovSource.switching(order, p, q)
        x = source.sample(n, seed=1)
        losses = [optimal_ngram_loss(x, np.ones(2, np.int64), context + 1) for context in range(order + 2)]
        # The rate that this very text has: what is left is how well the closed forms predict m-gram models.
        luck = -source.log_probability(x) / n - source.entropy_rate()
        exact = [source.ngram_loss(c) + (luck if c >= order else 0) for c in range(order + 2)]
        worst = max(abs(a - b) for a, b in zip(losses, exact, strict=True))
        name = f"order {order}, p {p}, q {q}: m-gram losses on {n} symbols"
        found.holds("A", name, f"off by < {tolerance:.1e}", f"off by {worst:.1e}", worst < tolerance)


def run_b(found: Reproduction) -> None:
    for order, p, q, r, known in (
        (2, 0.8, 0.8, 4, 0.5967748020),
        (2, 0.8, 0.8, 8, 0.5485886128),
        (1, 0.8, 0.3, 5, 0.5817811918),
    ):
        source = MarkovSource.switching(order, p, q)
        blocks = itertools.product(range(2), repeat=r)
        law = np.exp([source.log_probability(np.array(block)) for block in blocks])
        enumerated, closed = float(entropy(law)) / r, fixed_length_loss(source, r)
        off = max(abs(enumerated - known), abs(closed - known))
        name = f"order {order}, p {p}, q {q}: blocks of {r}, enumerated and closed"
        found.holds("B", name, f"{known:.10f}", f"{enumerated:.10f}, {closed:.10f}", off < 1e-9)


# -- C ---------------------------------------------------------------------------------------------------------

BPE_LOSSES = {2: 0.6931, 4: 0.753, 6: 0.591, 10: 0.556, 20: 0.540, 64: 0.526, 128: 0.523}
LZW_LOSSES = {64: 0.577, 256: 0.564, 1024: 0.551, 4096: 0.536}
# An LZW dictionary of 64 tokens is learnt from some 250 symbols. Over 20 texts its loss has a standard deviation of
# 0.006 (order 2: 0.584 to 0.607), and the reference is one text: three deviations are allowed.
LZW_64_SPREAD = 0.019
LZW_LOSSES_ORDER_1 = {64: 0.557, 256: 0.545, 1024: 0.533, 4096: 0.522}


def run_c(found: Reproduction) -> None:
    sizes = {"train_symbols": 300_000, "test_symbols": 800_000}
    source = MarkovSource.switching(2, P, Q)
    bpe = unigram_study(
        source,
        [BPETokenizer(d) for d in BPE_LOSSES],
        seed=TEXT_SEED,
        **sizes | {"train_symbols": 200_000},
    )
    lzw = unigram_study(source, [LZWTokenizer(d) for d in LZW_LOSSES], seed=TEXT_SEED, **sizes)
    blocks = unigram_study(source, [FixedLengthTokenizer(r) for r in range(1, 9)], seed=TEXT_SEED, **sizes)
    lzw_1 = unigram_study(
        MarkovSource.switching(1, P, Q), [LZWTokenizer(d) for d in LZW_LOSSES], seed=TEXT_SEED, **sizes
    )
    for study, known, name, tolerance in (
        (bpe, BPE_LOSSES, "order 2, BPE", 0.012),
        (lzw, LZW_LOSSES, "order 2, LZW", 0.006),
        (lzw_1, LZW_LOSSES_ORDER_1, "order 1, LZW", 0.006),
    ):
        for row, (d, loss) in zip(study.rows, known.items(), strict=True):
            allowed = LZW_64_SPREAD if "LZW" in name and d == 64 else tolerance
            found.near("C", f"{name} {d}: best unigram loss", row.loss, loss, allowed)
    for row in blocks.rows:
        length = round(math.log2(row.vocab_size))
        exact = fixed_length_loss(source, length)
        found.near("C", f"order 2, blocks of {length}: best unigram loss", row.loss, exact, 0.003)
    for study, name in ((bpe, "BPE from 4 on"), (lzw, "LZW, order 2"), (lzw_1, "LZW, order 1")):
        losses = [row.loss for row in study.rows if row.vocab_size > 2]
        seen = " > ".join(f"{loss:.4f}" for loss in losses)
        found.holds(
            "C",
            f"{name}: falls with the dictionary",
            "monotone",
            seen,
            losses == sorted(losses, reverse=True),
        )
    for study, name in (
        (bpe, "order 2, BPE"),
        (lzw, "order 2, LZW"),
        (lzw_1, "order 1, LZW"),
        (blocks, "blocks"),
    ):
        check_bounds(found, study, name)
    bigram = next(row.bigram for row in bpe.rows if row.vocab_size == 10)
    found.near("C", "order 2, bigram model over BPE 10", bigram, 0.501, 0.002)
    both = UnigramStudy(source, [*blocks.rows, *bpe.rows, *lzw.rows])
    encoders(found, source, sizes)
    found.table("unigram", both.to_frame())
    found.table("unigram_order_1", lzw_1.to_frame())
    save_figure(both.plot(), found.out / "dictionary_sizes.png")
    shown = [row for row in both.rows if row.vocab_size in (4, 10, 16, 64, 128, 256, 1024)]
    save_figure(UnigramStudy(source, shown).plot_frequencies(), found.out / "token_frequencies.png")


def check_bounds(found: Reproduction, study: UnigramStudy, name: str) -> None:
    """Entropy rate (less three standard errors) <= loss <= bound, for each."""
    slack = 3 * study.source.loss_deviation() / math.sqrt(800_000)
    bounds = [row.bounds for row in study.rows]
    good = all(b.entropy_rate - slack <= b.loss <= min(b.upper, b.greedy_upper) for b in bounds)
    told = [b for b in bounds if math.isfinite(b.upper)]
    seen = (
        ", ".join(f"{b.loss:.3f} <= {min(b.upper, b.greedy_upper):.3f}" for b in told) or "bounds say nothing"
    )
    found.holds("C", f"{name}: between entropy rate and bounds", "all", seen, good)


def encoders(found: Reproduction, source: MarkovSource, sizes: dict[str, int]) -> None:
    """One dictionary, several encoders: a comparison, not a claim."""
    kinds = [BPETokenizer(20, encoder) for encoder in BPETokenizer.encoders]
    kinds += [LZWTokenizer(256, encoder) for encoder in LZWTokenizer.encoders]  # type: ignore[misc]
    study = unigram_study(source, kinds, seed=TEXT_SEED, **sizes)
    found.table("encoders", study.to_frame())


# -- D and E ---------------------------------------------------------------------------------------------------


def run_d(found: Reproduction) -> None:
    source = MarkovSource.switching(2, P, Q)
    training = (
        TrainingConfig(steps=60, eval_windows=20, test_symbols=60_000) if found.quick else TrainingConfig()
    )
    variants = {
        "characters": Variant(source, CharTokenizer(), training=training),
        "BPE 10": Variant(source, BPETokenizer(10), training=training),
    }
    study = transformer_study(
        variants, seeds=found.seeds, out=found.out / "runs", device="cpu", tracker="jsonl"
    )
    print(study)
    # Seeds lie at 0.505 to 0.523 after 150 steps; the unigram model over the same tokens is at 0.558.
    limit = 0.56 if found.quick else 0.535
    for characters, tokens in zip(study.runs["characters"], study.runs["BPE 10"], strict=True):
        name = f"seed {characters.seed}, step {training.steps}"
        loss = characters.loss.per_symbol
        found.holds("D", f"{name}: characters sit at H(pi) = 0.693", ">= 0.675", f"{loss:.4f}", loss >= 0.675)
        loss = tokens.loss.per_symbol
        found.holds("D", f"{name}: BPE 10 near 0.5004", f"<= {limit:.3f}", f"{loss:.4f}", loss <= limit)
    found.table("transformers", study.to_frame())
    save_figure(study.plot(), found.out / "transformers.png")
    if not found.quick:
        sweeps(found, training)


def sweeps(found: Reproduction, training: TrainingConfig) -> None:
    """Dictionary size, order of the source, depth; one seed."""
    second = MarkovSource.switching(2, P, Q)
    orders, depths = {}, {}
    for tokenizer in (CharTokenizer(), BPETokenizer(20)):
        for k in (1, 2, 3, 4):
            source = MarkovSource.switching(k, P, Q)
            orders[f"{tokenizer.name} order {k}"] = Variant(source, tokenizer, training=training)
    for tokenizer in (CharTokenizer(), BPETokenizer(10)):
        for layers in (1, 2, 4):
            model = TransformerConfig(n_layers=layers)
            depths[f"{tokenizer.name} {layers} layers"] = Variant(second, tokenizer, model, training)
    sizes = {f"BPE {d}": Variant(second, BPETokenizer(d), training=training) for d in (4, 6, 10, 20)}
    for name, x, variants in (
        ("sizes", "vocab_size", sizes),
        ("orders", "order", orders),
        ("depths", "n_layers", depths),
    ):
        study = transformer_study(variants, seeds=found.seeds[:1], out=found.out / "runs", device="cpu")
        print(study)
        found.table(f"sweep_{name}", study.to_frame())
        save_figure(study.plot(x), found.out / f"sweep_{name}.png")
        if name == "orders":
            for order in (3, 4):
                loss = study.runs[f"BPE 20 order {order}"][0].loss.per_symbol
                found.near("D", f"order {order}, BPE 20 at step {training.steps}", loss, 0.531, 0.015)


def run_e(found: Reproduction) -> None:
    source = MarkovSource.switching(2, P, Q)
    slow, fast = TrainingConfig(steps=2000), TrainingConfig(eval_every=10)
    runs = []
    for seed in found.slow_seeds:
        folder = found.out / "runs"
        options: dict[str, Any] = {"seed": seed, "device": "cpu"}
        characters = train_transformer(
            source, CharTokenizer(), training=slow, out=folder / "characters, long" / f"seed{seed}", **options
        )
        tokens = train_transformer(
            source, BPETokenizer(10), training=fast, out=folder / "BPE 10, dense" / f"seed{seed}", **options
        )
        runs += [characters, tokens]
        steps = characters.iterations_to(0.05), tokens.iterations_to(0.05)
        name = f"seed {seed}: steps to within 5 % of the entropy rate"
        found.holds("E", f"{name}, BPE 10", "<= 100", str(steps[1]), steps[1] is not None and steps[1] <= 100)
        ratio = None if None in steps else steps[0] / steps[1]  # type: ignore[operator]
        seen = f"{steps[0]} / {steps[1]}" + ("" if ratio is None else f" = {ratio:.1f}")
        found.holds("E", f"{name}, characters over BPE 10", ">= 4", seen, ratio is not None and ratio >= 4)
        loss = characters.loss.per_symbol
        found.holds(
            "E", f"seed {seed}: characters do learn, 2000 steps", "<= 0.53", f"{loss:.4f}", loss <= 0.53
        )
    save_figure(plot_runs(runs, title="Slow, not never"), found.out / "slow_not_never.png")
    text = torch.from_numpy(source.sample(256, seed=1).astype(np.int64))[None]
    model = runs[0].language_model()
    for layer in range(model.n_layers):
        pattern = attention_patterns(model, text, layer)[0, :, :32, :32]
        figure = plot_attention(pattern, title=f"Characters, layer {layer}")
        save_figure(figure, found.out / f"attention_layer_{layer}.png")


# -- Output ----------------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts: dict[str, Callable[[Reproduction], None]] = {
        "A": run_a, "B": run_b, "C": run_c, "D": run_d, "E": run_e,
    }  # fmt: skip
    parser.add_argument(
        "--which", nargs="+", choices=list(parts), default=None, help="parts to run (default: all)"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of D (default 0 1 2)")
    parser.add_argument(
        "--slow-seeds", nargs="+", type=int, default=[0], help="of E, two to three minutes each (default 0)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short form: a shorter text in A; in D one seed, 60 steps, no sweeps; no E",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("reproduce/markov_tokenization"), help="results, figures and runs"
    )
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    torch.set_num_threads(1)  # the models are too small for more
    args.out.mkdir(parents=True, exist_ok=True)
    seeds = args.seeds[:1] if args.quick else args.seeds
    found = Reproduction(args.out, seeds, args.slow_seeds, args.quick)
    seconds: dict[str, float] = {}
    for part in args.which or [name for name in parts if not (args.quick and name == "E")]:
        print(f"{part} ...", flush=True)
        start = time.perf_counter()
        parts[part](found)
        seconds[part] = round(time.perf_counter() - start, 1)
    print(f"\n{table(found.checks)}")
    checks = [asdict(check) for check in found.checks]
    write_json(args.out / "results.json", {"checks": checks, "tables": found.tables, "seconds": seconds})
    passed = sum(check.passed for check in found.checks)
    print(f"\n{passed} of {len(found.checks)} checks passed; see {args.out}")
    return 0 if passed == len(found.checks) else 1


if __name__ == "__main__":
    sys.exit(main())
