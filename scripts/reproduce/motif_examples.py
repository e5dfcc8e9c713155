"""The exact parts of motif_influence.py: worked examples, both directions of sampling, the theorems on small graphs."""

from __future__ import annotations

import itertools

import numpy as np
from checks import Findings

from classic_ml.influence import (
    LinearThresholdGraph,
    Motif,
    brute_force,
    estimate_bounds,
    estimate_motif_influence,
    exact_motif_influence,
    exact_spread,
    sample_motif_rr,
)
from classic_ml.influence.exact import OBJECTIVES, exact_values
from classic_ml.influence.motifs import MotifTable

THIRD = 1 / 3


def given(edges: dict[tuple[int, int], float]) -> LinearThresholdGraph:
    sources, targets = zip(*edges, strict=True)
    return LinearThresholdGraph.from_edges(sources, targets, list(edges.values()), scheme="given")


A = given({(0, 1): 0.25, (1, 0): 0.25}), [Motif((0, 1), 2)]
B = (
    given(
        {
            (0, 1): 0.5,
            (2, 1): 0.5,
            (1, 0): 0.5,
            (1, 2): 0.5,
            (3, 2): 0.25,
            (2, 3): THIRD,
            (4, 3): THIRD,
            (3, 4): 0.5,
        }
    ),
    [Motif((1, 2), 2), Motif((2, 3), 2), Motif((3, 4), 1)],
)
C = given({(0, 1): 0.5, (0, 2): 0.5, (1, 2): 0.25, (2, 1): 0.25}), [Motif((1, 2), 2)]
D = (
    given(
        {(0, v): 0.5 for v in (1, 2, 3, 4)}
        | dict.fromkeys(itertools.permutations((5, 6, 7), 2), THIRD)
        | {(8, 5): THIRD}
    ),
    [Motif((5, 6, 7), 3), Motif((5, 6), 2), Motif((1, 2), 2)],
)
NAMES = ("spread", "influence", "lower_tree", "lower_seed", "upper_min", "upper_any")
EXAMPLES = (
    ("A", A, (0,), (None, 1 / 4, None, None, 5 / 8, 1)),
    ("A", A, (1,), (None, 1 / 4, None, None, None, None)),
    ("A", A, (0, 1), (None, 1, None, 7 / 16, None, None)),
    ("B", B, (0,), (15 / 8, 5 / 12, 5 / 12, 5 / 12, 5 / 8, 5 / 6)),
    ("B", B, (2,), (9 / 4, 7 / 6, 7 / 6, 7 / 6, 7 / 4, 7 / 3)),
    ("B", B, (4,), (71 / 48, 9 / 8, 9 / 8, 9 / 8, 61 / 48, 17 / 12)),
    ("B", B, (0, 4), (79 / 24, 19 / 12, 35 / 24, 35 / 24, 29 / 16, 49 / 24)),
    ("B", B, (1, 3), (15 / 4, 5 / 2, 49 / 24, 49 / 24, 11 / 4, 3)),
    ("C", C, (0,), (None, 1 / 2, 1 / 4, 1 / 2, None, None)),
    ("C", C, (0, 1), (None, 3 / 4, 3 / 8, 5 / 8, 7 / 8, 1)),
    ("D", D, (0,), (3, 1 / 4, None, None, None, None)),
    ("D", D, (5,), (None, 7 / 9, None, None, None, None)),
    ("D", D, (0, 5), (44 / 9, 37 / 36, None, None, None, None)),
    ("D", D, (5, 6), (None, 5 / 3, 29 / 27, 11 / 9, None, None)),
    ("D", D, (1, 5), (None, 7 / 9, None, None, None, 3)),
)
BEST = (
    ("B", B, 2, {name: ([1, 3], None) for name in OBJECTIVES}),
    ("D", D, 1, {"spread": ([0], 3), "influence": ([5], 7 / 9)}),
    (
        "D",
        D,
        2,
        {
            "spread": ([0, 5], 44 / 9),
            "influence": ([5, 6], 5 / 3),
            "lower_seed": ([5, 6], 11 / 9),
            "lower_tree": ([5, 6], 29 / 27),
            "upper_any": ([1, 5], 3),
        },
    ),
)


def part_a(findings: Findings) -> None:
    for name, (graph, motifs), seeds, expected in EXAMPLES:
        exact = exact_motif_influence(graph, motifs, seeds)
        seen = {"spread": exact_spread(graph, seeds)} | {n: getattr(exact, n).mean for n in NAMES[1:]}
        wanted = {n: value for n, value in zip(NAMES, expected, strict=True) if value is not None}
        findings.check(
            "A",
            f"example {name}, seeds {seeds}: {', '.join(wanted)}",
            ", ".join(f"{value:.6f}" for value in wanted.values()),
            ", ".join(f"{seen[n]:.6f}" for n in wanted),
            all(abs(seen[n] - value) < 1e-12 for n, value in wanted.items()),
        )
    for name, (graph, motifs), k, expected in BEST:
        for objective, (seeds, value) in expected.items():
            found, best = brute_force(graph, motifs, k, objective)
            right = found == seeds and (value is None or abs(best - value) < 1e-12)
            findings.check(
                "A", f"example {name}, best {k} by {objective}", f"{seeds}", f"{found}, {best:.4f}", right
            )


def part_b(findings: Findings) -> None:
    graph, motifs = B
    bounds = estimate_bounds(graph, motifs, [1, 3], 200_000, random_state=0)
    for name, value in (("influence", 5 / 2), ("lower_seed", 49 / 24), ("upper_any", 3.0)):
        seen = getattr(bounds, name).mean
        findings.check(
            "B",
            f"200,000 reverse samples, {name} of {{1, 3}}",
            f"{value:.3f} +- .01",
            f"{seen:.3f}",
            abs(seen - value) <= 0.01,
        )
    forward = estimate_motif_influence(graph, motifs, [1, 3], 50_000, method="forward", random_state=0).mean
    findings.check(
        "B",
        "50,000 forward runs, influence of {1, 3}",
        "2.500 +- .012",
        f"{forward:.3f}",
        abs(forward - 2.5) <= 0.012,
    )
    graph, motifs = C
    shared = estimate_motif_influence(graph, motifs, [0], 200_000, random_state=0).mean
    findings.check(
        "B",
        "example C, seed 0: live edges shared by a motif's members",
        "0.500 +- .01",
        f"{shared:.3f}",
        abs(shared - 0.5) <= 0.01,
    )
    rows = sample_motif_rr(graph, motifs, 200_000, "exact", random_state=0)
    hit = np.add.reduceat(rows.nodes == 0, rows.row_ptr[:-1], dtype=int).reshape(-1, 2) > 0
    apart = float((hit[:, 0] & np.roll(hit[:, 1], 1)).mean())  # the second member's chain from another sample
    findings.check(
        "B",
        "the wrong version, a draw of its own for each member",
        "0.391 +- .01",
        f"{apart:.3f}",
        abs(apart - 25 / 64) <= 0.01,
    )


def part_c(findings: Findings) -> None:
    sets = [np.array([v for v in range(6) if mask >> v & 1], dtype=int) for mask in range(64)]
    small, large = np.array([(a, b) for a in range(64) for b in range(64) if a & b == a]).T
    order = monotone = submodular = True
    broken = {"sub": 0, "super": 0}
    rng = np.random.default_rng(0)
    for _ in range(50):
        edges = {}
        for v in range(6):
            parents = rng.permutation([u for u in range(6) if u != v])[:2]
            shares = rng.dirichlet(np.ones(3))
            edges |= {(int(u), v): float(w) for u, w in zip(parents, shares, strict=False)}
        groups = [tuple(rng.choice(6, size, replace=False).tolist()) for size in rng.integers(2, 5, 3)]
        motifs = [Motif(group, int(rng.integers(1, len(group) + 1))) for group in groups]
        graph = given(edges)
        value = exact_values(graph, MotifTable.build(graph, motifs), sets, "lt")
        order &= bool((np.diff(value[:, :5], axis=1) >= -1e-12).all())
        for v in range(6):
            gain = value[np.arange(64) | 1 << v] - value
            monotone &= bool((gain >= -1e-12).all())
            excess = (gain[small] - gain[large])[(large >> v & 1) == 0]
            submodular &= bool((excess[:, [0, 1, 3, 4]] >= -1e-12).all())
            broken["sub"] += int((excess[:, 2] < -1e-9).sum())
            broken["super"] += int((excess[:, 2] > 1e-9).sum())
    findings.check(
        "C",
        "L_tree <= L_seed <= f <= U_min <= U_any, all 64 sets of 50 graphs",
        "yes",
        "yes" if order else "no",
        order,
    )
    findings.check("C", "all monotone", "yes", "yes" if monotone else "no", monotone)
    findings.check(
        "C", "all four bounds submodular, all nested pairs", "yes", "yes" if submodular else "no", submodular
    )
    findings.check(
        "C", "nested pairs where f is not submodular", "> 0", f"{broken['sub']:,}", broken["sub"] > 0
    )
    findings.check(
        "C", "nested pairs where f is not supermodular", "> 0", f"{broken['super']:,}", broken["super"] > 0
    )
