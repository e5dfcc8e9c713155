"""What a round of online learning costs, how it grows, and what compiled loops save against the method in NumPy.

  universal    1,000 rounds over the horizon T, the dimension d, and the kind of domain
  baselines    1,000 rounds at T = 1000, d = 5 (USC asks for 24 gradients a round, the others for one)
  plain NumPy  the universal learner as it is written down, one learner after the other (tests/.../reference.py)

Losses are squared distances to random targets in the unit ball. Times are CPU seconds of one thread, the best of ROUNDS
runs after one that compiles; exponents are the slopes of log time against log size over the listed sizes. No library
has the method: there is no peer to run beside it.

  OMP_NUM_THREADS=1 python benchmarks/online.py --out benchmarks/results/online
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from classic_ml.online import (
    USC,
    Box,
    Domain,
    L2Ball,
    MetaGrad,
    OnlineGradientDescent,
    OnlineLearner,
    OnlineNewtonStep,
    OptimisticOGD,
    Simplex,
    UniversalOnlineLearner,
)
from interp.core.files import atomic_write, write_json
from tests.classic_ml.online.reference import PlainUniversal

BOUND = 3.0


def targets(n: int, d: int) -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(n, d))
    return 0.5 * rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))


def seconds(make: Callable[[], OnlineLearner], d: int, rounds: int, repeats: int) -> float:
    """CPU seconds of 1,000 rounds, from the best of `repeats` times `rounds` rounds."""
    b = targets(rounds, d)
    best = np.inf
    for _ in range(repeats + 1):
        learner = make()
        start = time.process_time()
        for t in range(rounds):
            x = learner.predict()
            if isinstance(learner, USC):
                learner.observe(lambda x, t=t: x - b[t])
            else:
                learner.update(x - b[t])  # type: ignore[attr-defined]
        best = min(best, time.process_time() - start)
    return best * 1000 / rounds


def exponent(sizes: list[int], times: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def universal(domain: Domain, horizon: int) -> Callable[[], OnlineLearner]:
    return lambda: UniversalOnlineLearner(domain, horizon, BOUND)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    options = parser.parse_args(argv)
    n, lines = options.repeats, []

    def report(what: str, grows: str, sizes: list[int], times: list[float]) -> None:
        slope = f"{exponent(sizes, times):.2f}" if len(sizes) > 1 else ""
        shown = ", ".join(f"{s}: {t:.3f}" for s, t in zip(sizes, times, strict=True))
        print(f"{what:<34}{grows:<10}{shown}   {slope}", flush=True)
        lines.append({"what": what, "grows": grows, "sizes": sizes, "seconds": times, "exponent": slope})

    ball = L2Ball(1.0, 5)
    horizons = [1000, 10_000, 100_000, 1_000_000]
    report(
        "universal, ball, d = 5", "T", horizons, [seconds(universal(ball, T), 5, 1000, n) for T in horizons]
    )
    widths = [5, 10, 20, 50, 100]
    report(
        "universal, ball, T = 1000",
        "d",
        widths,
        [
            seconds(universal(L2Ball(1.0, d), 1000), d, 1000 if d <= 20 else 100, n if d <= 20 else 2)
            for d in widths
        ],
    )
    others: dict[str, Domain] = {"box": Box(np.full(5, -0.4), np.full(5, 0.4)), "simplex": Simplex(5)}
    for name, domain in others.items():
        report(f"universal, {name}, T = 1000", "d", [5], [seconds(universal(domain, 1000), 5, 100, 2)])
    baselines: dict[str, Callable[[], OnlineLearner]] = {
        "gradient descent": lambda: OnlineGradientDescent(ball, BOUND),
        "optimistic gradient descent": lambda: OptimisticOGD(ball),
        "Newton step": lambda: OnlineNewtonStep(ball, BOUND, 0.1),
        "MetaGrad": lambda: MetaGrad(ball, 1000, BOUND),
        "USC, 24 gradients": lambda: USC(ball, 1000, BOUND),
        "universal in plain NumPy": lambda: PlainUniversal(np.zeros(5), 1.0, 1000, BOUND),  # type: ignore[dict-item, return-value]
    }
    for name, make in baselines.items():
        slow = name.startswith(("USC", "universal in"))
        report(name, "d", [5], [seconds(make, 5, 100 if slow else 1000, 1 if slow else n)])
    if options.out:
        facts = {
            "processor": cpu_name(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "numba": numba.__version__,
            "load_average": os.getloadavg()[0],
            "repeats": n,
        }
        write_json(options.out.with_suffix(".json"), {"environment": facts, "lines": lines})
        with atomic_write(options.out.with_suffix(".md")) as path:
            Path(path).write_text(markdown(facts, lines))


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [r.split(":")[1].strip() for r in info.read_text().splitlines() if r.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor()


def markdown(facts: dict[str, Any], lines: list[dict[str, Any]]) -> str:
    head = f"""# Online learning: CPU seconds of 1,000 rounds

{facts["processor"]}, one thread; Python {facts["python"]}, numpy {facts["numpy"]},
scipy {facts["scipy"]}, numba {facts["numba"]}.
Load average {facts["load_average"]:.0f} on two cores; best of {facts["repeats"]} runs. Command:
`OMP_NUM_THREADS=1 python benchmarks/online.py --out benchmarks/results/online`

| way | grows | CPU s per 1,000 rounds | exponent |
|---|---|---|---|
"""
    rows = [
        f"| {x['what']} | {x['grows']} | "
        + ", ".join(f"{s}: {t:.3f}" for s, t in zip(x["sizes"], x["seconds"], strict=True))
        + f" | {x['exponent']} |"
        for x in lines
    ]
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
