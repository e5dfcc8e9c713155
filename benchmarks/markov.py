"""How many symbols a second does one core sample from a Markov source, and encode into tokens?

Sampling, beside NumPy alone in the way that suits the switching source (its interleaved chains of order 1 as the
columns of an array, a row at a time) and in the plain way (a symbol at a time). Encoding, beside Hugging Face's
`tokenizers` with the same merges. Ways are interleaved in one process on one thread; the figure is million symbols per
CPU-second, the best of the rounds.

    python benchmarks/markov.py [--symbols 20000000] [--rounds 5] [--out benchmarks/results/markov.md]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from interp.core.device import environment
from interp.core.files import atomic_write
from interp.markov.bpe import BPETokenizer
from interp.markov.hf_tokenizers import CHUNK, HFTokenizer, as_characters
from interp.markov.lzw import LZWTokenizer
from interp.markov.sources import MarkovSource

Way = tuple[str, int, Callable[[], object]]  # what, symbols, the work


def numpy_interleaved(n: int, order: int, p: float, q: float) -> np.ndarray:
    generator = np.random.default_rng(0)
    uniform = generator.random((-(-n // order), order))
    x = np.empty(uniform.shape, np.uint8)
    x[0] = uniform[0] < p / (p + q)
    for t in range(1, len(x)):
        x[t] = np.where(x[t - 1] == 0, uniform[t] < p, uniform[t] >= q)
    return x.ravel()[:n]


def numpy_by_symbol(source: MarkovSource, n: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    uniform, context = generator.random(n), 0
    cumulative = source.transition.cumsum(1)
    x = np.empty(n, np.uint8)
    for i in range(n):
        x[i] = symbol = np.searchsorted(cumulative[context, :-1], uniform[i], side="right")
        context = (context * source.alphabet_size + symbol) % source.n_contexts
    return x


def sampling_ways(n: int) -> list[Way]:
    switching = MarkovSource.switching(2, 0.8, 0.8)
    wide = MarkovSource.random(3, 4, seed=1)
    deep = MarkovSource.switching(12, 0.8, 0.3)
    big = MarkovSource.random(1, 64, seed=1)
    return [
        ("interp, switching source of order 2", n, lambda: switching.sample(n)),
        ("interp, switching source of order 12", n, lambda: deep.sample(n)),
        ("interp, random source, 4 symbols, order 3", n, lambda: wide.sample(n)),
        ("interp, random source, 64 symbols, order 1", n, lambda: big.sample(n)),
        (
            "NumPy, the two interleaved chains, order 2",
            400_000,
            lambda: numpy_interleaved(400_000, 2, 0.8, 0.8),
        ),
        ("NumPy, 10,000 independent strings at once", n, lambda: numpy_interleaved(n, 10_000, 0.8, 0.8)),
        ("NumPy, a symbol at a time", 200_000, lambda: numpy_by_symbol(switching, 200_000)),
    ]


def encoding_ways() -> list[Way]:
    source = MarkovSource.switching(2, 0.8, 0.8)
    train, n = source.sample(100_000, 1), 1_000_000
    x = source.sample(n, 2)
    bpe, lzw = BPETokenizer(64).fit(train), LZWTokenizer(1024).fit(train)
    likeliest = LZWTokenizer(1024, "likelihood").fit(train)
    theirs = HFTokenizer("bpe", 64).fit(train)
    text = as_characters(x)
    chunks = [text[i : i + CHUNK] for i in range(0, n, CHUNK)]
    return [
        ("interp, BPE 64, merges", n, lambda: bpe.encode(x)),
        ("tokenizers, BPE 64, chunks of 512", n, lambda: [theirs.hf_.encode(chunk) for chunk in chunks]),
        ("interp, LZW 1024, greedy", n, lambda: lzw.encode(x)),
        ("interp, LZW 1024, likelihood", n, lambda: likeliest.encode(x)),
    ]


def best_rates(ways: list[Way], rounds: int) -> dict[str, float]:
    """Million symbols per CPU-second."""
    best = dict.fromkeys((name for name, _, _ in ways), 0.0)
    for _, _, work in ways:
        work()  # compile
    for _ in range(rounds):
        for name, symbols, work in ways:
            start = time.process_time()
            work()
            best[name] = max(best[name], symbols / (time.process_time() - start) / 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--symbols", type=int, default=20_000_000, help="to sample in one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None, help="also write the table there")
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    facts = environment()
    lines = ["# Sampling and encoding, million symbols per CPU-second of one core", ""]
    for title, ways in (("sampling", sampling_ways(options.symbols)), ("encoding", encoding_ways())):
        lines += [f"| {title} | M symbols/s |", "|---|---|"]
        lines += [f"| {name} | {rate:.1f} |" for name, rate in best_rates(ways, options.rounds).items()] + [
            ""
        ]
    versions = ", ".join(f"{name} {facts['versions'][name]}" for name in ("numpy", "numba", "torch"))
    load = (
        f"load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
        if hasattr(os, "getloadavg")
        else ""
    )
    lines += [
        f"{facts['platform']}, Python {facts['python']}, {versions}; {load}: CPU time, not the clock, is measured."
    ]
    lines += [f"Command: `python {' '.join(sys.argv)}`."]
    print("\n".join(lines))
    if options.out is not None:
        with atomic_write(options.out) as temporary:
            temporary.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
