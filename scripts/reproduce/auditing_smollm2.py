"""Part E of auditing_explanations.py: attribution-based explanations of probes on SmolLM2 activations.

The probes say whether a token begins a word, from the residual stream after layer 15 (standardised); one is linear, one
a network of 32 hidden units. Explanations are sign(f(x) + grad f(x) . (z - x)), whole or only at the ten coordinates of
the largest |gradient * x|, in a ball around x that holds a given share of the probe's training rows, which the auditor
does not use. Baselines in the same balls: the constant f(x), and the gradient with its coordinates shuffled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from checks import Findings
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neural_network import MLPClassifier

from classic_ml.auditing import (
    AuditReport,
    BallRegion,
    ConstantModel,
    ExplanationAuditor,
    LinearModel,
    LocalExplanation,
    gradient_explainer,
)
from classic_ml.auditing.explainers import Explainer, Radius
from interp.activations import harvest, load_text, pack
from interp.models.loading import load_model

SITE, N_TRAIN, N_QUERIES = "resid_post.15", 1200, 3600
RATES = {"eps1": 0.5, "eps2": 0.1, "gamma": 0.3, "delta": 0.1}
SHARES = (0.5, 0.2, 0.05, 0.01)


@dataclass(frozen=True)
class Probe:
    """decision: Z [n, d] -> [n]; gradient: x [d] -> [d]."""

    decision: Callable[[Any], Any]
    gradient: Callable[[Any], Any]

    def labels(self, Z: Any) -> Any:
        return np.where(self.decision(Z) >= 0, 1, -1)


def tokens_and_activations(out: Path, n_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardised rows [n, d] in random order, and whether their tokens begin a word [n] (1 or -1)."""
    model = load_model("smollm2-135m", n_layers=16)
    contexts = pack(load_text("python-docs"), model, max_tokens=n_tokens)
    store = harvest(model, contexts, SITE, out / "store", dtype="float32", progress=False)
    columns = store.columns()
    kept = np.flatnonzero((columns.positions > 0).numpy())
    rows = store.read(None, slice(None)).numpy()[kept].astype(np.float64)
    texts = model.tokenizer.convert_ids_to_tokens(columns.token_ids.numpy()[kept].tolist())
    begins = np.array([1 if text.startswith("Ġ") else -1 for text in texts])
    order = np.random.default_rng(0).permutation(len(rows))
    rows, begins = rows[order], begins[order]
    return (rows - rows.mean(0)) / rows.std(0), begins


def linear_probe(X: np.ndarray, y: np.ndarray) -> Probe:
    fit = LogisticRegression(C=0.01, max_iter=2000).fit(X, y)
    return Probe(fit.decision_function, lambda x: fit.coef_[0])


def network_probe(X: np.ndarray, y: np.ndarray, n_hidden: int = 32) -> Probe:
    fit = MLPClassifier((n_hidden,), alpha=1.0, max_iter=300, random_state=0).fit(X, y)
    (W1, W2), (b1, b2) = fit.coefs_, fit.intercepts_
    return Probe(
        lambda Z: np.maximum(Z @ W1 + b1, 0) @ W2[:, 0] + b2[0],
        lambda x: W1 @ (((x @ W1 + b1) > 0) * W2[:, 0]),
    )


class Radii:
    """Of balls around the queries [q, d] that hold a share of `rows` [n, d]."""

    def __init__(self, queries: np.ndarray, rows: np.ndarray) -> None:
        self._rank = {x.tobytes(): i for i, x in enumerate(queries)}
        self._distances = np.sort(euclidean_distances(queries, rows), axis=1)

    def with_share(self, share: float) -> Radius:
        column = max(1, round(share * self._distances.shape[1])) - 1
        return lambda x: float(self._distances[self._rank[x.tobytes()], column])


def explainers(probe: Probe, radius: Radius, seed: int = 0) -> dict[str, Explainer]:
    rng = np.random.default_rng(seed)

    def constant(x: Any) -> LocalExplanation:
        return LocalExplanation(BallRegion(x, radius(x)), ConstantModel(int(probe.labels(x[None])[0])))  # type: ignore[operator]

    def shuffled(x: Any) -> LocalExplanation:
        slope = rng.permutation(probe.gradient(x))
        model = LinearModel(slope, float(probe.decision(x[None])[0] - slope @ x))
        return LocalExplanation(BallRegion(x, radius(x)), model)  # type: ignore[operator]

    return {
        "gradient": gradient_explainer(probe.decision, probe.gradient, radius),
        "gradient, top 10": gradient_explainer(probe.decision, probe.gradient, radius, n_features=10),
        "constant f(x)": constant,
        "gradient, shuffled": shuffled,
    }


def audits(probe: Probe, queries: np.ndarray, radius: Radius) -> dict[str, AuditReport]:
    f = probe.labels(queries)
    return {
        name: ExplanationAuditor(**RATES, n_audit=738, random_state=0).audit(queries, f, explain)
        for name, explain in explainers(probe, radius).items()
    }


def line(probe: str, share: float, name: str, report: AuditReport) -> str:
    estimate = f"{report.estimate:.3f}" if report.decided_by else "  -  "
    return (
        f"{probe:<8} {share:<5g} {report.locality_quantiles[1]:<8.3g} {name:<19} {estimate}  {report.interval!s:<17} "
        f"{report.mean_local_loss:.3f}  {report.decided_by or 'open':<12} {report.relation} {report.n_required:,}"
    )


HEADER = "probe    ball  mass     explanation         L_0.3  interval          mean   decided by   simple audit needs"


def part_e(findings: Findings) -> None:
    n_train, n_queries = (600, 1800) if findings.quick else (N_TRAIN, N_QUERIES)
    X, y = tokens_and_activations(findings.out, round(1.02 * (n_train + n_queries)))
    train, queries = X[:n_train], X[n_train : n_train + n_queries]
    probes = {"linear": linear_probe(train, y[:n_train]), "network": network_probe(train, y[:n_train])}
    truth = y[n_train : n_train + n_queries]
    print(HEADER)
    radii = Radii(queries, train)
    reports: dict[tuple[str, float, str], AuditReport] = {}
    for label, probe in probes.items():
        accuracy = float((probe.labels(queries) == truth).mean())
        base = max(float((truth == 1).mean()), float((truth == -1).mean()))
        findings.remarks.append(
            f"{label} probe: accuracy {accuracy:.3f} on {len(truth):,} held-out tokens, majority {base:.3f}"
        )
        for share in SHARES:
            for name, report in audits(probe, queries, radii.with_share(share)).items():
                reports[label, share, name] = report
                print(line(label, share, name, report), flush=True)
    exact = [reports["linear", share, "gradient"] for share in SHARES]
    findings.check(
        "E",
        "a linear probe's gradient: largest mean local loss",
        "0",
        f"{max(r.mean_local_loss for r in exact):g}",
        max(r.mean_local_loss for r in exact) == 0,
    )
    wide = reports["network", 0.5, "gradient"], reports["network", 0.5, "gradient, shuffled"]
    findings.check(
        "E",
        "half of the data in a ball: a shuffled gradient is found wrong",
        "surely more often",
        f"{wide[1].interval} against {wide[0].interval}",
        wide[1].interval.low > wide[0].interval.high,
    )
    every = min(r.self_agreement for r in reports.values())
    findings.check(
        "E", "g(x) = f(x) at the explained points, all explanations", "1", f"{every:g}", every == 1
    )
    # "at least" is a lower bound, made where regions hold too few points to measure: no law of growth holds for it.
    advice = {share: reports["network", share, "gradient"] for share in SHARES}
    measured = {share: r.plan.n_reference for share, r in advice.items() if r.relation == "about"}
    pairs = list(itertools.pairwise(measured.items()))
    findings.check(
        "E",
        f"reference points needed by balls of {', '.join(f'{share:g}' for share in measured)} of the data",
        "as 1 / mass, within 2",
        ", ".join(f"{n:,}" for n in measured.values()),
        len(pairs) >= 2 and all(0.5 < (n / m) / (a / b) < 2 for (a, m), (b, n) in pairs),
    )
    findings.remarks += [
        f"balls of {share:g}: too few points to measure their mass; at least {r.plan.n_reference:,} reference points"
        for share, r in advice.items()
        if r.relation == "at least"
    ]
    findings.figures["smollm2"] = reports["network", 0.2, "gradient, top 10"].plot()
    findings.numbers["smollm2"] = [
        {
            "probe": probe,
            "share": share,
            "explanation": name,
            "estimate": r.estimate if r.decided_by else None,
            "interval": list(r.interval),
            "mean_local_loss": r.mean_local_loss,
            "decided_by": r.decided_by,
            "n_required": r.n_required,
            "relation": r.relation,
        }
        for (probe, share, name), r in reports.items()
    ]
