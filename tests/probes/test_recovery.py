"""Known geometry must be found: trees, labels, directions and angles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.decoded_trees import read_out
from interp.probes.evaluate import evaluate_probes
from interp.probes.geometry import prototype_angles, spectrum
from interp.probes.planted import random_rotation, sums_from_root
from interp.probes.training import FittedProbes, ProbeTraining, fit_probes
from interp.probes.treebank import ROOT, DependencyTree
from interp.probes.words import WordActivations

RELATIONS = tuple("abcdef")


def distinct_trees(count: int, seed: int) -> list[DependencyTree]:
    """Random trees of 6 words in which no relation occurs twice: the distances and the directions of one
    embedding, an axis a relation, are both exact, so the polar loss can reach 0."""
    random = np.random.default_rng(seed)
    trees = []
    for _ in range(count):
        order = random.permutation(6)
        heads = np.full(6, ROOT)
        for place in range(1, 6):
            heads[order[place]] = order[random.integers(place)]
        kinds = random.permutation(RELATIONS)
        trees.append(DependencyTree(tuple("uvwxyz"), tuple(heads.tolist()), tuple(kinds.tolist())))
    return trees


def embedded(tree: DependencyTree) -> np.ndarray:
    return sums_from_root(tree, np.array([[float(r == name) for name in RELATIONS] for r in tree.relations]))


def world(
    trees: list[DependencyTree],
    *,
    rotation_seed: int = 0,
    scale: float = 1.0,
    noise: float = 0.0,
    seed: int = 0,
) -> WordActivations:
    """The embedding beside ten distractors, rotated, scaled, moved and with noise."""
    random = np.random.default_rng(seed)
    rotation = random_rotation(16, seed=rotation_seed)
    rows = []
    for tree in trees:
        x = np.concatenate([embedded(tree), random.standard_normal((6, 10))], axis=1) @ rotation
        rows.append((scale * (x + noise * random.standard_normal(x.shape)) + 3.0).astype(np.float32))
    return WordActivations.from_sentences(rows)


TRAIN, TEST = distinct_trees(200, 0), distinct_trees(60, 1)


def fit(make: Callable[[list[DependencyTree], int], WordActivations], **spec: float) -> FittedProbes:
    config = ProbeTraining(lr=1e-2, max_epochs=80, progress=False)
    return fit_probes(make(TRAIN, 0), TRAIN, [ProbeSpec(0, 6, **spec)], config)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "variant",
    [{}, {"rotation_seed": 5, "scale": 40.0}, {"scale": 0.01}],
    ids=["plain", "rotated and large", "small"],
)
def test_exact_geometry_is_recovered(variant: dict[str, float]) -> None:
    def make(trees: list[DependencyTree], seed: int) -> WordActivations:
        return world(trees, seed=seed, **variant)  # type: ignore[arg-type]

    fitted = fit(make)
    (score,) = evaluate_probes(fitted.bank, make(TEST, 1), TEST).rows
    assert (score.uuas, score.uas, score.las, score.label_accuracy) == (1.0, 1.0, 1.0, 1.0)
    (reading,) = read_out(fitted.bank, make(TEST, 1), TEST)
    angles = prototype_angles(reading).to_numpy()
    assert np.allclose(angles[~np.eye(6, dtype=bool)], 90, atol=1.5)
    assert np.allclose(np.linalg.norm(reading.prototypes, axis=1), 1, atol=0.03)  # one edge, distance one
    assert np.allclose(reading.distance_matrices()[0], TEST[0].distances(), atol=0.2)
    # Six axes of equal weight: the map uses six dimensions evenly.
    assert spectrum(fitted.bank)[2] == pytest.approx(0.5, abs=0.12)


def test_noise_costs_little() -> None:
    def make(trees: list[DependencyTree], seed: int) -> WordActivations:
        return world(trees, seed=seed, noise=0.05)

    (score,) = evaluate_probes(fit(make).bank, make(TEST, 1), TEST).rows
    assert score.las > 0.96  # 1.0 over training and test sets
    assert score.label_accuracy > 0.99


def test_the_structural_probe_finds_trees_but_no_labels() -> None:
    """Every edge goes to a random axis of its own: distances are exact, directions mean nothing."""

    def make(trees: list[DependencyTree], seed: int) -> WordActivations:
        random = np.random.default_rng(seed)
        rows = []
        for tree in trees:
            axes = np.linalg.qr(random.standard_normal((8, 6)))[0].T
            rows.append(np.concatenate([sums_from_root(tree, axes), random.standard_normal((6, 8))], axis=1))
        return WordActivations.from_sentences([row.astype(np.float32) for row in rows])

    config = ProbeTraining(lr=2e-2, max_epochs=60, progress=False)
    fitted = fit_probes(make(TRAIN, 0), TRAIN, [ProbeSpec(0, 8, angular=0.0)], config)
    (score,) = evaluate_probes(fitted.bank, make(TEST, 1), TEST).rows
    assert score.uuas == 1.0
    assert score.las < 0.3  # six relations and two directions: chance is about 0.1


def test_the_depth_probe_finds_depths_and_roots() -> None:
    # The loss is 0 at the planted map and Adam's steps of it never shrink: a small step and many trees come near it.
    train = distinct_trees(400, 2)
    config = ProbeTraining(lr=5e-3, max_epochs=80, standardize=False, progress=False)
    shifted = [world(trees, seed=seed) for trees, seed in ((train, 0), (TEST, 1))]
    # Depth is the squared norm: without standardising, the shift must be taken off by hand.
    words = [WordActivations(w.values - 3.0, w.layers, w.starts, w.kept) for w in shifted]
    fitted = fit_probes(words[0], train, [ProbeSpec(0, 6, distance=0, angular=0, depth=1)], config)
    (score,) = evaluate_probes(fitted.bank, words[1], TEST).rows
    assert score.root_accuracy == 1.0
    (reading,) = read_out(fitted.bank, words[1], TEST)
    gold = np.concatenate([tree.depths for tree in TEST])
    # The largest error is 0.04 to 0.06 over twelve seeds.
    assert np.allclose(np.concatenate(reading.depths()), gold, rtol=0, atol=0.2)


def test_a_wrong_sign_of_edges_is_noticed() -> None:
    """The planted map itself, given instead of trained, and the same with its prototypes reversed."""
    words = world(TEST, seed=1)
    bank = ProbeBank([ProbeSpec(0, 6)], 16, (0,), RELATIONS)
    with torch.no_grad():
        bank.weight.copy_(torch.from_numpy(random_rotation(16)[:6].T.copy()))
    for sign, expected in ((1, 1.0), (-1, 0.0)):
        bank.prototypes.copy_(sign * torch.eye(6))
        (score,) = evaluate_probes(bank, words, TEST).rows
        assert (score.uuas, score.uas, score.las) == (1.0, expected, expected)
