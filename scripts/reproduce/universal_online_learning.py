"""Reproduce on one CPU core what the universal online learner claims: one method for losses of any curvature.

Yan, Zhao, Zhou 2024, "A Simple and Optimal Approach for Universal Online Learning with Gradient Variations", NeurIPS.
The paper is a theory paper without experiments; these are small ones of its theorems, d = 5 on the unit ball. Expected
figures come from an independent prototype.

  A  Zero gradient variation: a constant linear loss. Regret must not grow with T.
  B  Strongly convex, stochastic: regret must flatten. At these T the method's constant is larger than all of gradient
     descent's regret; the growth is the claim.
  C  Linear, adversarially random: a root of T, like gradient descent.
  D  A slowly turning linear loss, on which a wrong guess of the curvature ruins gradient descent.
  E  Invariants of the weights, (P) every round and (R) at the end, over all of the above; and the bound on the whole
     regret that follows from (R) and the convex learner's own bound.
  F  Every baseline on A to D and on logistic losses: without a verdict.
  G  Bridge: online probes on activations of SmolLM2-135M (--which G alone takes a minute; the model's weights are
     converted at its first use). Does the residual stream after layer 15 tell that the next token begins a word?
     One pass, no learning rate: beside gradient descent at its theoretical rate and over a grid of fixed ones.

Each check prints expected beside measured with PASS or FAIL. Everything goes to OUT: results.json and the figures.
Exit code 1 when a check fails.

    python scripts/reproduce/universal_online_learning.py            # all, about three minutes of CPU
    python scripts/reproduce/universal_online_learning.py --quick    # fewer seeds, a shorter stream; a minute
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from checks import Findings, run
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from classic_ml.online import (
    USC,
    Domain,
    L2Ball,
    LinearLosses,
    LogisticLosses,
    Losses,
    MetaGrad,
    OneGradientLearner,
    OnlineGradientDescent,
    OnlineLearner,
    OnlineNewtonStep,
    OnlineProbe,
    OptimisticOGD,
    SquaredLosses,
    UniversalOnlineLearner,
    compare_online,
    plot_regret,
    run_online,
    sampled_variation,
)
from interp.core.plotting import COLOURS, new_figure

BALL = L2Ball(1.0, 5)
WARM_UP, COMPONENTS, STREAM = 1000, 32, 4500


class Watched(UniversalOnlineLearner):
    """Remembers the largest growth of the potential (P)."""

    worst = -np.inf

    def _learn(self, gradient: np.ndarray, played: np.ndarray) -> None:
        super()._learn(gradient, played)
        self.worst = max(self.worst, self.meta.potential_growth())


class Ledger:
    """Regrets of universal runs, and how far every one of them was from breaking an invariant."""

    def __init__(self) -> None:
        self.growth, self.meta, self.whole, self.runs = -np.inf, np.inf, np.inf, 0

    def regret(self, losses: Losses, bound: float) -> float:
        learner = Watched(BALL, len(losses), bound)
        result = run_online(learner, losses)
        self.runs += 1
        self.growth = max(self.growth, learner.worst)
        self.meta = min(self.meta, float((learner.meta_regret_bound() - learner.meta_regret()).min()))
        self.whole = min(self.whole, convex_bound(learner, result.decisions, losses) - result.regret)
        return result.regret


LEDGER = Ledger()


def convex_bound(learner: UniversalOnlineLearner, decisions: np.ndarray, losses: Losses) -> float:
    """(R) of the convex learner, and sum eta |g_t - g_{t-1}|^2 + D^2 / (2 eta_T) for what that learner loses itself."""
    g = np.array([losses.gradient(t, x) for t, x in enumerate(decisions)])
    changes = (np.diff(g, axis=0, prepend=np.zeros((1, g.shape[1]))) ** 2).sum(1)
    roots = np.sqrt(1 + np.append(0, np.cumsum(changes)[:-1]))
    D = learner.domain.diameter
    return float(learner.meta_regret_bound()[-1] + D * (changes / roots).sum() + D * roots[-1] / 2)


def constant(T: int) -> LinearLosses:
    return LinearLosses(np.tile(np.eye(5)[0], (T, 1)))


def stochastic(T: int, seed: int) -> SquaredLosses:
    return SquaredLosses(BALL.project(0.5 * np.random.default_rng(seed).normal(size=(T, 5))))


def adversarial(T: int, seed: int) -> LinearLosses:
    c = np.random.default_rng(seed).normal(size=(T, 5))
    return LinearLosses(c / np.linalg.norm(c, axis=1, keepdims=True))


def turning(T: int) -> LinearLosses:
    angle = 2 * np.pi * np.arange(1, T + 1) / T
    costs = np.zeros((T, 5))
    costs[:, 0], costs[:, 1] = np.cos(angle), np.sin(angle)
    return LinearLosses(costs)


def logistic(T: int, seed: int = 0) -> LogisticLosses:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(T, 5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    signs = np.where(rows @ [0.8, -0.4, 0.2, 0.0, 0.0] * 4 + rng.logistic(size=T) > 0, 1, -1)
    return LogisticLosses(rows, signs)


def descent(losses: Losses, bound: float, **options) -> float:
    return run_online(OnlineGradientDescent(BALL, bound, **options), losses).regret


def mean_over(seeds: int, regret: Callable[[Losses, float], float], make, T: int, bound: float) -> float:
    return float(np.mean([regret(make(T, seed), bound) for seed in range(seeds)]))


def near(findings: Findings, part: str, what: str, expected: float, measured: float) -> None:
    """A figure of the prototype, to its last printed digit."""
    close = abs(measured - expected) <= 0.06
    findings.check(part, what, f"{expected:.2f}", f"{measured:.2f}", close)


def part_a(findings: Findings) -> None:
    tuned, ours = 0.0, 1.0
    for T, expected in ((250, 4.46), (1000, 8.41), (4000, 16.32)):
        ours = LEDGER.regret(constant(T), 1.0)
        tuned = descent(constant(T), 1.0, step="horizon", horizon=T)
        findings.at_most("A", f"universal regret, T = {T} (prototype 1.06 to 1.08)", 1.5, ours)
        near(findings, "A", f"tuned gradient descent's regret, T = {T}", expected, tuned)
        findings.numbers[f"A, T = {T}"] = {"universal": ours, "tuned descent": tuned}
    findings.at_least("A", "descent / universal, T = 4000", 10, tuned / ours)


def part_b(findings: Findings) -> None:
    seeds = 2 if findings.quick else 4
    strong = partial(descent, strong_convexity=1.0)
    ways = {"universal": LEDGER.regret, "anytime descent": descent, "descent with lambda = 1": strong}
    expected = {
        "universal": (38.8, 48.5),
        "anytime descent": (14.3, 27.3),
        "descent with lambda = 1": (3.3, 3.9),
    }
    regrets = {
        name: [mean_over(seeds, way, stochastic, T, 2.0) for T in (1000, 4000)] for name, way in ways.items()
    }
    for name, (short, long) in regrets.items():
        if not findings.quick:
            for T, figure, measured in zip((1000, 4000), expected[name], (short, long), strict=True):
                near(findings, "B", f"{name}, T = {T}, mean of four seeds", figure, measured)
    growth = {name: long / short for name, (short, long) in regrets.items()}
    findings.at_most("B", "growth of the universal regret from 1000 to 4000", 1.5, growth["universal"])
    findings.at_least("B", "growth of anytime descent's", 1.6, growth["anytime descent"])
    findings.numbers["B"] = regrets


def part_c(findings: Findings) -> None:
    ours = [mean_over(3, LEDGER.regret, adversarial, T, 1.0) for T in (1000, 4000)]
    plain = mean_over(3, descent, adversarial, 4000, 1.0)
    wrong = mean_over(3, partial(descent, strong_convexity=1.0), adversarial, 4000, 1.0)
    near(findings, "C", "universal, T = 4000, mean of three seeds", 48.7, ours[1])
    near(findings, "C", "anytime descent, T = 4000", 51.9, plain)
    near(findings, "C", "descent with lambda = 1, T = 4000", 70.7, wrong)
    growth = ours[1] / ours[0]
    findings.check("C", "growth from 1000 to 4000", "1.4 to 2.6", f"{growth:.2f}", 1.4 <= growth <= 2.6)
    ratio = ours[1] / plain
    findings.check("C", "universal / descent", "within 1.5", f"{ratio:.2f}", 1 / 1.5 <= ratio <= 1.5)
    findings.check("C", "worst of the three", "lambda = 1", f"{wrong:.1f}", wrong > max(ours[1], plain))
    findings.numbers["C"] = {"universal": ours, "descent": plain, "lambda = 1": wrong}


def part_d(findings: Findings) -> None:
    losses = turning(1000)
    ours, plain = LEDGER.regret(losses, 1.0), descent(losses, 1.0)
    wrong = descent(losses, 1.0, strong_convexity=1.0)
    near(findings, "D", "universal", -994.6, ours)
    near(findings, "D", "anytime descent", -996.2, plain)
    near(findings, "D", "descent with lambda = 1", -53.8, wrong)
    findings.at_most("D", "|universal - descent|", 5, abs(ours - plain))
    findings.at_least("D", "(lambda = 1) - universal", 900, wrong - ours)
    findings.numbers["D"] = {"universal": ours, "descent": plain, "lambda = 1": wrong}


def part_e(findings: Findings) -> None:
    if LEDGER.runs == 0:
        for losses, bound in ((constant(250), 1.0), (stochastic(1000, 0), 2.0), (adversarial(1000, 0), 1.0)):
            LEDGER.regret(losses, bound)
    what = f"over {LEDGER.runs} runs"
    findings.check(
        "E",
        f"(P): largest growth of the potential in a round, {what}",
        "<= 1e-6",
        f"{LEDGER.growth:.1e}",
        LEDGER.growth <= 1e-6,
    )
    findings.check(
        "E",
        f"(R): least room below the bound, any learner, {what}",
        ">= -1e-6",
        f"{LEDGER.meta:.3f}",
        LEDGER.meta >= -1e-6,
    )
    findings.check(
        "E",
        f"least room below the bound of the whole regret, {what}",
        ">= 0",
        f"{LEDGER.whole:.3f}",
        LEDGER.whole >= 0,
    )


def everyone(bound: float, T: int) -> dict[str, OnlineLearner]:
    return {
        "universal": UniversalOnlineLearner(BALL, T, bound),
        "universal, no optimism": UniversalOnlineLearner(BALL, T, bound, optimistic=False),
        "descent, anytime": OnlineGradientDescent(BALL, bound),
        "descent, lambda = 1": OnlineGradientDescent(BALL, bound, strong_convexity=1.0),
        "optimistic descent": OptimisticOGD(BALL),
        "Newton step, alpha = 1/e": OnlineNewtonStep(BALL, bound, np.exp(-1)),
        "USC": USC(BALL, T, bound),
        "MetaGrad": MetaGrad(BALL, T, bound),
    }


def part_f(findings: Findings) -> None:
    T = 500 if findings.quick else 1000
    settings = {
        "constant": (constant(T), 1.0),
        "strongly convex": (stochastic(T, 0), 2.0),
        "adversarial": (adversarial(T, 0), 1.0),
        "turning": (turning(T), 1.0),
        "logistic": (logistic(T), 1.0),
    }
    points = BALL.project(2 * np.random.default_rng(0).normal(size=(50, 5)))
    for name, (losses, bound) in settings.items():
        comparison = compare_online(everyone(bound, T), losses)
        frame = comparison.to_frame()
        print(
            f"\n{name}, T = {T}: V_T >= {sampled_variation(losses, points):.4g} (50 points)\n{comparison}",
            flush=True,
        )
        findings.numbers[f"F, {name}"] = frame.reset_index().to_dict("records")
        findings.figures[f"regret_{name.replace(' ', '_')}"] = plot_regret(comparison.results, title=name)
        order = ", ".join(f"{n} {r:.1f}" for n, r in frame.regret.sort_values().items())
        findings.remarks.append(f"F  {name}: regret {order}")


def words_ahead(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Residual stream after layer 15 [n d], and whether the next token begins a word, over documentation of Python."""
    import interp
    from interp.activations import harvest, pack

    model = interp.load_model("smollm2-135m", n_layers=16)
    tokens = WARM_UP + (STREAM // 3 if quick else STREAM) + 400
    contexts = pack(interp.load_text("python-docs"), model, max_tokens=tokens)
    with tempfile.TemporaryDirectory() as folder:
        store = harvest(
            model, contexts, "resid_post.15", Path(folder) / "store", dtype="float32", progress=False
        )
        values, columns = store.read(None, slice(None)).numpy(), store.columns()
    ids, context = columns.token_ids.numpy(), columns.context_ids.numpy()
    begins = np.array([text[:1] in (" ", "\n") for text in (model.tokenizer.decode([int(i)]) for i in ids)])
    same = np.append(context[1:] == context[:-1], False)
    kept = same & (columns.positions.numpy() > 0)
    return values[kept].astype(float), np.append(begins[1:], False)[kept].astype(int)


def fixed_rate(rate: float) -> Callable[[Domain, int, float], OneGradientLearner]:
    return lambda domain, horizon, bound: OnlineGradientDescent(domain, bound, step=rate)


def part_g(findings: Findings) -> None:
    from interp.activations.stream import TensorStream

    X, y = words_ahead(findings.quick)
    # Directions and scales from the first rows, which no probe is judged on.
    pca = PCA(COMPONENTS, whiten=True, random_state=0).fit(X[:WARM_UP])
    Z, y = pca.transform(X[WARM_UP:]), y[WARM_UP:]
    half = len(Z) * 3 // 4
    bound = float(np.quantile(np.linalg.norm(pca.transform(X[:WARM_UP]), axis=1), 0.99))
    rates = [2.0**k for k in range(-4, 9, 2)]
    ways: dict[str, str | Callable] = {
        "universal": "universal",
        "descent, D / (G sqrt t)": "ogd",
        "optimistic descent": "optimistic_ogd",
        "MetaGrad": "metagrad",
        **{f"descent, rate {rate:g}": fixed_rate(rate) for rate in rates},
    }
    rows: dict[str, tuple[float, float, float]] = {}
    curves = {}
    for name, learner in ways.items():
        source = TensorStream(Z[:half].astype(np.float32), seed=0)
        probe = OnlineProbe(learner, feature_bound=bound, horizon=half)
        probe.fit_stream(source, lambda batch: y[batch.doc_ids.numpy()], half)
        held = log_loss(y[half:], probe.predict_proba(Z[half:]))
        rows[name] = (probe.progressive_log_loss_, held, probe.score(Z[half:], y[half:]))
        curves[name] = np.cumsum(probe.round_losses_) / np.arange(1, half + 1)
    share = y[:half].mean()
    rate_of_majority = max(y[half:].mean(), 1 - y[half:].mean())
    offline = LogisticRegression(C=1.0, max_iter=2000).fit(Z[:half], y[:half])
    rows["offline logistic regression"] = (
        float("nan"),
        log_loss(y[half:], offline.predict_proba(Z[half:])),
        offline.score(Z[half:], y[half:]),
    )
    rows["base rate"] = (
        float(-share * np.log(share) - (1 - share) * np.log(1 - share)),
        log_loss(y[half:], np.full(len(y) - half, share)),
        rate_of_majority,
    )
    print(
        f"\n{half} rows one by one, {len(Z) - half} held out, {COMPONENTS} components of the residual stream"
    )
    print(f"{'':<30}{'progressive log loss':>22}{'held-out log loss':>19}{'accuracy':>10}")
    for name, (progressive, held, accuracy) in rows.items():
        shown = f"{progressive:.4f}" if np.isfinite(progressive) else "-"
        print(f"{name:<30}{shown:>22}{held:>19.4f}{accuracy:>10.3f}", flush=True)
    ours, base = rows["universal"], rows["base rate"]
    grid = {rate: rows[f"descent, rate {rate:g}"][0] for rate in rates}
    best, worst = min(grid.values()), max(grid.values())
    findings.check(
        "G",
        "universal: progressive log loss below the base rate's",
        f"< {base[0]:.3f}",
        f"{ours[0]:.3f}",
        ours[0] < base[0],
    )
    findings.check(
        "G",
        "universal: held-out accuracy above the majority's",
        f"> {base[2]:.3f}",
        f"{ours[2]:.3f}",
        ours[2] > base[2],
    )
    findings.check(
        "G",
        "universal / best of seven fixed rates chosen afterwards, progressive log loss",
        "<= 1.25",
        f"{ours[0]:.3f} / {best:.3f} = {ours[0] / best:.2f} (worst rate {worst:.3f})",
        ours[0] <= 1.25 * best,
    )
    better = [name for name, row in rows.items() if row[0] < ours[0]]
    findings.remarks.append(f"G  lower progressive log loss than universal: {', '.join(better) or 'nobody'}")
    figure, (left, right) = new_figure(1, 2, size=(10.5, 3.8))
    shown = ("universal", "descent, D / (G sqrt t)", "optimistic descent", "MetaGrad")
    for colour, name in zip(COLOURS, shown, strict=False):
        left.plot(np.arange(1, half + 1), curves[name], color=colour, label=name)
        right.axhline(rows[name][0], color=colour)
    right.plot(rates, list(grid.values()), "o-", color="black", label="descent with a fixed rate")
    left.set(xscale="log", xlabel="rows seen", ylabel="mean log loss so far", ylim=(0, 1.5))
    right.set(xscale="log", xlabel="fixed learning rate", ylabel="progressive log loss", ylim=(0, 1.5))
    left.legend(fontsize=8)
    right.legend(fontsize=8)
    findings.figures["probe"] = figure
    findings.numbers["G"] = {
        name: [figure if np.isfinite(figure) else None for figure in row] for name, row in rows.items()
    }


def main(argv: list[str] | None = None) -> int:
    parts = {"A": part_a, "B": part_b, "C": part_c, "D": part_d, "E": part_e, "F": part_f, "G": part_g}
    return run(__doc__ or "", parts, "results/universal_online_learning", argv)


if __name__ == "__main__":
    sys.exit(main())
