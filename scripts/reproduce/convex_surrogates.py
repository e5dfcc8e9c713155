"""Reproduce on one CPU core what low-dimensional convex surrogates can and can't do for classification.

Nueve, Kimpara, Waggoner, Finocchiaro 2024, "Trading off Consistency and Dimensionality of Convex Surrogates for
Multiclass Classification", NeurIPS (arXiv 2402.10818). The paper has theorems and no experiments; expected figures are
their closed forms, and, on draws and data, those of an independent computation.

  A  Geometry: noise thresholds, volumes of the strict and hallucination regions, linear programs against closed forms.
  B  Label distributions from Dirichlet(1): how often each embedding decodes the mode, at any noise and below alpha.
  C  Several instances: the mode of every distribution, and on frequencies the decisions of one-hot.
  D  Digits, where labels carry little noise.
  E  SmolLM2-135M: which of 256 tokens comes next, from the residual stream, through 8 outputs, 128 and 256; the
     model's own probabilities say what each decision was worth.

Each check prints expected beside measured with PASS or FAIL. Everything goes to OUT: results.json and the figures. Exit
code 1 when a check fails.

    python scripts/reproduce/convex_surrogates.py              # all, two and a half minutes of CPU
    python scripts/reproduce/convex_surrogates.py --quick      # fewer draws, points and tokens
    python scripts/reproduce/convex_surrogates.py --which A B C D   # without the language model, under a minute
"""

from __future__ import annotations

import math
import sys
from dataclasses import asdict

import numpy as np
from checks import Findings, run
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split

from classic_ml.surrogates import (
    CrossPolytopeEnsemble,
    PolytopeClassifier,
    PolytopeEmbedding,
    compare_embeddings,
    copeland_scores,
    exact_reports,
    judge_decisions,
    low_noise,
    margin_scores,
    round_robin_schedule,
)
from classic_ml.surrogates.tournament import beats_all

E = PolytopeEmbedding
ALPHA = {
    "simplex, n = 4": (E.simplex(4), 0.5),
    "cube, d = 2": (E.cube(2), 0.5),
    "cube, d = 3": (E.cube(3), 0.5),
    "cross-polytope, d = 3": (E.cross_polytope(3), 0.5),
    "permutahedron, d = 3": (E.permutahedron(3), 1 / 3),
    "permutahedron, d = 4": (E.permutahedron(4), 1 / 4),
    "pentagon": (E.polygon(5), (3 - math.sqrt(5)) / 2),
    "hexagon": (E.polygon(6), 1 / 3),
    "octagon": (E.polygon(8), 1 - 1 / math.sqrt(2)),
}
VOLUMES = {  # strict, hallucination; None: no closed form
    "square": (E.cube(2), 2 / 3, 0),
    "cube, d = 3": (E.cube(3), 1 / 3, 1 / 6),
    "cube, d = 4": (E.cube(4), 2 / 15, 1 / 2),
    "cube, d = 5": (E.cube(5), 2**5 / math.factorial(6), 0.775),
    "hexagon": (E.polygon(6), 1 / 3, 1 / 3),
    "permutahedron, d = 3": (E.permutahedron(3), 1 / 3, 1 / 3),
    "permutahedron, d = 4": (E.permutahedron(4), 1 / 16, None),
    "cross-polytope, d = 2": (E.cross_polytope(2), 2 / 3, 0),
    "cross-polytope, d = 5": (E.cross_polytope(5), 2 / 3, 0),
}
DIRICHLET = {  # agreement with the mode, expected regret
    "square": (E.cube(2), 0.835, 0.0206),
    "cube, d = 3": (E.cube(3), 0.626, 0.0477),
    "permutahedron, d = 3": (E.permutahedron(3), 0.597, 0.0752),
    "cross-polytope, d = 3": (E.cross_polytope(3), 0.783, 0.0194),
    "cross-polytope, d = 4": (E.cross_polytope(4), 0.757, 0.0170),
}


def part_a(findings: Findings) -> None:
    for name, (embedding, alpha) in ALPHA.items():
        listed = PolytopeEmbedding(embedding.vertices)
        seen = (embedding.alpha_map(), listed.alpha_map(), embedding.alpha_separation())
        findings.check(
            "A",
            f"alpha of {name}: closed form, all pairs, separation",
            f"{alpha:.9f}",
            ", ".join(f"{a:.9f}" for a in seen),
            max(abs(a - alpha) for a in seen) < 1e-9,
        )
    draws, far = (20_000, 0.02) if findings.quick else (100_000, 0.01)
    for name, (embedding, strict, hallucination) in VOLUMES.items():
        regions = embedding.volume_fractions(draws, random_state=0)
        known = [(strict, regions.strict), (hallucination, regions.hallucination)]
        findings.check(
            "A",
            f"volume of {name}: strict, hallucination",
            ", ".join("-" if share is None else f"{share:.4f}" for share, _ in known) + f" +- {far}",
            ", ".join(f"{seen:.4f}" for _, seen in known),
            all(share is None or abs(share - seen) <= far for share, seen in known),
        )
    findings.figures["cube"] = E.cube(3).plot()
    findings.figures["hexagon"] = E.permutahedron(3).plot()
    points = 50 if findings.quick else 200
    for name in ("cube, d = 3", "permutahedron, d = 3", "cross-polytope, d = 3"):
        embedding = ALPHA[name][0]
        rng = np.random.default_rng(0)
        U = embedding.draw(points, rng)
        pull = rng.uniform(0, 0.8, (points, 1))
        U = pull * embedding.transform(embedding.link(U)) + (1 - pull) * U
        margins = np.array([embedding.fibre_margin(u) for u in U])
        least = np.array([embedding.min_probability(u) for u in U])
        strict, zero = embedding.in_strict_region(U), embedding.in_hallucination_region(U)
        agree = int(((margins > 1e-8) == strict).sum()), int(((least < 1e-8) == zero).sum())
        findings.check(
            "A",
            f"{name}: linear programs agree with the closed forms, strict and hallucination",
            f"{points}, {points}",
            f"{agree[0]}, {agree[1]} ({int(strict.sum())} strict, {int(zero.sum())} hallucinating)",
            agree == (points, points),
        )


def part_b(findings: Findings) -> None:
    draws = 50_000 if findings.quick else 200_000
    far = 0.01 if findings.quick else 0.005
    for name, (embedding, agreement, regret) in DIRICHLET.items():
        n = embedding.n_classes
        P = np.random.default_rng(0).dirichlet(np.ones(n), draws)
        table = compare_embeddings(P, {name: embedding})
        seen = table.rows[1]
        findings.check(
            "B",
            f"{name}, Dirichlet(1): agreement; regret",
            f"{agreement} +- {far}; {regret:.4f} +- 0.001",
            f"{seen.mode_agreement:.4f}; {seen.regret:.4f}",
            abs(seen.mode_agreement - agreement) <= far and abs(seen.regret - regret) <= 0.001,
        )
        constant = table.rows[0]
        findings.remarks.append(
            f"{name}: certified {seen.certified:.3f}, may have probability zero {seen.may_hallucinate:.3f}; one class "
            f"for all agrees in {constant.mode_agreement:.3f} (regret {constant.regret:.3f})"
        )
        findings.numbers[f"Dirichlet {name}"] = [asdict(row) for row in table.rows]
    rng = np.random.default_rng(0)
    for name, (embedding, _) in ALPHA.items():
        n, alpha = embedding.n_classes, 0.9 * embedding.alpha_map()
        y = rng.integers(n, size=draws // 4)
        wrong = 0
        for concentration in (1.0, 0.05):
            P = low_noise(rng.dirichlet(np.full(n, concentration), len(y)), alpha, y)
            wrong += int((embedding.link(embedding.embed_distribution(P)) != y).sum())
        findings.check(
            "B", f"{name} at noise 0.9 alpha: modes lost", "0", f"{wrong} of {2 * len(y)}", wrong == 0
        )
    embedding = E.permutahedron(3)
    y = rng.integers(6, size=draws // 4)
    P = low_noise(rng.dirichlet(np.full(6, 0.3), len(y)), 0.5, y)
    lost = int((embedding.link(embedding.embed_distribution(P)) != P.argmax(1)).sum())
    findings.check(
        "B", "permutahedron, d = 3 at noise 0.5: modes lost", "some", f"{lost} of {len(y)}", lost > 0
    )


def part_c(findings: Findings) -> None:
    draws = 20_000 if findings.quick else 200_000
    for n in (6, 8):
        P = np.random.default_rng(0).dirichlet(np.ones(n), draws)
        schedule = round_robin_schedule(n)
        reports = exact_reports(P, schedule)
        scores = margin_scores(reports, schedule, n)
        wins = copeland_scores(reports, schedule, n)
        right = (scores.argmax(1) == P.argmax(1)).mean()
        findings.check(
            "C",
            f"n = {n}, {len(schedule)} instances of dimension {n // 2}: agreement; largest |phat - p|",
            "1; <= 1e-12",
            f"{right:.6f}; {np.abs(scores - P).max():.1e}",
            right == 1 and np.abs(scores - P).max() <= 1e-12,
        )
        findings.check(
            "C",
            f"n = {n}: some class beats all others",
            "1",
            f"{beats_all(wins).mean():.6f}",
            bool(beats_all(wins).all()),
        )
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(8), 2000)
    frequencies = np.array([rng.multinomial(400, p) for p in P]) / 400
    schedule = round_robin_schedule(8)
    one_hot = E.simplex(8).link(frequencies)
    # Frequencies of 400 tie exactly now and then: rounding must not decide what they leave open.
    several = margin_scores(exact_reports(frequencies, schedule), schedule, 8).round(12).argmax(1)
    findings.check(
        "C",
        "400 labels a context: decisions of one-hot and of 7 instances that differ",
        "0 of 2000",
        f"{int((one_hot != several).sum())} of 2000",
        bool((one_hot == several).all()),
    )
    ways = {
        "one-hot": (one_hot, 0.906),
        "7 instances": (several, 0.906),
        "cube, d = 3": (E.cube(3).link(E.cube(3).embed_distribution(frequencies)), 0.614),
        "cross-polytope, d = 4": (
            E.cross_polytope(4).link(E.cross_polytope(4).embed_distribution(frequencies)),
            0.730,
        ),
    }
    for name, (labels, expected) in ways.items():
        seen = judge_decisions(P, labels).mode_agreement
        findings.check(
            "C",
            f"400 labels a context, {name}: agreement",
            f"{expected} +- 0.02",
            f"{seen:.3f}",
            abs(seen - expected) <= 0.02,
        )


def part_d(findings: Findings) -> None:
    X, y = load_digits(return_X_y=True)
    train, test, y_train, y_test = train_test_split(X / 16, y, test_size=0.5, stratify=y, random_state=0)
    features = RBFSampler(gamma=0.08, n_components=800, random_state=0).fit(train)
    train, test = features.transform(train), features.transform(test)
    ridge = Ridge(alpha=1e-2)
    one_hot = PolytopeClassifier("simplex", ridge).fit(train, y_train)
    ensemble = CrossPolytopeEnsemble(ridge).fit(train, y_train)
    cross = PolytopeClassifier("cross-polytope", ridge).fit(train, y_train)
    cube = PolytopeClassifier("cube", ridge).fit(train, y_train)
    clipped = cube.embedding_.nearest(cube.predict_embedding(test).clip(0, 1))
    accuracies = {
        "one-hot": (one_hot.score(test, y_test), 0.984),
        "9 instances of dimension 5": (ensemble.score(test, y_test), 0.984),
        "cross-polytope, d = 5": (cross.score(test, y_test), 0.972),
        "4-cube, ten corners, clipped to the box": ((clipped == y_test).mean(), 0.957),
    }
    for name, (seen, expected) in accuracies.items():
        findings.check(
            "D",
            f"digits, {name}: accuracy",
            f"{expected} +- 0.008",
            f"{seen:.3f}",
            abs(seen - expected) <= 0.008,
        )
    differ = int((ensemble.predict(test) != one_hot.predict(test)).sum())
    findings.check(
        "D", "digits: predictions of one-hot and 9 instances that differ", "0", str(differ), differ == 0
    )
    findings.remarks.append(
        f"digits, 4-cube projected on the hull of its ten corners instead: {cube.score(test, y_test):.3f}; most "
        f"frequent class {np.bincount(y_test).max() / len(y_test):.3f}"
    )
    for name, probe in (("4-cube", cube), ("cross-polytope", cross)):
        certified = probe.certified(test)
        right = probe.predict(test) == y_test
        findings.remarks.append(
            f"digits, {name}: certified {certified.mean():.3f} of predictions, accuracy there "
            f"{right[certified].mean():.3f}, elsewhere {right[~certified].mean():.3f}"
        )


def part_e(findings: Findings) -> None:
    from convex_surrogates_smollm2 import next_token_probes  # transformers takes its time

    next_token_probes(findings)


def main(argv: list[str] | None = None) -> int:
    parts = {"A": part_a, "B": part_b, "C": part_c, "D": part_d, "E": part_e}
    return run(__doc__ or "", parts, "results/convex_surrogates", argv)


if __name__ == "__main__":
    sys.exit(main())
