"""Losses against formulas written out sentence by sentence, their invariances and their gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.probes.grammar import ControlledGrammar
from interp.probes.losses import (
    angular_loss,
    root_loss,
    squared_distances,
    structural_depth_loss,
    structural_distance_loss,
)
from interp.probes.tree_data import SentenceBatch, TreeData
from interp.probes.treebank import relation_types

TREES = ControlledGrammar().sample(12, seed=0)
DATA = TreeData(TREES, relation_types(TREES))
BATCH: SentenceBatch = DATA.batch(torch.tensor([3, 0, 7, 8]))
SENTENCES = sorted((3, 0, 7, 8), key=lambda i: len(TREES[i]))  # as a batch has them
PAIRS = BATCH.mask[:, :, None] & BATCH.mask[:, None, :]
DISTANCES = torch.zeros(PAIRS.shape, dtype=torch.float64)
DISTANCES[PAIRS] = BATCH.distances.double()
DEPTHS = BATCH.depths[BATCH.padded] * BATCH.mask


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_batch_holds_its_sentences() -> None:
    sentences = [TREES[i] for i in SENTENCES]
    assert BATCH.lengths.tolist() == BATCH.mask.sum(1).tolist() == [len(tree) for tree in sentences]
    first = cell = 0
    for row, tree in enumerate(sentences):
        n = len(tree)
        assert np.array_equal(BATCH.distances[cell : cell + n * n].view(n, n), tree.distances())
        assert np.array_equal(BATCH.depths[first : first + n], tree.depths)
        assert BATCH.padded[row, :n].tolist() == list(range(first, first + n))
        assert int(BATCH.roots[row]) == first + tree.root
        first, cell = first + n, cell + n * n
    assert (first, cell) == (len(BATCH.words), len(BATCH.distances))
    words = BATCH.dependents
    found = {
        (int(h), int(w), DATA.relations[t])
        for h, w, t in zip(BATCH.heads[words], words, BATCH.types[words].tolist(), strict=True)
    }
    assert BATCH.types[BATCH.roots].tolist() == [-1] * 4
    starts = np.cumsum([0, *(len(tree) for tree in sentences)])
    expected = {
        (h + s, w + s, r) for s, tree in zip(starts, sentences, strict=False) for h, w, r in tree.edges()
    }
    assert found == expected


def test_squared_distances() -> None:
    z = random(3, 5, 4)
    assert torch.allclose(squared_distances(z), (z[:, :, None] - z[:, None]).square().sum(-1))
    same = torch.full((4, 3), 1e4)
    assert float(squared_distances(same).min()) == 0.0


def test_distance_loss_written_out() -> None:
    z = random(2, 4, BATCH.mask.shape[1], 6)
    loss = structural_distance_loss(z, DISTANCES, BATCH.mask)
    for probe in range(2):
        expected = 0.0
        for row, index in enumerate(SENTENCES):
            tree, n = TREES[index], len(TREES[index])
            gold, total = tree.distances(), 0.0
            for i in range(n):
                for j in range(n):
                    total += abs(gold[i, j] - float((z[probe, row, i] - z[probe, row, j]).square().sum()))
            expected += total / n**2 / 4
        assert loss[probe].item() == pytest.approx(expected, rel=1e-12)


def test_depth_loss_written_out() -> None:
    z = random(4, BATCH.mask.shape[1], 6)
    expected = np.mean(
        [
            np.abs(TREES[index].depths - z[row, : len(TREES[index])].square().sum(-1).numpy()).mean()
            for row, index in enumerate(SENTENCES)
        ]
    )
    assert structural_depth_loss(z, DEPTHS.double(), BATCH.mask).item() == pytest.approx(expected)


def direct_angular(edges: Tensor, types: Tensor) -> Tensor:
    unit = edges / edges.norm(dim=-1, keepdim=True)
    same = (types[:, None] == types[None]).to(edges)
    return (unit @ unit.T - same).square().mean()


@pytest.mark.parametrize(("m", "k"), [(40, 5), (3, 8), (1, 2)])
def test_angular_loss_is_the_mean_over_all_pairs(m: int, k: int) -> None:
    edges = random(m, k).requires_grad_()
    types = torch.arange(m) % 3
    loss, expected = angular_loss(edges, types), direct_angular(edges, types)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-13)
    (gradient,), (wanted,) = torch.autograd.grad(loss, edges), torch.autograd.grad(expected, edges)
    assert torch.allclose(gradient, wanted, atol=1e-13)


def test_angular_loss_closed_forms() -> None:
    axes = torch.eye(3, dtype=torch.float64)
    types = torch.tensor([0, 1, 2])
    assert angular_loss(axes * torch.tensor([[1.0], [2.0], [9.0]]), types).item() == pytest.approx(
        0, abs=1e-15
    )
    # Two types on one line: the two mixed pairs cost 1 each of 4; reversed edges of one type cost 4 each.
    line = axes[[0, 0]]
    assert angular_loss(line, torch.tensor([0, 1])).item() == pytest.approx(0.5)
    assert angular_loss(line * torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 0])).item() == pytest.approx(
        2.0
    )
    assert angular_loss(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).item() == 0.0
    # Edges of length 0 are no error.
    assert torch.isfinite(angular_loss(torch.zeros(2, 3), torch.tensor([0, 1])))


def test_float32_is_accurate_for_thousands_of_edges() -> None:
    edges, types = random(3000, 32, seed=2), torch.arange(3000) % 7
    exact = angular_loss(edges, types).item()
    assert angular_loss(edges.float(), types).item() == pytest.approx(exact, rel=2e-5)


def test_invariances() -> None:
    z = random(4, BATCH.mask.shape[1], 6)
    rotation = torch.linalg.qr(random(6, 6, seed=5)).Q
    edges, types = random(30, 6, seed=6), torch.arange(30) % 4
    distances, mask = DISTANCES, BATCH.mask

    def structural(points: Tensor) -> float:
        return structural_distance_loss(points, distances, mask).item()

    assert structural(z @ rotation) == pytest.approx(structural(z))
    assert structural(z + random(6, seed=7)) == pytest.approx(structural(z))
    assert structural(2 * z) != pytest.approx(structural(z), rel=0.1)
    value = angular_loss(edges, types).item()
    assert angular_loss(3 * edges @ rotation, types).item() == pytest.approx(value)
    reversed_ = torch.where(torch.arange(30)[:, None] < 5, -edges, edges)
    assert abs(angular_loss(reversed_, types).item() - value) > 1e-4


def test_padding_counts_nowhere() -> None:
    z = random(4, BATCH.mask.shape[1], 6)
    spoiled = torch.where(BATCH.mask[..., None], z, 1e3)
    for loss, target in (
        (structural_distance_loss, DISTANCES),
        (structural_depth_loss, DEPTHS.double()),
    ):
        assert loss(spoiled, target, BATCH.mask).item() == loss(z, target, BATCH.mask).item()


@pytest.mark.parametrize("loss", [structural_distance_loss, structural_depth_loss])
def test_sentences_of_one_word_are_not_averaged_over(loss: Callable[..., Tensor]) -> None:
    target = DEPTHS if loss is structural_depth_loss else DISTANCES
    z, n = random(2, 4, BATCH.mask.shape[1], 6), BATCH.mask.shape[1]
    lone = torch.arange(n) < 1
    mask = torch.cat([BATCH.mask, lone[None], lone[None]])
    wider = torch.cat([z, random(2, 2, n, 6, seed=1)], dim=1)
    targets = torch.cat([target, torch.zeros_like(target[:2])]).double()
    assert torch.allclose(loss(wider, targets, mask), loss(z, target.double(), BATCH.mask), rtol=1e-14)
    only = random(3, n, 6).requires_grad_()
    nothing = loss(only, targets[:3], lone.expand(3, n))
    assert nothing.item() == 0
    assert float(torch.autograd.grad(nothing, only)[0].abs().max()) == 0


def test_root_loss() -> None:
    z = random(2, 3, 4)
    centre = random(4, seed=1)
    expected = ((z[0, 2] - centre).square().mean() + (z[1, 0] - centre).square().mean()) / 2
    assert root_loss(torch.stack([z[0, 2], z[1, 0]]), centre).item() == pytest.approx(expected.item())


def test_gradients() -> None:
    b, n = 2, 4
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    distances = torch.randint(1, 5, (b, n, n)).double()
    x, weight = random(2, b, n, 5), random(2, 5, 3, seed=3).requires_grad_()
    types = torch.tensor([0, 1, 0])

    def total(w: Tensor) -> Tensor:
        z = torch.einsum("pbnd,pdk->pbnk", x, w)
        edges = z[:, [0, 0, 1], [0, 1, 0]] - z[:, [0, 0, 1], [2, 3, 1]]
        return (
            structural_distance_loss(z, distances, mask)
            + structural_depth_loss(z, distances[:, 0], mask)
            + angular_loss(edges, types)
            + root_loss(z[:, [0, 1], [1, 2]], torch.ones(2, 3, dtype=torch.float64))
        )

    assert torch.autograd.gradcheck(total, weight)
