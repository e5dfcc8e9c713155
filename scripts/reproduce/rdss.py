"""Reproduce on one CPU core what RDSS claims: one-shot, label-free picks that cover a pool and teach a learner more.

Shao et al. 2024, "Enhancing Semi-Supervised Learning via Representative and Diverse Sample Selection", NeurIPS.
The paper's own tables need CLIP features and semi-supervised training of image networks; here the pools are digits and
Gaussian mixtures, the learner is label spreading.

  A  Digits. Ten pools of 1400, budgets 10, 20 and 40: accuracy on the rows not labelled, MMD^2 and classes found, for
     RDSS at its default trade-off, alpha = 0 and 1, and every baseline. Expected figures come from an independent
     implementation with the same pools.
  B  The bandwidth: RDSS on the same pools at 0.25 to 2 times the median distance.
  C  A mixture of ten equal Gaussians: picks per component, MMD^2 against random.
  D  With and without replacement (the paper's appendix): D = (D1 - D2) / (D1 + D2) of the two criteria, alpha = m/n.

Each check prints expected beside measured with PASS or FAIL; baselines that beat RDSS are remarks below. Everything
goes to OUT: results.json and the figures. Exit code 1 when a check fails.

    python scripts/reproduce/rdss.py            # all, about a minute of CPU
    python scripts/reproduce/rdss.py --quick    # three pools, fewer baselines, a quarter of that
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from checks import Findings, run
from sklearn.datasets import load_digits

from classic_ml.selection import (
    SELECTORS,
    PoolKernel,
    RDSSSelector,
    SelectorComparison,
    compare_selectors,
    kernel_herding,
    median_bandwidth,
    mmd2,
    select_random,
)
from classic_ml.selection.comparison import Pool, rdss
from classic_ml.selection.selection_plots import plot_picks
from interp.core.plotting import COLOURS, new_figure

BUDGETS = (10, 20, 40)
SLOW = ("activeft", "usl", "herding")
POOLS = {"pool_size": 1400, "random_state": 100}
# (accuracy, MMD^2) at budgets 20 and 40.
REFERENCE = {
    "rdss": ((0.823, 0.0174), (0.902, 0.0077)),
    "alpha=1": ((0.853, 0.0085), (0.916, 0.0031)),
    "random": ((0.760, 0.0283), (0.863, 0.0149)),
    "k-center": ((0.747, 0.0349), (0.878, 0.0181)),
    "k-means": ((0.913, 0.0127), (0.946, 0.0073)),
}


def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def part_a(findings: Findings) -> None:
    X, y = digits()
    pools = 3 if findings.quick else 10
    cheap = ["random", "k-means", "k-center"]
    others = [n for n in SELECTORS if n not in cheap and not (findings.quick and n in SLOW)]
    comparison = compare_selectors(X, y, BUDGETS, others, n_repeats=pools, **POOLS)
    draws = compare_selectors(
        X, y, BUDGETS, cheap, n_repeats=pools, n_draws=2 if findings.quick else 5, **POOLS
    )
    comparison.rows += draws.rows
    table = comparison.summary()
    print(comparison)
    for name, per_budget in REFERENCE.items():
        for budget, (accuracy, discrepancy) in zip((20, 40), per_budget, strict=True):
            ours = table.loc[(name, budget)]
            tight = name in ("rdss", "alpha=1") and not findings.quick  # nothing random in them
            far, share = 0.01 if tight else 0.04, 0.2 if findings.quick else 0.1
            findings.check(
                "A",
                f"{name}, m = {budget}: accuracy; MMD^2",
                f"{accuracy:.3f} +- {far}; {discrepancy:.4f} +- {share:.0%}",
                f"{ours.accuracy:.3f}; {ours.mmd2:.4f}",
                abs(ours.accuracy - accuracy) <= far and abs(ours.mmd2 / discrepancy - 1) <= share,
            )
    _acceptance(findings, comparison, table, pools)
    findings.figures["digits"] = comparison.plot()
    findings.numbers["digits"] = table.reset_index().to_dict("records")


def _acceptance(findings: Findings, comparison: SelectorComparison, table: pd.DataFrame, pools: int) -> None:
    frame = comparison.to_frame()
    by_pool = frame.groupby(["budget", "selector", "pool"]).accuracy.mean()
    for budget, gain, wins in ((20, 0.03, 0.7), (40, 0.02, 0.8)):
        ours, chance = table.loc[("rdss", budget)], table.loc[("random", budget)]
        difference = ours.accuracy - chance.accuracy
        findings.check(
            "A", f"RDSS - random, m = {budget}", f">= {gain}", f"{difference:.3f}", difference >= gain
        )
        won = int((by_pool[budget]["rdss"] > by_pool[budget]["random"]).sum())
        findings.check(
            "A",
            f"pools where RDSS beats random, m = {budget}",
            f">= {wins * pools:g}",
            f"{won} of {pools}",
            won >= wins * pools,
        )
        none, full = table.loc[("alpha=0", budget)], table.loc[("alpha=1", budget)]
        difference = ours.accuracy - none.accuracy
        findings.check(
            "A", f"RDSS - (alpha = 0), m = {budget}", ">= 0.05", f"{difference:.3f}", difference >= 0.05
        )
        ratio = ours.mmd2 / chance.mmd2
        findings.check("A", f"MMD^2, RDSS / random, m = {budget}", "<= 0.7", f"{ratio:.2f}", ratio <= 0.7)
        order = [full.mmd2, ours.mmd2, chance.mmd2, none.mmd2]
        findings.check(
            "A",
            f"MMD^2 of alpha = 1, RDSS, random, alpha = 0, m = {budget}",
            "rising",
            ", ".join(f"{v:.4f}" for v in order),
            order == sorted(order),
        )
        fewest = int(frame[(frame.selector == "rdss") & (frame.budget == budget)].classes.min())
        findings.check(
            "A", f"classes RDSS finds in every pool, m = {budget}", "10", str(fewest), fewest == 10
        )
    for budget in BUDGETS:
        accuracy = table.xs(budget, level="budget").accuracy
        better = accuracy[accuracy > accuracy["rdss"]].sort_values(ascending=False)
        listed = ", ".join(f"{name} {value:.3f}" for name, value in better.items()) or "nobody"
        findings.remarks.append(f"m = {budget}: better than RDSS ({accuracy['rdss']:.3f}): {listed}")


def part_b(findings: Findings) -> None:
    X, y = digits()
    median = median_bandwidth(X)
    widths = {"sigma = sqrt 2, that is exp(-d^2/2)": 2**0.5} | {
        f"{f:g} x median": f * median for f in (0.25, 0.35, 0.5, 0.7, 1, 1.4, 2)
    }
    findings.check(
        "B", "median distance of all digits", "3.06823", f"{median:.5f}", abs(median - 3.06823) < 1e-5
    )

    def with_width(sigma: float):
        def select(pool: Pool, m: int, random_state: int):
            kernel = PoolKernel.from_rows(pool.X, sigma=sigma)
            return rdss()(Pool(pool.X, pool.y, kernel, kernel.potential()), m, random_state)

        return select

    selectors = {name: with_width(sigma) for name, sigma in widths.items()}
    comparison = compare_selectors(X, y, BUDGETS, selectors, n_repeats=2 if findings.quick else 10, **POOLS)
    table = comparison.summary()
    for budget, expected in ((20, 0.907), (40, 0.933)):
        seen = table.loc[("sigma = sqrt 2, that is exp(-d^2/2)", budget)].accuracy
        close = abs(seen - expected) <= (0.03 if findings.quick else 0.01)
        findings.check("B", f"exp(-d^2/2), m = {budget}: accuracy", f"{expected}", f"{seen:.3f}", close)
    figure, axes = new_figure(size=(5.6, 3.8))
    order = np.argsort(list(widths.values()))
    for colour, budget in zip(COLOURS, BUDGETS, strict=False):
        part = table.xs(budget, level="budget").iloc[order]
        axes.plot(
            np.sort(list(widths.values())) / median, part.accuracy, "o-", color=colour, label=f"m = {budget}"
        )
    axes.set(
        xlabel="sigma / median distance",
        ylabel="accuracy (label spreading)",
        xscale="log",
        title="RDSS on digits",
    )
    axes.set_xticks([0.25, 0.5, 1, 2], ["0.25", "0.5", "1", "2"])
    axes.minorticks_off()
    axes.legend()
    findings.figures["bandwidth"] = figure
    findings.numbers["bandwidth"] = table.reset_index().to_dict("records")


def part_c(findings: Findings) -> None:
    rng = np.random.default_rng(0)
    means, stds = rng.uniform(-12, 12, (10, 2)), rng.uniform(0.5, 2, 10)
    component = rng.integers(10, size=5000)
    X = means[component] + stds[component, None] * rng.standard_normal((5000, 2))
    fitted = RDSSSelector(100, alpha=0.9, sigma=2**0.5).fit(X)
    counts = np.bincount(component[fitted.indices_], minlength=10)
    findings.check(
        "C",
        "picks per component of ten",
        "7 to 13",
        f"{counts.min()} to {counts.max()}",
        bool(counts.min() >= 7 and counts.max() <= 13),
    )
    kernel = PoolKernel.from_rows(X, sigma=2**0.5)
    chance = np.mean(
        [mmd2(kernel, select_random(X, 100, random_state=s), potential=fitted.mu_) for s in range(10)]
    )
    ratio = chance / fitted.mmd2_
    findings.check(
        "C",
        "MMD^2, random / RDSS (0.0099 / 0.0012 elsewhere)",
        ">= 5",
        f"{chance:.4f} / {fitted.mmd2_:.4f} = {ratio:.1f}",
        ratio >= 5,
    )
    title = f"100 picks of 5000, MMD² {fitted.mmd2_:.4f} (random {chance:.4f})"
    findings.figures["mixture"] = plot_picks(X, fitted.indices_, component, title=title)
    findings.numbers["mixture"] = {"counts": counts.tolist(), "mmd2": fitted.mmd2_, "random": float(chance)}


def part_d(findings: Findings) -> None:
    n = 300 if findings.quick else 1000
    shares = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
    figure, axes = new_figure(size=(5.6, 3.8))
    numbers = {}
    for name, X in _planes(np.random.default_rng(0), n).items():
        kernel = PoolKernel.from_rows(X, sigma=median_bandwidth(X))
        mu = kernel.potential()
        ratios = []
        for share in shares:
            without, with_repeats = (
                kernel_herding(kernel, round(share * n), alpha=share, replacement=r, potential=mu).alpha_mmd2
                for r in (False, True)
            )
            ratios.append((without - with_repeats) / (without + with_repeats))
        numbers[name] = ratios
        axes.plot(shares, ratios, "o-", label=name)
        small, large = max(abs(r) for r in ratios[:3]), ratios[-1]
        findings.check(
            "D",
            f"{name}: |D| at m/n <= 0.05, then D at 0.8",
            "< 0.1, then more",
            f"{small:.3f}, then {large:.3f}",
            small < 0.1 and large > small,
        )
    axes.set(
        xlabel="m / n", ylabel="D = (D1 − D2) / (D1 + D2)", title=f"without against with replacement, n = {n}"
    )
    axes.legend(fontsize=8)
    findings.figures["replacement"] = figure
    findings.numbers["replacement"] = {"n": n, "m / n": shares, "D": numbers}


def _planes(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """The appendix's four distributions in the plane."""
    means = np.array([[1, 2], [-3, -5], [-5, 4], [15, 10]])
    variances = np.array([[2, 5], [1, 2], [8, 6], [4, 9]])

    def mixture(weights: list[float]) -> np.ndarray:
        which = rng.choice(4, n, p=weights)
        return means[which] + np.sqrt(variances[which]) * rng.standard_normal((n, 2))

    angle, outer = rng.uniform(0, 2 * np.pi, n), rng.random(n) < 0.5
    radius = np.where(outer, np.sqrt(rng.uniform(16, 36, n)), 0.5 * np.sqrt(rng.random(n)))
    return {
        "one large Gaussian, three small": mixture([0.95, 0.01, 0.02, 0.02]),
        "four Gaussians": mixture([0.3, 0.2, 0.15, 0.35]),
        "disc and ring": radius[:, None] * np.c_[np.cos(angle), np.sin(angle)],
        "square": rng.uniform(-10, 10, (n, 2)),
    }


def main(argv: list[str] | None = None) -> int:
    parts = {"A": part_a, "B": part_b, "C": part_c, "D": part_d}
    return run(__doc__ or "", parts, "results/rdss", argv)


if __name__ == "__main__":
    sys.exit(main())
